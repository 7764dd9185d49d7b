// nvJitLink called directly: objects from NVRTC (PTX, relocatable machine code, LTO code) linked
// into one image, loaded and run.
#include <nvJitLink.h>
#include <nvrtc.h>

#include <utility>

#include "driver.h"

using library::Device;
using library::launch;
using library::Module;
using library::note;
using library::save;
using library::values;

namespace {

const char* const kUser = R"(extern __device__ float helper(float value, int index);
extern "C" __global__ void apply(float* data, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = helper(data[i], i);
})";
const char* const kHelper = R"(__device__ float table[4] = {1.0f, 0.5f, 0.25f, 2.0f};
__device__ float helper(float value, int index) { return value * table[index & 3] + 1.0f; })";

// Relocatable code of a source; `kind` says in which form.
enum class Kind { kPtx, kCubin, kLto };

std::string object(const char* source, Kind kind) {
  nvrtcProgram program = nullptr;
  CHECK(nvrtcCreateProgram(&program, source, "part.cu", 0, nullptr, nullptr));
  const std::string architecture =
      "-arch=" + library::architecture(kind == Kind::kCubin ? "sm" : "compute");
  std::vector<const char*> options{architecture.c_str(), "-rdc=true"};
  if (kind == Kind::kLto) options.push_back("-dlto");
  CHECK(nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()));
  size_t size = 0;
  std::string out;
  if (kind == Kind::kPtx) {
    CHECK(nvrtcGetPTXSize(program, &size));
    out.resize(size);
    CHECK(nvrtcGetPTX(program, out.data()));
  } else if (kind == Kind::kCubin) {
    CHECK(nvrtcGetCUBINSize(program, &size));
    out.resize(size);
    CHECK(nvrtcGetCUBIN(program, out.data()));
  } else {
    CHECK(nvrtcGetLTOIRSize(program, &size));
    out.resize(size);
    CHECK(nvrtcGetLTOIR(program, out.data()));
  }
  CHECK(nvrtcDestroyProgram(&program));
  return out;
}

class Linker {
 public:
  explicit Linker(std::vector<std::string> options) {
    options.push_back("-arch=" + library::architecture("sm"));
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    CHECK(nvJitLinkCreate(&linker_, static_cast<uint32_t>(texts.size()), texts.data()));
  }
  Linker(const Linker&) = delete;
  Linker& operator=(const Linker&) = delete;
  ~Linker() { nvJitLinkDestroy(&linker_); }
  void add(nvJitLinkInputType type, const std::string& data, const char* name) {
    CHECK(nvJitLinkAddData(linker_, type, data.data(), data.size(), name));
  }
  nvJitLinkResult complete() { return nvJitLinkComplete(linker_); }
  std::string errors() {
    size_t size = 0;
    CHECK(nvJitLinkGetErrorLogSize(linker_, &size));
    std::string text(size + 1, 0);
    CHECK(nvJitLinkGetErrorLog(linker_, text.data()));
    return text.c_str();
  }
  std::string ptx() {
    size_t size = 0;
    CHECK(nvJitLinkGetLinkedPtxSize(linker_, &size));
    std::string text(size, 0);
    CHECK(nvJitLinkGetLinkedPtx(linker_, text.data()));
    return text;
  }
  std::string cubin() {
    size_t size = 0;
    CHECK(nvJitLinkGetLinkedCubinSize(linker_, &size));
    std::string image(size, 0);
    CHECK(nvJitLinkGetLinkedCubin(linker_, image.data()));
    return image;
  }

 private:
  nvJitLinkHandle linker_ = nullptr;
};

void run_apply(const std::string& image) {
  Module module(image);
  Device<float> data(values<float>(3000, 1));
  for (int i = 0; i < 3; ++i) launch(module.function("apply"), 12, 256, 0, data.get(), 3000);
  save("data", data);
}

void link_two(Kind kind, nvJitLinkInputType type, std::vector<std::string> options) {
  Linker linker(std::move(options));
  linker.add(type, object(kUser, kind), "user");
  linker.add(type, object(kHelper, kind), "helper");
  if (linker.complete() != NVJITLINK_SUCCESS)
    throw std::runtime_error("does not link: " + linker.errors());
  run_apply(linker.cubin());
}

}  // namespace

LIBRARY_CASE(version) {
  unsigned major = 0, minor = 0;
  CHECK(nvJitLinkVersion(&major, &minor));
  note("version %u.%u", major, minor);
}

LIBRARY_CASE(two_ptx_objects) { link_two(Kind::kPtx, NVJITLINK_INPUT_PTX, {}); }
LIBRARY_CASE(two_machine_code_objects) { link_two(Kind::kCubin, NVJITLINK_INPUT_CUBIN, {}); }
LIBRARY_CASE(two_lto_objects) { link_two(Kind::kLto, NVJITLINK_INPUT_LTOIR, {"-lto"}); }

LIBRARY_CASE(ptx_and_machine_code) {
  Linker linker({});
  linker.add(NVJITLINK_INPUT_PTX, object(kUser, Kind::kPtx), "user");
  linker.add(NVJITLINK_INPUT_CUBIN, object(kHelper, Kind::kCubin), "helper");
  CHECK(linker.complete());
  run_apply(linker.cubin());
}

LIBRARY_CASE(lto_to_ptx) {
  Linker linker({"-lto", "-ptx"});
  linker.add(NVJITLINK_INPUT_LTOIR, object(kUser, Kind::kLto), "user");
  linker.add(NVJITLINK_INPUT_LTOIR, object(kHelper, Kind::kLto), "helper");
  CHECK(linker.complete());
  run_apply(linker.ptx());
}

LIBRARY_CASE(missing_symbol) {
  Linker linker({});
  linker.add(NVJITLINK_INPUT_PTX, object(kUser, Kind::kPtx), "user");
  note("link %d", linker.complete());
  note("%s", linker.errors().c_str());
}

// The driver's own linker over the same objects: what programs used before nvJitLink.
LIBRARY_CASE(linked_by_the_driver) {
  CHECK(cudaFree(nullptr));
  const std::string user = object(kUser, Kind::kPtx), helper = object(kHelper, Kind::kPtx);
  CUlinkState state = nullptr;
  CHECK(cuLinkCreate(0, nullptr, nullptr, &state));
  CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(user.data()), user.size(), "user",
                      0, nullptr, nullptr));
  CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(helper.data()), helper.size(),
                      "helper", 0, nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  CHECK(cuLinkComplete(state, &image, &size));
  run_apply(std::string(static_cast<char*>(image), size));
  CHECK(cuLinkDestroy(state));
}
