// Stream write and wait on words in device and in pinned memory: one stream releases another, the
// host releases both.
#include "tests/programs/common.h"

#include <sched.h>

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  const int count = 1000;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(count, 1));
  DeviceArray<uint32_t> words(std::vector<uint32_t>(64, 0));
  uint32_t* host = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(host, 0, 4096);
  CUdeviceptr host_device = 0;
  CU(cuMemHostGetDevicePointer(&host_device, host, 0));
  CUstream first, second;
  CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));

  CU(cuStreamWaitValue32(second, words.pointer, 1, CU_STREAM_WAIT_VALUE_EQ));
  LAUNCH(step, {4}, {256}, 0, second, data.pointer, 3u, 1u, count);
  CU(cuStreamWaitValue32(first, host_device, 5, CU_STREAM_WAIT_VALUE_GEQ));
  LAUNCH(step, {4}, {256}, 0, first, data.pointer, 5u, 2u, count);
  CU(cuStreamWriteValue32(first, words.pointer, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  SHOW(cuStreamQuery(second));
  __atomic_store_n(host, 5u, __ATOMIC_RELEASE);
  CU(cuStreamSynchronize(second));
  print_hash("released", data.read());

  CU(cuStreamWriteValue32(first, host_device + 4, 77, CU_STREAM_WRITE_VALUE_DEFAULT));
  CU(cuStreamWriteValue64(first, host_device + 8, 0x1122334455667788ull,
                          CU_STREAM_WRITE_VALUE_DEFAULT));
  while (__atomic_load_n(reinterpret_cast<uint64_t*>(host + 2), __ATOMIC_ACQUIRE) == 0)
    sched_yield();
  printf("words %u %llx\n", host[1],
         static_cast<unsigned long long>(*reinterpret_cast<uint64_t*>(host + 2)));

  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = words.pointer + 16;
  ops[0].writeValue.value = 123;
  ops[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[1].writeValue.address = words.pointer + 20;
  ops[1].writeValue.value = 456;
  CU(cuStreamBatchMemOp(first, 2, ops, 0));
  CU(cuStreamSynchronize(first));
  print_hash("batch", words.read());
  CU(cuStreamDestroy(first));
  CU(cuStreamDestroy(second));
  CU(cuMemFreeHost(host));
  return 0;
}
