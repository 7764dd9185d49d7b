// What the three functions of this example share: the CUDA driver API's set-up, and pictures read
// from standard input and written to standard output.
//
// A function is an ordinary CUDA program. It sets up its GPU, then serves: for every picture that
// comes in on standard input one goes out on standard output, until the input ends. It knows
// nothing of Tube.
#pragma once

#include <cuda.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

inline void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = "unknown";
  cuGetErrorName(code, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define CU(call) check((call), #call)

[[noreturn]] inline void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

// A picture of `channels` values per pixel. Travels as "TF WIDTH HEIGHT CHANNELS\n" and
// little-endian floats.
struct Picture {
  int width = 0, height = 0, channels = 0;
  std::vector<float> values;
  size_t pixels() const { return static_cast<size_t>(width) * static_cast<size_t>(height); }
};

// False at the end of the input.
inline bool read_picture(Picture* picture) {
  int got = scanf("TF %d %d %d", &picture->width, &picture->height, &picture->channels);
  if (got == EOF) return false;
  if (got != 3 || getchar() != '\n' || picture->width < 1 || picture->width > 8192 ||
      picture->height < 1 || picture->height > 8192 || picture->channels < 1 ||
      picture->channels > 4)
    fail("the input is no picture");
  picture->values.resize(picture->pixels() * static_cast<size_t>(picture->channels));
  if (fread(picture->values.data(), sizeof(float), picture->values.size(), stdin) !=
      picture->values.size())
    fail("the picture ends early");
  return true;
}

inline void write_picture(const Picture& picture) {
  printf("TF %d %d %d\n", picture.width, picture.height, picture.channels);
  fwrite(picture.values.data(), sizeof(float), picture.values.size(), stdout);
  fflush(stdout);
}

// The same for PPM (P6, 8 bits), the form in which pictures enter and leave the workflow.
inline bool read_ppm(int* width, int* height, std::vector<unsigned char>* bytes) {
  int most = 0;
  int got = scanf("P6 %d %d %d", width, height, &most);
  if (got == EOF) return false;
  if (got != 3 || most != 255 || *width < 1 || *width > 8192 || *height < 1 || *height > 8192)
    fail("the input is no 8-bit P6 picture");
  getchar();
  bytes->resize(static_cast<size_t>(*width) * static_cast<size_t>(*height) * 3);
  if (fread(bytes->data(), 1, bytes->size(), stdin) != bytes->size())
    fail("the picture ends early");
  return true;
}
inline void write_ppm(int width, int height, const std::vector<unsigned char>& bytes) {
  printf("P6\n%d %d\n255\n", width, height);
  fwrite(bytes.data(), 1, bytes.size(), stdout);
  fflush(stdout);
}

// Device 0, its primary context, a stream, and the PTX file beside the executable.
class Gpu {
 public:
  explicit Gpu(const char* ptx_file) {
    CU(cuInit(0));
    CUdevice device = 0;
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context_, device));
    CU(cuCtxSetCurrent(context_));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0) fail("cannot read /proc/self/exe");
    std::string file(path, static_cast<size_t>(length));
    file = file.substr(0, file.rfind('/') + 1) + ptx_file;
    CU(cuModuleLoad(&module_, file.c_str()));
    char name[256] = {};
    CU(cuDeviceGetName(name, sizeof(name), device));
    fprintf(stderr, "ready on %s\n", name);
  }
  CUfunction kernel(const char* name) const {
    CUfunction function = nullptr;
    CU(cuModuleGetFunction(&function, module_, name));
    return function;
  }
  // Address of a variable of the module, which must have `bytes` bytes.
  CUdeviceptr variable(const char* name, size_t bytes) const {
    CUdeviceptr address = 0;
    size_t size = 0;
    CU(cuModuleGetGlobal(&address, &size, module_, name));
    if (size != bytes) fail("a module variable has another size than expected");
    return address;
  }

  // One thread per pixel.
  template <typename... Args>
  void over_pixels(CUfunction function, int width, int height, Args... args) const {
    void* pointers[] = {static_cast<void*>(&args)..., &width, &height};
    CU(cuLaunchKernel(function, static_cast<unsigned>((width + 15) / 16),
                      static_cast<unsigned>((height + 15) / 16), 1, 16, 16, 1, 0, stream, pointers,
                      nullptr));
  }

  CUstream stream = nullptr;

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

// Device memory of one request.
struct Buffer {
  CUdeviceptr pointer = 0;
  explicit Buffer(size_t bytes) { CU(cuMemAlloc(&pointer, bytes)); }
  ~Buffer() { CU(cuMemFree(pointer)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};
