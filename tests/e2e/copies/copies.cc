// A client for copies_test.py:
//
//   copies BYTES COUNT [graph]
//                          for each line that it reads: COUNT copies of BYTES each to the GPU and,
//                          if the line is "go", one back, on one stream; says "submitted" when they
//                          all are with the driver, "done" when they have ended and the bytes are
//                          right; ends with its input. With "graph" the copies to the GPU are the
//                          nodes of one
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/programs/common.h"

namespace {

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

char line[64];
bool told() { return std::fgets(line, sizeof line, stdin) != nullptr; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10),
               count = std::strtoull(argv[2], nullptr, 10);
  Gpu gpu;
  CUdeviceptr device = 0;
  size_t left = 0, all = 0;
  void *from = nullptr, *to = nullptr;
  CUstream stream = nullptr;
  CU(cuMemAlloc(&device, bytes));
  CU(cuMemAllocHost(&from, bytes));
  CU(cuMemAllocHost(&to, bytes));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::memset(from, 7, bytes);
  std::memset(to, 0, bytes);
  CUgraphExec exec = nullptr;
  const auto upload = [&] {
    for (size_t i = 0; i < count; ++i) CU(cuMemcpyHtoDAsync(device, from, bytes, stream));
  };
  if (argc == 4) {
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    upload();
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphDestroy(graph));
  }
  say("ready");
  while (told()) {                                     // until the test has looked, or ends
    const bool back = std::strcmp(line, "go\n") == 0;  // "up": it stays there
    if (exec != nullptr) CU(cuGraphLaunch(exec, stream));
    else upload();
    if (back) CU(cuMemcpyDtoHAsync(to, device, bytes, stream));
    CU(cuMemGetInfo(&left, &all));  // through Tube this is answered behind all before it
    say("submitted");
    CU(cuStreamSynchronize(stream));
    say(!back || std::memcmp(from, to, bytes) == 0 ? "done" : "other bytes");
  }
  return 0;
}
