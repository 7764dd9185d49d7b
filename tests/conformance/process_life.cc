// Process life: threads, forks, ends, signals.
#include "tests/conformance/life.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>

CASES_HOLD_STREAMS;

extern char** environ;

namespace {

void* current_in_thread(void*) {
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("current context: %s\n", current == nullptr ? "none" : "some");
  return nullptr;
}

void in_thread(void* (*body)(void*), void* argument = nullptr) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, nullptr, body, argument) == 0);
  pthread_join(thread, nullptr);
}

}  // namespace

// ---- start ----

CASE(calls_before_init) {
  int count = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuCtxGetCurrent(&context));
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuCtxSynchronize());
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuInit(1));
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuInit(0));
  SHOW(cuInit(0));
  SHOW(cuInit(7));
}

CASE(init_from_several_threads_at_once) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { good += cuInit(0) == CUDA_SUCCESS; });
  for (std::thread& t : threads) t.join();
  printf("%d of 8 threads initialised\n", good.load());
  compute_with_gpu("main");
}

CASE(thread_created_before_init) {
  std::atomic<int> stage{0};
  CUcontext context = nullptr;
  std::thread early([&] {
    while (stage.load() == 0) std::this_thread::yield();
    CUcontext current = nullptr;
    SHOW(cuCtxGetCurrent(&current));
    printf("current context: %s\n", current == nullptr ? "none" : "some");
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 16));
    SHOW(cuCtxSetCurrent(context));
    compute("early thread");
    SHOW(cuCtxSetCurrent(nullptr));
  });
  Gpu gpu;
  context = gpu.context;
  stage = 1;
  early.join();
  compute("main");
}

CASE(thread_created_after_init_has_no_context) {
  Gpu gpu;
  in_thread(current_in_thread);
  in_thread([](void*) -> void* {
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    CUdevice device = 0;
    SHOW(cuMemAlloc(&memory, 16));
    SHOW(cuEventCreate(&event, 0));
    SHOW(cuCtxGetDevice(&device));
    SHOW(cuStreamSynchronize(nullptr));
    SHOW(cuCtxPopCurrent(nullptr));
    return nullptr;
  });
}

CASE(thread_ends_with_contexts_on_its_stack) {
  Gpu gpu;
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      CU(cuCtxPushCurrent(gpu.context));
      CU(cuCtxPushCurrent(gpu.context));
      DeviceArray<uint32_t> data(std::vector<uint32_t>(16, 5));
      CU(cuMemsetD32Async(data.pointer, 9, 16, CU_STREAM_PER_THREAD));
      CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
  }
  in_thread(current_in_thread);
  compute("main");
}

CASE(thread_local_destructor_may_call) {
  Gpu gpu;
  struct Holder {
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    ~Holder() { printf("freed in a thread's destructor: %s\n", code_name(cuMemFree(memory))); }
  };
  std::thread([&] {
    thread_local Holder holder;
    CU(cuCtxSetCurrent(gpu.context));
    CU(cuMemAlloc(&holder.memory, 4096));
  }).join();
}

// ---- fork, exec and their kin ----

CASE(fork_before_init_works_in_the_child) {
  in_child("child", [] { compute_with_gpu("child"); });
  compute_with_gpu("parent");
}

CASE(fork_before_init_works_in_both_at_once) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte;
    {
      Gpu gpu;
      if (read(ends[0], &byte, 1) != 1) _exit(2);
      DeviceArray<uint32_t> data(std::vector<uint32_t>(16, 5));
      if (data.read()[3] != 5) _exit(3);
    }
    _exit(0);
  }
  Gpu gpu;
  EXPECT(write(ends[1], "x", 1) == 1);
  compute("parent");
  print_end("child", wait_for(pid));
}

CASE(fork_after_init_child_has_no_cuda) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4096));
  in_child("child", [&] {
    int count = 0, version = 0;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr more = 0;
    const char* name = nullptr;
    SHOW(cuInit(0));
    SHOW(cuDeviceGetCount(&count));
    SHOW(cuDeviceGet(&device, 0));
    SHOW(cuCtxGetCurrent(&context));
    SHOW(cuCtxSetCurrent(gpu.context));
    SHOW(cuDevicePrimaryCtxRetain(&context, 0));
    SHOW(cuMemAlloc(&more, 16));
    SHOW(cuMemFree(memory));
    SHOW(cuMemsetD8(memory, 1, 16));
    SHOW(cuStreamSynchronize(nullptr));
    SHOW(cuCtxSynchronize());
    SHOW(cuDriverGetVersion(&version));
    SHOW(cuGetErrorName(CUDA_SUCCESS, &name));
  });
  CU(cuMemFree(memory));
  compute("parent");
}

CASE(fork_after_init_grandchild_has_no_cuda) {
  Gpu gpu;
  in_child("child", [] {
    in_child("grandchild", [] {
      int count = 0;
      SHOW(cuInit(0));
      SHOW(cuDeviceGetCount(&count));
    });
  });
  compute("parent");
}

CASE(forked_child_that_exits_does_no_harm) {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 4));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 5; ++i) {
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) exit(i);  // with all exit handlers
    print_end("child", wait_for(pid));
    CU(cuMemsetD32Async(data.pointer, static_cast<unsigned>(i), 64, stream));
    CU(cuStreamSynchronize(stream));
  }
  printf("still %u\n", data.read()[5]);
  CU(cuStreamDestroy(stream));
}

CASE(forked_child_that_is_killed_does_no_harm) {
  Gpu gpu;
  in_child("child", [] { raise(SIGKILL); });
  in_child("child", [] {
    signal(SIGABRT, SIG_DFL);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
  });
  compute("parent");
}

CASE(fork_and_exec) {
  Gpu gpu;
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", "exit 3", static_cast<char*>(nullptr));
    _exit(127);
  }
  print_end("child", wait_for(pid));
  compute("parent");
}

CASE(vfork_and_exec) {
  Gpu gpu;
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): the case is about it
  const pid_t pid = vfork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", "exit 4", static_cast<char*>(nullptr));
    _exit(127);
  }
  print_end("child", wait_for(pid));
  compute("parent");
}

CASE(posix_spawn_and_system) {
  Gpu gpu;
  char shell[] = "sh", option[] = "-c", text[] = "exit 5";
  char* arguments[] = {shell, option, text, nullptr};
  pid_t pid = 0;
  EXPECT(posix_spawn(&pid, "/bin/sh", nullptr, nullptr, arguments, environ) == 0);
  print_end("spawned", wait_for(pid));
  print_end("system", system("exit 6"));
  compute("parent");
}

CASE(exec_of_itself_starts_anew) {
  // The second life is told apart by the environment.
  if (getenv("CASE_SECOND_LIFE") == nullptr) {
    Gpu gpu;
    DeviceArray<uint32_t> left(std::vector<uint32_t>(1 << 16, 1));
    compute("first life");
    fflush(stdout);
    setenv("CASE_SECOND_LIFE", "1", 1);
    char name[] = "exec_of_itself_starts_anew";
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    EXPECT(n > 0);
    path[n] = 0;
    char* arguments[] = {path, name, nullptr};
    execv(path, arguments);
    EXPECT(false);
  }
  compute_with_gpu("second life");
}

CASE(daemon_before_init) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    const pid_t inner = fork();
    if (inner != 0) _exit(0);
    dup2(ends[1], 1);
    dup2(open("/dev/null", O_RDWR), 0);
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    compute_with_gpu("daemon");
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  print_end("launcher", wait_for(pid));
  char block[256];
  for (ssize_t n; (n = read(ends[0], block, sizeof block)) > 0;) fwrite(block, 1, static_cast<size_t>(n), stdout);
}

CASE(close_all_descriptors_before_init) {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  compute_with_gpu("main");
}

CASE(fork_while_other_threads_launch) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      CU(cuCtxSetCurrent(gpu.context));
      DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
      while (!stop.load()) {
        LAUNCH(step, {1}, {64}, 0, CU_STREAM_PER_THREAD, data.pointer, 3u, 1u, 64);
        CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
      }
    });
  }
  int good = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      int count = 0;
      const bool refused = cuDeviceGetCount(&count) != CUDA_SUCCESS && cuCtxSynchronize() != CUDA_SUCCESS;
      _exit(refused ? 0 : 1);
    }
    const int status = wait_for(pid);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  printf("%d of 20 children were refused\n", good);
  compute("parent");
}

// ---- ends ----
// Each end happens in a child that forked before its first call, with work in flight.

namespace {

template <class End>
void ends(const char* who, End end) {
  in_child(who, [&] {
    auto* gpu = left_behind<Gpu>();
    (void)gpu;
    auto* module = left_behind<Module>("kernels.fatbin");
    auto* data = left_behind<DeviceArray<uint32_t>>(std::vector<uint32_t>(4096, 1));
    for (int i = 0; i < 20; ++i) LAUNCH(module->function("slow_step"), {4}, {256}, 0, nullptr, data->pointer, 3u, 1u, 1024, 50);
    end();
  });
}

}  // namespace

CASE(end_by_exit) {
  ends("exit(5)", [] { exit(5); });
  compute_with_gpu("next");
}
CASE(end_by_underscore_exit) {
  ends("_exit(6)", [] { _exit(6); });
  ends("quick_exit(7)", [] { quick_exit(7); });
  compute_with_gpu("next");
}
CASE(end_by_signal) {
  ends("abort", [] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
  });
  ends("SIGTERM", [] { raise(SIGTERM); });
  ends("SIGKILL", [] { raise(SIGKILL); });
  compute_with_gpu("next");
}
CASE(end_by_exit_of_another_thread_while_one_waits) {
  ends("exit(8)", [] {
    std::thread([] { exit(8); }).detach();
    CUstream stream = nullptr;
    (void)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    for (;;) (void)cuCtxSynchronize();
  });
  compute_with_gpu("next");
}
CASE(end_while_another_thread_waits_for_a_value) {
  in_child("exit(9)", [] {
    auto* gpu = left_behind<Gpu>();
    auto* gate = left_behind<Gate>();
    static CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gate->hold(stream);
    std::atomic<bool> waits{false};
    std::thread waiter([&] {
      CU(cuCtxSetCurrent(gpu->context));
      waits = true;
      (void)cuStreamSynchronize(stream);
    });
    waiter.detach();
    while (!waits.load()) std::this_thread::yield();
    _exit(9);
  });
  compute_with_gpu("next");
}
CASE(end_by_pthread_exit_of_main) {
  in_child("last thread", [] {
    CUcontext context = nullptr;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    static CUcontext shared;
    shared = context;
    static pthread_t first;
    first = pthread_self();
    std::thread([] {
      pthread_join(first, nullptr);
      CU(cuCtxSetCurrent(shared));
      compute("last thread");
      fflush(stdout);
      _exit(0);
    }).detach();
    pthread_exit(nullptr);
  });
}
CASE(exit_handler_may_call) {
  in_child("child", [] {
    static CUdeviceptr memory;
    atexit([] {
      int count = 0;
      const CUresult codes[] = {cuDeviceGetCount(&count), cuMemFree(memory), cuCtxSynchronize()};
      for (CUresult code : codes) printf("%s\n", code == CUDA_SUCCESS || code == CUDA_ERROR_DEINITIALIZED ? "answered" : code_name(code));
      fflush(stdout);
    });
    auto* gpu = left_behind<Gpu>();
    (void)gpu;
    CU(cuMemAlloc(&memory, 4096));
    exit(0);
  });
}

// ---- signals during waits ----

namespace {

std::atomic<uint32_t>* g_gate;
volatile sig_atomic_t g_alarms;
// Lets the stream go on once the wait has been disturbed a few times.
void on_alarm(int) {
  g_alarms = g_alarms + 1;
  if (g_alarms >= 5) *g_gate = 1;
}

template <class Wait>
void disturbed(int flags, Wait wait) {
  Gpu gpu;
  Gate gate;
  g_gate = gate.word;
  g_alarms = 0;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.hold(stream);
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  CU(cuEventRecord(event, stream));
  struct sigaction action {};
  action.sa_handler = on_alarm;
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 3000}, {0, 3000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  wait(stream, event);
  setitimer(ITIMER_REAL, &never, nullptr);
  printf("disturbed: %s, done: %s\n", g_alarms >= 5 ? "yes" : "no", code_name(cuStreamQuery(stream)));
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(stream));
}

}  // namespace

CASE(signals_during_stream_synchronize) {
  disturbed(0, [](CUstream stream, CUevent) { SHOW(cuStreamSynchronize(stream)); });
}
CASE(signals_during_stream_synchronize_with_restart) {
  disturbed(SA_RESTART, [](CUstream stream, CUevent) { SHOW(cuStreamSynchronize(stream)); });
}
CASE(signals_during_event_synchronize) {
  disturbed(0, [](CUstream, CUevent event) { SHOW(cuEventSynchronize(event)); });
}
CASE(signals_during_context_synchronize) {
  disturbed(0, [](CUstream, CUevent) { SHOW(cuCtxSynchronize()); });
}
CASE(signals_during_a_copy_that_waits) {
  disturbed(0, [](CUstream stream, CUevent) {
    DeviceArray<uint32_t> data(1 << 16);
    CU(cuMemsetD32Async(data.pointer, 7, 1 << 16, stream));
    std::vector<uint32_t> host(1 << 16);
    SHOW(cuMemcpyDtoHAsync(host.data(), data.pointer, data.bytes(), stream));
    CU(cuStreamSynchronize(stream));
    printf("copied %u\n", host[1000]);
  });
}
CASE(signals_during_calls_that_answer) {
  Gpu gpu;
  struct sigaction action {};
  action.sa_handler = [](int) { g_alarms = g_alarms + 1; };
  sigaction(SIGALRM, &action, nullptr);
  g_alarms = 0;
  const itimerval often{{0, 200}, {0, 200}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  int good = 0;
  // At least 300 calls, and until the program has been disturbed.
  for (int i = 0; i < 300 || g_alarms < 20; ++i) {
    CUdeviceptr memory = 0;
    const bool worked = cuMemAlloc(&memory, 4096) == CUDA_SUCCESS && cuMemFree(memory) == CUDA_SUCCESS;
    good += worked && i < 300;
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  printf("%d of 300 worked\n", good);
}
CASE(blocked_signals_stay_blocked) {
  sigset_t all, before, after;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  compute_with_gpu("main");
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  int changed = 0;
  for (int number = 1; number < NSIG; ++number) changed += sigismember(&before, number) != sigismember(&after, number);
  printf("%d signals changed\n", changed);
}
CASE(signal_handlers_are_the_programs) {
  const int signals[] = {SIGSEGV, SIGBUS, SIGPIPE, SIGCHLD, SIGALRM, SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
  const auto handler_of = [](int number) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    return now.sa_sigaction;  // one field with sa_handler
  };
  decltype(handler_of(0)) before[std::size(signals)];
  std::ranges::transform(signals, before, handler_of);
  Gpu gpu;
  compute("main");
  int ours = 0;
  for (size_t i = 0; i < std::size(signals); ++i) ours += handler_of(signals[i]) == before[i];
  printf("%d of %zu handlers untouched\n", ours, sizeof signals / sizeof *signals);
}
