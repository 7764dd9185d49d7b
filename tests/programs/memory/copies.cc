// Copies of many sizes, 1 byte to 64 MiB: synchronous and asynchronous, pageable and pinned, with
// odd offsets; 2D and 3D; device to device; the unified cuMemcpy.
#include "tests/programs/common.h"

static void one_size(size_t size, CUstream stream) {
  Random random(size);
  std::vector<unsigned char> source = random.bytes(size + 8);
  std::vector<unsigned char> target(size + 8, 0);
  CUdeviceptr a, b;
  CU(cuMemAlloc(&a, size + 8));
  CU(cuMemAlloc(&b, size + 8));
  void *pinned_in = nullptr, *pinned_out = nullptr;
  CU(cuMemHostAlloc(&pinned_in, size + 8, 0));
  CU(cuMemAllocHost(&pinned_out, size + 8));

  CU(cuMemcpyHtoD(a, source.data(), size));
  CU(cuMemcpyDtoD(b + 1, a, size));
  CU(cuMemcpyDtoH(target.data() + 3, b + 1, size));
  EXPECT(memcmp(source.data(), target.data() + 3, size) == 0);

  memcpy(pinned_in, source.data() + 5, size);
  CU(cuMemcpyHtoDAsync(a + 2, pinned_in, size, stream));
  CU(cuMemcpyDtoDAsync(b, a + 2, size, stream));
  CU(cuMemcpyDtoHAsync(pinned_out, b, size, stream));
  CU(cuStreamSynchronize(stream));
  EXPECT(memcmp(pinned_out, source.data() + 5, size) == 0);

  // Pageable and asynchronous: the source may be reused as soon as the call returns.
  std::vector<unsigned char> scratch(source.begin(), source.begin() + static_cast<long>(size));
  CU(cuMemcpyHtoDAsync(b, scratch.data(), size, stream));
  memset(scratch.data(), 0xee, size);
  CU(cuMemcpyDtoHAsync(target.data(), b, size, stream));
  CU(cuStreamSynchronize(stream));
  EXPECT(memcmp(target.data(), source.data(), size) == 0);

  CU(cuMemcpy(a, reinterpret_cast<CUdeviceptr>(source.data()), size));
  CU(cuMemcpy(reinterpret_cast<CUdeviceptr>(target.data()) + 1, a, size));
  EXPECT(memcmp(target.data() + 1, source.data(), size) == 0);
  CU(cuMemcpyAsync(b, a, size, stream));
  CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned_out), b, size, stream));
  CU(cuStreamSynchronize(stream));
  printf(
      "%zu bytes: %016llx\n", size,
      static_cast<unsigned long long>(hash_bytes(pinned_out, size < (1u << 20) ? size : 1u << 20)));
  EXPECT(memcmp(pinned_out, source.data(), size) == 0);

  CU(cuMemFreeHost(pinned_in));
  CU(cuMemFreeHost(pinned_out));
  CU(cuMemFree(a));
  CU(cuMemFree(b));
}

static void rectangles() {
  const size_t width = 100, height = 37;
  Random random(77);
  std::vector<unsigned char> source = random.bytes(160 * 50);
  CUdeviceptr pitched;
  size_t pitch = 0;
  CU(cuMemAllocPitch(&pitched, &pitch, width, height, 4));
  printf("pitch %s\n", pitch >= width && pitch % 32 == 0 ? "sensible" : "odd");
  CU(cuMemsetD8(pitched, 0x11, pitch * height));

  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = source.data(), in.srcPitch = 160,
  in.srcXInBytes = 7, in.srcY = 5;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = pitched, in.dstPitch = pitch;
  in.WidthInBytes = width, in.Height = height;
  CU(cuMemcpy2D(&in));
  std::vector<unsigned char> target(120 * 50, 0x22);
  CUDA_MEMCPY2D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE, out.srcDevice = pitched, out.srcPitch = pitch,
  out.srcY = 2;
  out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = target.data(), out.dstPitch = 120,
  out.dstXInBytes = 9, out.dstY = 1;
  out.WidthInBytes = width, out.Height = height - 2;
  CU(cuMemcpy2DUnaligned(&out));
  print_hash("2D", target);
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned char> again(120 * 50, 0x22);
  out.dstHost = again.data();
  CU(cuMemcpy2DAsync(&out, stream));
  CU(cuStreamSynchronize(stream));
  EXPECT(again == target);

  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_HOST, box.srcHost = source.data(), box.srcPitch = 20,
  box.srcHeight = 20;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = pitched, box.dstPitch = 16,
  box.dstHeight = 10;
  box.WidthInBytes = 13, box.Height = 9, box.Depth = 4;
  CU(cuMemcpy3D(&box));
  std::vector<unsigned char> flat(16 * 10 * 4);
  CU(cuMemsetD8(pitched + 600, 0, 40));
  CU(cuMemcpyDtoH(flat.data(), pitched, flat.size()));
  unsigned long long sum = 0;
  for (int z = 0; z < 4; ++z)
    for (int y = 0; y < 9; ++y)
      for (int x = 0; x < 13; ++x)
        if (const int at = z * 160 + y * 16 + x; at < 600)
          sum = sum * 31 + flat[static_cast<size_t>(at)];
  printf("3D %016llx\n", sum);
  CU(cuMemFree(pitched));
  CU(cuStreamDestroy(stream));
}

int main() {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const size_t sizes[] = {1,    2,     3,     7,       64,      255,     4095,    4096,
                          4097, 65536, 65537, 1000003, 2097152, 8388611, 67108864};
  for (size_t size : sizes) one_size(size, stream);
  CU(cuStreamDestroy(stream));
  rectangles();

  CUdeviceptr none = 0;
  CU(cuMemAlloc(&none, 16));
  SHOW(cuMemcpyHtoD(none, "", 0));
  SHOW(cuMemcpyDtoH(nullptr, none, 0));
  CU(cuMemFree(none));
  return 0;
}
