// What a process finds: the library under several names, and the environment variables that the
// driver reads.
#include "tests/conformance/life.h"

#include <dlfcn.h>

#include <cctype>

CASES_HOLD_STREAMS;

// ---- the library ----

CASE(dlopen_gives_the_same_library) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  EXPECT(library != nullptr);
  auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"));
  printf("cuInit is the linked one: %s\n", init == &cuInit ? "yes" : "no");
  SHOW(init(0));
  compute_with_gpu("main");
}
CASE(dlclose_does_not_end_it) {
  compute_with_gpu("before");
  for (int i = 0; i < 3; ++i) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != nullptr);
    EXPECT(dlclose(library) == 0);
  }
  compute_with_gpu("after");
}
CASE(opened_before_init_and_closed) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  EXPECT(library != nullptr);
  auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int number = 0;
  SHOW(version(&number));
  dlclose(library);
  compute_with_gpu("main");
}

// ---- the environment ----

namespace {

std::string first_uuid() {
  CUuuid uuid{};
  CU(cuInit(0));
  CU(cuDeviceGetUuid(&uuid, 0));
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  char text[48];
  snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
           b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

// How many devices a program with this list sees; `name` stands for what may not be printed.
void show_visible(const char* list, const char* name = nullptr) {
  in_child("child", [&] {
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    int count = -1;
    const CUresult init = cuInit(0);
    const CUresult counted = cuDeviceGetCount(&count);
    printf("CUDA_VISIBLE_DEVICES='%s': cuInit %s, cuDeviceGetCount %s %d\n", name != nullptr ? name : list, code_name(init), code_name(counted), count);
  });
}

// The first device's, learnt in a child, because this process must not have initialised.
std::string uuid_from_child() {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string uuid = first_uuid();
    _exit(write(ends[1], uuid.data(), uuid.size()) == static_cast<ssize_t>(uuid.size()) ? 0 : 1);
  }
  close(ends[1]);
  char text[64] = {};
  EXPECT(read(ends[0], text, sizeof text - 1) == 40);
  close(ends[0]);
  wait_for(pid);
  return text;
}

}  // namespace

CASE(visible_devices_by_index) {
  for (const char* list : {"0", "0,99", "99", "99,0", "0,-1", "-1", "-1,0", "00", "+0", "0x0", "0 ", "0x", "0a", "0-1", "0.5", "0 1", "0;1", "0 ,0x0", " 0", "0,", ",0", "0,,", "1000000000000"}) {
    show_visible(list);
  }
}
CASE(visible_devices_that_are_none) {
  for (const char* list : {"", " ", ",", "NoDevFiles", "none", "void", "all", "zero"}) show_visible(list);
}
CASE(visible_devices_named_twice) {
  for (const char* list : {"0,0", "0,0,0"}) show_visible(list);
}
CASE(visible_devices_by_uuid) {
  const std::string uuid = uuid_from_child();
  std::string upper = uuid;
  for (size_t i = 4; i < upper.size(); ++i) upper[i] = static_cast<char>(toupper(upper[i]));
  show_visible(uuid.c_str(), "UUID");
  show_visible(uuid.substr(0, 12).c_str(), "first 8 digits of UUID");
  show_visible(uuid.substr(0, 8).c_str(), "first 4 digits of UUID");
  show_visible(upper.c_str(), "UUID in capitals");
  show_visible(uuid.substr(4).c_str(), "UUID without GPU-");
  show_visible(("gpu-" + uuid.substr(4)).c_str(), "UUID with gpu-");
  show_visible((uuid + "0").c_str(), "UUID with a digit too many");
  show_visible((uuid + "," + uuid).c_str(), "UUID,UUID");
  show_visible(("0," + uuid).c_str(), "0,UUID");
  show_visible((uuid + ",0").c_str(), "UUID,0");
  show_visible("GPU-", "GPU-");
  show_visible("GPU-00000000-0000-0000-0000-000000000000");
}
CASE(visible_devices_mig_forms) {
  const std::string uuid = uuid_from_child();
  show_visible(("MIG-" + uuid + "/0/0").c_str(), "MIG-UUID/0/0");
  show_visible(("MIG-" + uuid.substr(4)).c_str(), "MIG-UUID");
  show_visible("MIG-", "MIG-");
  show_visible(("0,MIG-" + uuid.substr(4)).c_str(), "0,MIG-UUID");
}
CASE(visible_devices_are_read_once) {
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  int count = 0;
  CU(cuInit(0));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  SHOW(cuInit(0));
  SHOW(cuDeviceGetCount(&count));
  printf("%d\n", count);
}
CASE(device_order) {
  for (const char* order : {"PCI_BUS_ID", "FASTEST_FIRST", "", "nonsense"}) {
    in_child("child", [&] {
      setenv("CUDA_DEVICE_ORDER", order, 1);
      setenv("CUDA_VISIBLE_DEVICES", "0", 1);
      int count = 0;
      SHOW(cuInit(0));
      SHOW(cuDeviceGetCount(&count));
      printf("CUDA_DEVICE_ORDER='%s': %d\n", order, count);
    });
  }
}
CASE(module_loading_mode) {
  for (const char* mode : {"EAGER", "LAZY", "DEFAULT", "", "eager", "nonsense"}) {
    in_child("child", [&] {
      setenv("CUDA_MODULE_LOADING", mode, 1);
      CUmoduleLoadingMode loading{};
      CU(cuInit(0));
      SHOW(cuModuleGetLoadingMode(&loading));
      printf("CUDA_MODULE_LOADING='%s': %s\n", mode, loading == CU_MODULE_EAGER_LOADING ? "eager" : "lazy");
      compute_with_gpu("child");
    });
  }
  unsetenv("CUDA_MODULE_LOADING");
  CUmoduleLoadingMode loading{};
  SHOW(cuModuleGetLoadingMode(&loading));
  CU(cuInit(0));
  SHOW(cuModuleGetLoadingMode(&loading));
  printf("unset: %s\n", loading == CU_MODULE_EAGER_LOADING ? "eager" : "lazy");
}

// ---- CUDA_LAUNCH_BLOCKING ----

CASE(launch_blocking_returns_when_the_kernel_is_done) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  Gpu gpu;
  Gate gate;
  Module module("kernels.fatbin");
  CUfunction poke = module.function("poke");
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (uint32_t i = 1; i <= 20; ++i) {
    LAUNCH(poke, {1}, {1}, 0, stream, gate.address, i);
    EXPECT(*gate.word == i);  // no synchronising call in between
  }
  LAUNCH(poke, {1}, {1}, 0, nullptr, gate.address, 77u);
  printf("seen at once: %u\n", gate.word->load());
  SHOW(cuStreamQuery(stream));
  CU(cuStreamDestroy(stream));
}
CASE(launch_blocking_does_not_disturb_a_capture) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  Gpu gpu;
  Gate gate;
  Module module("kernels.fatbin");
  CUfunction poke = module.function("poke");
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(try_launch(poke, {1}, {1}, 0, stream, gate.address, 5u));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  printf("before: %u\n", gate.word->load());
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("after: %u\n", gate.word->load());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}
CASE(launch_blocking_0_is_off) {
  setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
  Gpu gpu;
  Gate gate;
  Module module("kernels.fatbin");
  CUfunction poke = module.function("poke");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(16, 1));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.hold(stream);
  LAUNCH(poke, {1}, {1}, 0, stream, data.pointer, 9u);  // would wait for ever if it blocked
  SHOW(cuStreamQuery(stream));
  gate.open();
  CU(cuStreamSynchronize(stream));
  printf("%u\n", data.read()[0]);
  CU(cuStreamDestroy(stream));
}
FAULTING_CASE(launch_blocking_reports_a_fault_at_the_launch) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  auto* gpu = left_behind<Gpu>();
  (void)gpu;
  auto* module = left_behind<Module>("kernels.fatbin");
  SHOW(try_launch(module->function("poke"), {1}, {1}, 0, nullptr, static_cast<CUdeviceptr>(0), 1u));
  SHOW(cuCtxSynchronize());
}
