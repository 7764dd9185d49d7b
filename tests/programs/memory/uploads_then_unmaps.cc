// Small synchronous uploads, and right behind them what makes their memory unreachable or gives it
// away: unmapping, access that is taken away, a free in another context, the end of a module or of
// a context. On an H200 an upload of 60,000 bytes is still on its way when it returns, and
// unmapping its memory, or taking access away, ends the context with 719; `at-once` does so all the
// same (the simulated GPU's uploads are done when they return). Otherwise it is waited for.
#include "tests/programs/common.h"

namespace {

constexpr int kRounds = 10;
constexpr size_t kSizes[] = {4, 4096, 60000, 64 << 10};

struct Mapping {
  CUmemAllocationProp prop = {};
  CUmemAccessDesc access = {};
  CUdeviceptr base = 0;
  size_t bytes = 0;

  Mapping() {
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location = prop.location;
    CU(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CU(cuMemAddressReserve(&base, bytes, 0, 0, 0));
  }
  ~Mapping() { CU(cuMemAddressFree(base, bytes)); }

  void begin() {
    CUmemGenericAllocationHandle handle;
    CU(cuMemCreate(&handle, bytes, &prop, 0));
    CU(cuMemMap(base, bytes, 0, handle, 0));
    CU(cuMemRelease(handle));
    allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  void allow(CUmemAccess_flags flags) {
    access.flags = flags;
    CU(cuMemSetAccess(base, bytes, &access, 1));
  }
  void end() { CU(cuMemUnmap(base, bytes)); }
};

void ends_mappings(bool at_once) {
  Mapping mapping;
  const auto settle = [&] {
    if (!at_once) {
      CU(cuCtxSynchronize());
    }
  };
  for (const size_t size : kSizes) {
    const std::vector<unsigned char> source(size, 3);
    for (int round = 0; round < kRounds; ++round) {
      mapping.begin();
      CU(cuMemcpyHtoD(mapping.base, source.data(), size));
      settle();
      mapping.end();
      mapping.begin();
      CU(cuMemcpyHtoD(mapping.base + mapping.bytes - size, source.data(), size));
      settle();
      mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_NONE);
      CU(cuCtxSynchronize());
      mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      unsigned char last = 0;
      CU(cuMemcpyDtoH(&last, mapping.base + mapping.bytes - 1, 1));
      EXPECT(last == 3);
      mapping.end();
    }
    printf("%zu bytes: unmapped and closed\n", size);
  }
}

// The upload is on another context's legacy stream than those that a free waits for.
void frees_elsewhere(CUcontext context) {
  CUcontext other;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  const std::vector<unsigned char> source(4096, 5);
  for (int round = 0; round < kRounds; ++round) {
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 4 << 20));
    CU(cuCtxSetCurrent(context));
    CU(cuMemcpyHtoD(memory, source.data(), source.size()));
    CU(cuCtxSetCurrent(other));
    CU(cuMemFree(memory));
  }
  CUdeviceptr left = 0;
  CU(cuMemAlloc(&left, 4 << 20));
  CU(cuCtxSetCurrent(context));
  CU(cuMemcpyHtoD(left, source.data(), source.size()));
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(context));
  puts("freed in another context");
}

void ends_modules() {
  for (int round = 0; round < kRounds; ++round) {
    Module module("globals.fatbin");
    CUdeviceptr table = 0;
    size_t bytes = 0;
    CU(cuModuleGetGlobal(&table, &bytes, module.handle, "table"));
    const std::vector<unsigned char> source(bytes, 7);
    CU(cuMemcpyHtoD(table, source.data(), bytes));
  }
  puts("unloaded");
}

}  // namespace

int main(int argc, char** argv) {
  Gpu gpu;
  ends_mappings(argc > 1 && strcmp(argv[1], "at-once") == 0);
  ends_modules();
  frees_elsewhere(gpu.context);
  CU(cuCtxSynchronize());
  puts("well");
  return 0;
}
