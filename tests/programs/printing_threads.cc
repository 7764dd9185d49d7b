// Threads whose kernels print: when one has synchronised, what its own kernel printed is in this
// process's standard output.
#include <fcntl.h>

#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 100;

bool contains(int file, const std::string& text) {
  std::string all;
  char block[65536];
  for (ssize_t count;
       (count = pread(file, block, sizeof block, static_cast<off_t>(all.size()))) > 0;)
    all.append(block, static_cast<size_t>(count));
  return all.find(text) != std::string::npos;
}

}  // namespace

int main() {
  Gpu gpu;
  Module module("globals.fatbin");
  CUfunction hello = module.function("say_hello");
  fflush(stdout);
  const int screen = dup(1);
  char name[] = "/tmp/printing_threads.XXXXXX";
  const int file = mkstemp(name);
  EXPECT(file >= 0 && dup2(file, 1) == 1);
  unlink(name);
  EXPECT(fcntl(1, F_SETFL, O_APPEND) == 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      CUstream stream;
      CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int round = 0; round < kRounds; ++round) {
        const int number = 1000 * (t + 1) + round;
        LAUNCH(hello, {1}, {1}, 0, stream, number, 0.5f);
        CU(cuStreamSynchronize(stream));
        EXPECT(contains(file, std::to_string(number)));
      }
      CU(cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  fflush(stdout);
  EXPECT(dup2(screen, 1) == 1);
  printf("everybody saw what it printed\n");
  return 0;
}
