// PTX in a mapped file that changes between two loads: by a store through a mapping of the same
// file, whose pages are dirty already, so the file's times stay as they are.
#include <sys/mman.h>

#include "tests/programs/common.h"

namespace {

// Longer than what fits a record of any transport.
std::string kernel(int value) {
  std::string text = R"(.version 8.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .u64 %rd<3>;
.reg .u32 %r<2>;
ld.param.u64 %rd1, [p];
cvta.to.global.u64 %rd2, %rd1;
mov.u32 %r1, )" + std::to_string(value) +
                     R"(;
st.global.u32 [%rd2], %r1;
ret;
}
)";
  while (text.size() < 100000) text += "// as long as a large module\n";
  return text;
}

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

}  // namespace

int main() {
  Gpu gpu;
  char path[] = "/dev/shm/rewritten-image-XXXXXX";
  const int file = mkstemp(path);
  EXPECT(file >= 0);
  const size_t bytes = kernel(111).size() + 1;
  EXPECT(ftruncate(file, static_cast<off_t>(bytes)) == 0);
  auto* writable =
      static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  const auto* image =
      static_cast<const char*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0));
  EXPECT(writable != MAP_FAILED && image != MAP_FAILED);
  for (const int value : {111, 222, 222, 111}) {
    memcpy(writable, kernel(value).c_str(), bytes);
    printf("the file says %d, the kernel %u\n", value, result_of(image));
  }
  unlink(path);
  return 0;
}
