// Copies between pageable memory and the GPU that go beyond the GPU's memory: refused before a byte
// moves, whatever way the copy takes, also where the host's side ends earlier than the size says.
#include <sys/mman.h>

#include <algorithm>

#include "tests/programs/common.h"

namespace {

using Bytes = std::vector<unsigned char>;

size_t changed(const Bytes& bytes, unsigned char from) {
  return bytes.size() - static_cast<size_t>(std::count(bytes.begin(), bytes.end(), from));
}

constexpr size_t kHeld = 16 << 20;

struct Memory {
  CUdeviceptr address;
  Memory() { CU(cuMemAlloc(&address, kHeld)); }
  ~Memory() { CU(cuMemFree(address)); }
  void set() const {
    CU(cuMemsetD8(address, 0xaa, kHeld));
    CU(cuCtxSynchronize());
  }
  size_t changed_bytes() const {
    Bytes back(kHeld);
    CU(cuMemcpyDtoH(back.data(), address, kHeld));
    return changed(back, 0xaa);
  }
};

// From `at` on, `beyond` bytes more than there are.
void flat(const Memory& memory, size_t at, size_t beyond) {
  const size_t bytes = kHeld - at + beyond;
  const Bytes sent(bytes, 0x11);
  Bytes got(bytes, 0x22);
  memory.set();
  const CUresult up = cuMemcpyHtoD(memory.address + at, sent.data(), bytes);
  const CUresult up_async = cuMemcpyHtoDAsync(memory.address + at, sent.data(), bytes, nullptr);
  const CUresult down = cuMemcpyDtoH(got.data(), memory.address + at, bytes);
  printf("%zu bytes, %zu beyond: %s %s %s, then %s; changed %zu and %zu\n", bytes, beyond,
         code_name(up), code_name(up_async), code_name(down), code_name(cuCtxSynchronize()),
         memory.changed_bytes(), changed(got, 0x22));
}

void rows(const Memory& memory, size_t width, size_t height) {
  const Bytes sent(width * height, 0x11);
  Bytes got(width * height, 0x22);
  memory.set();
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST, up.srcHost = sent.data(), up.srcPitch = width;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE, up.dstDevice = memory.address, up.dstPitch = width;
  up.WidthInBytes = width, up.Height = height;
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE, down.srcDevice = memory.address, down.srcPitch = width;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = got.data(), down.dstPitch = width;
  down.WidthInBytes = width, down.Height = height;
  const CUresult sent_code = cuMemcpy2D(&up), got_code = cuMemcpy2D(&down);
  printf("%zu rows of %zu: %s %s, then %s; changed %zu and %zu\n", height, width,
         code_name(sent_code), code_name(got_code), code_name(cuCtxSynchronize()),
         memory.changed_bytes(), changed(got, 0x22));
}

// A mapping, and the rest of its reservation. What is known of it, the proxy knows.
void half_mapped() {
  constexpr size_t kMapped = 2 << 20;
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE, what.location.id = 0;
  CUmemAccessDesc access{};
  access.location = what.location, access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle physical;
  CUdeviceptr address;
  CU(cuMemAddressReserve(&address, 2 * kMapped, 0, 0, 0));
  CU(cuMemCreate(&physical, kMapped, &what, 0));
  CU(cuMemMap(address, kMapped, 0, physical, 0));
  CU(cuMemSetAccess(address, kMapped, &access, 1));
  CU(cuMemsetD8(address, 0xaa, kMapped));
  for (const size_t beyond : {size_t{1}, kMapped}) {
    const size_t bytes = kMapped + beyond;
    const Bytes sent(bytes, 0x11);
    Bytes got(bytes, 0x22), back(kMapped);
    const CUresult up = cuMemcpyHtoD(address, sent.data(), bytes);
    const CUresult down = cuMemcpyDtoH(got.data(), address, bytes);
    CU(cuMemcpyDtoH(back.data(), address, kMapped));
    printf("mapped, %zu beyond: %s %s; changed %zu and %zu\n", beyond, code_name(up),
           code_name(down), changed(back, 0xaa), changed(got, 0x22));
  }
  CU(cuMemUnmap(address, kMapped));
  CU(cuMemRelease(physical));
  CU(cuMemAddressFree(address, 2 * kMapped));
}

// A page with nothing behind it, and a size that is more.
void short_host_side(const Memory& memory, size_t at, size_t bytes) {
  const size_t page = 4096;
  void* const area =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(area != MAP_FAILED);
  EXPECT(munmap(static_cast<char*>(area) + page, page) == 0);
  printf("%zx bytes of a page:", bytes);
  const CUresult up = cuMemcpyHtoD(memory.address + at, area, bytes);
  const CUresult down = cuMemcpyDtoH(area, memory.address + at, bytes);
  printf(" %s %s\n", code_name(up), code_name(down));
  munmap(area, page);
}

}  // namespace

int main() {
  Gpu gpu;
  const Memory memory;
  for (const size_t beyond : {size_t{1}, size_t{4096}, size_t{1} << 20, kHeld})
    flat(memory, 0, beyond);
  flat(memory, kHeld - (1 << 20), 1);
  flat(memory, kHeld - (3 << 20), 1 << 20);
  flat(memory, kHeld - 512, 1024);
  rows(memory, 4096, (kHeld >> 12) + 1);
  rows(memory, 3 << 20, 6);
  half_mapped();
  short_host_side(memory, 0, ~size_t{0} - 3);
  short_host_side(memory, kHeld - (1 << 20), (1 << 20) + 1);
  short_host_side(memory, kHeld - 8192, 16384);
  return 0;
}
