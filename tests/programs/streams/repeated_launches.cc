// Steps of many small launches, the same kernels again and again: what launch coalescing sends as
// graphs. Every way in which a step can stop being the same comes once: other parameters, another
// kernel in the middle, a shorter step, other work between, another stream, a module unloaded and
// loaded again, a launch that fails.
#include "tests/programs/common.h"

namespace {

constexpr int kCount = 64;

struct Work {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> data{kCount};

  void one(uint32_t factor, uint32_t addend, CUstream stream) {
    LAUNCH(step, {1}, {64}, 0, stream, data.pointer, factor, addend, kCount);
  }
  void show(const char* what) {
    printf("%s: %016llx\n", what, static_cast<unsigned long long>(hash_of(data.read())));
  }
};

void run_steps(Work& w, CUstream stream, const char* name) {
  LAUNCH(w.fill, {1}, {64}, 0, stream, w.data.pointer, 1u, kCount);
  CU(cuStreamSynchronize(stream));
  for (uint32_t step = 0; step < 12; ++step) {
    for (uint32_t i = 0; i < 40; ++i) w.one(3 + i, 7, stream);
    CU(cuStreamSynchronize(stream));
  }
  w.show(name);
}

}  // namespace

int main() {
  Gpu gpu;
  Work w;
  CUstream streams[2];
  CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
  run_steps(w, nullptr, "same steps, legacy stream");
  run_steps(w, streams[0], "same steps, non-blocking stream");
  for (uint32_t step = 0; step < 12; ++step) {
    for (uint32_t i = 0; i < 40; ++i) w.one(3 + i, i % 9 == 0 ? step : 7, streams[0]);
    CU(cuStreamSynchronize(streams[0]));
  }
  w.show("some parameters change");
  for (uint32_t step = 0; step < 12; ++step) {
    for (uint32_t i = 0; i < 40; ++i) w.one(3 + i, step * 40 + i, streams[0]);
    CU(cuStreamSynchronize(streams[0]));
  }
  w.show("all parameters change");
  for (uint32_t step = 0; step < 12; ++step) {
    for (uint32_t i = 0; i < 40; ++i) {
      w.one(3 + i, 7, streams[0]);
      if (step % 3 == 2 && i == 20)
        LAUNCH(w.fill, {1}, {32}, 0, streams[0], w.data.pointer, step, 32);
    }
    CU(cuStreamSynchronize(streams[0]));
  }
  w.show("another kernel now and then");
  for (uint32_t step = 0; step < 12; ++step) {
    for (uint32_t i = 0; i < 20 + step % 5; ++i) w.one(3 + i, 7, streams[1]);
    CU(cuMemsetD32Async(w.data.pointer, step, 8, streams[1]));
    for (uint32_t i = 0; i < 20; ++i) w.one(5 + i, 11, i % 10 == 9 ? streams[1] : nullptr);
  }
  CU(cuCtxSynchronize());
  w.show("lengths, copies and streams change");
  for (uint32_t round = 0; round < 3; ++round) {
    Module again("kernels.fatbin");
    CUfunction step = again.function("step");
    for (uint32_t n = 0; n < 6; ++n) {
      for (uint32_t i = 0; i < 30; ++i)
        LAUNCH(step, {1}, {64}, 0, streams[0], w.data.pointer, 3 + i, 1u, kCount);
      CU(cuStreamSynchronize(streams[0]));
    }
  }
  w.show("modules come and go");
  for (uint32_t step = 0; step < 8; ++step) {
    for (uint32_t i = 0; i < 20; ++i) {
      w.one(3 + i, 7, streams[0]);
      if (i == 10) {
        const CUresult r =
            try_launch(w.step, {1}, {4096}, 0, streams[0], w.data.pointer, 3u, 3u, kCount);
        if (step == 0) printf("too many threads -> %s\n", code_name(r));
      }
    }
    CU(cuStreamSynchronize(streams[0]));
  }
  w.show("a launch that fails");
  for (uint32_t n = 0; n < 3; ++n) {
    for (uint32_t i = 0; i < 1500; ++i) w.one(3, 1, streams[0]);
    CU(cuStreamSynchronize(streams[0]));
  }
  w.show("long runs");
  for (CUstream stream : streams) CU(cuStreamDestroy(stream));
  return 0;
}
