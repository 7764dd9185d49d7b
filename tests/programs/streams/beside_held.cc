// Calls that wait for nobody's work, while a stream stands with a copy behind a gate that this very
// thread opens after them, or beside another thread's call that waits.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 4 << 20;

// A stream that waits for the program, with a copy behind that.
class Held {
 public:
  explicit Held(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&address_, word_, 0));
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host_), kBytes, 0));
    memset(host_, 7, kBytes);
    CU(cuMemAlloc(&memory_, kBytes));
    CU(cuMemAlloc(&other, kBytes));
    CU(cuStreamCreate(&stream, flags));
    CU(cuStreamCreate(&free_stream, flags));
    *word_ = 0;
    // The link is another stream's: the copy below takes its turn.
    CU(cuMemcpyHtoDAsync(other, host_, kBytes, free_stream));
    CU(cuStreamSynchronize(free_stream));
    CU(cuStreamWaitValue32(stream, address_, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuMemcpyHtoDAsync(memory_, host_, kBytes, stream));
  }
  void let_go() { __atomic_store_n(word_, 1u, __ATOMIC_RELEASE); }
  ~Held() {
    let_go();
    CU(cuCtxSynchronize());
    unsigned char last = 0;
    CU(cuMemcpyDtoH(&last, memory_ + kBytes - 1, 1));
    printf("behind the gate: %d\n", last);
    CU(cuStreamDestroy(free_stream));
    CU(cuMemFree(memory_));
    CU(cuMemFree(other));
    CU(cuMemFreeHost(host_));
    CU(cuMemFreeHost(word_));
  }
  // Works there, and waits for that.
  void use_free_stream() {
    unsigned char found = 0;
    CU(cuMemsetD8Async(other, 3, kBytes, free_stream));
    CU(cuMemcpyDtoHAsync(&found, other + kBytes - 1, 1, free_stream));
    CU(cuStreamSynchronize(free_stream));
    printf("beside: %d\n", found);
  }
  CUdeviceptr other = 0;
  CUstream stream = nullptr, free_stream = nullptr;

 private:
  uint32_t* word_ = nullptr;
  unsigned char* host_ = nullptr;
  CUdeviceptr address_ = 0, memory_ = 0;
};

void an_event_after_one_that_was_recorded_there() {
  Held held;
  CUevent first = nullptr, second = nullptr;
  CU(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
  CU(cuEventRecord(first, held.stream));
  CU(cuEventDestroy(first));
  CU(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
  CU(cuMemsetD8Async(held.other, 3, kBytes, held.free_stream));
  CU(cuEventRecord(second, held.free_stream));
  CU(cuEventSynchronize(second));
  printf("another event\n");
  CU(cuEventDestroy(second));
}

void a_stream_after_that_one() {
  Held held;
  CU(cuStreamDestroy(held.stream));
  CUstream next = nullptr;
  CU(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
  CU(cuMemsetD8Async(held.other, 3, kBytes, next));
  CU(cuStreamSynchronize(next));
  printf("another stream\n");
  CU(cuStreamDestroy(next));
}

void memory_of_its_own() {
  Held held;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr at = 0, allocated = 0;
  CUmemGenericAllocationHandle handle = 0, unused = 0;
  CU(cuMemCreate(&unused, kBytes, &prop, 0));
  CU(cuMemRelease(unused));
  CU(cuMemAddressReserve(&at, 2 * kBytes, 0, 0, 0));
  CU(cuMemAddressFree(at, 2 * kBytes));
  CU(cuMemAddressReserve(&at, 2 * kBytes, 0, 0, 0));
  CU(cuMemCreate(&handle, kBytes, &prop, 0));
  CU(cuMemMap(at, kBytes, 0, handle, 0));
  CU(cuMemSetAccess(at, kBytes, &access, 1));
  CU(cuMemRelease(handle));
  CU(cuMemsetD8Async(at, 6, kBytes, held.free_stream));
  CU(cuMemAlloc(&allocated, kBytes));
  size_t free_bytes = 0, total_bytes = 0, limit = 0;
  CU(cuMemGetInfo(&free_bytes, &total_bytes));
  CU(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  unsigned char found = 0;
  CU(cuMemcpyDtoHAsync(&found, at + kBytes - 1, 1, held.free_stream));
  CU(cuStreamSynchronize(held.free_stream));
  printf("memory: %d\n", found);
}

// One thread's unmapping may wait for the stream; another thread's mappings do not wait for it.
void mappings_beside_an_unmapping(const Gpu& gpu) {
  constexpr size_t kPage = 2 << 20;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE, prop.location.id = gpu.device;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle first, second;
  CUdeviceptr at = 0;
  CU(cuMemAddressReserve(&at, 2 * kPage, 0, 0, 0));
  CU(cuMemCreate(&first, kPage, &prop, 0));
  CU(cuMemMap(at, kPage, 0, first, 0));
  CU(cuMemSetAccess(at, kPage, &access, 1));
  CU(cuCtxSynchronize());
  {
    Held held;
    std::atomic<bool> begun{false};
    std::thread unmapper([&] {
      CU(cuCtxSetCurrent(gpu.context));
      begun = true;
      CU(cuMemUnmap(at, kPage));
    });
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {  // for the other thread to come to its call
      CUdeviceptr other = 0;
      CU(cuMemAddressReserve(&other, kPage, 0, 0, 0));
      CU(cuMemAddressFree(other, kPage));
    }
    CU(cuMemCreate(&second, kPage, &prop, 0));
    CU(cuMemMap(at + kPage, kPage, 0, second, 0));
    CU(cuMemSetAccess(at + kPage, kPage, &access, 1));
    printf("mapped beside an unmapping\n");
    held.let_go();
    unmapper.join();
  }
  CU(cuMemMap(at, kPage, 0, first, 0));
  CU(cuMemSetAccess(at, kPage, &access, 1));
  CU(cuMemsetD8(at, 4, 2 * kPage));
  unsigned char last = 0;
  CU(cuMemcpyDtoH(&last, at + 2 * kPage - 1, 1));
  printf("mapped again: %d\n", last);
  CU(cuMemUnmap(at, 2 * kPage));
  for (CUmemGenericAllocationHandle handle : {first, second}) CU(cuMemRelease(handle));
  CU(cuMemAddressFree(at, 2 * kPage));
}

void the_end_of_a_texture() {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CU(cuArrayCreate(&array, &shape));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  const CUDA_TEXTURE_DESC how{};
  CUtexObject texture = 0, next = 0;
  CU(cuTexObjectCreate(&texture, &resource, &how, nullptr));
  {
    Held held;
    CU(cuTexObjectDestroy(texture));
    SHOW(cuTexObjectGetResourceDesc(&resource, texture));
    CU(cuTexObjectCreate(&next, &resource, &how, nullptr));
    printf("another texture\n");
  }
  CU(cuTexObjectDestroy(next));
  CU(cuArrayDestroy(array));
}

void a_look_at_the_legacy_stream() {
  Held held(CU_STREAM_DEFAULT);
  SHOW(cuStreamQuery(nullptr));
  held.use_free_stream();
}

// The memory's context is another one than that of the held stream.
void a_free_in_another_context() {
  CUcontext here = nullptr, other = nullptr;
  CU(cuCtxGetCurrent(&here));
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 1 << 20, 0));
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  {
    Held held(CU_STREAM_DEFAULT);
    SHOW(cuMemFreeHost(pinned));
    held.use_free_stream();
  }
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(here));
}

void the_memory_of_graphs() {
  Held held;
  cuuint64_t bytes = 1;
  SHOW(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
  SHOW(cuDeviceGraphMemTrim(0));
  printf("memory of graphs: %llu\n", static_cast<unsigned long long>(bytes));
}

void a_registration() {
  std::vector<char> pages(1 << 20);
  {
    Held held;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle unused = 0;
    CU(cuMemCreate(&unused, kBytes, &prop, 0));
    CU(cuMemRelease(unused));
    SHOW(cuMemHostRegister(pages.data(), pages.size(), 0));
  }
  SHOW(cuMemHostUnregister(pages.data()));
}

// Libraries set a kernel's attributes before every launch.
void an_attribute_of_its_kernel() {
  constexpr int kCount = 1024, kLimit = 60 << 10;
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> there(kCount), beside(kCount);
  int count = kCount;
  uint32_t value = 77;
  void* first[] = {&there.pointer, &value, &count};
  void* second[] = {&beside.pointer, &value, &count};
  const auto set = [&](int limit) {
    return cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limit);
  };
  {
    Held held;
    CU(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, held.stream, first, nullptr));
    CU(set(kLimit));
    CU(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    CU(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, kLimit, held.free_stream, second, nullptr));
    held.use_free_stream();
    CU(set(kLimit));
    held.use_free_stream();
    CU(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, kLimit, held.stream, first, nullptr));
    CU(set(1024));
  }
  printf("filled: %u %u\n", there.read()[kCount - 1], beside.read()[kCount - 1]);
}

}  // namespace

int main() {
  Gpu gpu;
  an_event_after_one_that_was_recorded_there();
  a_stream_after_that_one();
  memory_of_its_own();
  the_end_of_a_texture();
  mappings_beside_an_unmapping(gpu);
  a_look_at_the_legacy_stream();
  a_free_in_another_context();
  the_memory_of_graphs();
  a_registration();
  an_attribute_of_its_kernel();
  return 0;
}
