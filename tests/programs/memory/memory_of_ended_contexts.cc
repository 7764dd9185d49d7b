// Memory of pools and mappings belongs to no context: it stays when the context that was current
// ends, and the pool's account with it.
#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 2 << 20;

struct Kept {
  CUdeviceptr pooled = 0, mapped = 0;
  CUmemGenericAllocationHandle handle = 0;

  void make() {
    CU(cuMemAllocAsync(&pooled, kBytes, nullptr));
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CU(cuMemCreate(&handle, kBytes, &prop, 0));
    CU(cuMemAddressReserve(&mapped, kBytes, 0, 0, 0));
    CU(cuMemMap(mapped, kBytes, 0, handle, 0));
    show("no access", mapped);
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemSetAccess(mapped, kBytes, &access, 1));
    CU(cuMemsetD8(pooled, 5, kBytes));
    CU(cuMemsetD8(mapped, 6, kBytes));
    CU(cuCtxSynchronize());
  }
  static void show(const char* name, CUdeviceptr pointer) {
    unsigned type = 0, access = 9;
    int ordinal = -5;
    CUcontext context = nullptr;
    SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    SHOW(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, pointer));
    SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    printf("%s: type %u, access %u, device %d, %s\n", name, type, access, ordinal,
           context == nullptr ? "no context" : "a context");
  }
  void show() const {
    for (const auto& [name, pointer] : {std::pair{"pooled", pooled}, std::pair{"mapped", mapped}}) {
      show(name, pointer);
      CUdeviceptr base = 0;
      size_t bytes = 0;
      SHOW(cuMemGetAddressRange(&base, &bytes, pointer));
      unsigned char got = 0;
      SHOW(cuMemcpyDtoH(&got, pointer + kBytes - 1, 1));
      printf("%s: %zu bytes, %d\n", name, bytes, got);
    }
  }
  void end() const {
    SHOW(cuMemFreeAsync(pooled, nullptr));
    CU(cuCtxSynchronize());
    SHOW(cuMemUnmap(mapped, kBytes));
    SHOW(cuMemRelease(handle));
    SHOW(cuMemAddressFree(mapped, kBytes));
  }
};

void show_pool() {
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, 0));
  uint64_t used = 0;
  CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", static_cast<unsigned long long>(used));
}

}  // namespace

int main() {
  CU(cuInit(0));
  CUcontext primary = nullptr, created = nullptr;
  CU(cuDevicePrimaryCtxRetain(&primary, 0));
  CU(cuCtxCreate(&created, nullptr, 0, 0));
  Kept kept;
  kept.make();
  kept.show();
  show_pool();
  CU(cuCtxDestroy(created));
  CU(cuCtxSetCurrent(primary));
  kept.show();
  show_pool();
  kept.end();
  show_pool();
  // The primary context's end, while another one is used.
  CU(cuCtxCreate(&created, nullptr, 0, 0));
  kept.make();
  CU(cuDevicePrimaryCtxRelease(0));
  kept.show();
  show_pool();
  kept.end();
  CU(cuCtxDestroy(created));
  return 0;
}
