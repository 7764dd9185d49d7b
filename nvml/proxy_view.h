// What the proxy says of a GPU's memory to the process that asks (the verbs `seen` and `held` of
// its control socket).
//
// One connection a question, so that nothing is kept open in a program that forks: some 100 us. A
// proxy that does not answer within a second, runs not, or has no such GPU, leaves the real
// library's answer as it is. No CUDA call is made: who asks NVML may not want CUDA yet.
#pragma once

#include <cstdint>
#include <vector>

namespace tube::nvml {

struct Seen {
  uint64_t free_bytes, total_bytes;
};
// Of the GPU `uuid` ("GPU-..."), about which the real library says `*seen`. False: as it is.
bool ask_seen(const char* uuid, Seen* seen);

struct Holder {
  uint32_t pid;
  uint64_t bytes;  // on the GPU
};
struct Holders {
  uint32_t proxy_pid = 0;  // as the kernel shows it to this process
  std::vector<Holder> functions;
};
bool ask_holders(const char* uuid, Holders* holders);

}  // namespace tube::nvml
