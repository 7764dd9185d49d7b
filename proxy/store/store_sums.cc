#include "proxy/store/store_sums.h"

#include <algorithm>
#include <cstring>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/current_context.h"
#include "proxy/memory/memory_map.h"
#include "proxy/sum_kernel.gen.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kThreads = 256, kBlocks = 256;  // in a block; at most
constexpr uint64_t kWordsOfThread = 64;            // at least, or fewer blocks do
constexpr uint64_t kWeight = 0x9e3779b97f4a7c15ull;

// As sum_kernel.cu does it.
uint64_t sum_of(const unsigned char* bytes, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count / 4; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + i * 4, 4);
    sum += (word + uint64_t{1}) * ((i + 1) * kWeight | 1);
  }
  for (uint64_t i = count / 4 * 4; i < count; ++i)
    sum += (bytes[i] + uint64_t{1}) * ((i + 1) * kWeight | 1);
  return sum;
}

}  // namespace

StoreSums::~StoreSums() {
  for (const auto& [device, ready] : ready_) {
    const CurrentContext current(driver_, map_.context(static_cast<uint32_t>(device)));
    if (ready.stream != nullptr) (void)driver_.cuStreamDestroy_v2(ready.stream);
    if (ready.module != nullptr) (void)driver_.cuModuleUnload(ready.module);
  }
  if (parts_ != nullptr) (void)driver_.cuMemFreeHost(parts_);
}

CUresult StoreSums::prepare(int device, Ready* ready) {
  Ready& known = ready_[device];
  CUresult error = CUDA_SUCCESS;
  if (known.module == nullptr) error = driver_.cuModuleLoadData(&known.module, kSumKernelImage);
  if (error == CUDA_SUCCESS && known.kernel == nullptr)
    error = driver_.cuModuleGetFunction(&known.kernel, known.module, "tube_sum");
  if (error == CUDA_SUCCESS && known.stream == nullptr)
    error = driver_.cuStreamCreate(&known.stream, CU_STREAM_NON_BLOCKING);
  if (error == CUDA_SUCCESS && parts_ == nullptr) {
    void* parts = nullptr;
    error = driver_.cuMemHostAlloc(&parts, kThreads * kBlocks * sizeof(uint64_t),
                                   CU_MEMHOSTALLOC_PORTABLE);
    parts_ = static_cast<uint64_t*>(parts);
  }
  *ready = known;
  return error;
}

CUresult StoreSums::sum(const StorePiece& piece, uint64_t bytes, uint64_t* sum) {
  if (piece.device < 0) {
    *sum = sum_of(reinterpret_cast<const unsigned char*>(piece.address), bytes);
    return CUDA_SUCCESS;
  }
  const CurrentContext current(driver_, map_.context(static_cast<uint32_t>(piece.device)));
  Ready ready;
  if (CUresult error = prepare(piece.device, &ready); error != CUDA_SUCCESS) return error;
  const uint64_t blocks = std::clamp<uint64_t>(bytes / 4 / (kThreads * kWordsOfThread), 1, kBlocks);
  CUdeviceptr words = piece.address;
  uint64_t* parts = parts_;
  void* parameters[] = {&words, &bytes, &parts};
  CUresult error = driver_.cuLaunchKernel(ready.kernel, static_cast<unsigned>(blocks), 1, 1,
                                          static_cast<unsigned>(kThreads), 1, 1, 0, ready.stream,
                                          parameters, nullptr);
  const CUresult end = driver_.cuStreamSynchronize(ready.stream);
  if (error == CUDA_SUCCESS) error = end;
  *sum = 0;
  for (uint64_t i = 0; error == CUDA_SUCCESS && i < blocks * kThreads; ++i) *sum += parts_[i];
  return error;
}

}  // namespace tube::proxy
