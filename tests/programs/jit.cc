// PTX given as text: options with log buffers, errors with a log, and the driver's linker.
#include "tests/programs/common.h"

static const char* kGood = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry twice(.param .u64 out, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r5, [%rd4];
  shl.b32 %r5, %r5, 1;
  st.global.u32 [%rd4], %r5;
DONE:
  ret;
}
)";

static const char* kCaller = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) triple(.param .b32 value);
.visible .entry use_triple(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [%rd2];
  {
  .param .b32 p;
  .param .b32 q;
  st.param.b32 [p], %r1;
  call.uni (q), triple, (p);
  ld.param.b32 %r2, [q];
  }
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
static const char* kCallee = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .func (.param .b32 result) triple(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
}
)";

static CUresult load(CUmodule* module, const char* text, size_t* error_bytes) {
  char info[4096] = {}, error[4096] = {};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_LOG_VERBOSE,      CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {info,
                    reinterpret_cast<void*>(sizeof(info)),
                    error,
                    reinterpret_cast<void*>(sizeof(error)),
                    reinterpret_cast<void*>(1),
                    reinterpret_cast<void*>(4)};
  CUresult code = cuModuleLoadDataEx(module, text, 6, options, values);
  *error_bytes = strlen(error);
  if (code != CUDA_SUCCESS) fprintf(stderr, "log: %s\n", error);
  return code;
}

int main() {
  Gpu gpu;
  CUmodule module;
  size_t error_bytes = 0;
  SHOW(load(&module, kGood, &error_bytes));
  printf("error log %s\n", error_bytes == 0 ? "empty" : "written");
  CUfunction twice;
  CU(cuModuleGetFunction(&twice, module, "twice"));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1000, 21));
  LAUNCH(twice, {8}, {128}, 0, nullptr, data.pointer, 1000u);
  print_hash("twice", data.read());
  CU(cuModuleUnload(module));

  CUmodule bad = nullptr;
  std::string wrong(kGood);
  wrong.replace(wrong.find("shl.b32"), 7, "shq.b32");
  SHOW(load(&bad, wrong.c_str(), &error_bytes));
  printf("error log %s\n", error_bytes == 0 ? "empty" : "written");
  SHOW(cuModuleLoadData(&bad, "this is no module"));

  CUlinkState link;
  CU(cuLinkCreate(0, nullptr, nullptr, &link));
  CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCaller), strlen(kCaller) + 1,
                   "caller", 0, nullptr, nullptr));
  CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kCallee), strlen(kCallee) + 1,
                   "callee", 0, nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  CU(cuLinkComplete(link, &image, &size));
  EXPECT(image != nullptr && size > 0);
  CU(cuModuleLoadData(&module, image));
  CU(cuLinkDestroy(link));
  CUfunction use;
  CU(cuModuleGetFunction(&use, module, "use_triple"));
  LAUNCH(use, {1}, {1}, 0, nullptr, data.pointer);
  printf("linked: %u\n", data.read()[0]);
  CU(cuModuleUnload(module));

  // The nvcc-made PTX file, from its path.
  CU(cuModuleLoad(&module, beside_executable("kernels.ptx").c_str()));
  CUfunction add;
  CU(cuModuleGetFunction(&add, module, "vector_add"));
  DeviceArray<float> a(std::vector<float>(500, 1.5f)), b(std::vector<float>(500, 2.25f)), c(500);
  LAUNCH(add, {4}, {128}, 0, nullptr, a.pointer, b.pointer, c.pointer, 500);
  print_hash("from PTX", c.read());
  CU(cuModuleUnload(module));
  SHOW(cuModuleLoad(&module, "/no/such/file.cubin"));
  return 0;
}
