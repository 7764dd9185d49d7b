#include "proxy/common/crash_trace.h"

#ifdef TUBE_HAS_UNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <string>
#include <type_traits>

// Of the C++ runtime: a demangler that allocates nothing.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*put)(const char*, size_t, void*), void* to);

namespace tube::proxy {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr int kMostFrames = 64;
constexpr unsigned kPatienceSeconds = 5;
std::atomic<bool> g_crashed{false};

// Of libunwind; null: it is not here.
decltype(&unw_init_local2) g_init = nullptr;
decltype(&unw_step) g_step = nullptr;
decltype(&unw_get_reg) g_get_reg = nullptr;
decltype(&unw_get_proc_name) g_get_name = nullptr;

void* load_beside(const char* name) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return nullptr;
  std::string folder(path, static_cast<size_t>(length));
  folder.resize(folder.rfind('/'));
  return dlopen((folder + "/../lib/tube/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

#define TUBE_QUOTED(name) #name
#define TUBE_NAME_OF(name) TUBE_QUOTED(name)

void load_libunwind() {
  (void)load_beside("liblzma.so.5");  // which the other one needs
  void* library = load_beside("libunwind.so.8");
  if (library == nullptr) library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!find(g_step, TUBE_NAME_OF(unw_step)) || !find(g_get_reg, TUBE_NAME_OF(unw_get_reg)) ||
      !find(g_get_name, TUBE_NAME_OF(unw_get_proc_name)))
    return;
  find(g_init, TUBE_NAME_OF(unw_init_local2));
}

// One line, made without a heap.
class Line {
 public:
  Line& text(const char* text) { return bytes(text, std::strlen(text)); }
  Line& bytes(const char* from, size_t count) {
    if (count > sizeof(line_) - 1 - size_) count = sizeof(line_) - 1 - size_;
    std::memcpy(line_ + size_, from, count);
    size_ += count;
    return *this;
  }
  Line& hex(uint64_t value) {
    char digits[19];
    int at = sizeof(digits);
    do digits[--at] = "0123456789abcdef"[value & 15];
    while ((value >>= 4) != 0);
    digits[--at] = 'x';
    digits[--at] = '0';
    return bytes(digits + at, sizeof(digits) - static_cast<size_t>(at));
  }
  Line& decimal(uint64_t value) {
    char digits[20];
    int at = sizeof(digits);
    do digits[--at] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    return bytes(digits + at, sizeof(digits) - static_cast<size_t>(at));
  }
  ~Line() {
    line_[size_++] = '\n';
    (void)!::write(STDERR_FILENO, line_, size_);
  }

 private:
  char line_[512];
  size_t size_ = 0;
};

void put_name(Line& line, const char* mangled) {
  const auto put = [](const char* text, size_t bytes, void* to) {
    static_cast<Line*>(to)->bytes(text, bytes);
  };
  if (__gcclibcxx_demangle_callback(mangled, put, &line) != 0) line.text(mangled);
}

void put_place(Line& line, uint64_t address) {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(address), &where) != 0 && where.dli_fname != nullptr) {
    const char* slash = std::strrchr(where.dli_fname, '/');
    line.text("(").text(slash != nullptr ? slash + 1 : where.dli_fname).text(" + ");
    line.hex(address - reinterpret_cast<uint64_t>(where.dli_fbase)).text(")");
  } else {
    line.text("(").hex(address).text(")");
  }
}

void put_frame(int number, unw_cursor_t& cursor) {
  unw_word_t address = 0, offset = 0;
  g_get_reg(&cursor, UNW_REG_IP, &address);
  char name[256];
  Line line;
  line.text("tube: error:   #").decimal(static_cast<uint64_t>(number)).text(" ");
  if (g_get_name(&cursor, name, sizeof(name), &offset) == 0) {
    put_name(line, name);
    line.text(" + ").hex(offset).text(" ");
  }
  put_place(line, address);
}

// Where it was, without libunwind.
void put_only_place(const void* context) {
  const auto* at = static_cast<const ucontext_t*>(context);
  Line line;
  line.text("tube: error:   #0 ");
  put_place(line, static_cast<uint64_t>(at->uc_mcontext.gregs[REG_RIP]));
}

void put_head(int number, const siginfo_t* info) {
  char thread[16] = "";
  prctl(PR_GET_NAME, thread);
  Line line;
  line.text("tube: error: tubed (pid ").decimal(static_cast<uint64_t>(getpid()));
  line.text(") crashes in thread `").text(thread).text("`: SIG").text(sigabbrev_np(number));
  if (info->si_code <= 0)
    line.text(" sent by process ").decimal(static_cast<uint64_t>(info->si_pid));
  else line.text(" at address ").hex(reinterpret_cast<uint64_t>(info->si_addr));
  line.text("; its functions' calls end with an error. Where it was:");
}

void on_crash(int number, siginfo_t* info, void* context) {
  if (g_crashed.exchange(true))
    for (;;) pause();  // another thread is at it, and ends all of them
  signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(kPatienceSeconds);
  put_head(number, info);
  unw_cursor_t cursor;
  auto* where = static_cast<unw_context_t*>(context);
  if (g_init == nullptr || g_init(&cursor, where, UNW_INIT_SIGNAL_FRAME) != 0) {
    put_only_place(context);
  } else {
    int frame = 0;
    do put_frame(frame, cursor);
    while (++frame < kMostFrames && g_step(&cursor) > 0);
  }
  // It is pending until this handler returns; a fault would come again by itself, this one comes
  // also when somebody sent it.
  signal(number, SIG_DFL);
  syscall(SYS_tgkill, getpid(), gettid(), number);
}

}  // namespace

void trace_crashes() {
  load_libunwind();
  static char second_stack[64 << 10];
  stack_t stack{};
  stack.ss_sp = second_stack;
  stack.ss_size = sizeof(second_stack);
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

}  // namespace tube::proxy

#else

namespace tube::proxy {

void trace_crashes() {}

}  // namespace tube::proxy

#endif
