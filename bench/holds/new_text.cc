#include "bench/holds/new_text.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>

std::string new_text(int pairs, bool with_variable) {
  static uint64_t number = uint64_t(getpid()) << 24 ^ uint64_t(time(nullptr));
  std::string body;
  for (int i = 0; i < pairs; ++i)
    body += "add.u32 %r0, %r0, " + std::to_string(i) + ";\nxor.b32 %r0, %r0, 3;\n";
  const std::string variable = with_variable ? ".global .align 4 .u32 kept = 7;\n" : "";
  return ".version 7.0\n.target sm_70\n.address_size 64\n" + variable +
         ".visible .entry plain(.param .u64 out, .param .u32 n)\n{\n.reg .u32 %r<1>;\n"
         ".reg .u64 %rd<1>;\nld.param.u64 %rd0, [out];\nmov.u32 %r0, " +
         std::to_string(++number % 1'000'000'000) + ";\n" + body +
         (with_variable ? "st.global.u32 [kept], %r0;\n" : "") +
         "st.global.u32 [%rd0], %r0;\nret;\n}\n";
}
