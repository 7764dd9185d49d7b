// What the driver-API test programs share: error checks, loading of the kernels beside the
// executable, hashes for stdout.
//
// A program is an ordinary CUDA driver-API program that knows nothing of Tube. It prints to stdout
// only what must be the same natively and through Tube: values, hashes of bytes, codes by name. No
// times, no addresses, no process ids. Kernels come from files beside the executable (fatbins with
// machine code and PTX, and plain PTX).
#pragma once

#include <cuda.h>

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

inline const char* code_name(CUresult code) {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) return "UNKNOWN_CODE";
  return name;
}

// A call that must work. Says what failed on stderr and ends the program with exit code 1.
inline void check(CUresult code, const char* call, const char* file, int line) {
  if (code == CUDA_SUCCESS) return;
  fflush(stdout);
  fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, call, code_name(code),
          static_cast<int>(code));
  exit(1);
}
#define CU(call) check((call), #call, __FILE__, __LINE__)

// A call whose code is part of the result.
#define SHOW(call) show_code(#call, (call))
inline void show_code(const char* call, CUresult code) {
  printf("%s -> %s\n", call, code_name(code));
}

inline void expect(bool truth, const char* what, const char* file, int line) {
  if (truth) return;
  fflush(stdout);
  fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  exit(1);
}
#define EXPECT(truth) expect((truth), #truth, __FILE__, __LINE__)

// An object that is never destroyed: its context is gone or faulted before it, or the program ends
// in the middle. Still reachable, so that a leak checker does not take it for lost.
template <typename T, typename... Arguments>
T* left_behind(Arguments&&... arguments) {
  struct Link {
    T object;
    Link* next;
  };
  static std::atomic<Link*> first{nullptr};
  auto* link = new Link{T(std::forward<Arguments>(arguments)...), nullptr};
  link->next = first.exchange(link);
  return &link->object;
}

// FNV-1a, 64 bits: enough to tell two byte strings apart in a diff.
inline uint64_t hash_bytes(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}
template <typename T>
uint64_t hash_of(const std::vector<T>& values) {
  return hash_bytes(values.data(), values.size() * sizeof(T));
}
template <typename T>
void print_hash(const char* name, const std::vector<T>& values) {
  printf("%s: %zu bytes, hash %016llx\n", name, values.size() * sizeof(T),
         static_cast<unsigned long long>(hash_of(values)));
}

// Repeatable numbers, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33) ^ static_cast<uint32_t>(state_ >> 11);
  }
  float unit() { return static_cast<float>(next() >> 8) * (1.0f / 16777216.0f); }
  std::vector<float> floats(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = unit() * 2.0f - 1.0f;
    return values;
  }
  std::vector<unsigned char> bytes(size_t count) {
    std::vector<unsigned char> values(count);
    for (auto& value : values) value = static_cast<unsigned char>(next());
    return values;
  }

 private:
  uint64_t state_;
};

inline std::string beside_executable(const char* file) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  EXPECT(length > 0);
  std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/') + 1) + file;
}

// The whole file, with one NUL after it (cuModuleLoadData wants PTX text to end in NUL).
inline std::vector<char> read_beside(const char* file) {
  std::string path = beside_executable(file);
  FILE* stream = fopen(path.c_str(), "rb");
  if (stream == nullptr) {
    fprintf(stderr, "cannot open %s\n", path.c_str());
    exit(1);
  }
  std::vector<char> bytes;
  char block[65536];
  for (size_t count = 0; (count = fread(block, 1, sizeof(block), stream)) > 0;)
    bytes.insert(bytes.end(), block, block + count);
  fclose(stream);
  bytes.push_back('\0');
  return bytes;
}

// Device 0 with its primary context current, as most programs have it.
struct Gpu {
  CUdevice device = 0;
  CUcontext context = nullptr;
  Gpu() {
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
  }
  ~Gpu() { CU(cuDevicePrimaryCtxRelease(device)); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
};

struct Module {
  CUmodule handle = nullptr;
  explicit Module(const char* file) { CU(cuModuleLoadData(&handle, read_beside(file).data())); }
  ~Module() { CU(cuModuleUnload(handle)); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    CU(cuModuleGetFunction(&found, handle, name));
    return found;
  }
};

template <typename T>
struct DeviceArray {
  CUdeviceptr pointer = 0;
  size_t count = 0;
  explicit DeviceArray(size_t size) : count(size) { CU(cuMemAlloc(&pointer, count * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    CU(cuMemcpyHtoD(pointer, values.data(), count * sizeof(T)));
    // A copy from pageable memory may return before the bytes have arrived, and a non-blocking
    // stream does not wait for it.
    CU(cuStreamSynchronize(nullptr));
  }
  ~DeviceArray() { CU(cuMemFree(pointer)); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  size_t bytes() const { return count * sizeof(T); }
  std::vector<T> read() const {
    std::vector<T> values(count);
    CU(cuMemcpyDtoH(values.data(), pointer, bytes()));
    return values;
  }
};

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

// A launch with its arguments by value, as a program would write it by hand with an array of
// pointers.
template <typename... Args>
CUresult try_launch(CUfunction kernel, Dim grid, Dim block, unsigned shared, CUstream stream,
                    Args... args) {
  void* pointers[] = {static_cast<void*>(&args)..., nullptr};
  return cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
                        pointers, nullptr);
}
#define LAUNCH(...) check(try_launch(__VA_ARGS__), "cuLaunchKernel", __FILE__, __LINE__)
