#include "tests/unit/sim/support.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tube::sim::test {
namespace {

using MemoryTest = SimTest;

TEST_F(MemoryTest, CopiesGoRoundTrip) {
  CUdeviceptr a, b;
  CU_OK(cuMemAlloc(&a, 4000));
  CU_OK(cuMemAlloc(&b, 4000));
  std::vector<int> in(1000), out(1000);
  for (int i = 0; i < 1000; ++i) in[static_cast<size_t>(i)] = i * 3;
  CU_OK(cuMemcpyHtoD(a, in.data(), 4000));
  CU_OK(cuMemcpyDtoD(b, a, 4000));
  CU_OK(cuMemcpyDtoH(out.data(), b, 4000));
  EXPECT_EQ(in, out);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a + 3584, in.data(), 4000));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(0x1000, a, 4));
  CU_OK(cuMemFree(a));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
  CU_OK(cuMemFree(b));
}

TEST_F(MemoryTest, AccountingReturnsToItsStart) {
  size_t before = 0, after = 0, total = 0;
  CU_OK(cuMemGetInfo(&before, &total));
  CUdeviceptr p = 0;
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&p, total + 1));
  CU_OK(cuMemAlloc(&p, total / 2));  // accounted, not touched
  CUdeviceptr none = 0;              // a failed allocation writes 0, as the driver does
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, before));
  CU_OK(cuMemFree(p));
  for (int i = 0; i < 300; ++i) {
    CUdeviceptr q;
    CU_OK(cuMemAlloc(&q, static_cast<size_t>(1000 + i * 7777)));
    CU_OK(cuMemsetD8(q, 1, 1000));
    CU_OK(cuMemFree(q));
  }
  CU_OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
}

TEST_F(MemoryTest, MemsetsFillElementsAndRows) {
  CUdeviceptr p;
  size_t pitch = 0;
  CU_OK(cuMemAllocPitch(&p, &pitch, 40, 4, 4));
  EXPECT_EQ(0u, pitch % 512);
  CU_OK(cuMemsetD2D32(p, pitch, 0x01020304, 10, 4));
  std::vector<unsigned> out(40);
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = p;
  c.srcPitch = pitch;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = out.data();
  c.dstPitch = 40;
  c.WidthInBytes = 40;
  c.Height = 4;
  CU_OK(cuMemcpy2D(&c));
  EXPECT_EQ(std::vector<unsigned>(40, 0x01020304), out);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(p + 1, 0, 1));
}

TEST_F(MemoryTest, PinnedMemoryHasOneAddress) {
  void* host = nullptr;
  CUdeviceptr device = 0;
  CU_OK(cuMemHostAlloc(&host, 8192, CU_MEMHOSTALLOC_PORTABLE));
  CU_OK(cuMemHostGetDevicePointer(&device, host, 0));
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(host), device);
  unsigned type = 0;
  CU_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_HOST), type);
  CU_OK(cuMemFreeHost(host));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

TEST_F(MemoryTest, RegistersMappedPagesOnly) {
  int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(fd, 65536));
  void* p = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CU_OK(cuMemHostRegister(p, 65536, CU_MEMHOSTREGISTER_PORTABLE));
  CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p, 4096, 0));
  CU_OK(cuMemsetD32(reinterpret_cast<CUdeviceptr>(p), 5, 4));
  EXPECT_EQ(5, *static_cast<volatile int*>(p));
  CU_OK(cuMemHostUnregister(p));
  CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p));
  munmap(p, 65536);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(p, 65536, 0));
  close(fd);
}

TEST_F(MemoryTest, UnknownPointersHaveNoAttributes) {
  unsigned type = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000));
  CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                               CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  int ordinal = 0;
  void* data[] = {&type, &ordinal};
  CU_OK(cuPointerGetAttributes(2, ids, data, 0x1000));
  EXPECT_EQ(0u, type);
  EXPECT_EQ(-2, ordinal);
}

class VmmTest : public SimTest {
 protected:
  static constexpr size_t kSize = 4 << 20;
  void SetUp() override {
    SimTest::SetUp();
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  CUresult access(CUdeviceptr p, CUmemAccess_flags flags) {
    CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, device_}, flags};
    return cuMemSetAccess(p, kSize, &desc, 1);
  }
  CUmemAllocationProp prop_{};
};

TEST_F(VmmTest, HonoursAddressHintsInTheWindow) {
  for (CUdeviceptr hint : {0x100000000000ull, 0x300000000000ull, 0x6f0000000000ull}) {
    CUdeviceptr p = 0, other = 0;
    CU_OK(cuMemAddressReserve(&p, 1ull << 40, 0, hint, 0));
    EXPECT_EQ(hint, p);
    CU_OK(cuMemAddressReserve(&other, 2 << 20, 0, hint, 0));  // taken: somewhere else
    EXPECT_NE(hint, other);
    CU_OK(cuMemAddressFree(other, 2 << 20));
    CU_OK(cuMemAddressFree(p, 1ull << 40));
  }
}

TEST_F(VmmTest, AccessMustBeGrantedAndMayBeReadOnly) {
  load();
  CUdeviceptr p = 0;
  CUmemGenericAllocationHandle handle;
  CU_OK(cuMemAddressReserve(&p, kSize, 0, 0, 0));
  CU_OK(cuMemCreate(&handle, kSize, &prop_, 0));
  CU_OK(cuMemMap(p, kSize, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p, 3, 4));
  CU_OK(access(p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CU_OK(cuMemsetD32(p, 3, 4));
  CU_OK(cuCtxSynchronize());
  CU_OK(access(p, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_EQ(3u, read(p));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p, 4, 4));
  EXPECT_EQ(3u, read(p));  // the context stays healthy
  CU_OK(cuMemUnmap(p, kSize));
  CU_OK(cuMemRelease(handle));
  CU_OK(cuMemAddressFree(p, kSize));
}

TEST_F(VmmTest, ExportedFdMapsTheSameBytesTwice) {
  CUdeviceptr a = 0, b = 0;
  CUmemGenericAllocationHandle handle, imported;
  size_t before = 0, after = 0, total = 0;
  CU_OK(cuMemGetInfo(&before, &total));
  CU_OK(cuMemAddressReserve(&a, kSize, 0, 0, 0));
  CU_OK(cuMemAddressReserve(&b, kSize, 0, 0, 0));
  CU_OK(cuMemCreate(&handle, kSize, &prop_, 0));
  int fd = -1;
  CU_OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU_OK(cuMemImportFromShareableHandle(&imported,
                                       reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CU_OK(cuMemMap(a, kSize, 0, handle, 0));
  CU_OK(cuMemMap(b, kSize, 0, imported, 0));
  CU_OK(access(a, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CU_OK(access(b, CU_MEM_ACCESS_FLAGS_PROT_READ));
  CU_OK(cuMemsetD32(a, 0xabcd, 16));
  EXPECT_EQ(0xabcdu, read(b + 60));
  CU_OK(cuMemRelease(handle));
  CU_OK(cuMemRelease(imported));
  CU_OK(cuMemUnmap(a, kSize));
  EXPECT_EQ(0xabcdu, read(b));
  CU_OK(cuMemUnmap(b, kSize));
  CU_OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  CU_OK(cuMemAddressFree(a, kSize));
  CU_OK(cuMemAddressFree(b, kSize));
}

TEST_F(VmmTest, OneCopySpansSeveralHandles) {
  CUdeviceptr p = 0;
  CU_OK(cuMemAddressReserve(&p, kSize, 0, 0, 0));
  CUmemGenericAllocationHandle h[2];
  for (int i = 0; i < 2; ++i) {
    CU_OK(cuMemCreate(&h[i], kSize / 2, &prop_, 0));
    CU_OK(cuMemMap(p + static_cast<size_t>(i) * kSize / 2, kSize / 2, 0, h[i], 0));
    CU_OK(cuMemRelease(h[i]));
  }
  CU_OK(access(p, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  CU_OK(cuMemsetD32(p, 9, kSize / 4));
  EXPECT_EQ(9u, read(p + kSize - 4));
  CUmemGenericAllocationHandle again;
  CU_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(p)));
  size_t range = 0, mapping = 0;
  CU_OK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
  CU_OK(cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p));
  EXPECT_EQ(kSize, range);
  EXPECT_EQ(kSize / 2, mapping);
  CUmemAllocationProp prop;
  CU_OK(cuMemGetAllocationPropertiesFromHandle(&prop, again));
  EXPECT_EQ(device_, prop.location.id);
  CU_OK(cuMemRelease(again));
  CU_OK(cuMemUnmap(p, kSize));
  CU_OK(cuMemAddressFree(p, kSize));
}

TEST_F(MemoryTest, PoolMemoryFollowsTheStream) {
  CUstream stream;
  CUdeviceptr p = 0;
  CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU_OK(cuMemAllocAsync(&p, 4096, stream));
  CU_OK(cuMemsetD32Async(p, 11, 1024, stream));
  unsigned out = 0;
  CU_OK(cuMemcpyDtoHAsync(&out, p + 4092, 4, stream));
  CU_OK(cuMemFreeAsync(p, stream));
  CU_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(11u, out);
  CUmemoryPool pool;
  cuuint64_t used = 1;
  CU_OK(cuDeviceGetDefaultMemPool(&pool, device_));
  CU_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0u, used);
}

}  // namespace
}  // namespace tube::sim::test
