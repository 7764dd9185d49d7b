#include "base/env.h"

#include <pthread.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/byte_size.h"
#include "base/log.h"

namespace tube {
namespace {

constexpr size_t kEnvCount = static_cast<size_t>(Env::kCount);

// In the order of enum Env.
constexpr EnvEntry kEntries[kEnvCount] = {
    {"TUBE_WORKFLOW", "default",
     "The workflow, and so the proxy, that the program joins: letters, digits, `_`, `.` and `-`, "
     "at most 64."},
    {"TUBE_FUNCTION", "the program's file name",
     "The function's name in `tubectl ps` and in messages."},
    {"TUBE_DIR", "$XDG_RUNTIME_DIR/tube, else /run/tube for root, else /tmp/tube-UID",
     "Folder of the proxies' sockets. It must belong to the user and have mode 0700."},
    {"TUBE_BACKEND", "auto",
     "What a proxy that is started runs on: driver, sim (the simulated GPU), or auto, the driver "
     "where a GPU is."},
    {"TUBE_LOG", "warn", "What is said: error, warn, info, debug or trace."},
    {"TUBE_LOG_FILE", "standard error", "File that log lines are appended to."},
    {"TUBE_REAL_DRIVER", "searched in the loader's and the usual folders",
     "Path of the real libcuda.so.1."},
    {"TUBE_REAL_NVML", "searched beside the real driver, then like it",
     "Path of the real libnvidia-ml.so.1."},
    {"TUBE_PREINIT", "0",
     "1: load the real driver on a background thread at program start. Set by `tubectl run`."},
    {"TUBE_OFF", "0",
     "1: Tube's libcuda.so.1 joins no proxy; `tubectl run` leaves the program alone."},
    {"TUBE_SPIN_US", "chosen by the proxy from the number of cores",
     "How long a wait may spin, in microseconds, before it sleeps (for what the GPU writes 128 "
     "times that, 20 ms at most); 0 never spins."},
    {"TUBE_RHYTHM", "1",
     "Whether a proxy, while it has idle cores, watches for the next step of a function that works "
     "in a rhythm, instead of being woken by it; 0: never."},
    {"TUBE_COALESCE_US", "5 with eight or more cores, else 1",
     "How long a proxy holds launches that may become part of a graph, in microseconds; 0 launches "
     "each by itself."},
    {"TUBE_COPY_LANE", "auto",
     "Which copies between host and GPU a proxy sends through its lanes, where they take turns "
     "instead of starving each other: `auto` those that come while another copy of their "
     "direction is under way and those above 16 MiB, `never` none, `always` all."},
    {"TUBE_COPY_PATHS", "0",
     "Over how many GPUs' links a proxy sends a large copy that goes through lanes: 1, never more "
     "than one; 0, as many as pay, which is measured when the proxy starts; a larger number, that "
     "many (8 at most) wherever GPUs are joined by NVLink and can lend their links, whatever was "
     "measured."},
    {"TUBE_LAUNCH_POLICY", "feedback",
     "Whose long kernel or graph runs next where several functions use a GPU (`tubed "
     "--launch-policy`): `feedback` who used it least lately, `fair` equal shares of its time, "
     "`priority` functions with an SLO first, `deadlines` by SLO; `native` holds and measures "
     "nothing."},
    {"TUBE_LAUNCH_HOLD_MS", "100",
     "After how many milliseconds at most a long launch goes out whatever else runs."},
    {"TUBE_LAUNCH_LONG_US", "1000",
     "From how many microseconds on a launch is a long one, which takes its turn; less beside a "
     "function with a tight SLO. 0: every launch, for tests."},
    {"TUBE_SLOW_CALL_US", "off",
     "The proxy's log names every call of the driver that takes at least that many microseconds, "
     "with the thread that made it."},
    {"TUBE_SLICES", "off",
     "Makes the proxy split each GPU at its start for functions that want multiprocessors of their "
     "own (`tubed --slices`), instead of when the first one comes."},
    {"TUBE_AUTO_SLICE_MS", "2000",
     "A function with an SLO that misses it beside others' long kernels gets multiprocessors of "
     "its "
     "own by itself; so many milliseconds after it needed them last it gives them back. 0: it gets "
     "none."},
    {"TUBE_WEIGHT", "100",
     "A proxy's share of a GPU's time among those of all proxies that use it (`tubed --weight`, "
     "`tubectl proxy start --weight`)."},
    {"TUBE_SM_PERCENT", "none",
     "How many percent of a GPU's multiprocessors are this function's alone while it runs. Set by "
     "`tubectl run --sm-percent`."},
    {"TUBE_PRIORITY", "normal",
     "How urgent this function's kernels are beside those of others: `high`, `normal` or `low`. "
     "Set "
     "by `tubectl run --priority`."},
    {"TUBE_SLO_MS", "none",
     "Within how many milliseconds a request of this function must be answered: its copies between "
     "host and GPU come before others' while they are late. Set by `tubectl run --slo-ms`."},
    {"TUBE_INFER_MS", "learnt",
     "How many milliseconds of that a request takes without its copies. Set by `tubectl run "
     "--infer-ms`."},
    {"TUBE_MEMORY", "none",
     "How much memory of each GPU the program may take at most: bytes, or a number followed by K, "
     "M, G or T. It can only lower what the proxy allows each function. Set by `tubectl run "
     "--memory`."},
    {"TUBE_COPY_THREADS", "chosen from the cores that are idle",
     "How many threads of the program copy at once between its pageable memory and shared memory, "
     "for copies of 8 MiB and more, the calling one included, 12 at most; 1: the calling one "
     "alone."},
    {"TUBE_PINNED", "a thirty-second of the memory, 64 MiB to 4 GiB",
     "How many bytes of pinned host memory a proxy may hold ready beside what programs have "
     "allocated (`tubed --pinned`): made ahead of requests, or freed and kept. 0: none."},
    {"TUBE_POOL", "2147483648",
     "How many bytes of each GPU's memory a proxy may hold ready for its functions' next "
     "allocations, at most a twentieth of the GPU's: freed and kept mapped, or made ahead. They "
     "count as free. 0: none, and every allocation asks the proxy."},
    {"TUBE_POOL_POLICY", "keep",
     "How long freed memory is held ready: `keep` until nobody has wanted it for ten seconds, "
     "`demand` as long as its function is expected to want it again soon, `static` until memory is "
     "short."},
    {"TUBE_EVICT_HOST", "half of the memory",
     "How much pinned host memory a proxy may use for GPU memory of functions that wait, when "
     "others need the room: bytes, or a number followed by K, M, G or T. 0: none, and no memory "
     "moves."},
    {"TUBE_EVICT_POLICY", "queue",
     "Whose memory moves first: `queue` of the function whose next turn is furthest away, as far "
     "as is known, `lru` of the one that was at work least recently."},
    {"TUBE_EVICT_IDLE_MS", "0",
     "After how many milliseconds without work a function's memory moves to the host although "
     "nobody needs the room, and waits there for its next work, as long as TUBE_EVICT_HOST has "
     "room for a whole GPU, or the workflow's limit, beside it; 0: never."},
    {"TUBE_STORE_POLICY", "queue",
     "Which objects of the store leave a GPU whose memory is short: `queue` those that are taken "
     "last, as far as is known, `lru` those that were used least recently, `off` none."},
    {"TUBE_STORE_GPU", "what is free",
     "How many bytes of each GPU's memory the store takes before it moves objects elsewhere: "
     "bytes, or a number followed by K, M, G or T."},
    {"TUBE_STORE_SHARE", "none",
     "Which objects of a proxy's store the user's other workflows may have (`tubed "
     "--share-store`): those whose names begin with one of these words, with commas between them; "
     "`all` every one."},
    {"TUBE_STORE_VERIFY", "0",
     "1: a proxy finds who writes to a sealed object of the store (`tubed --verify-shared`)."},
    {"TUBE_MEMORY_WAIT_MS", "2000",
     "How many milliseconds at most an allocation waits for memory of other functions to move "
     "before it is out of memory."},
    {"TUBE_LAZY_BACKING", "1",
     "0: a proxy has the driver make each allocation's memory at once, not before its function's "
     "next work on the GPU."},
    {"TUBE_MEMORY_MODE", "whole",
     "When the GPU has memory behind this function's allocations: `whole`, all of them before its "
     "next work; `lazy`, each before the first work that its address reaches, if `tubectl profile` "
     "has certified the function. Set by `tubectl run --memory-mode`."},
    {"TUBE_CACHE", "$XDG_CACHE_HOME/tube, else ~/.cache/tube",
     "Folder of what proxies keep between runs: which kernels of which image were used, "
     "certificates of `tubectl profile`, and what the pool has learnt of functions. `off` keeps "
     "nothing."},
    {"TUBE_HOOK_LIB", "found beside the tools",
     "Path of Tube's libcuda.so.1 that `tubectl run` preloads."},
    {"TUBE_SIM_LIB", "found beside the tools", "Path of the simulated GPU's libcuda.so.1."},
    {"TUBE_TUBED", "found beside the tools", "Path of the proxy, tubed."},
    {"TUBE_COVERAGE", "none",
     "For Tube's own tests: a file of 4096 bytes in which Tube's libcuda.so.1 marks the calls that "
     "the program makes."},
    {"TUBE_TRACE_START", "none",
     "File to which Tube's libcuda.so.1 appends one JSON line when a program exits: at what times "
     "its start had got how far, and counts."},
    {"TUBE_TRACE_RECORDS", "none",
     "File to which a proxy appends, when a function ends, when it saw and had executed each of "
     "the function's first 131072 records."},
    {"TUBE_SPARES", "2",
     "How many sets of shared memory (14 MiB each) a proxy keeps ready for functions to come; more "
     "while many come at once. 0: none."},
    {"TUBE_SHARE_MODULES", "1",
     "0: a proxy loads each module for each function anew, also those without variables."},
    {"TUBE_DEVICE_HEAP_MIB", "the driver's, 8",
     "How large a proxy makes the heap of malloc in kernels at its start, in MiB. It cannot grow "
     "any "
     "more once kernels of some function have used it: functions that ask for a larger one then "
     "find room in this one. It is GPU memory."},
    {"TUBE_STOPPED_S", "60",
     "After how many seconds a proxy ends (SIGKILL) a function that is stopped by a signal, while "
     "a stream of it waits for a value and keeps another function from loading code or giving back "
     "memory; 0: never."},
    {"TUBE_HANG_TIMEOUT_S", "0",
     "After how many seconds a proxy ends (SIGKILL) a function that runs but sends nothing, while "
     "a "
     "stream of it waits for a value and keeps another function from loading code or giving back "
     "memory (`tubed --hang-timeout`); 0: never."},
    {"TUBE_STALL_S", "10",
     "After how many seconds without progress a proxy's log and `tubectl status` name the thread "
     "of a function, its work on the GPU, or the server's thread; 0: never."},
    {"TUBE_TEARDOWN_MS", "5000",
     "How long the GPU work of a function that is gone may still run, in milliseconds, 5000 at "
     "most; the memory of work that does not end until then stays taken."},
    {"TUBE_COMPILE", "inline",
     "Where a proxy has clients' PTX compiled first (`tubed --compile`): `inline`, in the proxy, "
     "or "
     "`child`, in a process of its own, so that a compiler that crashes or hangs costs that client "
     "alone."},
    {"TUBE_COMPILE_S", "60",
     "How many seconds of a core such a child may take for one image, 1 to 3600; then the image is "
     "refused with CUDA_ERROR_INVALID_PTX."},
};

// Constant-initialised and never destroyed: a program may ask from its exit handlers.
char* values[kEnvCount];
pthread_once_t read_once = PTHREAD_ONCE_INIT;

void read_all() {
  for (size_t i = 0; i < kEnvCount; ++i) {
    // Not what a set-uid program was started with: a file named there would be written as its
    // owner.
    const char* value = ::secure_getenv(kEntries[i].name);
    values[i] = value != nullptr && value[0] != '\0' ? ::strdup(value) : nullptr;
  }
}

}  // namespace

const EnvEntry& env_entry(Env variable) { return kEntries[static_cast<size_t>(variable)]; }

const char* env_text(Env variable) {
  ::pthread_once(&read_once, read_all);
  return values[static_cast<size_t>(variable)];
}

bool env_flag(Env variable, bool unset) {
  const char* value = env_text(variable);
  if (value == nullptr) return unset;
  for (const char* off : {"0", "false", "no", "off"}) {
    if (::strcasecmp(value, off) == 0) return false;
  }
  return true;
}

std::optional<uint64_t> env_number(Env variable) {
  const char* value = env_text(variable);
  if (value == nullptr) return std::nullopt;
  char* end = nullptr;
  const int saved = errno;
  errno = 0;
  const unsigned long long number = std::strtoull(value, &end, 10);
  const bool bad =
      errno != 0 || *end != '\0' || !std::isdigit(static_cast<unsigned char>(value[0]));
  errno = saved;
  if (!bad) return number;
  static Once said[kEnvCount];
  if (said[static_cast<size_t>(variable)].first()) {
    log_warn("%s=%s is not a number, ignored", env_entry(variable).name, value);
  }
  return std::nullopt;
}

std::optional<uint64_t> env_byte_limit(Env variable) {
  const char* value = env_text(variable);
  if (value == nullptr) return std::nullopt;
  const Result<uint64_t> limit = parse_byte_limit(value);
  if (limit.ok()) return *limit;
  static Once said[kEnvCount];
  if (said[static_cast<size_t>(variable)].first())
    log_warn("%s, ignored: %s", env_entry(variable).name, limit.error().message.c_str());
  return std::nullopt;
}

std::string env_manual_section() {
  std::string page = ".SH ENVIRONMENT\n";
  for (const EnvEntry& entry : kEntries) {
    page.append(".TP\n.B ").append(entry.name).append("\n");
    for (const char* p = entry.meaning; *p != '\0'; ++p) {
      if (*p == '-') page.push_back('\\');
      if (*p != '`') page.push_back(*p);
    }
    page.append("\nDefault: ").append(entry.default_text).append(".\n");
  }
  return page;
}

void env_read_again_for_test() {
  ::pthread_once(&read_once, read_all);
  static auto* handed_out =
      new std::vector<char*>;  // still reachable, so no leak to a leak checker
  handed_out->insert(handed_out->end(), values, values + kEnvCount);
  read_all();
}

}  // namespace tube
