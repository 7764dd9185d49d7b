// What the chapters of stream order share: a value that tells in which order steps came, gates,
// streams and events that end by themselves.
//
// Order is made visible by what kernels leave behind: a value becomes value * factor + addend,
// which tells the order of two steps. A stream is held by a gate, a word that it waits for; while
// it is held, cuStreamQuery tells what else is. Nothing sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/life.h"

// One number that steps change, in whatever order they come.
struct Order {
  Gpu gpu;
  Module module{"kernels.fatbin"};
  CUfunction kernel = module.function("step");
  DeviceArray<uint32_t> value{std::vector<uint32_t>(32, 1)};
  Gate gate;
  void step(CUstream stream, uint32_t factor, uint32_t addend) const {
    LAUNCH(kernel, {1}, {32}, 0, stream, value.pointer, factor, addend, 32);
  }
  // Three steps that no other order makes equal.
  void first(CUstream stream) const { step(stream, 3, 1); }
  void second(CUstream stream) const { step(stream, 5, 2); }
  void third(CUstream stream) const { step(stream, 7, 3); }
  void hold(CUstream stream) const { gate.hold(stream); }
  void finish() const {
    gate.open();
    CU(cuCtxSynchronize());
    printf("value %u\n", value.read()[0]);
  }
};

struct Stream {
  CUstream handle = nullptr;
  explicit Stream(unsigned flags) { CU(cuStreamCreate(&handle, flags)); }
  ~Stream() { CU(cuStreamDestroy(handle)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return handle; }
};
struct Blocking : Stream {
  Blocking() : Stream(CU_STREAM_DEFAULT) {}
};
struct Apart : Stream {
  Apart() : Stream(CU_STREAM_NON_BLOCKING) {}
};

struct Event {
  CUevent handle = nullptr;
  explicit Event(unsigned flags = CU_EVENT_DISABLE_TIMING) { CU(cuEventCreate(&handle, flags)); }
  ~Event() { CU(cuEventDestroy(handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator CUevent() const { return handle; }
};

// Runs `wait` while another thread opens the gate, and says what was done when it returned.
template <class Wait>
void wait_while_opened(const Order& order, Wait wait) {
  std::atomic<bool> waiting{false};
  std::thread opener([&] {
    while (!waiting.load()) std::this_thread::yield();
    order.gate.open();
  });
  waiting = true;
  wait();
  opener.join();
}

// Says whether `call` goes on only when `stream` does, which another thread lets go on.
template <class Call>
void show_waiting(const char* what, CUstream stream, Call call) {
  Order o;
  o.hold(stream);
  std::atomic<bool> called{false}, opened{false}, returned{false};
  std::thread opener([&] {
    CU(cuCtxSetCurrent(o.gpu.context));
    while (!called) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) (void)cuStreamQuery(stream);  // others may ask meanwhile
    // Who does not wait is back soon, however busy the machine is.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
    while (!returned && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    opened = true;
    o.gate.open();
  });
  called = true;
  const CUresult code = call();
  const bool waited = opened;
  returned = true;
  opener.join();
  printf("%s: %s, %s\n", what, code_name(code), waited ? "waited" : "did not wait");
  CU(cuCtxSynchronize());
}
