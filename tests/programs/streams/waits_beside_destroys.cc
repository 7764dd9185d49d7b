// One thread submits work to a stream and destroys it, another one synchronises the context as soon
// as the work is submitted: it has ended when that returns. Many times, as what would be missed is
// missed only within a moment.
#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kRounds = 2000;

std::atomic<int> round{0}, submitted{0}, done{0};

// It takes a while, so that a wait which does not see it returns before its end.
void host_function(void*) {
  static const std::vector<char> bytes(100'000);
  static std::atomic<uint64_t> hash{0};
  hash = hash_of(bytes);
  done.fetch_add(1);
}

// Without leaving its core for as long as the other thread takes that has one, too.
void wait_until(const std::atomic<int>& count, int least) {
  for (int i = 0; count < least; ++i)
    if (i > 20'000) std::this_thread::yield();
}

void destroy_streams(CUcontext context) {
  CU(cuCtxSetCurrent(context));
  for (int i = 1; i <= kRounds; ++i) {
    wait_until(round, i);
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuLaunchHostFunc(stream, host_function, nullptr));
    submitted = i;
    CU(cuStreamDestroy(stream));
  }
}

}  // namespace

int main() {
  Gpu gpu;
  Random random(1);
  std::thread destroys([&] { destroy_streams(gpu.context); });
  int missed = 0;
  for (int i = 1; i <= kRounds; ++i) {
    round = i;
    wait_until(submitted, i);
    for (std::atomic<uint32_t> at{random.next() % 300}; at > 0; --at) {
    }
    CU(cuCtxSynchronize());
    missed += done < i ? 1 : 0;
    wait_until(done, i);
  }
  destroys.join();
  printf("waits that returned too early: %s\n", missed == 0 ? "none" : "some");
  fprintf(stderr, "%d of them\n", missed);
  return 0;
}
