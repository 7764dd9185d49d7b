// What a full stream stands in the way of, natively: one stream waits for a value, a thread
// launches onto it until the call no longer returns, and another thread goes on with other streams.
//
//   bench/holds/full_queue [LAUNCHES]      some seconds on a GPU; prints a line for each question
//
// docs/scheduling.md (Hardware queues) rests on its answers.
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

const char* const kImage = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
)";
constexpr auto kPatience = std::chrono::milliseconds(500);

CUcontext context = nullptr;
CUfunction nothing = nullptr;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::printf("FAILED %s: %s\n", what, name);
  std::exit(2);
}

CUstream stream() {
  CUstream made = nullptr;
  check(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return made;
}

void launch(CUstream to) {
  check(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, to, nullptr, nullptr), "cuLaunchKernel");
}

// Whether it returns in time; it goes on afterwards in any case.
template <class Call>
void ask(const char* what, Call call) {
  auto* const done = new std::atomic<bool>(false);  // the thread may outlive this
  std::thread([call, done] {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    call();
    done->store(true);
  }).detach();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done->load() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  std::printf("%s: %s\n", what, done->load() ? "returns" : "STANDS");
}

}  // namespace

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 100'000;
  CUdevice device = 0;
  CUmodule module = nullptr;
  uint32_t* value = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuModuleLoadData(&module, kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&nothing, module, "nothing"), "cuModuleGetFunction");
  check(cuMemHostAlloc(reinterpret_cast<void**>(&value), 8, 0), "cuMemHostAlloc");
  value[0] = value[1] = 0;
  const CUstream full = stream(), other = stream(), third = stream();
  for (const CUstream each : {full, other, third}) launch(each);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  const auto address = reinterpret_cast<CUdeviceptr>(value);
  check(cuStreamWaitValue32(full, address, 1, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  std::atomic<int> submitted{0};
  std::thread filler([&] {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (; submitted < launches; ++submitted) launch(full);
  });
  for (int before = -1; before != submitted.load();) {
    before = submitted;
    std::this_thread::sleep_for(kPatience);
  }
  std::printf("launches behind a wait: %d of %d\n", submitted.load(), launches);
  ask("a launch on another stream and its end", [&] {
    launch(other);
    check(cuStreamSynchronize(other), "cuStreamSynchronize");
  });
  ask("a write of a value on a third stream",
      [&] { check(cuStreamWriteValue32(third, address + 4, 1, 0), "cuStreamWriteValue32"); });
  ask("an event, recorded", [&] {
    CUevent event = nullptr;
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuEventRecord(event, third), "cuEventRecord");
  });
  __atomic_store_n(value, 1, __ATOMIC_RELEASE);
  filler.join();
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("the end: all %d have run\n", submitted.load());
  std::fflush(stdout);
  std::_Exit(0);
}
