// cuLink*: collects PTX texts, each compiled as it comes; Complete checks that they link and
// returns an image that this driver can load.
#include <cstring>

#include "sim/calls/module.h"
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

struct Linker {
  int sm = 90;
  JitOptions log;
  std::vector<std::string> texts;
  std::string image;
};

// What a text alone is refused for. One that names what others have is looked at in Complete.
CUresult take_text(Linker& linker, std::string text) {
  Code code;
  std::string why;
  const bool others =
      text.find(".extern") != std::string::npos && text.find(".version") != std::string::npos;
  if (!others) {
    if (CUresult r = compile_image(text.c_str(), text.size() + 1, linker.sm, &code, &why);
        r != CUDA_SUCCESS) {
      report_jit(linker.log, why);
      return r;
    }
  }
  linker.texts.push_back(std::move(text));
  return CUDA_SUCCESS;
}

// The texts of one input, whatever its container. Slow; without the lock.
CUresult take_input(Linker& linker, CUjitInputType type, const void* data, size_t size) {
  std::vector<std::string_view> packed;
  if (unpack_linked(data, size, &packed)) {
    for (auto text : packed) linker.texts.emplace_back(text);
    return CUDA_SUCCESS;
  }
  if (type == CU_JIT_INPUT_PTX) {
    std::string text(static_cast<const char*>(data), size);
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return take_text(linker, std::move(text));
  }
  if (type == CU_JIT_INPUT_LIBRARY)
    return CUDA_SUCCESS;  // cudadevrt: its functions are the interpreter's own
  std::string why, text = ptx::find_ptx(data, size, linker.sm, &why);
  if (!text.empty()) return take_text(linker, std::move(text));
  report_jit(linker.log, why);
  return type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_FATBINARY ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                                      : CUDA_ERROR_INVALID_IMAGE;
}

CUresult create(Context* context, unsigned count, CUjit_option* options, void** values,
                CUlinkState* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto linker = std::make_unique<Linker>();
  linker->sm = context->device->spec.sm;
  if (CUresult r = parse_jit_options(count, options, values, &linker->log)) return r;
  report_jit(linker->log, "");
  State& s = state();
  Lock lock(s.mutex);
  s.live.emplace(linker.get(), Kind::kLinker);
  *out = reinterpret_cast<CUlinkState>(linker.release());
  return CUDA_SUCCESS;
}

// Null: there is none.
Linker* find(CUlinkState handle) {
  State& s = state();
  Lock lock(s.mutex);
  return live<Linker>(s, handle, Kind::kLinker);
}

CUresult add(CUlinkState handle, CUjitInputType type, const void* data, size_t size) {
  if (data == nullptr || size == 0 || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES)
    return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_JIT_INPUT_NVVM) return CUDA_ERROR_NOT_SUPPORTED;
  Linker* linker = find(handle);
  return linker == nullptr ? CUDA_ERROR_INVALID_HANDLE : take_input(*linker, type, data, size);
}

CUresult add_file(CUlinkState handle, CUjitInputType type, const char* path) {
  std::string bytes;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!read_whole_file(path, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  return add(handle, type, bytes.data(), bytes.size());
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                              CUlinkState* stateOut) {
  SIM_ENTER_CONTEXT(context);
  return create(context, numOptions, options, optionValues, stateOut);
}
SIM_API CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options,
                                 void** optionValues, CUlinkState* stateOut) {
  SIM_ENTER_CONTEXT(context);
  return create(context, numOptions, options, optionValues, stateOut);
}
SIM_API CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                               const char*, unsigned int, CUjit_option*, void**) {
  SIM_ENTER(kHandle);
  return add(handle, type, data, size);
}
SIM_API CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                                  const char*, unsigned int, CUjit_option*, void**) {
  SIM_ENTER(kHandle);
  return add(handle, type, data, size);
}
SIM_API CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path,
                               unsigned int, CUjit_option*, void**) {
  SIM_ENTER(kHandle);
  return add_file(handle, type, path);
}
SIM_API CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path,
                                  unsigned int, CUjit_option*, void**) {
  SIM_ENTER(kHandle);
  return add_file(handle, type, path);
}

SIM_API CUresult cuLinkComplete(CUlinkState handle, void** cubinOut, size_t* sizeOut) {
  SIM_ENTER(kHandle);
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Linker* linker = find(handle);
  if (linker == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (linker->texts.empty()) {  // a driver has nothing against it (H200)
    *cubinOut = nullptr;
    if (sizeOut != nullptr) *sizeOut = 0;
    return CUDA_SUCCESS;
  }
  std::vector<std::string_view> views(linker->texts.begin(), linker->texts.end());
  ptx::CompileResult result = ptx::link(views);
  if (result.module == nullptr) {
    report_jit(linker->log, "line " + std::to_string(result.error.line) + ": " +
                                result.error.message + ": " + result.error.instruction);
    return CUDA_ERROR_INVALID_PTX;
  }
  linker->image = pack_linked(linker->texts, result.module->variables());
  *cubinOut = linker->image.data();
  if (sizeOut != nullptr) *sizeOut = linker->image.size();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLinkDestroy(CUlinkState handle) {
  SIM_ENTER(kInit);
  return destroy_live<Linker>(handle, Kind::kLinker, CUDA_ERROR_INVALID_HANDLE);
}
