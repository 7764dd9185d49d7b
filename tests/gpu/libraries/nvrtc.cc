// NVRTC called directly: sources to PTX, machine code and LTO code; the images are loaded, their
// kernels and variables used.
#include <nvrtc.h>

#include <algorithm>

#include "driver.h"

using library::Device;
using library::launch;
using library::Module;
using library::note;
using library::save;
using library::values;

namespace {

class Program {
 public:
  Program(const char* source, std::vector<const char*> headers = {},
          std::vector<const char*> names = {}) {
    CHECK(nvrtcCreateProgram(&program_, source, "case.cu", static_cast<int>(headers.size()),
                             headers.data(), names.data()));
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { nvrtcDestroyProgram(&program_); }
  operator nvrtcProgram() const { return program_; }

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return nvrtcCompileProgram(program_, static_cast<int>(texts.size()), texts.data());
  }
  std::string log() const {
    size_t size = 0;
    CHECK(nvrtcGetProgramLogSize(program_, &size));
    std::string text(size, 0);
    CHECK(nvrtcGetProgramLog(program_, text.data()));
    return text.c_str();
  }
  std::string ptx() const {
    size_t size = 0;
    CHECK(nvrtcGetPTXSize(program_, &size));
    std::string text(size, 0);
    CHECK(nvrtcGetPTX(program_, text.data()));
    return text;
  }
  std::string cubin() const {
    size_t size = 0;
    CHECK(nvrtcGetCUBINSize(program_, &size));
    std::string image(size, 0);
    CHECK(nvrtcGetCUBIN(program_, image.data()));
    return image;
  }
  void must_compile(const std::vector<std::string>& options) {
    if (compile(options) != NVRTC_SUCCESS) throw std::runtime_error("does not compile: " + log());
  }

 private:
  nvrtcProgram program_ = nullptr;
};

const char* const kSaxpy =
    R"(extern "C" __global__ void saxpy(float a, const float* x, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + sinf(y[i]);
})";

void run_saxpy(const std::string& image) {
  Module module(image);
  Device<float> x(values<float>(10000, 1)), y(values<float>(10000, 2));
  for (int i = 0; i < 3; ++i)
    launch(module.function("saxpy"), 40, 256, 0, 1.25f, x.get(), y.get(), 10000);
  save("y", y);
}

}  // namespace

LIBRARY_CASE(version_and_architectures) {
  int major = 0, minor = 0, count = 0;
  CHECK(nvrtcVersion(&major, &minor));
  CHECK(nvrtcGetNumSupportedArchs(&count));
  std::vector<int> all(count);
  CHECK(nvrtcGetSupportedArchs(all.data()));
  note("version %d.%d", major, minor);
  for (int one : all) note("architecture %d", one);
}

LIBRARY_CASE(ptx_loaded_by_the_driver) {
  Program program(kSaxpy);
  program.must_compile({"--gpu-architecture=compute_80"});
  run_saxpy(program.ptx());
}

LIBRARY_CASE(machine_code) {
  Program program(kSaxpy);
  program.must_compile({"--gpu-architecture=" + library::architecture("sm")});
  run_saxpy(program.cubin());
}

LIBRARY_CASE(fast_math_and_line_information) {
  Program program(kSaxpy);
  program.must_compile({"--gpu-architecture=" + library::architecture("sm"), "--use_fast_math",
                        "-lineinfo", "--std=c++17"});
  run_saxpy(program.cubin());
}

LIBRARY_CASE(lowered_names_of_templates) {
  Program program(R"(
    namespace work { __constant__ float scale[4]; __device__ int hits; }
    template <typename T, int kStep> __global__ void fill(T* out, int count) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) { out[i] = T(i * kStep) * T(work::scale[i & 3]); atomicAdd(&work::hits, 1); }
    })");
  for (const char* name : {"fill<float, 3>", "fill<double, 7>", "&work::scale", "&work::hits"})
    CHECK(nvrtcAddNameExpression(program, name));
  program.must_compile({"--gpu-architecture=compute_80"});
  const char *floats = nullptr, *doubles = nullptr, *scale = nullptr, *hits = nullptr;
  CHECK(nvrtcGetLoweredName(program, "fill<float, 3>", &floats));
  CHECK(nvrtcGetLoweredName(program, "fill<double, 7>", &doubles));
  CHECK(nvrtcGetLoweredName(program, "&work::scale", &scale));
  CHECK(nvrtcGetLoweredName(program, "&work::hits", &hits));
  note("%s %s %s %s", floats, doubles, scale, hits);
  Module module(program.ptx());
  size_t bytes = 0;
  const float factors[4] = {0.5f, 1, 1.5f, 2};
  CHECK(cuMemcpyHtoD(module.global(scale, &bytes), factors, sizeof(factors)));
  note("scale has %zu bytes", bytes);
  Device<float> f(1000);
  Device<double> d(1000);
  launch(module.function(floats), 8, 128, 0, f.get(), 1000);
  launch(module.function(doubles), 8, 128, 0, d.get(), 1000);
  save("floats", f);
  save("doubles", d);
  int counted = 0;
  CHECK(cuMemcpyDtoH(&counted, module.global(hits, &bytes), sizeof(counted)));
  note("hits %d", counted);
}

LIBRARY_CASE(headers_from_memory) {
  Program program(
      R"(
    #include "numbers.h"
    extern "C" __global__ void squares(int* out) { out[threadIdx.x] = number(threadIdx.x) * kFactor; })",
      {"#pragma once\n#include \"factor.h\"\n__device__ int number(int i) { return i * i; }",
       "constexpr int kFactor = 3;"},
      {"numbers.h", "factor.h"});
  program.must_compile({"--gpu-architecture=compute_80"});
  Module module(program.ptx());
  Device<int> out(64);
  launch(module.function("squares"), 1, 64, 0, out.get());
  save("out", out);
}

LIBRARY_CASE(dynamic_shared_memory_over_the_default_limit) {
  Program program(R"(extern "C" __global__ void reverse(const float* in, float* out, int count) {
    extern __shared__ float staged[];
    for (int i = threadIdx.x; i < count; i += blockDim.x) staged[i] = in[i];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = staged[count - 1 - i];
  })");
  program.must_compile({"--gpu-architecture=" + library::architecture("sm")});
  Module module(program.cubin());
  const int count = 20000;
  CUfunction function = module.function("reverse");
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, count * 4));
  Device<float> in(values<float>(count, 3)), out(count);
  launch(function, 1, 256, count * 4, in.get(), out.get(), count);
  save("out", out);
}

LIBRARY_CASE(half_and_bfloat16_headers) {
  // The builtin types are there without any header; arithmetic of half needs cuda_fp16.h, which
  // programs pass with an include path.
  Program program(
      R"(extern "C" __global__ void pack(const float* in, unsigned short* out, int count) {
    int i = threadIdx.x;
    if (i < count) { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(in[i])); out[i] = h; }
  })");
  program.must_compile({"--gpu-architecture=compute_80"});
  Module module(program.ptx());
  Device<float> in(values<float>(256, 4));
  Device<unsigned short> out(256);
  launch(module.function("pack"), 1, 256, 0, in.get(), out.get(), 256);
  save("out", out);
}

LIBRARY_CASE(errors_are_explained) {
  Program program("extern \"C\" __global__ void broken() { undeclared = 1; }");
  note("compile %d", program.compile({"--gpu-architecture=compute_80"}));
  note("%s", program.log().c_str());
  Program option(kSaxpy);
  note("option %d", option.compile({"--no-such-option"}));
  const char* lowered = nullptr;
  note("unknown name %d", nvrtcGetLoweredName(program, "nothing", &lowered));
  note("%s", nvrtcGetErrorString(NVRTC_ERROR_COMPILATION));
}

LIBRARY_CASE(many_kernels_in_one_program) {
  std::string source;
  for (int i = 0; i < 60; ++i) {
    source += "extern \"C\" __global__ void k" + std::to_string(i) + "(int* out) { out[" +
              std::to_string(i) + " * 32 + threadIdx.x] = threadIdx.x * " + std::to_string(i + 1) +
              "; }\n";
  }
  Program program(source.c_str());
  program.must_compile({"--gpu-architecture=" + library::architecture("sm")});
  Module module(program.cubin());
  Device<int> out(60 * 32);
  for (int i = 0; i < 60; ++i)
    launch(module.function(("k" + std::to_string(i)).c_str()), 1, 32, 0, out.get());
  save("out", out);
}

LIBRARY_CASE(library_interface_of_the_runtime) {
  Program program(kSaxpy);
  program.must_compile({"--gpu-architecture=" + library::architecture("sm")});
  const std::string image = program.cubin();
  cudaLibrary_t loaded = nullptr;
  cudaKernel_t kernel = nullptr;
  CHECK(cudaLibraryLoadData(&loaded, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cudaLibraryGetKernel(&kernel, loaded, "saxpy"));
  Device<float> x(values<float>(5000, 5)), y(values<float>(5000, 6));
  float a = 0.5f;
  const float* from = x.get();
  float* to = y.get();
  int count = 5000;
  void* arguments[] = {&a, &from, &to, &count};
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(20), dim3(256), arguments, 0,
                         nullptr));
  save("y", y);
  CHECK(cudaLibraryUnload(loaded));
}
