// Large copies of pageable memory, both ways: odd sizes and addresses, memory that nobody has
// touched, a file's, the source reused as soon as the call returns, order with other work of the
// stream, several threads at once, sizes that the allocation has not.
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kMiB = 1u << 20;

// Cheaper than Random for this much.
void fill(std::vector<unsigned char>& bytes, uint64_t seed) {
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < bytes.size(); i += sizeof(x)) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    memcpy(&bytes[i], &x, std::min(sizeof(x), bytes.size() - i));
  }
}

class Untouched {
 public:
  explicit Untouched(size_t size) : size_(size) {
    memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory_ != MAP_FAILED);
  }
  ~Untouched() { munmap(memory_, size_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }

 private:
  size_t size_;
  void* memory_ = nullptr;
};

void one_size(size_t size, size_t odd) {
  CUdeviceptr device;
  CU(cuMemAlloc(&device, size + 64));
  CU(cuMemsetD8(device, 0x77, size + 64));
  std::vector<unsigned char> source(size + odd);
  fill(source, size);
  CU(cuMemcpyHtoD(device + odd, source.data() + odd, size));
  const Untouched target(size + 2 * odd + 1);
  CU(cuMemcpyDtoH(target.data() + odd, device + odd, size));
  EXPECT(memcmp(target.data() + odd, source.data() + odd, size) == 0);
  for (size_t i = 0; i < odd; ++i) EXPECT(target.data()[i] == 0);
  EXPECT(target.data()[size + odd] == 0);
  // What lies beside it on the GPU is as it was.
  unsigned char edge[64];
  CU(cuMemcpyDtoH(edge, device, odd));
  for (size_t i = 0; i < odd; ++i) EXPECT(edge[i] == 0x77);
  CU(cuMemcpyDtoH(edge, device + odd + size, 64 - odd));
  for (size_t i = 0; i < 64 - odd; ++i) EXPECT(edge[i] == 0x77);
  printf("%zu bytes at %zu: %016llx\n", size, odd,
         static_cast<unsigned long long>(hash_bytes(target.data() + odd, kMiB)));
  CU(cuMemFree(device));
}

void in_stream_order(CUstream stream) {
  const size_t size = 24 * kMiB + 12;
  CUdeviceptr a, b;
  CU(cuMemAlloc(&a, size));
  CU(cuMemAlloc(&b, size));
  std::vector<unsigned char> source(size), target(size);
  for (int round = 0; round < 3; ++round) {
    fill(source, 100 + round);
    const uint64_t before = hash_bytes(source.data(), size);
    CU(cuMemsetD8Async(a, 0, size, stream));
    CU(cuMemcpyHtoDAsync(a, source.data(), size, stream));
    memset(source.data(), 0xee, size);  // the call has returned
    CU(cuMemcpyDtoDAsync(b, a, size, stream));
    CU(cuMemsetD8Async(a, 1, size, stream));
    CU(cuMemcpyDtoHAsync(target.data(), b, size, stream));
    CU(cuStreamSynchronize(stream));
    EXPECT(hash_bytes(target.data(), size) == before);
  }
  CU(cuMemFree(a));
  CU(cuMemFree(b));
  printf("in order\n");
}

void of_a_file() {
  const size_t size = 16 * kMiB;
  FILE* file = tmpfile();
  std::vector<unsigned char> bytes(size), back(size);
  fill(bytes, 5);
  EXPECT(fwrite(bytes.data(), 1, size, file) == size && fflush(file) == 0);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fileno(file), 0);
  EXPECT(mapped != MAP_FAILED);
  CUdeviceptr device;
  CU(cuMemAlloc(&device, size));
  CU(cuMemcpyHtoD(device, mapped, size));
  CU(cuMemcpyDtoH(back.data(), device, size));
  EXPECT(bytes == back);
  CU(cuMemFree(device));
  munmap(mapped, size);
  fclose(file);
  printf("a file's\n");
}

void by_threads(CUcontext context) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 6; ++i) {
    threads.emplace_back([context, i] {
      CU(cuCtxSetCurrent(context));
      const size_t size = 9 * kMiB + i;
      CUstream stream;
      CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      CUdeviceptr device;
      CU(cuMemAlloc(&device, size));
      std::vector<unsigned char> source(size), target(size);
      fill(source, i);
      for (int round = 0; round < 2; ++round) {
        CU(cuMemcpyHtoDAsync(device, source.data(), size, stream));
        memset(target.data(), 0, size);
        CU(cuMemcpyDtoHAsync(target.data(), device, size, stream));
        CU(cuStreamSynchronize(stream));
        EXPECT(source == target);
      }
      CU(cuMemFree(device));
      CU(cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  printf("by threads\n");
}

void refused() {
  const size_t size = 12 * kMiB;
  CUdeviceptr device;
  CU(cuMemAlloc(&device, size));
  std::vector<unsigned char> bytes(64 * kMiB);
  SHOW(cuMemcpyHtoD(device + size, bytes.data(), 0));
  SHOW(cuMemcpyHtoD(0, bytes.data(), size));
  SHOW(cuMemcpyDtoH(nullptr, device, size));
  CU(cuMemcpyHtoD(device, bytes.data(), size));
  CU(cuMemFree(device));
  SHOW(cuMemcpyHtoD(device, bytes.data(), size));
  SHOW(cuMemcpyDtoH(bytes.data(), device, size));
  // Refused copies leave nothing taken: the next ones have all they need.
  CU(cuMemAlloc(&device, size));
  for (int i = 0; i < 8; ++i) CU(cuMemcpyHtoD(device, bytes.data(), size));
  CU(cuMemFree(device));
}

}  // namespace

int main() {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (const size_t odd : {0, 1, 33})
    for (const size_t size : {8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1}) one_size(size, odd);
  for (const size_t size : {33 * kMiB - 7, 65 * kMiB + 3}) one_size(size, 33);
  in_stream_order(stream);
  of_a_file();
  by_threads(gpu.context);
  refused();
  CU(cuStreamDestroy(stream));
  printf("done\n");
  return 0;
}
