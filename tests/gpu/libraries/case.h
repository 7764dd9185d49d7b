// Cases that call one NVIDIA library directly: how they are registered, get their data and hand
// over their results.
//
// A program holds the cases of one library. It runs them in order, prints `@begin NAME` and `@end
// NAME` (or `@failed NAME reason`) around each, and writes what a case saves as files of bytes into
// the folder ITEM_OUTPUTS: CASE.OUTPUT.TYPE, TYPE naming the elements (f32, f16, i32, txt, ...).
// tests/gpu/run starts it natively and through Tube and compares the files. ITEM_ONLY (shell
// patterns) and ITEM_SKIP (names), separated by commas, choose cases: a crash costs its own case
// only.
//
// Values come from a fixed generator on the host, so that two processes compute on the same bytes.
// One thread unless a case starts more.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace library {

using Body = void (*)();

// Called by LIBRARY_CASE before main.
struct Registration {
  Registration(const char* name, Body body);
};

// Leaves the case; all of these libraries call success 0.
template <typename Status>
void check(Status status, const char* call, int line) {
  if (static_cast<int>(status) == 0) return;
  throw std::runtime_error("line " + std::to_string(line) + ": " + call + " gave " +
                           std::to_string(static_cast<int>(status)));
}

// Writes one output of the running case.
void save_bytes(const char* name, const char* type, const void* data, size_t size_bytes);
// Adds a line of text to the running case's output `notes`.
void note(const char* format, ...) __attribute__((format(printf, 1, 2)));
// A fact of the machine makes the case meaningless here: leaves it, said aloud in the report.
[[noreturn]] void skip(const std::string& reason);

// 64 bits from a counter-based mix: the same on every machine.
uint64_t mix(uint64_t seed, uint64_t index);
inline double unit(uint64_t seed, uint64_t index) {
  return static_cast<double>(mix(seed, index) >> 11) / 9007199254740992.0;
}

template <typename T>
T make(double value) {
  if constexpr (std::is_same_v<T, float2>) {
    return {static_cast<float>(value), static_cast<float>(0.5 - value)};
  } else if constexpr (std::is_same_v<T, double2>) {
    return {value, 0.5 - value};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

// `count` values in [low, high).
template <typename T>
std::vector<T> values(size_t count, uint64_t seed, double low = -1, double high = 1) {
  std::vector<T> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = make<T>(low + (high - low) * unit(seed, i));
  return out;
}

// A column-major n x n matrix that is symmetric and has a heavy diagonal: positive definite, safe
// to factorise.
template <typename T>
std::vector<T> definite(int n, uint64_t seed) {
  std::vector<T> out(static_cast<size_t>(n) * n);
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < n; ++row) {
      const int low = row < column ? row : column, high = row < column ? column : row;
      const double value = unit(seed, static_cast<uint64_t>(low) * n + high) - 0.5;
      T entry = make<T>(row == column ? n + value : value);
      if constexpr (std::is_same_v<T, float2> || std::is_same_v<T, double2>)
        entry.y = row == column ? 0 : (row < column ? entry.y : -entry.y);
      out[static_cast<size_t>(column) * n + row] = entry;
    }
  }
  return out;
}

template <typename T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, float2>) return "f32";
  else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, double2>) return "f64";
  else if constexpr (std::is_same_v<T, __half>) return "f16";
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) return "bf16";
  else if constexpr (std::is_same_v<T, int>) return "i32";
  else if constexpr (std::is_same_v<T, long long> || std::is_same_v<T, int64_t>) return "i64";
  else return "u8";
}

template <typename T>
void save(const char* name, const std::vector<T>& data) {
  save_bytes(name, type_name<T>(), data.data(), data.size() * sizeof(T));
}

// Device memory of the runtime's, freed with the object.
template <typename T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), size_bytes() ? size_bytes() : 1),
          "cudaMalloc", __LINE__);
    check(cudaMemset(data_, 0, size_bytes()), "cudaMemset", __LINE__);
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    check(cudaMemcpy(data_, from.data(), size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy",
          __LINE__);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { cudaFree(data_); }

  T* get() { return data_; }
  const T* get() const { return data_; }
  size_t count() const { return count_; }
  size_t size_bytes() const { return count_ * sizeof(T); }
  // Waits for everything on the device first: what a library queued on its own stream has then
  // arrived.
  std::vector<T> host() const {
    std::vector<T> out(count_);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", __LINE__);
    check(cudaMemcpy(out.data(), data_, size_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy",
          __LINE__);
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

template <typename T>
void save(const char* name, const Device<T>& data) {
  save(name, data.host());
}

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamDefault) {
    check(cudaStreamCreateWithFlags(&stream_, flags), "cudaStreamCreateWithFlags", __LINE__);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Captures what `work` queues into `stream` as a graph and runs it `times`.
template <typename Work>
void captured(cudaStream_t stream, int times, Work work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
        __LINE__);
  work();
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture", __LINE__);
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate", __LINE__);
  for (int i = 0; i < times; ++i) check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch", __LINE__);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", __LINE__);
  check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy", __LINE__);
  check(cudaGraphDestroy(graph), "cudaGraphDestroy", __LINE__);
}

}  // namespace library

#define CHECK(call) library::check((call), #call, __LINE__)
#define LIBRARY_CASE(name)                                                \
  static void name();                                                     \
  static const library::Registration registration_of_##name(#name, name); \
  static void name()
