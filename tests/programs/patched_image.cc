// PTX in a program's read-only data that it patches in memory, as those do that unpack or decrypt
// their code in place: before the first load, while it may be written, and once it may not again.
#include <sys/mman.h>

#include "tests/programs/common.h"

namespace {

// Longer than what fits a record of any transport.
#define LINES_4(line) line line line line
#define LINES_64(line) LINES_4(LINES_4(LINES_4(line)))
#define LINES_4096(line) LINES_64(LINES_64(line))
alignas(4096) const char kImage[] =
    ".version 8.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry k(.param .u64 p)\n"
    "{\n"
    ".reg .u64 %rd<3>;\n"
    ".reg .u32 %r<2>;\n"
    "ld.param.u64 %rd1, [p];\n"
    "cvta.to.global.u64 %rd2, %rd1;\n"
    "mov.u32 %r1, 111;\n"
    "st.global.u32 [%rd2], %r1;\n"
    "ret;\n"
    "}\n" LINES_4096("// as long as a large module\n");

// The compiler may not rely on what the bytes were.
const char* volatile g_image = kImage;

uint32_t result_of(const char* image) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CU(cuModuleLoadData(&module, image));
  CU(cuModuleGetFunction(&function, module, "k"));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1, 0));
  LAUNCH(function, {1}, {1}, 0, nullptr, data.pointer);
  const uint32_t value = data.read()[0];
  CU(cuModuleUnload(module));
  return value;
}

void allow(int access) {
  EXPECT(mprotect(const_cast<char*>(g_image), sizeof kImage & ~size_t{4095}, access) == 0);
}

void patch(const char* from, const char* to) {
  allow(PROT_READ | PROT_WRITE);
  memcpy(const_cast<char*>(strstr(g_image, from)), to, strlen(to));
}

}  // namespace

int main() {
  Gpu gpu;
  printf("as it was linked: %u\n", result_of(g_image));
  patch("111", "222");
  printf("patched: %u\n", result_of(g_image));
  allow(PROT_READ);
  printf("read-only again: %u\n", result_of(g_image));
  patch("222", "333");
  allow(PROT_READ);
  printf("patched once more: %u\n", result_of(g_image));
  return 0;
}
