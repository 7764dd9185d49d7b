// Names of kernels and variables as long as templates make them, found one by one and listed.
#include "tests/programs/common.h"

namespace {

const std::string kHead = ".version 8.0\n.target sm_70\n.address_size 64\n";

CUmodule load(const std::string& body) {
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, (kHead + body).c_str()));
  return module;
}

void find_kernel(size_t length) {
  const std::string name(length, 'k');
  CUmodule module = load(".visible .entry " + name + R"((.param .u64 p)
{
.reg .u64 %rd<3>;
.reg .u32 %r<2>;
ld.param.u64 %rd1, [p];
cvta.to.global.u64 %rd2, %rd1;
mov.u32 %r1, 7;
st.global.u32 [%rd2], %r1;
ret;
}
)");
  CUfunction function = nullptr, none = nullptr;
  SHOW(cuModuleGetFunction(&function, module, name.c_str()));
  SHOW(cuModuleGetFunction(&none, module, (name + 'k').c_str()));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1, 0));
  LAUNCH(function, {1}, {1}, 0, nullptr, data.pointer);
  printf("a kernel of %zu characters wrote %u\n", length, data.read()[0]);
  CU(cuModuleUnload(module));
}

void find_variable(size_t length) {
  const std::string name(length, 'v');
  CUmodule module = load(".visible .global .u32 " + name + ";\n");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SHOW(cuModuleGetGlobal(&address, &bytes, module, name.c_str()));
  SHOW(cuModuleGetGlobal(&address, &bytes, module, (name + 'v').c_str()));
  printf("a variable of %zu characters has %zu bytes\n", length, bytes);
  CU(cuModuleUnload(module));
}

void list(size_t length) {
  const std::string body = "()\n{\nret;\n}\n";
  CUmodule module =
      load(".visible .entry " + std::string(length, 'a') + body + ".visible .entry in_between" +
           body + ".visible .entry " + std::string(length, 'b') + body);
  unsigned count = 0;
  SHOW(cuModuleGetFunctionCount(&count, module));
  CUfunction functions[3] = {};
  SHOW(cuModuleEnumerateFunctions(functions, 3, module));
  size_t characters = 0;
  for (CUfunction function : functions) {
    const char* name = nullptr;
    CU(cuFuncGetName(&name, function));
    characters += std::string(name).size();
  }
  printf("%u kernels, whose names have %zu characters\n", count, characters);
  CU(cuModuleUnload(module));
}

}  // namespace

int main() {
  Gpu gpu;
  for (const size_t length : {4096u, 4097u, 20000u, 60000u}) {
    find_kernel(length);
    find_variable(length);
    list(length);
  }
  SHOW(cuCtxSynchronize());
  return 0;
}
