// Error codes: their names and texts, and what a context answers once it has faulted.
#include "tests/conformance/case.h"

FAULTING_CASE(store_to_null) {
  Gpu gpu;
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction poke;
  CU(cuModuleGetFunction(&poke, module, "poke"));
  SHOW(try_launch(poke, {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  SHOW(cuCtxSynchronize());
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuCtxSynchronize());
  SHOW(cuModuleUnload(module));
  fflush(stdout);
  _exit(0);
}

CASE(error_names) {
  for (int code : {0, 1, 2, 3, 4, 100, 101, 200, 201, 400, 500, 600, 700, 719, 801, 999}) {
    const char* name = nullptr;
    const char* text = nullptr;
    SHOW(cuGetErrorName(static_cast<CUresult>(code), &name));
    SHOW(cuGetErrorString(static_cast<CUresult>(code), &text));
    printf("%d: %s: %s\n", code, name ? name : "null", text ? text : "null");
  }
}
