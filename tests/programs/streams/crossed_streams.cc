// Two streams of which the second waits for a value that the first one writes behind a copy, and
// what is called meanwhile: a free in the order of the second one, and a load of code, which waits
// for both.
#include <vector>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 64 << 20;

class Crossed {
 public:
  Crossed() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host_), 2 * kBytes, 0));
    CU(cuMemAlloc(&flag_, 4));
    CU(cuMemsetD32(flag_, 0, 1));
    CU(cuStreamCreate(&first_, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&second_, CU_STREAM_NON_BLOCKING));
  }
  ~Crossed() {
    CU(cuStreamDestroy(first_));
    CU(cuStreamDestroy(second_));
    CU(cuMemFree(flag_));
    CU(cuMemFreeHost(host_));
  }
  CUstream second() const { return second_; }
  // The first stream copies both, one behind the other, and then lets the second one go on.
  void copy(CUdeviceptr one, CUdeviceptr other) {
    CU(cuMemcpyDtoHAsync(host_, one, kBytes, first_));
    CU(cuMemcpyDtoHAsync(host_ + kBytes, other, kBytes, first_));
    CU(cuStreamWriteValue32(first_, flag_, 1, 0));
    CU(cuStreamWaitValue32(second_, flag_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void show(const char* what) {
    CU(cuStreamSynchronize(first_));
    CU(cuStreamSynchronize(second_));
    printf("%s: %d %d\n", what, host_[kBytes - 1], host_[2 * kBytes - 1]);
  }

 private:
  CUstream first_ = nullptr, second_ = nullptr;
  CUdeviceptr flag_ = 0;
  char* host_ = nullptr;
};

CUdeviceptr filled(unsigned char value) {
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, kBytes));
  CU(cuMemsetD8(memory, value, kBytes));
  CU(cuCtxSynchronize());
  return memory;
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuCtxCreate(&context, nullptr, 0, device));
  {
    Crossed streams;
    const CUdeviceptr one = filled(1), freed = filled(2);
    streams.copy(one, freed);
    CU(cuMemFreeAsync(freed, streams.second()));
    streams.show("a free behind both");
    CU(cuMemFree(one));
  }
  {
    Crossed streams;
    const CUdeviceptr one = filled(3), other = filled(4);
    const std::vector<char> image = read_beside("kernels.fatbin");
    streams.copy(one, other);
    CUmodule module = nullptr;
    CU(cuModuleLoadData(&module, image.data()));
    streams.show("a load beside both");
    CU(cuModuleUnload(module));
    CU(cuMemFree(one));
    CU(cuMemFree(other));
  }
  CU(cuCtxDestroy(context));
  return 0;
}
