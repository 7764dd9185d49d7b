// A client for wide_test.py: large copies whose every byte is looked at.
//
//   wide HOST BYTES OFFSET [GPU]   HOST: pinned, registered or pageable; both ends begin OFFSET
//                                  bytes behind the beginning of their memory. Says "ready", then
//                                  for each line that it reads:
//     up, down   copies, waits for it, says "right" or "wrong": of the bytes, and of those around
//     submit     begins an upload that nobody looks at, says "submitted"
//     wait       until that has ended, says "done"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/programs/common.h"

namespace {

constexpr size_t kAround = 4096;     // bytes that stay as they are, behind the copy's
constexpr size_t kSlice = 1u << 20;  // of a look: goes over one link

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

struct Memory {
  size_t bytes;
  unsigned char* host = nullptr;
  CUdeviceptr device = 0;

  Memory(const std::string& kind, size_t size) : bytes(size) {
    CU(cuMemAlloc(&device, bytes));
    if (kind == "pinned") {
      void* made = nullptr;
      CU(cuMemAllocHost(&made, bytes));
      host = static_cast<unsigned char*>(made);
      return;
    }
    host = left_behind<std::vector<unsigned char>>(bytes)->data();
    if (kind == "registered") CU(cuMemHostRegister(host, bytes, 0));
  }

  static unsigned char expected(size_t i, unsigned round) {
    return static_cast<unsigned char>(i * 7 + i / 251 + i / 65521 * 3 + round * 31);
  }
  void fill_host(unsigned round) {
    for (size_t i = 0; i < bytes; ++i) host[i] = expected(i, round);
  }
  // By way of other memory than the copies'.
  void fill_device(unsigned round) {
    std::vector<unsigned char> slice(kSlice);
    for (size_t at = 0; at < bytes; at += kSlice) {
      const size_t part = std::min(kSlice, bytes - at);
      for (size_t i = 0; i < part; ++i) slice[i] = expected(at + i, round);
      CU(cuMemcpyHtoD(device + at, slice.data(), part));
    }
  }
  bool device_is(size_t from, size_t to, unsigned inside, unsigned outside) {
    std::vector<unsigned char> slice(kSlice);
    for (size_t at = 0; at < bytes; at += kSlice) {
      const size_t part = std::min(kSlice, bytes - at);
      CU(cuMemcpyDtoH(slice.data(), device + at, part));
      for (size_t i = at; i < at + part; ++i)
        if (slice[i - at] != expected(i, i >= from && i < to ? inside : outside)) return false;
    }
    return true;
  }
  bool host_is(size_t from, size_t to, unsigned inside, unsigned outside) const {
    for (size_t i = 0; i < bytes; ++i)
      if (host[i] != expected(i, i >= from && i < to ? inside : outside)) return false;
    return true;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = std::strtoull(argv[2], nullptr, 10),
               offset = std::strtoull(argv[3], nullptr, 10);
  CU(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CU(cuDeviceGet(&device, argc > 4 ? std::atoi(argv[4]) : 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Memory memory(argv[1], offset + bytes + kAround);
  unsigned char* const host = memory.host + offset;
  const CUdeviceptr there = memory.device + offset;
  say("ready");
  unsigned round = 0;
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const std::string what(line, std::strcspn(line, "\n"));
    round += 2;
    if (what == "up") {
      memory.fill_host(round);
      memory.fill_device(round + 1);
      CU(cuMemcpyHtoDAsync(there, host, bytes, stream));
      CU(cuStreamSynchronize(stream));
      say(memory.device_is(offset, offset + bytes, round, round + 1) ? "right" : "wrong");
    } else if (what == "down") {
      memory.fill_device(round);
      memory.fill_host(round + 1);
      CU(cuMemcpyDtoHAsync(host, there, bytes, stream));
      CU(cuStreamSynchronize(stream));
      say(memory.host_is(offset, offset + bytes, round, round + 1) ? "right" : "wrong");
    } else if (what == "submit") {
      CU(cuMemcpyHtoDAsync(there, host, bytes, stream));
      size_t left = 0, all = 0;
      CU(cuMemGetInfo(&left, &all));  // through Tube this is answered behind all before it
      say("submitted");
    } else {
      CU(cuStreamSynchronize(stream));
      say("done");
    }
  }
  return 0;
}
