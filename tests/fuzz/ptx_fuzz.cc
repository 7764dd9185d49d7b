// Mutated PTX texts and fatbin images must be refused or accepted, never crash, hang or read out of
// bounds. What compiles also runs for a moment: a program must not be able to break the machine it
// runs on.
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "sim/ptx/ptx.h"
#include "sim/ptx/texture.h"

namespace {

using namespace tube::sim::ptx;

// A few pages of memory at one address; everything else is a fault.
class Pages final : public Memory {
 public:
  static constexpr uint64_t kBase = 0x10000000;
  std::byte* translate(uint64_t address, uint64_t size, bool, uint64_t* begin,
                       uint64_t* end) override {
    if (++calls > 2000) cancel = true;
    if (address < kBase || address - kBase > bytes.size() ||
        bytes.size() - (address - kBase) < size)
      return nullptr;
    *begin = kBase;
    *end = kBase + bytes.size();
    return bytes.data() + (address - kBase);
  }
  uint64_t heap_alloc(uint64_t) override { return 0; }
  void heap_free(uint64_t) override {}
  void print(std::string_view) override {}
  // Every handle is a texture over the pages, whose levels say more than there is: what lies
  // outside is a fault.
  std::shared_ptr<const Texture> texture(uint64_t handle) override {
    auto t = std::make_shared<Texture>();
    t->levels = {{kBase, 33, 17, 3, 33 * 16, 33 * 17 * 16},
                 {kBase + 8192, 16, 8, 1, 16 * 16, 16 * 8 * 16}};
    t->component = static_cast<Texture::Component>(shape & 3);
    t->component_bytes = 1u << (shape >> 2 & 1);
    if (t->component == Texture::Component::kFloat) t->component_bytes = 4;
    t->channels = 1u << (shape >> 3 & 1);
    t->cube = (shape >> 4 & 1) != 0;
    t->layers = t->cube ? 12 : 5;
    t->linear_filter = (shape >> 5 & 1) != 0;
    t->linear_mipmap = t->linear_filter;
    t->normalized_coordinates = (shape >> 6 & 1) != 0;
    t->highest_level = 9;
    for (int i = 0; i < 3; ++i)
      t->address[i] =
          static_cast<Texture::Address>((shape + handle + static_cast<uint64_t>(i)) & 3);
    return t;
  }
  uint64_t shape = 0;
  std::vector<std::byte> bytes = std::vector<std::byte>(16384);
  std::atomic<bool> cancel{false};
  int calls = 0;
};

void run(const Module& module) {
  for (const Kernel& kernel : module.kernels()) {
    if (kernel.static_shared_bytes > 65536 || kernel.local_bytes > 4096 ||
        kernel.param_bytes > 4096)
      continue;
    Pages memory;
    memory.shape = kernel.name.size() * 37 + kernel.param_bytes;
    std::vector<std::byte> params(kernel.param_bytes);
    const uint64_t base = Pages::kBase;
    for (const Param& param : kernel.params)
      if (param.size == 8) std::memcpy(params.data() + param.offset, &base, 8);
    const std::vector<uint64_t> variables(module.variables().size(), base);
    LaunchConfig config;
    config.block = {33, 1, 1};
    config.params = params.data();
    config.params_size = params.size();
    config.variable_addresses = variables.data();
    config.cancel = &memory.cancel;
    memory.cancel = true;  // the launch stops at the first look: loops cannot hold the fuzzer
    (void)launch(module, kernel, config, memory);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > (1u << 16)) return 0;
  std::string why;
  const bool wrapper =
      size >= 4 && data[0] == 0xb1 && data[1] == 0x43 && data[2] == 0x62 && data[3] == 0x46;
  if (wrapper || size == 0) return 0;  // a wrapper holds a pointer, which the caller vouches for
  const std::string found = find_ptx(data, size, 90, &why);
  const std::string_view text =
      found.empty() ? std::string_view(reinterpret_cast<const char*>(data), size) : found;
  const CompileResult result = compile(text);
  if (result.module != nullptr) run(*result.module);
  return 0;
}
