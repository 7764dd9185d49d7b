// Libraries: images that belong to no context, and their kernels.
#include "tests/conformance/case.h"

static CUlibrary load(const char* file) {
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, read_beside(file).data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library;
}

CASE(load_without_a_context) {
  CU(cuInit(0));
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  SHOW(cuLibraryGetKernel(&kernel, library, "fill"));
  unsigned count = 0;
  SHOW(cuLibraryGetKernelCount(&count, library));
  printf("more than ten: %s\n", count > 10 ? "yes" : "no");
  SHOW(cuLibraryUnload(library));
}

CASE(load_bad_images) {
  Gpu gpu;
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(nullptr, "x", nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryLoadFromFile(&library, "/nonexistent/file", nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryLoadFromFile(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryLoadFromFile(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0));
}

// A library is looked into at its first use.
CASE(load_what_is_no_image) {
  Gpu gpu;
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(&library, "this is no image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  if (library != nullptr) SHOW(cuLibraryGetKernel(&kernel, library, "fill"));
}

CASE(load_from_a_file) {
  Gpu gpu;
  CUlibrary library = nullptr;
  const CUresult result = cuLibraryLoadFromFile(&library, beside_executable("kernels.fatbin").c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  printf("%s\n", code_name(result));
  CUkernel kernel = nullptr;
  SHOW(cuLibraryGetKernel(&kernel, library, "saxpy"));
  SHOW(cuLibraryUnload(library));
}

CASE(load_options) {
  Gpu gpu;
  CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
  int preserved = 1;
  void* values[] = {&preserved};
  const std::vector<char> image = read_beside("kernels.fatbin");
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, options, values, 1));
  SHOW(cuLibraryUnload(library));
  CUlibraryOption bad[] = {static_cast<CUlibraryOption>(77)};
  SHOW(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, bad, values, 1));
}

CASE(unload_null) {
  Gpu gpu;
  SHOW(cuLibraryUnload(nullptr));
  CUlibrary library = load("kernels.fatbin");
  SHOW(cuLibraryUnload(library));  // a second time crashes natively
}

CASE(get_kernel_bad_arguments) {
  Gpu gpu;
  CUlibrary library = load("kernels.fatbin");
  CUkernel kernel = nullptr;
  SHOW(cuLibraryGetKernel(&kernel, library, "no_such_kernel"));
  SHOW(cuLibraryGetKernel(&kernel, library, nullptr));
  SHOW(cuLibraryGetKernel(&kernel, library, ""));
  SHOW(cuLibraryGetKernel(nullptr, library, "fill"));
  SHOW(cuLibraryGetKernel(&kernel, nullptr, "fill"));
  SHOW(cuLibraryUnload(library));
}

CASE(kernel_count_and_list) {
  Gpu gpu;
  CUlibrary library = load("globals.fatbin");
  unsigned count = 0;
  SHOW(cuLibraryGetKernelCount(&count, library));
  printf("%u\n", count);
  CUkernel kernels[4] = {};
  SHOW(cuLibraryEnumerateKernels(kernels, 2, library));
  printf("%s %s %s\n", kernels[0] ? "set" : "null", kernels[1] ? "set" : "null", kernels[2] ? "set" : "null");
  SHOW(cuLibraryEnumerateKernels(kernels, 4, library));
  printf("%s %s\n", kernels[2] ? "set" : "null", kernels[3] ? "set" : "null");
  SHOW(cuLibraryEnumerateKernels(kernels, 0, library));
  SHOW(cuLibraryEnumerateKernels(nullptr, 4, library));
  SHOW(cuLibraryEnumerateKernels(kernels, 4, nullptr));
  SHOW(cuLibraryGetKernelCount(nullptr, library));
  SHOW(cuLibraryGetKernelCount(&count, nullptr));
  SHOW(cuLibraryUnload(library));
}

CASE(get_module) {
  Gpu gpu;
  CUlibrary library = load("kernels.fatbin");
  CUmodule module = nullptr;
  SHOW(cuLibraryGetModule(&module, library));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module, "fill"));
  SHOW(cuLibraryGetModule(nullptr, library));
  SHOW(cuLibraryGetModule(&module, nullptr));
  SHOW(cuModuleUnload(module));
  SHOW(cuLibraryUnload(library));
}

CASE(get_module_without_a_context) {
  CU(cuInit(0));
  CUlibrary library = load("kernels.fatbin");
  CUmodule module = nullptr;
  SHOW(cuLibraryGetModule(&module, library));
  SHOW(cuLibraryUnload(library));
}

CASE(get_global) {
  Gpu gpu;
  CUlibrary library = load("globals.fatbin");
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetGlobal(&pointer, &bytes, library, "counter"));
  int value = 0;
  CU(cuMemcpyDtoH(&value, pointer, 4));
  printf("%zu bytes, value %d\n", bytes, value);
  SHOW(cuLibraryGetGlobal(nullptr, &bytes, library, "table"));
  printf("%zu\n", bytes);
  SHOW(cuLibraryGetGlobal(&pointer, nullptr, library, "table"));
  SHOW(cuLibraryGetGlobal(nullptr, nullptr, library, "table"));
  SHOW(cuLibraryGetGlobal(&pointer, &bytes, library, "no_such_variable"));
  SHOW(cuLibraryGetGlobal(&pointer, &bytes, library, nullptr));
  SHOW(cuLibraryGetGlobal(&pointer, &bytes, nullptr, "counter"));
  SHOW(cuLibraryUnload(library));
}

CASE(get_global_without_a_context) {
  CU(cuInit(0));
  CUlibrary library = load("globals.fatbin");
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetGlobal(&pointer, &bytes, library, "counter"));
  SHOW(cuLibraryUnload(library));
}

CASE(get_managed_of_a_library_without_any) {
  Gpu gpu;
  CUlibrary library = load("globals.fatbin");
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  SHOW(cuLibraryGetManaged(&pointer, &bytes, library, "counter"));
  SHOW(cuLibraryGetManaged(&pointer, &bytes, library, "no_such_variable"));
  SHOW(cuLibraryGetManaged(&pointer, &bytes, nullptr, "counter"));
  SHOW(cuLibraryUnload(library));
}

CASE(get_unified_function_of_a_library_without_any) {
  Gpu gpu;
  CUlibrary library = load("kernels.fatbin");
  void* function = nullptr;
  SHOW(cuLibraryGetUnifiedFunction(&function, library, "fill"));
  SHOW(cuLibraryGetUnifiedFunction(nullptr, library, "fill"));
  SHOW(cuLibraryUnload(library));
}

CASE(launch_a_kernel_handle) {
  Gpu gpu;
  CUlibrary library = load("kernels.fatbin");
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  DeviceArray<uint32_t> out(16);
  SHOW(try_launch(reinterpret_cast<CUfunction>(kernel), {1}, {16}, 0, nullptr, out.pointer, 100u, 16));
  printf("%u %u\n", out.read()[0], out.read()[15]);
  SHOW(cuLibraryUnload(library));
}

CASE(same_library_in_two_contexts) {
  Gpu gpu;
  CUlibrary library = load("globals.fatbin");
  CUdeviceptr one = 0, two = 0;
  CU(cuLibraryGetGlobal(&one, nullptr, library, "counter"));
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  SHOW(cuLibraryGetGlobal(&two, nullptr, library, "counter"));
  printf("same place: %s\n", one == two ? "yes" : "no");
  int value = 5;
  CU(cuMemcpyHtoD(two, &value, 4));
  CU(cuMemcpyDtoH(&value, one, 4));
  printf("%d\n", value);
  CU(cuCtxDestroy(own));
  SHOW(cuLibraryUnload(library));
}

CASE(unload_after_the_context_is_gone) {
  CU(cuInit(0));
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUlibrary library = load("kernels.fatbin");
  CUmodule module = nullptr;
  CU(cuLibraryGetModule(&module, library));
  CU(cuCtxDestroy(own));
  SHOW(cuLibraryUnload(library));
}

// A library's kernels do not go with a module that was loaded as often as it.
CASE(kernels_outlive_modules) {
  Gpu gpu;
  auto image = read_beside("kernels.fatbin");
  CUlibrary library;
  CUmodule module;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuModuleLoadData(&module, image.data()));
  CUkernel kernel;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  SHOW(cuModuleUnload(module));
  DeviceArray<uint32_t> out(32);
  SHOW(try_launch(reinterpret_cast<CUfunction>(kernel), {1}, {32}, 0, nullptr, out.pointer, 7u, 32));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%u\n", out.read()[31]);
  SHOW(cuLibraryUnload(library));
}

CASE(functions_outlive_an_unloaded_library) {
  Gpu gpu;
  CUlibrary library = load("kernels.fatbin");
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  SHOW(cuLibraryUnload(library));
  DeviceArray<uint32_t> out(std::vector<uint32_t>(16, 1));
  SHOW(try_launch(fill, {1}, {16}, 0, nullptr, out.pointer, 9u, 16));
  SHOW(cuCtxSynchronize());
  printf("%u\n", out.read()[15]);
}
