// A client for large_test.py: copies 40 MiB of pageable memory to the GPU and back without pause on
// a thread of its own.
//
//   large          says "copying" after the first round; when it reads a line: ends the copies,
//   says
//                  "right" or "wrong"; at the next line it ends
//   large exit     at the line: exit(7), beside the copies
//   large fork     at the line: a child that asks for a copy and says what it got; then the same
//                  again beside more copies, and ends
//   large fail     at the line: waits until a copy fails, says how; at the next line it ends
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 40u << 20;

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

bool told() {
  char line[64];
  return std::fgets(line, sizeof line, stdin) != nullptr;
}

struct Copier {
  std::vector<unsigned char> source = std::vector<unsigned char>(kBytes);
  std::vector<unsigned char> target = std::vector<unsigned char>(kBytes);
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> rounds{0};
  CUresult result = CUDA_SUCCESS;
  bool right = true;
  CUcontext context = nullptr;
  CUdeviceptr device = 0;

  void copy() {
    CU(cuCtxSetCurrent(context));
    while (!stop.load()) {
      result = cuMemcpyHtoD(device, source.data(), kBytes);
      if (result == CUDA_SUCCESS) result = cuMemcpyDtoH(target.data(), device, kBytes);
      if (result != CUDA_SUCCESS) return;
      right = right && source == target;
      ++source[rounds.load() * 4097 % kBytes];
      if (++rounds == 1) say("copying");
    }
  }
};

void fork_beside(Copier& copier) {
  const uint32_t seen = copier.rounds.load();
  const pid_t child = fork();
  if (child == 0) {
    // The parent's other threads may hold stdio's locks.
    const CUresult code = cuMemcpyHtoD(copier.device, copier.source.data(), kBytes);
    _exit(code == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  while (copier.rounds.load() < seen + 2) std::this_thread::yield();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  // Its end would fail behind a proxy that died.
  const Gpu& gpu = *left_behind<Gpu>();
  Copier& copier = *left_behind<Copier>();
  copier.context = gpu.context;
  CU(cuMemAlloc(&copier.device, kBytes));
  for (size_t i = 0; i < kBytes; ++i)
    copier.source[i] = static_cast<unsigned char>(i * 7 + i / 4096);
  std::thread thread([&] { copier.copy(); });
  if (!told()) return 1;
  if (mode == "exit") {
    thread.detach();
    std::exit(7);
  }
  if (mode == "fork") {
    fork_beside(copier);
    fork_beside(copier);
  }
  copier.stop.store(mode != "fail");
  thread.join();
  if (copier.result != CUDA_SUCCESS) say(code_name(copier.result));
  else say(copier.right ? "right" : "wrong");
  (void)told();
  return 0;
}
