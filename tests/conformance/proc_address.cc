// cuGetProcAddress: names, versions, forms.
#include "tests/conformance/case.h"

static void ask(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  void* found = reinterpret_cast<void*>(8);
  CUdriverProcAddressQueryResult status = static_cast<CUdriverProcAddressQueryResult>(9);
  const CUresult result = cuGetProcAddress(name, &found, version, flags, &status);
  printf("%s %d %llu: %s, %s, status %d\n", name != nullptr ? name : "(null)", version, static_cast<unsigned long long>(flags), code_name(result),
         found == nullptr ? "null" : found == reinterpret_cast<void*>(8) ? "untouched" : "found", static_cast<int>(status));
}
static void* look(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  void* found = nullptr;
  CU(cuGetProcAddress(name, &found, version, flags, nullptr));
  return found;
}

CASE(known_names) {
  for (const char* name : {"cuInit", "cuMemAlloc", "cuLaunchKernel", "cuGraphLaunch", "cuGetProcAddress", "cuCtxCreate", "cuMemcpyHtoDAsync"}) ask(name, 13000);
}

CASE(unknown_names) {
  ask("cuNoSuchFunction", 13000);
  ask("cudaMalloc", 13000);
  ask("cuMemAlloc_v2", 13000);
  ask("", 13000);
  ask("CUINIT", 13000);
}

CASE(without_a_status) {
  void* found = nullptr;
  SHOW(cuGetProcAddress("cuInit", &found, 13000, 0, nullptr));  // a NULL name crashes natively
}

CASE(versions_too_old) {
  ask("cuInit", 0);
  ask("cuInit", 1000);
  ask("cuInit", 2000);
  ask("cuMemAlloc", 2000);
  ask("cuLaunchKernel", 3000);
  ask("cuLaunchKernel", 4000);
  ask("cuGraphLaunch", 9000);
  ask("cuGraphLaunch", 10000);
}

CASE(versions_too_new) {
  ask("cuInit", 20000);
  ask("cuInit", -1);
  ask("cuMemAlloc", 2000000);
}

CASE(old_version_is_another_function) {
  printf("cuMemAlloc: %s\n", look("cuMemAlloc", 2000) != look("cuMemAlloc", 3020) ? "two" : "one");
  printf("cuCtxCreate: %s\n", look("cuCtxCreate", 3020) != look("cuCtxCreate", 13000) ? "two" : "one");
  printf("cuStreamBeginCapture: %s\n", look("cuStreamBeginCapture", 10000) != look("cuStreamBeginCapture", 10010) ? "two" : "one");
  printf("cuEventElapsedTime: %s\n", look("cuEventElapsedTime", 12000) != look("cuEventElapsedTime", 13000) ? "two" : "one");
}

CASE(found_is_the_exported_one) {
  printf("cuMemAlloc: %s\n", look("cuMemAlloc", 13000) == conformance::exported("cuMemAlloc_v2") ? "same" : "another");
  printf("cuInit: %s\n", look("cuInit", 13000) == conformance::exported("cuInit") ? "same" : "another");
}

CASE(per_thread_forms) {
  printf("cuLaunchKernel: %s\n",
         look("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == conformance::exported("cuLaunchKernel_ptsz") ? "the _ptsz form" : "another");
  printf("cuMemcpy: %s\n",
         look("cuMemcpy", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == conformance::exported("cuMemcpy_ptds") ? "the _ptds form" : "another");
  printf("cuMemAlloc: %s\n", look("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == look("cuMemAlloc", 13000) ? "same" : "another");
  ask("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  ask("cuLaunchKernel", 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  ask("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  ask("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

CASE(the_first_version_of_it) {
  using First = CUresult(const char*, void**, int, cuuint64_t);
  auto* first = conformance::symbol_as<First>("cuGetProcAddress");
  void* found = reinterpret_cast<void*>(8);
  SHOW(first("cuMemAlloc", &found, 12000, 0));
  printf("%s\n", found == conformance::exported("cuMemAlloc_v2") ? "the new form" : "another");
  SHOW(first("cuNoSuchFunction", &found, 12000, 0));
  printf("%s\n", found == nullptr ? "null" : "not null");
}

CASE(of_itself) {
  printf("11030: %s\n", look("cuGetProcAddress", 11030) == conformance::exported("cuGetProcAddress") ? "first" : "second");
  printf("12000: %s\n", look("cuGetProcAddress", 12000) == conformance::exported("cuGetProcAddress_v2") ? "second" : "first");
}

CASE(called_through_the_pointer) {
  CU(cuInit(0));
  auto* count = reinterpret_cast<CUresult (*)(int*)>(look("cuDeviceGetCount", 13000));
  int devices = 0;
  SHOW(count(&devices));
  printf("%d\n", devices);
}

CASE(graphics_names) {
  for (const char* name : {"cuGraphicsGLRegisterBuffer", "cuGLGetDevices", "cuVDPAUGetDevice", "cuEGLStreamConsumerConnect", "cuGraphicsUnregisterResource"}) {
    ask(name, 13000);
  }
}
