#include "bench/client/lane.h"

#include <cstring>

#include "bench/client/common.h"

namespace bench {

Lane::Lane(CUfunction kernel) : count_up(kernel), pageable(kBufferBytes) {
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CU(cuMemAlloc(&counter, 4));
  CU(cuMemAlloc(&data, kBufferBytes));
  void* host = nullptr;
  CU(cuMemAllocHost(&host, kBufferBytes));
  pinned = static_cast<unsigned char*>(host);
  CU(cuMemsetD32Async(counter, 0, 1, stream));
  make_graph();
  make_updated_graph();
  CU(cuEventRecord(begin, stream));
  CU(cuEventRecord(end, stream));
  refill();
  sync();
}

Lane::~Lane() {
  CU(cuStreamSynchronize(stream));
  CU(cuGraphExecDestroy(graph));
  CU(cuGraphExecDestroy(updated));
  CU(cuGraphDestroy(updated_from));
  CU(cuMemFreeHost(pinned));
  CU(cuMemFree(data));
  CU(cuMemFree(counter));
  CU(cuEventDestroy(begin));
  CU(cuEventDestroy(end));
  CU(cuStreamDestroy(stream));
}

void Lane::make_graph() {
  CUgraph captured;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (uint32_t i = 0; i < kGraphKernels; ++i) launch();
  CU(cuStreamEndCapture(stream, &captured));
  launched = 0;  // captured, not run
  CU(cuGraphInstantiate(&graph, captured, 0));
  CU(cuGraphDestroy(captured));
}

CUDA_KERNEL_NODE_PARAMS Lane::node_params(void** args) const {
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = count_up;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 32;
  p.kernelParams = args;
  return p;
}

void Lane::make_updated_graph() {
  void* args[] = {&counter, &amount};
  const CUDA_KERNEL_NODE_PARAMS p = node_params(args);
  CU(cuGraphCreate(&updated_from, 0));
  for (uint32_t i = 0; i < kUpdatedKernels; ++i) {
    CU(cuGraphAddKernelNode(&updated_nodes[i], updated_from,
                            i == 0 ? nullptr : &updated_nodes[i - 1], i == 0 ? 0 : 1, &p));
  }
  CU(cuGraphInstantiate(&updated, updated_from, 0));
}

void Lane::update_graph() {
  void* args[] = {&counter, &amount};
  const CUDA_KERNEL_NODE_PARAMS p = node_params(args);
  for (CUgraphNode node : updated_nodes) CU(cuGraphExecKernelNodeSetParams(updated, node, &p));
  CU(cuGraphLaunch(updated, stream));
  launched += kUpdatedKernels;
}

void Lane::launch() {
  void* args[] = {&counter, &amount};
  CU(cuLaunchKernel(count_up, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr));
  ++launched;
}

void Lane::launch_packed() {
  struct {
    CUdeviceptr counter;
    uint32_t amount;
  } packed = {counter, amount};
  size_t bytes = sizeof(counter) + sizeof(amount);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CU(cuLaunchKernel(count_up, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra));
  ++launched;
}

void Lane::launch_graph() {
  CU(cuGraphLaunch(graph, stream));
  launched += kGraphKernels;
}

void Lane::sync() { CU(cuStreamSynchronize(stream)); }

void Lane::host_func() {
  const auto count = [](void* ran) {
    auto* counter = static_cast<std::atomic<uint32_t>*>(ran);
    counter->fetch_add(1);
    counter->notify_one();
  };
  CU(cuLaunchHostFunc(stream, count, &host_ran));
  ++host_funcs;
  for (uint32_t ran = host_ran; ran != host_funcs; ran = host_ran) host_ran.wait(ran);
}

void Lane::refill() {
  // A linear congruential generator, its high byte.
  for (size_t i = 0; i < kBufferBytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    pageable[i] = static_cast<unsigned char>(seed >> 24);
    pinned[i] = static_cast<unsigned char>(~pageable[i]);
  }
  std::vector<unsigned char> third(kBufferBytes);
  for (size_t i = 0; i < kBufferBytes; ++i) third[i] = static_cast<unsigned char>(pageable[i] + 85);
  CU(cuMemcpyHtoD(data, third.data(), kBufferBytes));
}

std::string Lane::check_counter() {
  uint32_t value = 0;
  sync();
  CU(cuMemcpyDtoH(&value, counter, 4));
  return value == launched ? ""
                           : "the kernels counted to " + std::to_string(value) +
                                 ", launched were " + std::to_string(launched);
}

}  // namespace bench
