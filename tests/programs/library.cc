// The context-independent loading interface: cuLibrary, cuKernel, and launches of a CUkernel
// itself.
#include "tests/programs/common.h"

#include <algorithm>

int main() {
  Gpu gpu;
  std::vector<char> image = read_beside("globals.fatbin");
  CUlibrary library;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  CU(cuLibraryGetKernelCount(&count, library));
  std::vector<CUkernel> kernels(count);
  CU(cuLibraryEnumerateKernels(kernels.data(), count, library));
  std::vector<std::string> names;
  for (CUkernel kernel : kernels) {
    const char* name = nullptr;
    CU(cuKernelGetName(&name, kernel));
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) printf("kernel %s\n", name.c_str());

  CUkernel read_state, bump;
  CU(cuLibraryGetKernel(&read_state, library, "read_state"));
  CU(cuLibraryGetKernel(&bump, library, "bump"));
  for (size_t i = 0; i < 5; ++i) {
    size_t offset = 0, size = 0;
    CUresult code = cuKernelGetParamInfo(read_state, i, &offset, &size);
    printf("parameter %zu: %s %zu %zu\n", i, code_name(code), offset, size);
  }
  int value = 0;
  CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bump, gpu.device));
  printf("max threads %d\n", value);
  CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, bump, gpu.device));
  CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bump,
                          gpu.device));
  printf("dynamic shared %d\n", value);

  for (int i = 0; i < 4; ++i)
    LAUNCH(reinterpret_cast<CUfunction>(bump), {1}, {32}, 0, nullptr, 100);
  CUfunction function;
  CU(cuKernelGetFunction(&function, bump));
  LAUNCH(function, {1}, {32}, 0, nullptr, 7);
  DeviceArray<int> counter(2);
  DeviceArray<float> table(64), weights(16);
  LAUNCH(reinterpret_cast<CUfunction>(read_state), {1}, {64}, 0, nullptr, counter.pointer,
         table.pointer, weights.pointer);
  printf("counter %d\n", counter.read()[0]);

  CUdeviceptr address = 0;
  size_t size = 0;
  CU(cuLibraryGetGlobal(&address, &size, library, "counter"));
  printf("global of %zu bytes\n", size);
  CU(cuMemcpyDtoH(&value, address, 4));
  printf("counter read by the host: %d\n", value);
  CUmodule module;
  CU(cuLibraryGetModule(&module, library));
  CU(cuModuleGetFunction(&function, module, "bump"));
  LAUNCH(function, {1}, {32}, 0, nullptr, 1000);
  CU(cuMemcpyDtoH(&value, address, 4));
  printf("and again: %d\n", value);
  CUkernel none;
  SHOW(cuLibraryGetKernel(&none, library, "no_such_kernel"));
  SHOW(cuLibraryGetGlobal(&address, &size, library, "no_such_variable"));
  CU(cuLibraryUnload(library));

  CU(cuLibraryLoadFromFile(&library, beside_executable("kernels.fatbin").c_str(), nullptr, nullptr,
                           0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&none, library, "vector_add"));
  CUlibrary owner;
  CU(cuKernelGetLibrary(&owner, none));
  printf("owner %s\n", owner == library ? "right" : "wrong");
  CU(cuLibraryUnload(library));
  return 0;
}
