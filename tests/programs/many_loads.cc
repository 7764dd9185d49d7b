// Sixty-four threads that load a large image each, at the same moment: its bytes travel as a file
// beside the calls, and each call has to meet its own. The image is PTX with a long comment, so
// that it does not fit into a call.
#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 64;
constexpr size_t kComment = 100'000;

std::vector<char> large_image() {
  std::vector<char> text = read_beside("kernels.ptx");
  text.pop_back();  // its NUL
  const char open[] = "\n/*", close[] = "*/\n";
  text.insert(text.end(), open, open + 3);
  text.insert(text.end(), kComment, '.');
  text.insert(text.end(), close, close + 4);  // with a NUL
  return text;
}

}  // namespace

int main() {
  Gpu gpu;
  const std::vector<char> image = large_image();
  std::atomic<int> ready{0}, loaded{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      CU(cuCtxSetCurrent(gpu.context));
      for (++ready; ready.load() != kThreads;) std::this_thread::yield();
      CUmodule module;
      CUfunction step;
      CU(cuModuleLoadData(&module, image.data()));
      CU(cuModuleGetFunction(&step, module, "step"));
      CU(cuModuleUnload(module));
      ++loaded;
    });
  }
  for (std::thread& thread : threads) thread.join();
  printf("%d loaded\n", loaded.load());
  return 0;
}
