// __managed__ variables: host code and kernels use one address, whether the image is machine code,
// a fatbin or PTX.
#include <thread>

#include "tests/conformance/case.h"

namespace {

template <typename T>
T* variable(const Module& module, const char* name, size_t* bytes = nullptr) {
  CUdeviceptr address = 0;
  size_t size = 0;
  CU(cuModuleGetGlobal(&address, &size, module.handle, name));
  if (bytes != nullptr) *bytes = size;
  return reinterpret_cast<T*>(address);
}

struct Pair {
  int first;
  double second[3];
};

struct Library {
  CUlibrary handle = nullptr;
  std::vector<char> image;
  explicit Library(const char* file) : image(read_beside(file)) {
    CU(cuLibraryLoadData(&handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  ~Library() { CU(cuLibraryUnload(handle)); }
  CUfunction function(const char* name) const {
    CUkernel kernel = nullptr;
    CUfunction found = nullptr;
    CU(cuLibraryGetKernel(&kernel, handle, name));
    CU(cuKernelGetFunction(&found, kernel));
    return found;
  }
};

void show_what_a_kernel_reads(CUfunction read_all, const void* counter) {
  DeviceArray<int> integers(3);
  DeviceArray<double> doubles(3);
  DeviceArray<CUdeviceptr> where(1);
  LAUNCH(read_all, {1}, {1}, 0, nullptr, integers.pointer, doubles.pointer, where.pointer);
  const std::vector<int> i = integers.read();
  const std::vector<double> d = doubles.read();
  printf("a kernel reads %d, %d, %d; %g %g %g; the address is the host's: %d\n", i[0], i[1], i[2], d[0], d[1], d[2],
         where.read()[0] == reinterpret_cast<CUdeviceptr>(counter));
}

void use_from_both_sides(const char* file) {
  Gpu gpu;
  Module module(file);
  size_t bytes = 0;
  volatile int* counter = variable<int>(module, "counter", &bytes);
  auto* pair = variable<Pair>(module, "pair");
  auto* large = variable<float>(module, "large");
  printf("%zu bytes, at first %d; %d %g; %g\n", bytes, *counter, pair->first, pair->second[2], large[99999]);
  show_what_a_kernel_reads(module.function("read_all"), const_cast<int*>(counter));
  LAUNCH(module.function("add"), {3}, {32}, 0, nullptr, 10);
  CU(cuCtxSynchronize());
  printf("after a kernel %d\n", *counter);
  *counter = 5;
  pair->first = 6;
  pair->second[1] = -1.5;
  show_what_a_kernel_reads(module.function("read_all"), const_cast<int*>(counter));
  for (int i = 0; i < 100000; ++i) large[i] = static_cast<float>(i);
  for (int step = 0; step < 3; ++step) LAUNCH(module.function("scale"), {391}, {256}, 0, nullptr, 0.5f, 100000);
  CU(cuCtxSynchronize());
  printf("large: hash %016llx\n", static_cast<unsigned long long>(hash_bytes(large, 400000)));
}

}  // namespace

CASE(from_both_sides_of_a_fatbin) { use_from_both_sides("managed_variables.fatbin"); }

CASE(from_both_sides_of_ptx) { use_from_both_sides("managed_variables.ptx"); }

CASE(of_a_library) {
  Gpu gpu;
  Library library("managed_variables.fatbin");
  CUdeviceptr address = 0, again = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, "counter"));
  printf("%zu bytes\n", bytes);
  SHOW(cuLibraryGetManaged(&again, nullptr, library.handle, "counter"));
  SHOW(cuLibraryGetManaged(nullptr, &bytes, library.handle, "large"));
  printf("the same address: %d, %zu bytes\n", again == address, bytes);
  auto* counter = reinterpret_cast<volatile int*>(address);
  printf("at first %d\n", *counter);
  show_what_a_kernel_reads(library.function("read_all"), reinterpret_cast<void*>(address));
  *counter = 100;
  LAUNCH(library.function("add"), {2}, {1}, 0, nullptr, 7);
  CU(cuCtxSynchronize());
  printf("then %d\n", *counter);
}

CASE(names_of_a_library) {
  Gpu gpu;
  Library library("managed_variables.fatbin");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, "plain"));
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, "no_such_variable"));
  SHOW(cuLibraryGetManaged(nullptr, nullptr, library.handle, "counter"));
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, nullptr));
  SHOW(cuLibraryGetGlobal(&address, &bytes, library.handle, "plain"));
  printf("%zu bytes\n", bytes);
}

CASE(as_a_global_of_a_library) {
  Gpu gpu;
  Library library("managed_variables.fatbin");
  CUdeviceptr global = 0, managed = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetGlobal(&global, &bytes, library.handle, "counter"));
  SHOW(cuLibraryGetManaged(&managed, &bytes, library.handle, "counter"));
  printf("the same address: %d\n", global == managed);
}

CASE(of_a_library_without_a_context) {
  CU(cuInit(0));
  Library library("managed_variables.fatbin");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, "counter"));
}

CASE(of_a_library_that_another_thread_uses) {
  CU(cuInit(0));
  Library library("managed_variables.fatbin");
  CUcontext context = nullptr;
  std::thread([&] {
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    CUkernel kernel = nullptr;
    CU(cuLibraryGetKernel(&kernel, library.handle, "add"));
    LAUNCH(reinterpret_cast<CUfunction>(kernel), {1}, {1}, 0, nullptr, 5);
    CU(cuCtxSynchronize());
  }).join();
  CUcontext current = nullptr;
  CU(cuCtxGetCurrent(&current));
  printf("current: %s\n", current == nullptr ? "none" : "some");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&address, &bytes, library.handle, "counter"));
  printf("%d\n", address == 0 ? -1 : *reinterpret_cast<volatile int*>(address));
  CU(cuCtxSetCurrent(context));
}

CASE(two_modules_have_their_own) {
  Gpu gpu;
  Module one("managed_variables.fatbin"), other("managed_variables.fatbin");
  auto* first = variable<volatile int>(one, "counter");
  auto* second = variable<volatile int>(other, "counter");
  LAUNCH(one.function("add"), {1}, {1}, 0, nullptr, 1);
  LAUNCH(other.function("add"), {1}, {1}, 0, nullptr, 2);
  CU(cuCtxSynchronize());
  printf("%d %d, apart: %d\n", *first, *second, first != second);
}

CASE(copies) {
  Gpu gpu;
  Module module("managed_variables.fatbin");
  auto* counter = variable<volatile int>(module, "counter");
  const auto address = reinterpret_cast<CUdeviceptr>(counter);
  int value = 1234;
  SHOW(cuMemcpyHtoD(address, &value, sizeof value));
  CU(cuCtxSynchronize());
  printf("%d\n", *counter);
  SHOW(cuMemsetD32(address, 9, 1));
  CU(cuCtxSynchronize());
  printf("%d\n", *counter);
  *counter = 77;
  SHOW(cuMemcpyDtoH(&value, address, sizeof value));
  printf("%d\n", value);
  DeviceArray<int> other(1);
  SHOW(cuMemcpy(other.pointer, address, sizeof value));
  printf("%d\n", other.read()[0]);
}

CASE(what_a_pointer_to_one_is) {
  Gpu gpu;
  Module module("managed_variables.fatbin");
  const auto address = reinterpret_cast<CUdeviceptr>(variable<int>(module, "counter"));
  unsigned type = 9, managed = 9;
  int ordinal = 9;
  CUcontext context = nullptr;
  void* host = nullptr;
  CUdeviceptr device = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  printf("type %u, managed %u, ordinal %d, host pointer %d, device pointer %d\n", type, managed, ordinal,
         reinterpret_cast<CUdeviceptr>(host) == address, device == address);
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  printf("context %s\n", context == gpu.context ? "current" : context == nullptr ? "none" : "another");
}

CASE(advice_on_one) {
  Gpu gpu;
  Module module("managed_variables.fatbin");
  size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(variable<float>(module, "large", &bytes));
  SHOW(cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0}));
  int value = -1;
  SHOW(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, bytes));
  printf("read mostly %d\n", value);
  SHOW(cuMemPrefetchAsync(address, bytes, CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, nullptr));
  CU(cuCtxSynchronize());
}

CASE(freeing_one) {
  Gpu gpu;
  Module module("managed_variables.fatbin");
  auto* counter = variable<volatile int>(module, "counter");
  SHOW(cuMemFree(reinterpret_cast<CUdeviceptr>(counter)));
  LAUNCH(module.function("add"), {1}, {1}, 0, nullptr, 1);
  CU(cuCtxSynchronize());
  printf("%d\n", *counter);
}

CASE(gone_with_its_module) {
  Gpu gpu;
  CUdeviceptr address = 0;
  {
    Module module("managed_variables.fatbin");
    address = reinterpret_cast<CUdeviceptr>(variable<int>(module, "counter"));
  }
  unsigned type = 9;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  for (int i = 0; i < 20; ++i) {
    Module module("managed_variables.fatbin");
    auto* counter = variable<volatile int>(module, "counter");
    LAUNCH(module.function("add"), {1}, {1}, 0, nullptr, i);
    CU(cuCtxSynchronize());
    if (*counter != 41 + i) printf("in round %d it is %d\n", i, *counter);
  }
}

CASE(in_a_captured_graph) {
  Gpu gpu;
  Module module("managed_variables.fatbin");
  auto* counter = variable<volatile int>(module, "counter");
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 4; ++i) LAUNCH(module.function("add"), {1}, {1}, 0, stream, 10);
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiate(&exec, graph, 0));
  *counter = 0;
  for (int i = 0; i < 3; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("%d\n", *counter);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
}
