// The library as a file: its exported names, and how a program finds them.
#include "tests/conformance/case.h"

#include <dlfcn.h>

static void have(const char* name) { printf("%s: %s\n", name, conformance::exported(name) != nullptr ? "there" : "not there"); }

CASE(names_programs_ask_for) {
  for (const char* name : {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuGetProcAddress",
                           "cuGetProcAddress_v2", "cuGetExportTable", "cuLaunchKernel_ptsz", "cuMemcpy_ptds", "cuGraphInstantiate_v2",
                           "cuProfilerStart", "cuGreenCtxCreate", "cuCheckpointProcessLock", "cuLogsCurrent"}) {
    have(name);
  }
}

CASE(names_nobody_exports) {
  for (const char* name : {"cuNoSuchFunction", "cuInit_v2", "cuDeviceGet_v2"}) have(name);
}

CASE(opened_by_soname) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  printf("%s\n", library != nullptr ? "opened" : "not opened");
  if (library == nullptr) return;
  auto* init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
  printf("same function: %s\n", reinterpret_cast<void*>(init) == conformance::exported("cuInit") ? "yes" : "no");
  SHOW(init(0));
  printf("closed: %d\n", dlclose(library));
  int count = 0;
  SHOW(cuDeviceGetCount(&count));
}

CASE(opened_and_closed_many_times) {
  for (int i = 0; i < 20; ++i) {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY);
    auto* init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
    CU(init(0));
    dlclose(library);
  }
  int count = 0;
  SHOW(cuDeviceGetCount(&count));
}

CASE(is_resident) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  printf("%s\n", library != nullptr ? "resident" : "not resident");
}

CASE(unknown_export_table) {
  CU(cuInit(0));
  CUuuid nobody;
  memset(&nobody, 0x55, sizeof(nobody));
  const void* table = &nobody;
  SHOW(cuGetExportTable(&table, &nobody));
  SHOW(cuGetExportTable(nullptr, &nobody));
  SHOW(cuGetExportTable(&table, nullptr));
}
