// A driver-API program that treats its descriptors, its children and its loader badly, one scene
// per argument; life_test.py and descriptors_test.py say what must come of it. It knows nothing of
// Tube.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

void compute(const char* who) {
  Module module("kernels.ptx");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  LAUNCH(module.function("step"), {1}, {64}, 0, nullptr, data.pointer, 3u, 1u, 64);
  const std::vector<uint32_t> got = data.read();
  printf("%s computes %u %u\n", who, got[0], got[63]);
  fflush(stdout);
}

// Everything that waits or answers, long enough that a wait looks whether the other side lives.
void use(CUfunction step, CUfunction slow, const char* who) {
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1 << 20, 7));
  LAUNCH(step, {4096}, {256}, 0, nullptr, data.pointer, 3u, 1u, 1 << 20);
  printf("%s: copied %u\n", who, data.read()[1 << 19]);
  LAUNCH(slow, {4}, {256}, 0, nullptr, data.pointer, 3u, 1u, 1024, 20000);
  printf("%s: synchronised %s\n", who, code_name(cuCtxSynchronize()));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemsetD32Async(data.pointer, 5, 16, stream));
  CU(cuStreamSynchronize(stream));
  CU(cuStreamDestroy(stream));
  printf("%s: set %u\n", who, data.read()[3]);
  fflush(stdout);
}

// ---- descriptors ----

void close_everything() { EXPECT(syscall(SYS_close_range, 3u, ~0u, 0u) == 0); }

void take_all_numbers() {
  for (int i = 0; i < 200; ++i) EXPECT(open("/dev/zero", O_RDWR) >= 0);
}

std::vector<int> sockets() {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[64] = {};
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0 &&
        strncmp(target, "socket:", 7) == 0)
      found.push_back(atoi(entry->d_name));
  }
  closedir(folder);
  return found;
}

// `stops`: without them it stops, until somebody lets it go on.
void without_descriptors(const char* scene, bool stops) {
  Gpu gpu;
  Module module("kernels.ptx");
  CUfunction step = module.function("step"), slow = module.function("slow_step");
  use(step, slow, "before");
  const std::string what = scene;
  if (what == "close_all" || what == "close_and_reuse") close_everything();
  if (what == "close_and_reuse") take_all_numbers();
  if (what == "dup2_over_sockets") {
    const int other = open("/dev/zero", O_RDWR);
    for (int fd : sockets()) EXPECT(dup2(other, fd) == fd);
  }
  if (stops) EXPECT(raise(SIGSTOP) == 0);
  use(step, slow, "after");
  // A forked child must not close what the program now has at our number.
  const pid_t pid = fork();
  if (pid == 0) {
    int open_files = 0;
    for (int fd = 3; fd < 220; ++fd) open_files += fcntl(fd, F_GETFD) >= 0;
    int count = 0;
    const bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused && (what != "close_and_reuse" || open_files == 200) ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  printf("child: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "good" : "bad");
  compute("after that");
}

// ---- children that no handler sees ----

void raw_clone() {
  Gpu gpu;
  compute("parent");
  const long pid = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0);
  if (pid == 0) {
    int count = 0;
    const bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(static_cast<pid_t>(pid), &status, 0);
  printf("clone was refused: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "yes" : "no");
  compute("parent");
}

// The parent dies, the clone lives on with a copy of its descriptors, until its standard input
// ends.
void clone_survives() {
  Gpu gpu;
  compute("parent");
  const long pid = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0);
  if (pid == 0) {
    char byte;
    close(1);
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
  }
  _exit(0);
}

// ---- a first thread that ends before the others ----

void work_after_the_first_thread(CUcontext context) {
  CU(cuCtxSetCurrent(context));
  const size_t bytes = 1 << 20;
  const int file = memfd_create("shared", MFD_CLOEXEC);
  EXPECT(file >= 0 && ftruncate(file, bytes) == 0);
  for (const bool shared : {false, true}) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, shared ? file : -1, 0);
    EXPECT(memory != MAP_FAILED);
    memset(memory, 7, bytes);
    SHOW(cuMemHostRegister(memory, bytes, 0));
    SHOW(cuMemsetD8(reinterpret_cast<CUdeviceptr>(memory), 5, bytes / 2));
    CU(cuCtxSynchronize());
    print_hash("memory",
               std::vector<char>(static_cast<char*>(memory), static_cast<char*>(memory) + bytes));
    SHOW(cuMemHostUnregister(memory));
  }
}

// As programs do whose main() starts its workers and leaves them by pthread_exit, which unwinds:
// not with this program's own copy of the unwinder.
void first_thread_ends(bool initialised) {
  static CUcontext context;
  const auto retain = [] {
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
  };
  if (initialised) retain();
  std::thread([first = pthread_self(), initialised, retain] {
    EXPECT(pthread_join(first, nullptr) == 0);
    if (!initialised) retain();
    work_after_the_first_thread(context);
    exit(0);
  }).detach();
  syscall(SYS_exit, 0);
}

// ---- work that its client does not live to see ----

// Streams that wait for values nobody writes; then says so and waits to be killed.
void wait_for_values() {
  Gpu gpu;
  CUdeviceptr device = 0, host_view = 0;
  void* host = nullptr;
  CU(cuMemAlloc(&device, 1 << 20));
  CU(cuMemsetD8(device, 0xff, 1 << 20));
  CU(cuMemHostAlloc(&host, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(host, 0xff, 1 << 20);
  CU(cuMemHostGetDevicePointer(&host_view, host, 0));
  CU(cuCtxSynchronize());
  CUstream streams[6];
  for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamWaitValue32(streams[0], host_view, 5, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuStreamWaitValue32(streams[0], host_view, 6, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuStreamWaitValue32(streams[0], host_view, 7, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuStreamWaitValue32(streams[1], device, 100, CU_STREAM_WAIT_VALUE_GEQ));
  CU(cuMemsetD8Async(device + 4096, 1, 4096, streams[1]));
  CU(cuStreamWaitValue64(streams[2], device + 8, 0x0000'0001'0000'0000ull,
                         CU_STREAM_WAIT_VALUE_EQ));
  CU(cuStreamWaitValue32(streams[3], device + 16, 0, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuStreamWaitValue32(streams[4], host_view + 64, ~0u >> 1, CU_STREAM_WAIT_VALUE_NOR));
  CUstreamBatchMemOpParams ops[2]{};
  ops[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[0].waitValue.address = host_view + 128;
  ops[0].waitValue.value = 3;
  ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[1].waitValue.address = host_view + 136;
  ops[1].waitValue.value64 = 4;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CU(cuStreamBatchMemOp(streams[5], 2, ops, 0));
  for (CUstream stream : streams) printf("%s\n", code_name(cuStreamQuery(stream)));
  printf("waiting\n");
  fflush(stdout);
  pause();
}

const char* const kVariable = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 41;
)";

// Waits to be killed inside a call that waits for the context, which waits for a host function, or
// for a value in host memory; or where only the GPU writes, in a call for which its session stands
// in the driver.
void stuck_in_a_call(bool host_function, bool on_the_gpu) {
  Gpu gpu;
  CUlibrary library = nullptr;
  if (on_the_gpu)
    CU(cuLibraryLoadData(&library, kVariable, nullptr, nullptr, 0, nullptr, nullptr, 0));
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(host, 0, 4096);
  CUdeviceptr view = 0;
  CU(cuMemHostGetDevicePointer(&view, host, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  if (on_the_gpu) {
    CU(cuMemAlloc(&view, 4096));
    CU(cuMemsetD8(view, 0, 4096));
    CU(cuCtxSynchronize());  // the stream that waits is ordered behind nothing
  }
  if (host_function) {
    CU(cuLaunchHostFunc(
        stream, [](void*) { pause(); }, nullptr));
  } else {
    for (uint32_t value : {3u, 2u, 1u})
      CU(cuStreamWaitValue32(stream, view, value, CU_STREAM_WAIT_VALUE_EQ));
  }
  printf("waiting\n");
  fflush(stdout);
  size_t bytes = 0;
  if (on_the_gpu) CU(cuLibraryGetGlobal(&view, &bytes, library, "counter"));
  const std::string image = std::string(read_beside("kernels.ptx").data()) +
                            (host_function ? "\n// an image of its own\n" : "\n// another one\n");
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, image.c_str()));
}

CUexternalSemaphore make_semaphore(
    CUexternalSemaphoreHandleType type) {  // of the simulated GPU: external_objects.cc
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
  desc.type = type;
  desc.handle.fd = memfd_create("tube-sim-semaphore", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT(desc.handle.fd >= 0 && ftruncate(desc.handle.fd, 4096) == 0 &&
         fcntl(desc.handle.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CUexternalSemaphore semaphore = nullptr;
  CU(cuImportExternalSemaphore(&semaphore, &desc));
  return semaphore;
}

// The same for semaphores that nobody signals; each twice.
void wait_for_semaphores() {
  Gpu gpu;
  CUdeviceptr device = 0;
  CU(cuMemAlloc(&device, 1 << 20));
  const CUexternalSemaphore plain = make_semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
  const CUexternalSemaphore timeline =
      make_semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (uint64_t value : {3, 9}) {
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params[2]{};
    params[0].params.fence.value = value;
    const CUexternalSemaphore both[] = {timeline, plain};
    CU(cuWaitExternalSemaphoresAsync(both, params, 2, stream));
    CU(cuMemsetD8Async(device, 1, 4096, stream));
  }
  printf("%s\n", code_name(cuStreamQuery(stream)));
  fflush(stdout);
  pause();
}

// No value satisfies it: what is left of this program never ends.
void wait_for_no_value() {
  Gpu gpu;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  CUstream stream = nullptr;
  const CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CU(cuMemAlloc(&device, 4096));
  CU(cuArrayCreate(&array, &shape));
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamWaitValue32(stream, device, 0, CU_STREAM_WAIT_VALUE_AND));
  printf("%s\n", code_name(cuStreamQuery(stream)));
  fflush(stdout);
  pause();
}

// A stream that nobody can release: no value has a bit in common with 0. Inside a graph, where the
// proxy does not see that a stream waits. Then it waits to be killed.
void wait_for_ever() {
  Gpu gpu;
  compute("first");
  CUdeviceptr word = 0;
  CU(cuMemAlloc(&word, 4096));
  CU(cuMemsetD8(word, 0, 4096));
  CU(cuCtxSynchronize());  // the stream that waits is ordered behind nothing
  CUstreamBatchMemOpParams wait{};
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = word;
  wait.waitValue.value = 0;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
  CUDA_BATCH_MEM_OP_NODE_PARAMS node{};
  CU(cuCtxGetCurrent(&node.ctx));
  node.count = 1;
  node.paramArray = &wait;
  CUgraph graph = nullptr;
  CUgraphNode added = nullptr;
  CUgraphExec exec = nullptr;
  CUstream stream = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddBatchMemOpNode(&added, graph, nullptr, 0, &node));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuGraphLaunch(exec, stream));
  printf("%s\n", code_name(cuStreamQuery(stream)));
  fflush(stdout);
  pause();
}

// Leaves pinned memory behind.
void pinned(size_t mebibytes) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, mebibytes << 20, 0));
  _exit(0);
}

// Is there until its standard input ends.
void stay(size_t pinned_bytes = 0) {
  Gpu gpu;
  void* memory = nullptr;
  if (pinned_bytes != 0) CU(cuMemHostAlloc(&memory, pinned_bytes, 0));
  printf("here\n");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  _exit(0);
}

// Ends its context, and every other one of the proxy. What the codes are is told by the conformance
// chapters.
void fault(bool and_look) {
  Gpu gpu;
  Module module("kernels.ptx");
  LAUNCH(module.function("poke"), {1}, {1}, 0, nullptr, static_cast<CUdeviceptr>(0), 1u);
  size_t free_bytes = 0, total = 0;
  (void)cuMemGetInfo(&free_bytes, &total);  // an answer: the launch has left this process
  if (and_look) printf("%s\n", code_name(cuCtxSynchronize()));
  fflush(stdout);
  _exit(0);
}

// Answers each line of standard input with the context's state.
void answer() {
  Gpu gpu;
  compute("main");
  printf("ready\n");  // what it computed with is given back
  fflush(stdout);
  for (char line[64]; fgets(line, sizeof line, stdin) != nullptr;) {
    printf("%s\n", code_name(cuCtxSynchronize()));
    fflush(stdout);
  }
  _exit(0);
}

// The client goes on until it is killed.
void launch_for_ever() {
  Gpu gpu;
  Module module("kernels.ptx");
  CUfunction slow = module.function("slow_step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1024, 1));
  printf("waiting\n");
  fflush(stdout);
  for (;;) LAUNCH(slow, {4}, {256}, 0, nullptr, data.pointer, 3u, 1u, 1024, 20);
}

// ---- lives ----

void reset_loop() {
  CU(cuInit(0));
  for (uint32_t i = 0; i < 100; ++i) {
    CUcontext context = nullptr;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    Module* module = left_behind<Module>("kernels.ptx");
    auto* data = left_behind<DeviceArray<uint32_t>>(std::vector<uint32_t>(1 << 16, i));
    LAUNCH(module->function("step"), {1}, {64}, 0, nullptr, data->pointer, 3u, 1u, 64);
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CU(cuStreamCreate(&stream, 0));
    CU(cuEventCreate(&event, 0));
    CU(cuEventRecord(event, stream));
    void* pinned = nullptr;
    CU(cuMemHostAlloc(&pinned, 1 << 20, 0));
    CU(i % 2 == 0 ? cuDevicePrimaryCtxReset(0) : CUDA_SUCCESS);
    CU(cuDevicePrimaryCtxRelease(0));
  }
  for (uint32_t i = 0; i < 50; ++i) {
    CUcontext context = nullptr;
    CU(cuCtxCreate(&context, nullptr, 0, 0));
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, 0));
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 1 << 20));
    CU(cuMemsetD8Async(memory, 1, 1 << 20, stream));
    CU(cuCtxDestroy(context));
  }
  printf("done\n");
}

// ---- devices ----

void list_devices() {
  const CUresult init = cuInit(0);
  int count = -1;
  const CUresult counted = cuDeviceGetCount(&count);
  printf("%s %s %d:", code_name(init), code_name(counted), count);
  for (int i = 0; i < count; ++i) {
    char name[64], bus[32];
    CU(cuDeviceGetName(name, sizeof name, i));
    CU(cuDeviceGetPCIBusId(bus, sizeof bus, i));
    CUdevice same = -1;
    CU(cuDeviceGetByPCIBusId(&same, bus));
    printf(" %s@%s=%d", name, bus, same);
  }
  printf("\n");
}

// ---- the loader ----

// Loads the library by the given name, into a namespace of its own when asked, and computes with
// it.
void load_by_name(const char* name, bool own_namespace) {
  void* library = own_namespace ? dlmopen(LM_ID_NEWLM, name, RTLD_NOW | RTLD_LOCAL)
                                : dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fprintf(stderr, "%s\n", dlerror());
  EXPECT(library != nullptr);
  const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"));
  const auto retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(
      dlsym(library, "cuDevicePrimaryCtxRetain"));
  const auto set_current =
      reinterpret_cast<decltype(&cuCtxSetCurrent)>(dlsym(library, "cuCtxSetCurrent"));
  const auto allocate = reinterpret_cast<decltype(&cuMemAlloc)>(dlsym(library, "cuMemAlloc_v2"));
  const auto set = reinterpret_cast<decltype(&cuMemsetD32)>(dlsym(library, "cuMemsetD32_v2"));
  const auto read_back =
      reinterpret_cast<decltype(&cuMemcpyDtoH)>(dlsym(library, "cuMemcpyDtoH_v2"));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  uint32_t value = 0;
  CU(init(0));
  CU(retain(&context, 0));
  CU(set_current(context));
  CU(allocate(&memory, 4096));
  CU(set(memory, 1234, 1024));
  CU(read_back(&value, memory + 400, 4));
  printf("loaded, same as linked: %s, read %u\n", init == &cuInit ? "yes" : "no", value);
  dlclose(library);
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc >= 2);
  const std::string scene = argv[1];
  if (scene == "compute") {
    Gpu gpu;
    compute("main");
  } else if (scene == "close_all" || scene == "close_and_reuse" || scene == "dup2_over_sockets") {
    without_descriptors(argv[1], argc > 2 && strcmp(argv[2], "stops") == 0);
  } else if (scene == "raw_clone") {
    raw_clone();
  } else if (scene == "clone_survives") {
    clone_survives();
  } else if (scene == "first_thread_ends" || scene == "first_thread_ends_at_once") {
    first_thread_ends(scene == "first_thread_ends");
  } else if (scene == "wait_for_values") {
    wait_for_values();
  } else if (scene == "stuck_in_a_call") {
    stuck_in_a_call(argc > 2 && strcmp(argv[2], "host_function") == 0,
                    argc > 2 && strcmp(argv[2], "gpu_value") == 0);
  } else if (scene == "wait_for_semaphores") {
    wait_for_semaphores();
  } else if (scene == "wait_for_no_value") {
    wait_for_no_value();
  } else if (scene == "wait_for_ever") {
    wait_for_ever();
  } else if (scene == "pinned" && argc == 3) {
    pinned(strtoul(argv[2], nullptr, 10));
  } else if (scene == "stay") {
    stay();
  } else if (scene == "stay_pinned") {
    stay(100'000);
  } else if (scene == "launch_for_ever") {
    launch_for_ever();
  } else if (scene == "fault") {
    fault(true);
  } else if (scene == "fault_unseen") {
    fault(false);
  } else if (scene == "answer") {
    answer();
  } else if (scene == "reset_loop") {
    reset_loop();
  } else if (scene == "list_devices") {
    list_devices();
  } else if (scene == "load" && argc == 3) {
    load_by_name(argv[2], false);
  } else if (scene == "load_apart" && argc == 3) {
    Gpu gpu;
    compute("linked");
    load_by_name(argv[2], true);
    compute("linked");
  } else {
    return 2;
  }
  return 0;
}
