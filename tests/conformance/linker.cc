// The linker: PTX and objects to an image.
#include "tests/conformance/case.h"

static const char kCaller[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) twice (.param .b32 a);
.visible .entry use(.param .u64 out, .param .u32 in) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [in];
  cvta.to.global.u64 %rd2, %rd1;
  {
    .param .b32 a;
    .param .b32 r;
    st.param.b32 [a], %r1;
    call.uni (r), twice, (a);
    ld.param.b32 %r2, [r];
  }
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
static const char kCallee[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .func (.param .b32 r) twice (.param .b32 a) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [a];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [r], %r2;
  ret;
}
)";

// Outlives the link, which writes into it.
struct LinkLog {
  char text[1024] = "";
  CUjit_option options[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[2] = {text, reinterpret_cast<void*>(sizeof(text))};
};

static CUresult add(CUlinkState state, const char* text, const char* name) {
  return cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text), strlen(text) + 1, name, 0, nullptr, nullptr);
}

CASE(create_and_destroy) {
  Gpu gpu;
  CUlinkState state = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, &state));
  SHOW(cuLinkDestroy(state));
}

CASE(create_bad_arguments) {
  Gpu gpu;
  CUlinkState state = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, nullptr));
  SHOW(cuLinkCreate(1, nullptr, nullptr, &state));
  SHOW(cuLinkDestroy(nullptr));
}

CASE(create_without_a_context) {
  CU(cuInit(0));
  CUlinkState state = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, &state));
}

CASE(two_ptx_files_make_one_module) {
  Gpu gpu;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  SHOW(add(state, kCaller, "caller.ptx"));
  SHOW(add(state, kCallee, "callee.ptx"));
  void* image = nullptr;
  size_t size = 0;
  SHOW(cuLinkComplete(state, &image, &size));
  printf("%s\n", image != nullptr && size > 0 ? "an image" : "none");
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, image));
  SHOW(cuLinkDestroy(state));
  CUfunction use = nullptr;
  SHOW(cuModuleGetFunction(&use, module, "use"));
  DeviceArray<uint32_t> out(1);
  SHOW(try_launch(use, {1}, {1}, 0, nullptr, out.pointer, 21u));
  printf("%u\n", out.read()[0]);
  SHOW(cuModuleUnload(module));
}

CASE(missing_function) {
  Gpu gpu;
  LinkLog log;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(2, log.options, log.values, &state));
  SHOW(add(state, kCaller, "caller.ptx"));
  void* image = nullptr;
  size_t size = 0;
  const CUresult result = cuLinkComplete(state, &image, &size);
  printf("%s\n", code_name(result));
  SHOW(cuLinkDestroy(state));
}

CASE(bad_ptx) {
  Gpu gpu;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  SHOW(add(state, "nonsense", "bad.ptx"));
  SHOW(cuLinkDestroy(state));
}

// Each text is compiled as it is added.
CASE(refused_ptx) {
  Gpu gpu;
  LinkLog log;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(2, log.options, log.values, &state));
  SHOW(add(state, ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k() { nonsense; }\n", "bad.ptx"));
  printf("something is said: %s\n", log.text[0] != 0 ? "yes" : "no");
  SHOW(cuLinkDestroy(state));
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  SHOW(add(state, ".version 99.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n", "new.ptx"));
  SHOW(cuLinkDestroy(state));
}

CASE(add_bad_arguments) {
  Gpu gpu;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  SHOW(cuLinkAddData(state, CU_JIT_INPUT_PTX, nullptr, 10, "x", 0, nullptr, nullptr));
  SHOW(cuLinkAddData(nullptr, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), sizeof(kCallee), "x", 0, nullptr, nullptr));
  SHOW(cuLinkAddData(state, static_cast<CUjitInputType>(99), const_cast<char*>(kCallee), sizeof(kCallee), "x", 0, nullptr, nullptr));
  SHOW(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), sizeof(kCallee), nullptr, 0, nullptr, nullptr));
  SHOW(cuLinkDestroy(state));
}

CASE(add_file) {
  Gpu gpu;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  const CUresult result = cuLinkAddFile(state, CU_JIT_INPUT_PTX, beside_executable("kernels.ptx").c_str(), 0, nullptr, nullptr);
  printf("%s\n", code_name(result));
  SHOW(cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nonexistent.ptx", 0, nullptr, nullptr));
  SHOW(cuLinkAddFile(state, CU_JIT_INPUT_PTX, nullptr, 0, nullptr, nullptr));
  SHOW(cuLinkDestroy(state));
}

CASE(complete_bad_arguments) {
  Gpu gpu;
  CUlinkState state = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &state));
  CU(add(state, kCallee, "callee.ptx"));
  void* image = nullptr;
  size_t size = 0;
  SHOW(cuLinkComplete(state, nullptr, &size));
  SHOW(cuLinkComplete(nullptr, &image, &size));
  SHOW(cuLinkDestroy(state));
}

CASE(first_versions) {
  Gpu gpu;
  CUlinkState state = nullptr;
  SHOW(cuLinkCreate_v1(0, nullptr, nullptr, &state));
  SHOW(cuLinkAddData_v1(state, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), sizeof(kCallee), "callee.ptx", 0, nullptr, nullptr));
  const CUresult result = cuLinkAddFile_v1(state, CU_JIT_INPUT_PTX, "/nonexistent.ptx", 0, nullptr, nullptr);
  printf("%s\n", code_name(result));
  SHOW(cuLinkDestroy(state));
}

CASE(jit_options_of_a_module) {
  Gpu gpu;
  char info[2048] = "";
  float seconds = -1;
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME, CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {info, reinterpret_cast<void*>(sizeof(info)), nullptr, reinterpret_cast<void*>(2)};
  CUmodule module = nullptr;
  SHOW(cuModuleLoadDataEx(&module, kCallee, 4, options, values));
  memcpy(&seconds, &values[2], sizeof(seconds));
  printf("time is given: %s\n", seconds >= 0 ? "yes" : "no");
}

CASE(complete_without_inputs) {
  Gpu gpu;
  CUlinkState link = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &link));
  void* image = nullptr;
  size_t bytes = 0;
  SHOW(cuLinkComplete(link, &image, &bytes));
  SHOW(cuLinkDestroy(link));
}
