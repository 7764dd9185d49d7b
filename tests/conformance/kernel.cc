// Kernel handles of libraries: names, attributes, parameters, their functions in a context.
#include "tests/conformance/case.h"

namespace {
struct Kernels {
  Gpu gpu;
  CUlibrary library = nullptr;
  Kernels() { CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0)); }
  ~Kernels() { CU(cuLibraryUnload(library)); }
  CUkernel get(const char* name) const {
    CUkernel kernel = nullptr;
    CU(cuLibraryGetKernel(&kernel, library, name));
    return kernel;
  }
};
}  // namespace

CASE(name) {
  Kernels kernels;
  const char* name = nullptr;
  SHOW(cuKernelGetName(&name, kernels.get("fill")));
  printf("%s\n", name);
  SHOW(cuKernelGetName(nullptr, kernels.get("fill")));
  SHOW(cuKernelGetName(&name, nullptr));
}

CASE(function_and_its_name) {
  Kernels kernels;
  CUfunction function = nullptr;
  SHOW(cuKernelGetFunction(&function, kernels.get("saxpy")));
  const char* name = nullptr;
  SHOW(cuFuncGetName(&name, function));
  printf("%s\n", name);
  SHOW(cuKernelGetFunction(nullptr, kernels.get("saxpy")));
  SHOW(cuKernelGetFunction(&function, nullptr));
}

CASE(function_without_a_context) {
  CU(cuInit(0));
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  CUfunction function = nullptr;
  SHOW(cuKernelGetFunction(&function, kernel));
  const char* name = nullptr;
  SHOW(cuKernelGetName(&name, kernel));
  int value = 0;
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  printf("%d\n", value);
}

CASE(library_of_a_kernel) {
  Kernels kernels;
  CUlibrary library = nullptr;
  SHOW(cuKernelGetLibrary(&library, kernels.get("fill")));
  printf("same: %s\n", library == kernels.library ? "yes" : "no");
  SHOW(cuKernelGetLibrary(nullptr, kernels.get("fill")));
  SHOW(cuKernelGetLibrary(&library, nullptr));
}

CASE(attributes) {
  Kernels kernels;
  int value = -1;
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernels.get("bounded"), 0));
  printf("%d\n", value);
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernels.get("matmul"), 0));
  printf("%d\n", value);
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, kernels.get("fill"), 0));
  printf("%d\n", value);
}

CASE(attributes_bad_arguments) {
  Kernels kernels;
  int value = -1;
  SHOW(cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, kernels.get("fill"), 0));
  SHOW(cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(100), kernels.get("fill"), 0));
  SHOW(cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(-1), kernels.get("fill"), 0));
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr, 0));
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernels.get("fill"), 1000));
  printf("%d\n", value);
}

CASE(set_attribute) {
  Kernels kernels;
  CUkernel kernel = kernels.get("dynamic_shared");
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, kernel, 0));
  int value = -1;
  SHOW(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
  printf("%d\n", value);
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 4, kernel, 0));
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 30, kernel, 0));
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -2, kernel, 0));
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, nullptr, 0));
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, 1000));
}

CASE(set_attribute_reaches_the_function) {
  Kernels kernels;
  CUkernel kernel = kernels.get("dynamic_shared");
  CUfunction function = nullptr;
  CU(cuKernelGetFunction(&function, kernel));
  CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, kernel, 0));
  int value = -1;
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  printf("%d\n", value);
}

CASE(cache_config) {
  Kernels kernels;
  SHOW(cuKernelSetCacheConfig(kernels.get("fill"), CU_FUNC_CACHE_PREFER_L1, 0));
  SHOW(cuKernelSetCacheConfig(kernels.get("fill"), static_cast<CUfunc_cache>(9), 0));
  SHOW(cuKernelSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1, 0));
  SHOW(cuKernelSetCacheConfig(kernels.get("fill"), CU_FUNC_CACHE_PREFER_L1, 1000));
}

CASE(parameters) {
  Kernels kernels;
  CUkernel kernel = kernels.get("mixed_params");
  for (size_t i = 0; i < 8; ++i) {
    size_t offset = 999, size = 999;
    const CUresult result = cuKernelGetParamInfo(kernel, i, &offset, &size);
    printf("%zu: %s, offset %zu, size %zu\n", i, code_name(result), offset, size);
    if (result != CUDA_SUCCESS) break;
  }
}

CASE(parameters_bad_arguments) {
  Kernels kernels;
  CUkernel kernel = kernels.get("fill");
  size_t offset = 0, size = 0;
  SHOW(cuKernelGetParamInfo(nullptr, 0, &offset, &size));
  SHOW(cuKernelGetParamInfo(kernel, 0, nullptr, &size));
  SHOW(cuKernelGetParamInfo(kernel, 0, &offset, nullptr));
  SHOW(cuKernelGetParamInfo(kernel, 1000, &offset, &size));
}

CASE(parameters_of_a_function) {
  Kernels kernels;
  CUfunction function = nullptr;
  CU(cuKernelGetFunction(&function, kernels.get("mixed_params")));
  for (size_t i = 0; i < 8; ++i) {
    size_t offset = 999, size = 999;
    const CUresult result = cuFuncGetParamInfo(function, i, &offset, &size);
    printf("%zu: %s, offset %zu, size %zu\n", i, code_name(result), offset, size);
    if (result != CUDA_SUCCESS) break;
  }
  size_t offset;
  SHOW(cuFuncGetParamInfo(nullptr, 0, &offset, nullptr));
  SHOW(cuFuncGetParamInfo(function, 0, nullptr, nullptr));
}
