#include "proxy/code/image_trials.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/image_scan.h"
#include "proxy/code/jit_options.h"
#include "sharedmem/segment.h"

extern char** environ;

namespace tube::proxy {
namespace {

constexpr int kTrialFd = 3;
constexpr int kCameBack = 0, kCouldNotTry = 3;  // exit statuses; any other is the compiler's own
constexpr size_t kMostVerdicts = 4096;
constexpr size_t kMostHeld = 64;
constexpr uint64_t kMostHeldBytes = 1u << 20;     // of each
constexpr rlim_t kChildBytes = rlim_t{16} << 30;  // beyond what the child begins with
constexpr int kLookMs = 50;                       // between looks whether anybody waits

// The file's beginning; then options, values, inputs, names and the image, in this order.
struct Head {
  int32_t ordinal;
  uint32_t options, inputs, names_bytes;
  uint32_t links;
  uint32_t seconds;
  uint64_t image_bytes;
};

struct Verdict {
  std::weak_ptr<const Image> image;
  CUresult result;
};

TrialOptions g_options;
std::atomic<bool> g_on{false};
std::mutex g_mutex;  // leaf: the verdicts
std::map<std::pair<const Image*, std::string>, Verdict>& verdicts() {
  static auto& all = *new std::map<std::pair<const Image*, std::string>, Verdict>;
  return all;
}

template <class T>
void append(std::string& bytes, std::span<const T> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// What is asked beside the image.
std::string question(const Trial& trial) {
  const Head head{trial.ordinal,
                  static_cast<uint32_t>(trial.jit_options.size()),
                  static_cast<uint32_t>(trial.inputs.size()),
                  static_cast<uint32_t>(trial.names.size()),
                  trial.links,
                  g_options.seconds,
                  trial.image->size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  append(bytes, trial.jit_options);
  append(bytes, trial.jit_values);
  append(bytes, trial.inputs);
  append(bytes, trial.names);
  return bytes;
}

// Whether the driver would compile. A linker takes whatever it is given.
bool compiles(const Trial& trial) {
  if (trial.links) return true;
  const std::span image(trial.image->data(), trial.image->size());
  if (!g_options.takes_no_code && !select_code(image, trial.capability, Form::kMachineCode).empty())
    return false;
  return !select_code(image, trial.capability, Form::kPtx).empty();
}

Result<pid_t> start_child(int fd) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&files, fd, kTrialFd);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string driver = g_options.driver, number = std::to_string(kTrialFd);
  char program[] = "tubed", option[] = "--try-image", driver_option[] = "--driver";
  char* const argv[] = {program, option, number.data(), driver_option, driver.data(), nullptr};
  pid_t child = 0;
  // Shares the proxy's memory until it executes: what is pinned is not copied.
  const int error = posix_spawn(&child, "/proc/self/exe", &files, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return errno_error(error, "a child to compile in");
  return child;
}

// The wait status of the child; -1: it passed its time, or nobody waits.
int wait_for(pid_t child, const std::function<bool()>& gone) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const uint64_t end = now_ns() + uint64_t{g_options.seconds} * 2 * 1'000'000'000;
  bool late = false;
  for (pollfd ends{process.get(), POLLIN, 0};;) {
    const int got = poll(&ends, process.valid() ? 1 : 0, kLookMs);
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return late ? -1 : status;
    if (got > 0 && ended < 0) return -1;
    if (!late && (now_ns() > end || gone())) {
      late = true;
      kill(child, SIGKILL);
    }
  }
}

CUresult verdict_of(int status, const std::string& who, bool nobody_waits) {
  const bool exited = status != -1 && WIFEXITED(status);
  if (exited && WEXITSTATUS(status) == kCameBack) return CUDA_SUCCESS;
  if (exited && WEXITSTATUS(status) == kCouldNotTry) {
    static Once said;
    if (said.first())
      log_warn("PTX is compiled in the proxy, untried: a child could make no context for it");
    return CUDA_SUCCESS;
  }
  if (nobody_waits) return CUDA_ERROR_INVALID_PTX;
  if (exited)
    log_error(
        "%s: the compiler ended on PTX (exit status %d), in a child of the proxy: it is refused",
        who.c_str(), WEXITSTATUS(status));
  else if (status != -1 && WTERMSIG(status) != SIGXCPU && WTERMSIG(status) != SIGKILL)
    log_error("%s: the compiler crashed on PTX (SIG%s), in a child of the proxy: it is refused",
              who.c_str(), sigabbrev_np(WTERMSIG(status)));
  else
    log_error(
        "%s: the compiler came to no end with PTX (%u s, 16 GiB), in a child of the proxy: it "
        "is refused",
        who.c_str(), g_options.seconds);
  return CUDA_ERROR_INVALID_PTX;
}

// Nobody else holds an image that was refused: the last ones are, so that they are known again.
void hold(const std::shared_ptr<const Image>& refused) {
  static auto& held = *new std::deque<std::shared_ptr<const Image>>;
  if (refused->size() > kMostHeldBytes) return;
  held.push_back(refused);
  if (held.size() > kMostHeld) held.pop_front();
}

void remember(const Trial& trial, std::string asked, CUresult result) {
  std::lock_guard lock(g_mutex);
  if (result != CUDA_SUCCESS) hold(trial.image);
  if (verdicts().size() >= kMostVerdicts)
    std::erase_if(verdicts(), [](const auto& entry) { return entry.second.image.expired(); });
  if (verdicts().size() >= kMostVerdicts) verdicts().clear();
  verdicts().insert_or_assign({trial.image.get(), std::move(asked)}, Verdict{trial.image, result});
}

}  // namespace

void use_image_trials(TrialOptions options) {
  g_options = std::move(options);
  g_on.store(true);
}

CUresult try_image(const Trial& trial, const std::string& who, const std::function<bool()>& gone) {
  if (!g_on.load(std::memory_order_relaxed) || !compiles(trial)) return CUDA_SUCCESS;
  std::string asked = question(trial);
  {
    std::lock_guard lock(g_mutex);
    const auto known = verdicts().find({trial.image.get(), asked});
    if (known != verdicts().end() && known->second.image.lock() == trial.image)
      return known->second.result;
  }
  std::string file = asked;
  file.append(reinterpret_cast<const char*>(trial.image->data()), trial.image->size());
  Result<UniqueFd> sealed = shared::create_constant_file("tube-trial", file.data(), file.size());
  if (!sealed.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  const Result<pid_t> child = start_child(sealed->get());
  if (!child.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  const int status = wait_for(*child, gone);
  const bool nobody_waits = gone();
  const CUresult result = verdict_of(status, who, nobody_waits);
  if (!nobody_waits) remember(trial, std::move(asked), result);
  return result;
}

namespace {

uint64_t data_bytes() {
  unsigned long long pages = 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen("/proc/self/statm", "re"), fclose);
  if (file == nullptr || fscanf(file.get(), "%*u %*u %*u %*u %*u %llu", &pages) != 1) return 0;
  return pages * static_cast<uint64_t>(getpagesize());
}

// Ends with the proxy, before it when memory runs out, and within its limits.
void limit_myself(uint32_t seconds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const auto limit = [](__rlimit_resource what, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(what, &both);
  };
  limit(RLIMIT_CPU, seconds);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_DATA, data_bytes() + kChildBytes);
  const UniqueFd score(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (score.valid()) (void)!write(score.get(), "1000", 4);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // all of it is compiled now
}

// The next `count` values of the file.
template <class T>
std::span<const T> take(const std::byte*& at, size_t count) {
  const std::span<const T> values(reinterpret_cast<const T*>(at), count);
  at += values.size_bytes();
  return values;
}

void link_it(const Driver& driver, std::span<const wire::LinkInput> inputs,
             std::span<const std::byte> names, const std::byte* image, uint64_t bytes,
             JitOptions& jit) {
  CUlinkState link = nullptr;
  if (driver.cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link) != CUDA_SUCCESS)
    return;
  size_t name_at = 0;
  for (const wire::LinkInput& input : inputs) {
    if (input.type >= CU_JIT_NUM_INPUT_TYPES || input.offset > bytes ||
        input.size_bytes > bytes - input.offset || input.name_bytes > names.size() - name_at)
      return;
    const std::string name(reinterpret_cast<const char*>(names.data()) + name_at, input.name_bytes);
    name_at += input.name_bytes;
    std::string piece(reinterpret_cast<const char*>(image) + input.offset, input.size_bytes);
    if (driver.cuLinkAddData_v2(link, static_cast<CUjitInputType>(input.type), piece.data(),
                                piece.size(), name.c_str(), 0, nullptr, nullptr) != CUDA_SUCCESS)
      return;
  }
  void* linked = nullptr;
  size_t linked_bytes = 0;
  (void)driver.cuLinkComplete(link, &linked, &linked_bytes);
}

bool make_context(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  return driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
         driver.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
         driver.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

}  // namespace

int run_trial(int fd, const std::string& driver_path) {
  const off_t bytes = lseek(fd, 0, SEEK_END);
  if (bytes < static_cast<off_t>(sizeof(Head))) return kCouldNotTry;
  const Result<Mapping> file = Mapping::map(fd, 0, static_cast<uint64_t>(bytes), PROT_READ);
  if (!file.ok()) return kCouldNotTry;
  const std::byte* at = file->data();
  const Head head = take<Head>(at, 1)[0];
  limit_myself(head.seconds);
  Driver driver;
  std::string why;
  if (!driver.load(driver_path.c_str(), &why) || !make_context(driver, head.ordinal))
    return kCouldNotTry;
  // Copies: nothing in the file is aligned.
  const std::string rest(reinterpret_cast<const char*>(at),
                         static_cast<size_t>(file->data() + bytes - at));
  at = reinterpret_cast<const std::byte*>(rest.data());
  std::vector<uint32_t> options(head.options);
  std::vector<uint64_t> values(head.options);
  std::vector<wire::LinkInput> inputs(head.inputs);
  const auto copy = [&at](auto& to) {
    const size_t size = to.size() * sizeof(to[0]);
    if (size != 0) std::memcpy(to.data(), at, size);
    at += size;
  };
  copy(options);
  copy(values);
  copy(inputs);
  const auto names = take<std::byte>(at, head.names_bytes);
  JitOptions jit;
  if (jit.build(options, values, 1024, 1024) != CUDA_SUCCESS) return kCameBack;
  CUmodule module = nullptr;
  if (head.links != 0) link_it(driver, inputs, names, at, head.image_bytes, jit);
  else (void)driver.cuModuleLoadDataEx(&module, at, jit.count(), jit.options(), jit.values());
  return kCameBack;
}

}  // namespace tube::proxy
