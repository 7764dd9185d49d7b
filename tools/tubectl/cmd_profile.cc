// tubectl profile: runs a program in a proxy of its own in which memory is backed by address only,
// and certifies it when no address was missed (docs/memory.md, "By address").
//
// The proxy is of a workflow of its own and ends with this command. It writes into a folder what
// each function has loaded and allocated, and what faulted; all files of both are removed again.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "base/cache_dir.h"
#include "base/env.h"
#include "base/runtime_dir.h"
#include "base/unique_fd.h"
#include "tools/tubectl/control_client.h"
#include "tools/tubectl/detach.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/launcher.h"
#include "tools/tubectl/program.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr int kEndTimeoutMs = 60'000, kAgainMs = 500;
constexpr size_t kMostFileBytes = 8u << 20;

struct ProfileOptions {
  ProxyOptions proxy;
  std::string function;
  bool json = false;
  std::vector<std::string> program;
};

// What one function of the program has come to.
struct Verdict {
  std::string function;
  std::string refused;  // why; empty: certified
  std::string path;     // of the certificate
  Json run = Json::object(), fault;
};

int cannot_profile(const std::string& message) {
  fmt::print(stderr, "tubectl: profile: {}\n", message);
  return kExitRunFailed;
}

volatile sig_atomic_t running = 0;  // the program
volatile sig_atomic_t told = 0;     // the signal that ended this command

void pass_on(int signal_number) {
  told = signal_number;
  if (running > 0) kill(running, signal_number);
}

// What ends this command ends the program, and then the proxy. A terminal's signals reach the
// program by themselves.
void mind_signals() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  for (const int number : {SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  action.sa_handler = SIG_IGN;
  for (const int number : {SIGINT, SIGQUIT}) sigaction(number, &action, nullptr);
}

// Its exit status as waitpid() says it. `stays`: open in the program and its children.
int run_program(const ProfileOptions& options, const std::string& hook_lib, int stays) {
  if (told != 0) return told;
  const pid_t child = fork();
  if (child == 0) {
    (void)fcntl(stays, F_SETFD, 0);
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
    put_hook_under({options.proxy.workflow, options.function, hook_lib});
    std::vector<std::string> words = options.program;
    _exit(become(words));
  }
  running = child;
  if (told != 0 && child > 0) kill(child, told);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running = 0;
  return child < 0 ? -1 : status;
}

// A proxy that starts anew, because a kernel faulted, may not hear the first request.
void end_profiling_proxy(const std::string& workflow, pid_t pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd waiting{process.get(), POLLIN, 0};
  for (int waited_ms = 0; process.valid() && waited_ms < kEndTimeoutMs; waited_ms += kAgainMs) {
    (void)ask(workflow, "stop");
    if (poll(&waiting, 1, kAgainMs) > 0) return;
  }
}

void remove_files(const std::string& profile) {
  std::error_code ignored;
  std::filesystem::remove_all(profile, ignored);
  for (const char* ending : {".log", ".lock", ".owner"})
    std::filesystem::remove(profile + ending, ignored);
}

// Its lock is held from before it serves.
bool proxy_lives(const std::string& profile) {
  const UniqueFd owner(open((profile + ".owner").c_str(), O_RDONLY | O_CLOEXEC));
  return owner.valid() && flock(owner.get(), LOCK_SH | LOCK_NB) != 0;
}

// A process that ends the proxy in place of this one, when that is killed and its program has
// ended: then nobody has the other end any more, into which this command writes when all is done.
class Successor {
 public:
  explicit Successor(const ProfileOptions& options) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    const UniqueFd hears(ends[0]);
    // Beyond the numbers that a program's files have.
    constexpr int kLeastNumber = 200;
    const UniqueFd low(ends[1]);
    const int high = fcntl(low.get(), F_DUPFD_CLOEXEC, kLeastNumber);
    says_.reset(high >= 0 ? high : fcntl(low.get(), F_DUPFD_CLOEXEC, 0));
    child_ = fork();
    if (child_ == 0) succeed(options, hears.get(), low.get());
  }
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;
  ~Successor() {
    if (child_ > 0 && send(says_.get(), "D", 1, MSG_NOSIGNAL) == 1)
      (void)waitpid(child_, nullptr, 0);
  }
  int stays() const { return says_.get(); }

 private:
  [[noreturn]] void succeed(const ProfileOptions& options, int hears, int low) {
    (void)setsid();  // what a terminal or a group is sent is not for it
    for (const int number : {SIGTERM, SIGHUP}) signal(number, SIG_IGN);
    close(low);
    says_.reset();
    const int null_fd = open("/dev/null", O_RDWR);
    for (const int standard : {0, 1, 2}) dup2(null_fd, standard);
    char done = 0;
    ssize_t got = 0;
    while ((got = read(hears, &done, 1)) < 0 && errno == EINTR) {
    }
    if (got != 0) _exit(0);
    for (int waited_ms = 0; proxy_lives(options.proxy.profile) && waited_ms < kEndTimeoutMs;
         waited_ms += kAgainMs) {
      const Answer answer = ask(options.proxy.workflow, "ping");
      if (answer.reach == Reach::kNotRunning) poll(nullptr, 0, kAgainMs);
      else end_profiling_proxy(options.proxy.workflow, answer.pid);
    }
    remove_files(options.proxy.profile);
    _exit(0);
  }

  UniqueFd says_;
  pid_t child_ = -1;
};

std::string exit_text(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("the program was ended by signal {} (SIG{})", WTERMSIG(status),
                       sigabbrev_np(WTERMSIG(status)));
  return fmt::format("the program failed with exit code {}", WEXITSTATUS(status));
}

// As a shell tells it.
int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string quoted(const Json& kernels) {
  std::string text;
  for (const Json& kernel : kernels)
    text += (text.empty() ? "kernel `" : "` or `") + kernel.get<std::string>();
  return text.empty() ? "a kernel that is not known" : text + "`";
}

// Of an address that a kernel reached.
std::string place_text(uint64_t address, uint64_t base) {
  if (address == base) return "the start of";
  return address < base ? fmt::format("{} bytes before", base - address)
                        : fmt::format("{} bytes into", address - base);
}

std::string fault_text(const Json& fault) {
  std::string text = quoted(fault.value("kernels", Json::array()));
  const Json missed = fault.value("missed", Json::array());
  const Json waiting = fault.value("waiting", Json::array());
  if (!missed.empty()) {
    const Json& first = missed.back();
    const uint64_t address = number(first, "address");
    text += fmt::format(" reached 0x{:x}, {} an allocation of {}", address,
                        place_text(address, number(first, "allocation")),
                        human_bytes(number(first, "bytes")));
    return text + ", by an address that is not found before the work begins";
  }
  text += fmt::format(" ended the context ({})", tube::ctl::text(fault, "error"));
  if (waiting.empty()) return text + ", while all allocations were backed: it faults natively, too";
  text += "; one of these allocations may be the reason:";
  for (const Json& each : waiting)
    text +=
        fmt::format(" 0x{:x} ({})", number(each, "allocation"), human_bytes(number(each, "bytes")));
  return text;
}

void judge(Verdict& verdict, int status) {
  const Json& run = verdict.run;
  if (!verdict.fault.is_null()) verdict.refused = fault_text(verdict.fault);
  else if (status != 0) verdict.refused = exit_text(status);
  else if (!run.value("watched", false))
    verdict.refused = "its memory was not backed by address (TUBE_LAZY_BACKING=0)";
  else if (!run.value("whole", false)) verdict.refused = "it did not come to its end";
  else if (const Json unsure = run.value("unsure", Json::array()); !unsure.empty())
    verdict.refused = fmt::format(
        "{} ran on while an allocation was to be backed, and may have reached it before",
        quoted(unsure));
  else if (const uint64_t count = number(run, "not_tried"); count != 0)
    verdict.refused = fmt::format(
        "{} allocations were backed at once: the GPU needs more free memory for a profile", count);
  else if (run.value("faulted", false)) verdict.refused = "its context died";
  else if (!run.value("fits", false)) verdict.refused = "it loads or allocates too often";
}

// An earlier certificate is wrong, whatever it says: an address may be missed.
bool missed(const Verdict& verdict) {
  return !verdict.fault.is_null() || !verdict.run.value("unsure", Json::array()).empty();
}

void keep_certificate(Verdict& verdict) {
  verdict.path = certificate_path(verdict.function);
  if (verdict.path.empty()) {
    verdict.refused = "there is no folder for its certificate; set TUBE_CACHE";
    return;
  }
  const Status status = write_kept_file(verdict.path, verdict.run["certificate"].dump() + "\n");
  if (!status.ok()) verdict.refused = status.error().message;
}

std::vector<Json> read_folder(const std::string& folder, const std::string& kind) {
  std::vector<Json> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(kind + "-")) continue;
    const auto text = read_kept_file(entry.path().string(), kMostFileBytes);
    Json body = text.ok() ? Json::parse(*text, nullptr, false) : Json();
    if (body.is_object()) found.push_back(std::move(body));
  }
  return found;
}

std::vector<Verdict> verdicts(const std::string& folder, int status) {
  std::map<std::string, Verdict> by_name;
  std::map<std::string, int> times;
  for (Json& run : read_folder(folder, "run")) {
    if (!run.value("used", false)) continue;
    const std::string name = text(run, "function");
    ++times[name];
    by_name[name].run = std::move(run);
  }
  for (Json& fault : read_folder(folder, "fault")) {
    const std::string name = text(fault, "function");
    by_name[name].fault = std::move(fault);
  }
  std::vector<Verdict> all;
  std::error_code ignored;
  for (auto& [name, verdict] : by_name) {
    verdict.function = name;
    judge(verdict, status);
    if (verdict.refused.empty() && times[name] > 1)
      verdict.refused = "several processes have this name; give each its own (TUBE_FUNCTION)";
    if (verdict.refused.empty()) keep_certificate(verdict);
    else if (missed(verdict)) std::filesystem::remove(certificate_path(name), ignored);
    all.push_back(std::move(verdict));
  }
  return all;
}

void print_verdict(const Verdict& verdict) {
  if (!verdict.refused.empty()) {
    fmt::print("`{}` is not certified: {}\n", verdict.function, verdict.refused);
    return;
  }
  const Json certificate = verdict.run.value("certificate", Json::object());
  fmt::print("`{}` is certified: {} images, {} allocations, {} of them never reached; {}\n",
             verdict.function, certificate.value("images", Json::array()).size(),
             certificate.value("allocations", Json::array()).size(),
             human_bytes(number(verdict.run, "untouched_bytes")), verdict.path);
}

int report_profile(const ProfileOptions& options, const std::vector<Verdict>& all, int status) {
  bool certified = !all.empty();
  Json list = Json::array();
  for (const Verdict& verdict : all) {
    certified = certified && verdict.refused.empty();
    if (!options.json) print_verdict(verdict);
    Json entry = {{"function", verdict.function},
                  {"certified", verdict.refused.empty()},
                  {"untouched_bytes", number(verdict.run, "untouched_bytes")},
                  {"by_address", verdict.run.value("by_address", false)}};
    if (verdict.refused.empty()) entry["certificate"] = verdict.path;
    else entry["why"] = verdict.refused;
    if (!verdict.fault.is_null()) entry["fault"] = verdict.fault;
    list.push_back(std::move(entry));
  }
  if (options.json)
    fmt::print(
        "{}\n",
        Json{{"ok", certified}, {"exit_status", exit_code(status)}, {"functions", list}}.dump(2));
  else if (all.empty())
    fmt::print("nothing is certified: {}\n",
               status != 0 ? exit_text(status) : "the program did nothing on a GPU through Tube");
  return certified ? kExitOk : kExitProblem;
}

// The proxy's life, and the program in it. Its exit status.
Result<int> run_profiled(ProfileOptions& options, const Layout& layout,
                         const std::string& hook_lib) {
  const Successor successor(options);
  const Result<Started> proxy = ensure_proxy(options.proxy, layout);
  if (!proxy.ok()) return proxy.error();
  const int status = run_program(options, hook_lib, successor.stays());
  end_profiling_proxy(options.proxy.workflow, proxy->pid);
  return status;
}

int profile_program(ProfileOptions& options) {
  if (options.program.empty()) {
    fmt::print(stderr, "tubectl: profile: no program given; try: tubectl profile -- ./program\n");
    return kExitUsage;
  }
  if (env_flag(Env::kOff))
    return cannot_profile("TUBE_OFF is set: the program would run without Tube");
  const Layout layout = find_layout();
  if (layout.hook_lib.empty())
    return cannot_profile(
        "the hook (libcuda.so.1) was not found beside tubectl; point at it with TUBE_HOOK_LIB");
  const Result<std::string> hook_lib = preload_path(layout.hook_lib);
  if (!hook_lib.ok()) return cannot_profile(hook_lib.error().message);
  const Result<std::string> folder = make_runtime_dir();
  if (!folder.ok()) return cannot_profile(folder.error().message);
  options.proxy.workflow = fmt::format("profile-{}", getpid());
  options.proxy.profile = fmt::format("{}/{}", *folder, options.proxy.workflow);
  mind_signals();
  if (mkdir(options.proxy.profile.c_str(), 0700) != 0)
    return cannot_profile(fmt::format("{}: {}", options.proxy.profile, strerror(errno)));
  const Result<int> status = run_profiled(options, layout, *hook_lib);
  if (!status.ok()) return cannot_profile(status.error().message);
  const std::vector<Verdict> all = verdicts(options.proxy.profile, *status);
  remove_files(options.proxy.profile);
  return report_profile(options, all, *status);
}

}  // namespace

void add_profile(Verb& root) {
  auto options = std::make_shared<ProfileOptions>();
  Verb verb = root.verb(
      "profile", "find out whether a program's memory can be backed by address, and certify it");
  verb.takes_program()
      .text("-f,--function", options->function, "NAME",
            "the name that the certificate is for (default: the program's file name)")
      .gpus(options->proxy.gpus, "GPUs that it runs on, e.g. 0,1")
      .backend(options->proxy.backend, "auto, driver or sim ($TUBE_BACKEND, else auto)")
      .json(options->json)
      .footer(
          "The program runs in a proxy of its own, in which nothing is behind an allocation before "
          "work that its address reaches. When it ends with 0 and no kernel has faulted, a file in "
          "$TUBE_CACHE (else ~/.cache/tube) certifies what it loaded and allocated, for `tubectl "
          "run "
          "--memory-mode lazy`. Else it is said which kernel reached what.\n\n"
          "Exit code 0 when it is certified, 1 when it is not.\n\n"
          "Examples:\n  tubectl profile -- python detect.py\n  tubectl profile -f detect --json -- "
          "python detect.py --batch 8")
      .action([options, verb] {
        options->program = verb.program();
        return profile_program(*options);
      });
}

}  // namespace tube::ctl
