// Memory that was registered once and grows afterwards, where it lies: a buffer that is given to
// realloc, a mapping that is made larger, and both in a forked child. The new part is zeros, or
// what the program writes there.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 1 << 20;

void through_the_gpu(void* bytes, size_t size, DeviceArray<unsigned char>& device) {
  CU(cuMemHostRegister(bytes, size, 0));
  CU(cuMemcpyHtoDAsync(device.pointer, bytes, size, nullptr));
  CU(cuCtxSynchronize());
  CU(cuMemHostUnregister(bytes));
}

unsigned long sum_of(const unsigned char* bytes, size_t size) {
  unsigned long sum = 0;
  for (size_t i = 0; i < size; ++i) sum += bytes[i];
  return sum;
}

unsigned char* grown(unsigned char* bytes, size_t size) {
  auto* larger = static_cast<unsigned char*>(realloc(bytes, 2 * size));
  if (larger == nullptr) exit(1);
  memset(larger + size, 3, size);
  return larger;
}

// The memory of another registration lies behind it in whatever Tube keeps them in.
void a_mapping(DeviceArray<unsigned char>& device) {
  auto* mapped = static_cast<unsigned char*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<unsigned char> other(kBytes, 7);
  memset(mapped, 1, kBytes);
  through_the_gpu(mapped, kBytes, device);
  through_the_gpu(other.data(), other.size(), device);
  void* moved = mremap(mapped, kBytes, 2 * kBytes, MREMAP_MAYMOVE);
  printf("mapping: %lu\n",
         moved == MAP_FAILED ? 0 : sum_of(static_cast<unsigned char*>(moved), 2 * kBytes));
}

}  // namespace

int main() {
  Gpu gpu;
  DeviceArray<unsigned char> device(8 * kBytes);
  auto* buffer = static_cast<unsigned char*>(malloc(kBytes));
  memset(buffer, 1, kBytes);
  size_t size = kBytes;
  for (int round = 0; round < 3; ++round, size *= 2) {
    through_the_gpu(buffer, size, device);
    buffer = grown(buffer, size);
    printf("buffer: %lu\n", sum_of(buffer, 2 * size));
  }
  a_mapping(device);
  through_the_gpu(buffer, size, device);
  CU(cuMemHostRegister(buffer, size, 0));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    buffer = grown(buffer, size);
    printf("child: %lu\n", sum_of(buffer, 2 * size));
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("the child's end: %d\n", status);
  CU(cuMemHostUnregister(buffer));
  return 0;
}
