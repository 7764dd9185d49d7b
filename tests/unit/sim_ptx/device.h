// A device made of host memory for the interpreter's tests: compiles a text, lays out its
// variables, launches kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sim/ptx/ptx.h"

namespace tube::sim::ptx {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

class Device final : public Memory {
 public:
  explicit Device(std::string_view text) : Device(std::vector<std::string_view>{text}) {}
  explicit Device(const std::vector<std::string_view>& texts) {
    CompileResult result = link(texts);
    error = result.error;
    module = result.module;
    if (module == nullptr) return;
    for (const Variable& variable : module->variables()) {
      addresses.push_back(alloc(std::max<uint64_t>(variable.size, 1)));
      std::copy(variable.image.begin(), variable.image.end(),
                reinterpret_cast<std::byte*>(addresses.back()));
    }
    for (size_t i = 0; i < addresses.size(); ++i)
      for (const auto& reloc : module->variables()[i].relocations) {
        const uint64_t value = addresses[reloc.target] + reloc.addend;
        std::memcpy(reinterpret_cast<char*>(addresses[i]) + reloc.offset, &value, reloc.width);
      }
  }
  ~Device() override {
    for (const auto& [address, block] : blocks_)
      ::operator delete[](block.second, std::align_val_t{256});
  }

  uint64_t alloc(uint64_t size) {
    const uint64_t padded = std::max<uint64_t>(size, 1);
    void* const memory = ::operator new[](padded, std::align_val_t{256});
    std::memset(memory, 0, padded);
    const auto address = reinterpret_cast<uint64_t>(memory);
    blocks_[address] = {size, memory};
    return address;
  }
  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t address = alloc(values.size() * sizeof(T));
    std::memcpy(reinterpret_cast<void*>(address), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> download(uint64_t address, size_t count) const {
    std::vector<T> out(count);
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), count * sizeof(T));
    return out;
  }

  const Kernel* kernel(std::string_view name) const {
    if (module == nullptr) return nullptr;
    for (const Kernel& each : module->kernels())
      if (each.name == name ||
          (each.name.find(name) != std::string::npos && each.name.starts_with("_Z")))
        return &each;
    return nullptr;
  }
  uint64_t variable(std::string_view name) const {
    for (size_t i = 0; i < addresses.size(); ++i)
      if (module->variables()[i].name == name) return addresses[i];
    return 0;
  }

  // Arguments are packed at the kernel's own offsets.
  template <class... Args>
  Fault run(std::string_view name, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
            Args... args) {
    const Kernel* const found = kernel(name);
    if (found == nullptr) {
      ADD_FAILURE() << "no kernel " << name << ": line " << error.line << ": " << error.message
                    << ": " << error.instruction;
      return {};
    }
    std::vector<std::byte> packed(found->param_bytes);
    size_t index = 0;
    const auto put = [&](const auto& value) {
      ASSERT_LT(index, found->params.size());
      ASSERT_EQ(found->params[index].size, sizeof(value));
      std::memcpy(packed.data() + found->params[index++].offset, &value, sizeof(value));
    };
    (put(args), ...);
    EXPECT_EQ(index, found->params.size());
    config.grid = grid;
    config.block = block;
    config.params = packed.data();
    config.params_size = packed.size();
    config.variable_addresses = addresses.data();
    return launch(*module, *found, config, *this);
  }

  std::byte* translate(uint64_t address, uint64_t size, bool, uint64_t* begin,
                       uint64_t* end) override {
    auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return nullptr;
    --next;
    if (address + size > next->first + next->second.first || address + size < address)
      return nullptr;
    *begin = next->first;
    *end = next->first + next->second.first;
    return reinterpret_cast<std::byte*>(address);
  }
  uint64_t heap_alloc(uint64_t size) override { return alloc(size); }
  void heap_free(uint64_t address) override {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return;
    ::operator delete[](found->second.second, std::align_val_t{256});
    blocks_.erase(found);
    ++frees;
  }
  void print(std::string_view text) override { printed += text; }

  CompileError error;
  std::shared_ptr<const Module> module;
  std::vector<uint64_t> addresses;
  LaunchConfig config;
  std::string printed;
  int frees = 0;

 private:
  std::map<uint64_t, std::pair<uint64_t, void*>> blocks_;
};

#define EXPECT_RUNS(fault)                                                                         \
  do {                                                                                             \
    const ::tube::sim::ptx::Fault fault_ = (fault);                                                \
    EXPECT_EQ(fault_.kind, ::tube::sim::ptx::Fault::Kind::kNone)                                   \
        << fault_.message << " line " << fault_.line << " address " << std::hex << fault_.address; \
  } while (false)

}  // namespace tube::sim::ptx
