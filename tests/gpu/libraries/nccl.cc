// NCCL called directly with one rank on one GPU: every collective, types, groups, capture,
// communicators made in several ways.
#include <nccl.h>

#include "case.h"

using library::captured;
using library::Device;
using library::note;
using library::save;
using library::Stream;
using library::values;

namespace {

class Communicator {
 public:
  Communicator() {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&communicator_, 1, id, 0));
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { ncclCommDestroy(communicator_); }
  operator ncclComm_t() const { return communicator_; }

 private:
  ncclComm_t communicator_ = nullptr;
};

template <typename T>
void all_reduce(ncclDataType_t type, ncclRedOp_t operation) {
  Communicator communicator;
  Stream stream(cudaStreamNonBlocking);
  Device<T> from(values<T>(100003, 1, -50, 50)), to(100003);
  CHECK(cudaDeviceSynchronize());  // the stream does not wait for the legacy one, which fills them
  CHECK(ncclAllReduce(from.get(), to.get(), from.count(), type, operation, communicator, stream));
  CHECK(cudaStreamSynchronize(stream));
  save("to", to);
}

}  // namespace

LIBRARY_CASE(version) {
  int version = 0;
  CHECK(ncclGetVersion(&version));
  note("version %d", version);
}

LIBRARY_CASE(communicator_facts) {
  Communicator communicator;
  int count = -1, rank = -1, device = -1;
  CHECK(ncclCommCount(communicator, &count));
  CHECK(ncclCommUserRank(communicator, &rank));
  CHECK(ncclCommCuDevice(communicator, &device));
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(communicator, &state));
  note("count %d rank %d device %d state %d", count, rank, device, state);
}

LIBRARY_CASE(all_reduce_float_sum) { all_reduce<float>(ncclFloat32, ncclSum); }
LIBRARY_CASE(all_reduce_half_average) { all_reduce<__half>(ncclFloat16, ncclAvg); }
LIBRARY_CASE(all_reduce_bfloat16_maximum) { all_reduce<__nv_bfloat16>(ncclBfloat16, ncclMax); }
LIBRARY_CASE(all_reduce_double_product) { all_reduce<double>(ncclFloat64, ncclProd); }
LIBRARY_CASE(all_reduce_int_minimum) { all_reduce<int>(ncclInt32, ncclMin); }

LIBRARY_CASE(other_collectives) {
  Communicator communicator;
  Stream stream;
  Device<float> from(values<float>(5000, 2)), broadcast(5000), reduced(5000), gathered(5000),
      scattered(5000), sent(5000);
  CHECK(ncclBroadcast(from.get(), broadcast.get(), 5000, ncclFloat32, 0, communicator, stream));
  CHECK(ncclReduce(from.get(), reduced.get(), 5000, ncclFloat32, ncclSum, 0, communicator, stream));
  CHECK(ncclAllGather(from.get(), gathered.get(), 5000, ncclFloat32, communicator, stream));
  CHECK(ncclReduceScatter(from.get(), scattered.get(), 5000, ncclFloat32, ncclSum, communicator,
                          stream));
  CHECK(ncclGroupStart());
  CHECK(ncclSend(from.get(), 5000, ncclFloat32, 0, communicator, stream));
  CHECK(ncclRecv(sent.get(), 5000, ncclFloat32, 0, communicator, stream));
  CHECK(ncclGroupEnd());
  CHECK(cudaStreamSynchronize(stream));
  save("broadcast", broadcast);
  save("reduced", reduced);
  save("gathered", gathered);
  save("scattered", scattered);
  save("sent", sent);
}

LIBRARY_CASE(premultiplied_sum) {
  Communicator communicator;
  Stream stream;
  Device<float> data(values<float>(1000, 3));
  float factor = 0.25f;
  ncclRedOp_t operation;
  CHECK(ncclRedOpCreatePreMulSum(&operation, &factor, ncclFloat32, ncclScalarHostImmediate,
                                 communicator));
  CHECK(ncclAllReduce(data.get(), data.get(), 1000, ncclFloat32, operation, communicator, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(ncclRedOpDestroy(operation, communicator));
  save("data", data);
}

LIBRARY_CASE(captured_collective) {
  Communicator communicator;
  Stream stream;
  Device<float> from(values<float>(4000, 4)), to(4000);
  CHECK(ncclAllReduce(from.get(), to.get(), 4000, ncclFloat32, ncclSum, communicator, stream));
  CHECK(cudaStreamSynchronize(stream));
  captured(stream, 3, [&] {
    CHECK(ncclAllReduce(to.get(), to.get(), 4000, ncclFloat32, ncclSum, communicator, stream));
  });
  save("to", to);
}

LIBRARY_CASE(init_all_and_split) {
  ncclComm_t communicator = nullptr, part = nullptr;
  const int device = 0;
  CHECK(ncclCommInitAll(&communicator, 1, &device));
  CHECK(ncclCommSplit(communicator, 0, 0, &part, nullptr));
  Stream stream;
  Device<float> data(values<float>(2000, 5));
  CHECK(ncclAllReduce(data.get(), data.get(), 2000, ncclFloat32, ncclSum, part, stream));
  CHECK(cudaStreamSynchronize(stream));
  save("data", data);
  CHECK(ncclCommDestroy(part));
  CHECK(ncclCommFinalize(communicator));
  CHECK(ncclCommDestroy(communicator));
}

LIBRARY_CASE(memory_of_nccl) {
  void* memory = nullptr;
  Communicator communicator;
  CHECK(ncclMemAlloc(&memory, 1 << 20));
  const std::vector<float> host = values<float>(1 << 18, 6);
  std::vector<float> back(1 << 18);
  Stream stream;
  CHECK(cudaMemcpy(memory, host.data(), 1 << 20, cudaMemcpyHostToDevice));
  CHECK(ncclAllReduce(memory, memory, 1 << 18, ncclFloat32, ncclSum, communicator, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(back.data(), memory, 1 << 20, cudaMemcpyDeviceToHost));
  save("back", back);
  CHECK(ncclMemFree(memory));
}

LIBRARY_CASE(bad_arguments) {
  Communicator communicator;
  Device<float> data(10);
  note("null communicator %d",
       ncclAllReduce(data.get(), data.get(), 10, ncclFloat32, ncclSum, nullptr, nullptr));
  note("bad type %d", ncclAllReduce(data.get(), data.get(), 10, static_cast<ncclDataType_t>(99),
                                    ncclSum, communicator, nullptr));
  note("bad root %d",
       ncclBroadcast(data.get(), data.get(), 10, ncclFloat32, 5, communicator, nullptr));
}
