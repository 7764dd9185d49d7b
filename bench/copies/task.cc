#include "bench/copies/task.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/client/common.h"

namespace bench {
namespace {

const char* const kMix = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry mix(.param .u64 out, .param .u64 in, .param .u32 rounds) {
  .reg .u64 %a<5>;
  .reg .u32 %r<7>;
  .reg .pred %p;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %a0, %r3, 4;
  ld.param.u64 %a1, [in];
  ld.param.u64 %a2, [out];
  cvta.to.global.u64 %a1, %a1;
  cvta.to.global.u64 %a2, %a2;
  ld.param.u32 %r4, [rounds];
  add.u64 %a3, %a1, %a0;
  add.u64 %a4, %a2, %a0;
  ld.global.u32 %r5, [%a3];
again:
  setp.eq.u32 %p, %r4, 0;
  @%p bra done;
  mul.lo.u32 %r6, %r5, 1664525;
  add.u32 %r5, %r6, 1013904223;
  sub.u32 %r4, %r4, 1;
  bra again;
done:
  st.global.u32 [%a4], %r5;
  ret;
}
)";

[[noreturn]] void unknown(const std::string& word) {
  fprintf(stderr, "cannot do: %s\n", word.c_str());
  exit(2);
}

}  // namespace

bool Lines::read_more() {
  char block[256];
  const ssize_t got = read(STDIN_FILENO, block, sizeof(block));
  if (got > 0) buffer_.append(block, static_cast<size_t>(got));
  return got > 0;
}

bool Lines::next(std::string& line) {
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    if (!read_more()) return false;
  }
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return true;
}

bool Lines::waiting() {
  if (buffer_.find('\n') != std::string::npos) return true;
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

void Lines::await(const char* word) {
  std::string line;
  if (next(line) && line == word) return;
  fprintf(stderr, "expected %s, got %s\n", word, line.c_str());
  exit(2);
}

Client::Client() {
  CU(cuInit(0));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context_, device));
  CU(cuCtxSetCurrent(context_));
}

Path& Client::path(bool up, Host kind, size_t bytes) {
  std::unique_ptr<Path>& kept = paths_[{up, kind}];
  if (kept == nullptr || kept->capacity() < bytes) {
    kept.reset();
    kept = std::make_unique<Path>(up, kind, std::max(bytes, keep_));
  }
  kept->use(bytes);
  return *kept;
}

CUfunction Client::kernel() {
  CUmodule module;
  if (kernel_ == nullptr) {
    CU(cuModuleLoadData(&module, kMix));
    CU(cuModuleGetFunction(&kernel_, module, "mix"));
  }
  return kernel_;
}

Host host_named(const std::string& name) {
  if (name == "pinned") return Host::kPinned;
  if (name == "touched") return Host::kTouched;
  if (name == "untouched") return Host::kUntouched;
  unknown(name);
}

bool way_named(const std::string& name) {
  if (name != "up" && name != "down") unknown(name);
  return name == "up";
}

CUstream new_stream() {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

}  // namespace bench
