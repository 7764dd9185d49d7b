// What is known of a function and what may be set on it.
#include "tests/conformance/case.h"

static void get(CUfunction function, const char* name, CUfunction_attribute which) {
  int value = -77;
  const CUresult result = cuFuncGetAttribute(&value, which, function);
  printf("%s: %s, %d\n", name, code_name(result), value);
}

CASE(of_a_kernel_with_launch_bounds) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("bounded");
  get(function, "threads", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  get(function, "static shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  get(function, "constant", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  get(function, "local", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  get(function, "cache mode", CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
  get(function, "dynamic shared", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  get(function, "carve-out", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
}

CASE(of_a_kernel_with_static_shared_memory) {
  Gpu gpu;
  Module module("kernels.fatbin");
  get(module.function("matmul"), "static shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  get(module.function("histogram"), "static shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  get(module.function("block_sum"), "static shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  get(module.function("matmul"), "dynamic shared", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}

CASE(cluster_attributes) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  get(function, "must be set", CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
  get(function, "width", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  get(function, "height", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
  get(function, "depth", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
  get(function, "non-portable", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  get(function, "policy", CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
}

CASE(binary_and_ptx_versions) {
  Gpu gpu;
  Module module("kernels.fatbin");
  int binary = 0, ptx = 0;
  SHOW(cuFuncGetAttribute(&binary, CU_FUNC_ATTRIBUTE_BINARY_VERSION, module.function("fill")));
  SHOW(cuFuncGetAttribute(&ptx, CU_FUNC_ATTRIBUTE_PTX_VERSION, module.function("fill")));
  printf("at least 70: %s %s\n", binary >= 70 ? "yes" : "no", ptx >= 70 ? "yes" : "no");
}

CASE(get_bad_arguments) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  int value = -7;
  SHOW(cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  SHOW(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(-1), function));
  SHOW(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(16), function));
  SHOW(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(1000), function));
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
  printf("%d\n", value);
}

CASE(set_dynamic_shared_memory) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("dynamic_shared");
  for (int bytes : {0, 1000, 49152, 65536, 101376}) {
    const CUresult result = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
    printf("%d: %s; ", bytes, code_name(result));
    get(function, "now", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  }
}

CASE(set_dynamic_shared_memory_beyond_the_limit) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("dynamic_shared");
  int optin = 0;
  CU(cuDeviceGetAttribute(&optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpu.device));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin + 1));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
  SHOW(cuFuncSetAttribute(module.function("matmul"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin - 2048));
  SHOW(cuFuncSetAttribute(module.function("matmul"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin - 2047));
}

CASE(set_carveout) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  for (int value : {-1, 0, 50, 100, 101, -2, 1000}) {
    printf("%d: ", value);
    SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value));
  }
  get(function, "now", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
}

CASE(set_read_only_attributes) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  for (int which = 0; which < 8; ++which) {
    printf("%d: %s\n", which, code_name(cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(which), 1)));
  }
}

CASE(set_cluster_attributes) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  get(function, "now", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 7));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_CLUSTER_SCHEDULING_POLICY_SPREAD));
  get(function, "now", CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 9));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 1));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
  get(function, "width", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
}

CASE(set_bad_arguments) {
  Gpu gpu;
  Module module("kernels.fatbin");
  SHOW(cuFuncSetAttribute(nullptr, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  // An attribute of -1 crashes natively.
}

CASE(cache_config) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = module.function("fill");
  for (int value : {0, 1, 2, 3, 4, -1}) printf("%d: %s\n", value, code_name(cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(value))));
  SHOW(cuFuncSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1));
}

CASE(names) {
  Gpu gpu;
  Module module("kernels.fatbin");
  const char* name = nullptr;
  SHOW(cuFuncGetName(&name, module.function("warp_ops")));
  printf("%s\n", name);
  SHOW(cuFuncGetName(nullptr, module.function("warp_ops")));
  SHOW(cuFuncGetName(&name, nullptr));
}

CASE(name_of_a_kernel_handle) {
  Gpu gpu;
  CUlibrary library = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, library, "saxpy"));
  const char* name = nullptr;
  SHOW(cuFuncGetName(&name, reinterpret_cast<CUfunction>(kernel)));
  printf("%s\n", name != nullptr ? name : "null");
  int value = -1;
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, reinterpret_cast<CUfunction>(kernel)));
  printf("%d\n", value);
}

CASE(attribute_of_one_module_is_not_the_others) {
  Gpu gpu;
  Module one("kernels.fatbin"), two("kernels.fatbin");
  CU(cuFuncSetAttribute(one.function("dynamic_shared"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 70000));
  get(one.function("dynamic_shared"), "one", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  get(two.function("dynamic_shared"), "two", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}
