// What one measuring thread works on: a stream of its own, a counter that its kernels count up,
// buffers, events, a graph.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

inline constexpr size_t kBufferBytes = 1 << 20;
inline constexpr uint32_t kGraphKernels = 100;
inline constexpr uint32_t kUpdatedKernels = 6;

struct Lane {
  // Made on the thread that uses it, in the current context.
  explicit Lane(CUfunction count_up);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void launch();
  void launch_packed();  // parameters as one packed buffer
  void launch_graph();   // kGraphKernels of the same kernel
  void update_graph();   // gives each of kUpdatedKernels in an instance its arguments again, and
                         // launches it
  void sync();
  void host_func();  // puts a host function into the stream and sleeps until it has run
  // Bytes that differ from everything an earlier operation wrote: what a copy did not move shows.
  void refill();
  // Empty, or what is wrong: the counter against the launches made so far.
  std::string check_counter();

  CUstream stream = nullptr;
  CUfunction count_up;
  CUdeviceptr counter = 0, data = 0;
  CUevent begin = nullptr, end = nullptr;
  CUgraphExec graph = nullptr;
  CUgraph updated_from = nullptr;
  CUgraphExec updated = nullptr;
  CUgraphNode updated_nodes[kUpdatedKernels] = {};
  unsigned char* pinned = nullptr;
  std::vector<unsigned char> pageable;
  uint32_t launched = 0;
  uint32_t amount = 1;
  uint32_t seed = 1;
  uint32_t host_funcs = 0;             // put into the stream,
  std::atomic<uint32_t> host_ran = 0;  // and run

 private:
  void make_graph();
  void make_updated_graph();
  CUDA_KERNEL_NODE_PARAMS node_params(void** args) const;
};

}  // namespace bench
