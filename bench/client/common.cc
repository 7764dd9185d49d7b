#include "bench/client/common.h"

#include <sched.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

namespace bench {

const char* const kPtx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry count_up(.param .u64 counter, .param .u32 amount) {
  .reg .u64 %a<2>;
  .reg .u32 %r<4>;
  .reg .pred %p;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p, %r0, 0;
  @%p bra done;
  ld.param.u64 %a0, [counter];
  cvta.to.global.u64 %a1, %a0;
  ld.param.u32 %r1, [amount];
  atom.global.add.u32 %r2, [%a1], %r1;
done:
  ret;
}
)";

void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = "unknown";
  cuGetErrorName(code, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}

CUcontext enter_first_gpu(CUdevice* device) {
  CUcontext context = nullptr;
  CU(cuInit(0));
  CU(cuDeviceGet(device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, *device));
  CU(cuCtxSetCurrent(context));
  return context;
}

int64_t cpu_ns() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) {
    return (int64_t{t.tv_sec} * 1'000'000 + t.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= 0) CPU_SET(static_cast<size_t>(core), &set);
  for (size_t i = 0; core < 0 && i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) perror("sched_setaffinity");
}

void Histogram::add(const Histogram& other) {
  for (uint32_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  samples_ += other.samples_;
  sum_ns_ += other.sum_ns_;
  if (other.max_ns_ > max_ns_) max_ns_ = other.max_ns_;
}

std::string Histogram::json() const {
  std::string out = "\"samples\": " + std::to_string(samples_) +
                    ", \"sum_ns\": " + std::to_string(sum_ns_) +
                    ", \"max_ns\": " + std::to_string(max_ns_) + ", \"hist\": [";
  const char* separator = "";
  for (uint32_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    out += separator;
    out += '[';
    out += std::to_string(i) + ", " + std::to_string(counts_[i]);
    out += ']';
    separator = ", ";
  }
  return out + "]";
}

}  // namespace bench
