// Modules: images of every kind, what is looked up in them, and lazy loading.
#include "tests/conformance/case.h"

CASE(load_fatbin_and_ptx) {
  Gpu gpu;
  for (const char* file : {"kernels.fatbin", "kernels.ptx", "globals.fatbin", "globals.ptx"}) {
    CUmodule module = nullptr;
    printf("%s: ", file);
    SHOW(cuModuleLoadData(&module, read_beside(file).data()));
    SHOW(cuModuleUnload(module));
  }
}

CASE(load_from_a_file) {
  Gpu gpu;
  CUmodule module = nullptr;
  const CUresult result = cuModuleLoad(&module, beside_executable("kernels.fatbin").c_str());
  printf("%s\n", code_name(result));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module, "fill"));
  SHOW(cuModuleUnload(module));
}

CASE(load_ptx_from_a_file) {
  Gpu gpu;
  CUmodule module = nullptr;
  const CUresult result = cuModuleLoad(&module, beside_executable("kernels.ptx").c_str());
  printf("%s\n", code_name(result));
  SHOW(cuModuleUnload(module));
}

CASE(load_from_bad_files) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoad(&module, "/nonexistent/image.fatbin"));
  SHOW(cuModuleLoad(&module, ""));
  SHOW(cuModuleLoad(&module, nullptr));
  SHOW(cuModuleLoad(nullptr, "/nonexistent/image.fatbin"));
  SHOW(cuModuleLoad(&module, "/dev/null"));
  SHOW(cuModuleLoad(&module, "/proc/self"));
}

CASE(load_a_folder) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoad(&module, "/"));
}

CASE(load_bad_images) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, nullptr));
  SHOW(cuModuleLoadData(nullptr, "x"));
  SHOW(cuModuleLoadData(&module, "this is no image"));
  SHOW(cuModuleLoadData(&module, ".version 8.0\n.target sm_70\n.address_size 64\nnonsense\n"));
  SHOW(cuModuleLoadData(&module, ""));
  printf("%s\n", module == nullptr ? "null" : "set");
}

CASE(ptx_too_new) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, ".version 99.9\n.target sm_70\n.address_size 64\n"));
  SHOW(cuModuleLoadData(&module, ".version 8.0\n.target sm_999\n.address_size 64\n"));
}

CASE(empty_ptx_module) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, ".version 8.0\n.target sm_70\n.address_size 64\n"));
  unsigned count = 99;
  SHOW(cuModuleGetFunctionCount(&count, module));
  printf("%u\n", count);
  SHOW(cuModuleUnload(module));
}

CASE(load_data_ex_without_options) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadDataEx(&module, read_beside("kernels.ptx").data(), 0, nullptr, nullptr));
  SHOW(cuModuleUnload(module));
  SHOW(cuModuleLoadDataEx(&module, read_beside("kernels.ptx").data(), 1, nullptr, nullptr));
  SHOW(cuModuleLoadDataEx(&module, nullptr, 0, nullptr, nullptr));
}

CASE(error_log_of_bad_ptx) {
  Gpu gpu;
  char log[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module = nullptr;
  SHOW(cuModuleLoadDataEx(&module, ".version 8.0\n.target sm_70\n.address_size 64\nnonsense;\n", 2, options, values));
  printf("something is said: %s\n", log[0] != 0 ? "yes" : "no");
}

CASE(refused_ptx) {
  Gpu gpu;
  const auto load = [](const char* text) {
    CUmodule module = nullptr;
    return cuModuleLoadData(&module, text);
  };
  SHOW(load(".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k() { nonsense; }\n"));
  SHOW(load(".version 99.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n"));
  SHOW(load(".version 8.0\n.target sm_999\n.address_size 64\n.visible .entry k() { ret; }\n"));
  SHOW(load(".version 8.0\n.target sm_70\n.address_size 64\n.extern .func f();\n.visible .entry k() { call f, (); ret; }\n"));
}

CASE(load_fat_binary) {
  Gpu gpu;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadFatBinary(&module, read_beside("kernels.fatbin").data()));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module, "saxpy"));
  SHOW(cuModuleUnload(module));
  SHOW(cuModuleLoadFatBinary(&module, nullptr));
  SHOW(cuModuleLoadFatBinary(nullptr, read_beside("kernels.fatbin").data()));
}

CASE(get_function_bad_arguments) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module.handle, "no_such_kernel"));
  SHOW(cuModuleGetFunction(&function, module.handle, ""));
  SHOW(cuModuleGetFunction(&function, module.handle, nullptr));
  SHOW(cuModuleGetFunction(nullptr, module.handle, "fill"));
  SHOW(cuModuleGetFunction(&function, nullptr, "fill"));
  printf("%s\n", function == nullptr ? "null" : "set");
}

CASE(get_function_twice_is_the_same) {
  Gpu gpu;
  Module module("kernels.fatbin");
  printf("same: %s\n", module.function("fill") == module.function("fill") ? "yes" : "no");
}

CASE(function_count_and_list) {
  Gpu gpu;
  Module module("globals.fatbin");
  unsigned count = 0;
  SHOW(cuModuleGetFunctionCount(&count, module.handle));
  printf("%u\n", count);
  CUfunction functions[8] = {};
  SHOW(cuModuleEnumerateFunctions(functions, 2, module.handle));
  printf("%s %s %s\n", functions[0] ? "set" : "null", functions[1] ? "set" : "null", functions[2] ? "set" : "null");
  SHOW(cuModuleEnumerateFunctions(functions, 8, module.handle));
  printf("%s %s\n", functions[2] ? "set" : "null", functions[3] ? "set" : "null");
  int known = 0;
  for (unsigned i = 0; i < count; ++i) {
    const char* name = nullptr;
    CU(cuFuncGetName(&name, functions[i]));
    known += strcmp(name, "bump") == 0 || strcmp(name, "read_state") == 0 || strcmp(name, "say_hello") == 0;
  }
  printf("known names %d\n", known);
}

CASE(function_count_bad_arguments) {
  Gpu gpu;
  Module module("globals.fatbin");
  unsigned count = 0;
  CUfunction functions[4] = {};
  SHOW(cuModuleGetFunctionCount(nullptr, module.handle));
  SHOW(cuModuleGetFunctionCount(&count, nullptr));
  SHOW(cuModuleEnumerateFunctions(nullptr, 4, module.handle));
  SHOW(cuModuleEnumerateFunctions(functions, 0, module.handle));
  SHOW(cuModuleEnumerateFunctions(functions, 4, nullptr));
}

CASE(get_global) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, "counter"));
  int value = 0;
  CU(cuMemcpyDtoH(&value, pointer, 4));
  printf("%zu bytes, value %d\n", bytes, value);
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, "table"));
  printf("%zu\n", bytes);
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, "weights"));
  printf("%zu\n", bytes);
}

CASE(get_global_parts_and_bad_arguments) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  SHOW(cuModuleGetGlobal(nullptr, &bytes, module.handle, "counter"));
  printf("%zu\n", bytes);
  SHOW(cuModuleGetGlobal(&pointer, nullptr, module.handle, "counter"));
  printf("%s\n", pointer != 0 ? "set" : "0");
  SHOW(cuModuleGetGlobal(nullptr, nullptr, module.handle, "counter"));
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, "no_such_variable"));
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, ""));
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module.handle, nullptr));
  SHOW(cuModuleGetGlobal(&pointer, &bytes, nullptr, "counter"));
}

CASE(globals_are_the_modules_own) {
  Gpu gpu;
  Module one("globals.fatbin"), two("globals.fatbin");
  CUdeviceptr a = 0, b = 0;
  CU(cuModuleGetGlobal(&a, nullptr, one.handle, "counter"));
  CU(cuModuleGetGlobal(&b, nullptr, two.handle, "counter"));
  printf("same place: %s\n", a == b ? "yes" : "no");
  LAUNCH(one.function("bump"), {1}, {1}, 0, nullptr, 1);
  int first = 0, second = 0;
  CU(cuMemcpyDtoH(&first, a, 4));
  CU(cuMemcpyDtoH(&second, b, 4));
  printf("%d %d\n", first, second);
}

CASE(global_written_by_the_host_is_read_by_a_kernel) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr weights = 0, counter = 0;
  CU(cuModuleGetGlobal(&weights, nullptr, module.handle, "weights"));
  CU(cuModuleGetGlobal(&counter, nullptr, module.handle, "counter"));
  float eight = 800;
  int value = 7;
  SHOW(cuMemcpyHtoD(weights + 4 * 7, &eight, 4));
  SHOW(cuMemcpyHtoD(counter, &value, 4));
  DeviceArray<int> counters(2);
  DeviceArray<float> table(64), copies(16);
  LAUNCH(module.function("read_state"), {1}, {64}, 0, nullptr, counters.pointer, table.pointer, copies.pointer);
  printf("%d %d %g %g\n", counters.read()[0], counters.read()[1], copies.read()[7], copies.read()[8]);
}

CASE(free_a_global) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr counter = 0;
  CU(cuModuleGetGlobal(&counter, nullptr, module.handle, "counter"));
  SHOW(cuMemFree(counter));
}

CASE(unload_null) {
  Gpu gpu;
  SHOW(cuModuleUnload(nullptr));
}

CASE(unload_twice) {
  Gpu gpu;
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  SHOW(cuModuleUnload(module));
  SHOW(cuModuleUnload(module));
}

CASE(loading_mode) {
  Gpu gpu;
  CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
  SHOW(cuModuleGetLoadingMode(&mode));
  printf("%d\n", static_cast<int>(mode));
  // NULL crashes natively.
}

CASE(loading_mode_eager) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  Gpu gpu;
  CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
  SHOW(cuModuleGetLoadingMode(&mode));
  printf("%d\n", static_cast<int>(mode));
}

CASE(module_of_a_function) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUmodule found = nullptr;
  SHOW(cuFuncGetModule(&found, module.function("fill")));
  printf("same: %s\n", found == module.handle ? "yes" : "no");
  SHOW(cuFuncGetModule(nullptr, module.function("fill")));
  SHOW(cuFuncGetModule(&found, nullptr));
}

CASE(function_loaded_or_not) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  CUfunctionLoadingState state = static_cast<CUfunctionLoadingState>(9);
  SHOW(cuFuncLoad(fill));
  SHOW(cuFuncIsLoaded(&state, fill));
  printf("%d\n", static_cast<int>(state));
  SHOW(cuFuncIsLoaded(nullptr, fill));
  SHOW(cuFuncIsLoaded(&state, nullptr));
  SHOW(cuFuncLoad(nullptr));
}

CASE(module_stays_with_its_context) {
  Gpu gpu;
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CU(cuCtxSetCurrent(gpu.context));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module, "fill"));
  SHOW(cuModuleUnload(module));
  SHOW(cuCtxDestroy(own));
}

CASE(texture_and_surface_references_are_not_found) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUtexref texture = nullptr;
  CUsurfref surface = nullptr;
  SHOW(cuModuleGetTexRef(&texture, module.handle, "no_such_texture"));
  SHOW(cuModuleGetSurfRef(&surface, module.handle, "no_such_surface"));
}
