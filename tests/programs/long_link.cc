// A link of many inputs with long names: more text than one record of Tube's holds.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  constexpr int kInputs = 450;
  CUlinkState link = nullptr;
  CU(cuLinkCreate(0, nullptr, nullptr, &link));
  for (int i = 0; i < kInputs; ++i) {
    const std::string name = "/" + std::string(240, 'd') + "/kernel_" + std::to_string(i) + ".ptx";
    std::string text = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k" +
                       std::to_string(i) + "()\n{\nret;\n}\n";
    CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, name.c_str(), 0, nullptr,
                     nullptr));
  }
  void* image = nullptr;
  size_t bytes = 0;
  SHOW(cuLinkComplete(link, &image, &bytes));
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, image));
  CUfunction last = nullptr;
  SHOW(cuModuleGetFunction(&last, module, ("k" + std::to_string(kInputs - 1)).c_str()));
  SHOW(cuLinkDestroy(link));
  SHOW(cuLaunchKernel(last, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));

  // Far more than any record: the answer is native's, and nothing is written elsewhere.
  CUdeviceptr address = 0;
  SHOW(cuModuleGetGlobal(&address, &bytes, module, std::string(5'000'000, 'n').c_str()));
  SHOW(cuCtxSynchronize());
  return 0;
}
