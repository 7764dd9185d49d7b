// What the driver answers of PTX with an error in it: to a load as a module, to one as a library,
// and to the linker as it takes the text in. Where the linker refuses a text and says of it what
// the library's load does, the module's has to answer the same, with the same logs and values:
// docs/decisions/0037 rests on it.
//
//   bench/holds/refused         natively; a line for each text and option, exit status 1 if not so
#include <cuda.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/client/common.h"

namespace {

struct Text {
  const char* name;
  std::string ptx;
};

struct Option {
  const char* name;
  CUjit_option option = CU_JIT_NUM_OPTIONS;  // none
  size_t value = 0;
};

std::string header(const char* version = "8.0", const char* target = "sm_75") {
  return std::string(".version ") + version + "\n.target " + target + "\n.address_size 64\n";
}

std::string kernel(const std::string& body) {
  return ".visible .entry k() { " + body + " ret; }\n";
}

std::vector<Text> texts() {
  return {
      {"right", header() + kernel("")},
      {"syntax", header() + ".visible .entry k({ ret; }\n"},
      {"unknown instruction", header() + kernel("nonsense;")},
      {"undeclared register", header() + kernel("mov.u32 %q1, 3;")},
      {"undefined label", header() + kernel("bra L;")},
      {"version of the future", header("99.0") + kernel("")},
      {"target of a later GPU", header("8.7", "sm_120") + kernel("")},
      {"no such target", header("8.0", "sm_999") + kernel("")},
      {"instruction of a later target", header() + kernel("wgmma.fence.sync.aligned;")},
      {"two kernels of a name", header() + kernel("") + kernel("")},
      {"too much constant memory", header() + ".const .b8 s[70000];\n" + kernel("")},
      {"too many parameters",
       header() + ".visible .entry k(.param .align 8 .b8 p[5000]) { ret; }\n"},
      {"extern function", header() + ".extern .func f();\n" + kernel("call f, ();")},
      {"too much shared memory",
       header() + kernel(".shared .b8 s[400000]; .reg .u64 %r<2>; mov.u64 %r1, s;"
                         " st.shared.u64 [%r1], %r1;")},
      {"header alone", header()},
      {"no PTX", "hello world\n"},
  };
}

std::vector<Option> options() {
  return {{"none"},
          {"registers", CU_JIT_MAX_REGISTERS, 32},
          {"threads", CU_JIT_THREADS_PER_BLOCK, 256},
          {"not optimised", CU_JIT_OPTIMIZATION_LEVEL, 0},
          {"optimised beyond", CU_JIT_OPTIMIZATION_LEVEL, 9},
          {"target of the context", CU_JIT_TARGET_FROM_CUCONTEXT, 0},
          {"target 90", CU_JIT_TARGET, 90},
          {"target 1", CU_JIT_TARGET, 1},
          {"fallback", CU_JIT_FALLBACK_STRATEGY, 1},
          {"debug", CU_JIT_GENERATE_DEBUG_INFO, 1},
          {"verbose", CU_JIT_LOG_VERBOSE, 1},
          {"lines", CU_JIT_GENERATE_LINE_INFO, 1},
          {"cache mode", CU_JIT_CACHE_MODE, 2},
          {"position independent", CU_JIT_POSITION_INDEPENDENT_CODE, 1},
          {"unknown", static_cast<CUjit_option>(77), 1}};
}

// Of one call: its code, both logs with what lies behind them, and the values written back.
struct Answer {
  explicit Answer(const Option& asked, size_t log_bytes)
      : error_log(log_bytes + 16, '\7'), info_log(log_bytes + 16, '\7') {
    if (asked.option != CU_JIT_NUM_OPTIONS) add(asked.option, reinterpret_cast<void*>(asked.value));
    add(CU_JIT_ERROR_LOG_BUFFER, error_log.data());
    add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(log_bytes));
    add(CU_JIT_INFO_LOG_BUFFER, info_log.data());
    add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(log_bytes));
  }
  void add(CUjit_option option, void* value) {
    options.push_back(option);
    values.push_back(value);
  }
  bool says_as(const Answer& other) const {
    return error_log == other.error_log && info_log == other.info_log;
  }
  bool equals(const Answer& other) const {
    if (code != other.code || !says_as(other)) return false;
    for (size_t i = 0; i < options.size(); ++i) {
      const bool buffer =
          options[i] == CU_JIT_ERROR_LOG_BUFFER || options[i] == CU_JIT_INFO_LOG_BUFFER;
      if (!buffer && values[i] != other.values[i]) return false;
    }
    return true;
  }

  CUresult code = CUDA_SUCCESS;
  std::string error_log, info_log;
  std::vector<CUjit_option> options;
  std::vector<void*> values;
};

void load(const std::string& ptx, Answer& answer) {
  CUmodule module = nullptr;
  answer.code =
      cuModuleLoadDataEx(&module, ptx.c_str(), static_cast<unsigned>(answer.options.size()),
                         answer.options.data(), answer.values.data());
  if (answer.code == CUDA_SUCCESS) CU(cuModuleUnload(module));
}

// Its answer alone says nothing: the text is compiled then, and refused where it is used.
void load_library(const std::string& ptx, Answer& answer) {
  CUlibrary library = nullptr;
  answer.code =
      cuLibraryLoadData(&library, ptx.c_str(), answer.options.data(), answer.values.data(),
                        static_cast<unsigned>(answer.options.size()), nullptr, nullptr, 0);
  if (answer.code == CUDA_SUCCESS) CU(cuLibraryUnload(library));
}

// False: the linker takes no such options, which says nothing of the text.
bool link(const std::string& ptx, Answer& answer) {
  CUlinkState state = nullptr;
  if (cuLinkCreate(static_cast<unsigned>(answer.options.size()), answer.options.data(),
                   answer.values.data(), &state) != CUDA_SUCCESS)
    return false;
  answer.code = cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.c_str()),
                              ptx.size() + 1, "", 0, nullptr, nullptr);
  CU(cuLinkDestroy(state));
  return true;
}

const char* name_of(CUresult code) {
  const char* name = nullptr;
  return cuGetErrorName(code, &name) == CUDA_SUCCESS ? name : "?";
}

// Whether what the linker refuses, in a library's words, the load refuses alike.
bool compare(const Text& text, const Option& option, size_t log_bytes) {
  Answer loaded(option, log_bytes), library(option, log_bytes), linked(option, log_bytes);
  load(text.ptx, loaded);
  load_library(text.ptx, library);
  const bool asked = link(text.ptx, linked);
  const bool refused = asked && linked.code != CUDA_SUCCESS;
  const bool alike = !refused || !linked.says_as(library) || linked.equals(loaded);
  std::printf("%-30s %-22s %4zu  load %-34s linker %-34s %s\n", text.name, option.name, log_bytes,
              name_of(loaded.code), asked ? name_of(linked.code) : "-",
              !refused                   ? ""
              : !linked.says_as(library) ? "other words"
              : alike                    ? "the same"
                                         : "OTHERWISE");
  return alike;
}

}  // namespace

int main() {
  CUdevice device = 0;
  bench::enter_first_gpu(&device);
  bool alike = true;
  for (const Text& text : texts()) {
    for (const Option& option : options()) alike &= compare(text, option, 4096);
    for (const size_t bytes : {0, 1, 2, 40, 100}) alike &= compare(text, {"none"}, bytes);
  }
  CU(cuDevicePrimaryCtxRelease(device));
  return alike ? 0 : 1;
}
