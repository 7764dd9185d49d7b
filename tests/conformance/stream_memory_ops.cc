// Stream memory operations: a stream that writes and waits for words of memory.
#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

CASE(write_32) {
  Gpu gpu;
  DeviceArray<uint32_t> data(4);
  CU(cuMemsetD32(data.pointer, 0, 4));
  SHOW(cuStreamWriteValue32(nullptr, data.pointer + 4, 0x12345678, 0));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%x %x %x\n", data.read()[0], data.read()[1], data.read()[2]);
}

CASE(write_64) {
  Gpu gpu;
  DeviceArray<uint64_t> data(2);
  CU(cuMemsetD32(data.pointer, 0, 4));
  SHOW(cuStreamWriteValue64(nullptr, data.pointer + 8, 0x123456789abcdef0ull, 0));
  printf("%llx %llx\n", static_cast<unsigned long long>(data.read()[0]), static_cast<unsigned long long>(data.read()[1]));
}

CASE(write_flags) {
  Gpu gpu;
  DeviceArray<uint32_t> data(4);
  SHOW(cuStreamWriteValue32(nullptr, data.pointer, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  SHOW(cuStreamWriteValue32(nullptr, data.pointer, 1, 2));
  SHOW(cuStreamWriteValue64(nullptr, data.pointer, 1, 0x80));
  SHOW(cuCtxSynchronize());
}

CASE(write_bad_addresses) {
  Gpu gpu;
  DeviceArray<uint32_t> data(4);
  SHOW(cuStreamWriteValue32(nullptr, 0, 1, 0));
  SHOW(cuStreamWriteValue32(nullptr, data.pointer + 2, 1, 0));
  SHOW(cuStreamWriteValue64(nullptr, data.pointer + 4, 1, 0));
  SHOW(cuStreamWriteValue32(nullptr, 4096, 1, 0));
  int on_stack = 0;
  SHOW(cuStreamWriteValue32(nullptr, reinterpret_cast<CUdeviceptr>(&on_stack), 1, 0));
  SHOW(cuCtxSynchronize());
}

CASE(wait_is_met_at_once) {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>{5, 5});
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 5, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 3, CU_STREAM_WAIT_VALUE_GEQ));
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 4, CU_STREAM_WAIT_VALUE_AND));
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(wait_for_the_host) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamWaitValue32(stream, gate.pointer, 1, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuStreamQuery(stream));
  gate.open();
  SHOW(cuStreamSynchronize(stream));
}

CASE(wait_for_another_stream) {
  Gpu gpu;
  DeviceArray<uint64_t> data(2);
  CU(cuMemsetD32(data.pointer, 0, 4));
  CU(cuCtxSynchronize());
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamWaitValue64(one, data.pointer, 7, CU_STREAM_WAIT_VALUE_GEQ));
  CU(cuMemsetD32Async(data.pointer + 8, 9, 1, one));
  SHOW(cuStreamQuery(one));
  SHOW(cuStreamWriteValue64(two, data.pointer, 7, 0));
  SHOW(cuStreamSynchronize(one));
  printf("%llu\n", static_cast<unsigned long long>(data.read()[1] & 0xffffffff));
}

CASE(wait_flags) {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>{5, 5});
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 15, CU_STREAM_WAIT_VALUE_NOR));
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 5, 0x100));
  SHOW(cuStreamWaitValue32(nullptr, data.pointer, 5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH));
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(wait_bad_addresses) {
  Gpu gpu;
  DeviceArray<uint32_t> data(4);
  SHOW(cuStreamWaitValue32(nullptr, 0, 0, 0));
  SHOW(cuStreamWaitValue32(nullptr, data.pointer + 1, 0, 0));
  SHOW(cuStreamWaitValue64(nullptr, data.pointer + 4, 0, 0));
  SHOW(cuCtxSynchronize());
}

static CUstreamBatchMemOpParams write_op(CUdeviceptr where, uint32_t value) {
  CUstreamBatchMemOpParams op = {};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = where;
  op.writeValue.value = value;
  return op;
}

CASE(batch) {
  Gpu gpu;
  DeviceArray<uint32_t> data(8);
  CU(cuMemsetD32(data.pointer, 0, 8));
  CUstreamBatchMemOpParams ops[4] = {write_op(data.pointer, 1), write_op(data.pointer + 4, 2), {}, write_op(data.pointer + 8, 3)};
  ops[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[2].waitValue.address = data.pointer + 4;
  ops[2].waitValue.value = 2;
  ops[2].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  SHOW(cuStreamBatchMemOp(nullptr, 4, ops, 0));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%u %u %u\n", data.read()[0], data.read()[1], data.read()[2]);
}

CASE(batch_bad_arguments) {
  Gpu gpu;
  DeviceArray<uint32_t> data(8);
  CUstreamBatchMemOpParams op = write_op(data.pointer, 1);
  SHOW(cuStreamBatchMemOp(nullptr, 0, &op, 0));
  // NULL crashes natively.
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 1));
  SHOW(cuStreamBatchMemOp(nullptr, 257, &op, 0));
  op.operation = static_cast<CUstreamBatchMemOpType>(77);
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 0));
  op = write_op(0, 1);
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 0));
  SHOW(cuCtxSynchronize());
}

CASE(batch_of_a_memory_barrier) {
  Gpu gpu;
  CUstreamBatchMemOpParams op = {};
  op.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  op.memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_SYS;
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 0));
  op.memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 0));
  SHOW(cuCtxSynchronize());
}

CASE(batch_of_a_flush) {
  Gpu gpu;
  CUstreamBatchMemOpParams op = {};
  op.flushRemoteWrites.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  SHOW(cuStreamBatchMemOp(nullptr, 1, &op, 0));
  SHOW(cuCtxSynchronize());
}

CASE(first_versions) {
  Gpu gpu;
  DeviceArray<uint64_t> data(2);
  CU(cuMemsetD32(data.pointer, 0, 4));
  SHOW(cuStreamWriteValue32_v1(nullptr, data.pointer, 1, 0));
  SHOW(cuStreamWaitValue32_v1(nullptr, data.pointer, 1, 0));
  SHOW(cuStreamWriteValue64_v1(nullptr, data.pointer, 1, 0));
  SHOW(cuStreamWaitValue64_v1(nullptr, data.pointer, 1, 0));
  CUstreamBatchMemOpParams op = write_op(data.pointer, 1);
  SHOW(cuStreamBatchMemOp_v1(nullptr, 1, &op, 0));
  SHOW(cuCtxSynchronize());
}

CASE(a_kernel_between_two_words) {
  Gpu gpu;
  Gate gate;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(32, 1));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(stream);
  LAUNCH(module.function("step"), {1}, {32}, 0, stream, data.pointer, 2u, 1u, 32);
  CU(cuStreamWriteValue32(stream, gate.pointer + 4, 99, 0));
  printf("%u\n", gate.word[1]);
  gate.open();
  SHOW(cuStreamSynchronize(stream));
  printf("%u %u\n", gate.word[1], data.read()[0]);
}
