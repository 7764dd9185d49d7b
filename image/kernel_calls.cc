#include "image/kernel_calls.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/elf_file.h"

namespace tube::image {
namespace {

constexpr std::string_view kInfo = ".nv.info.";
constexpr std::string_view kCallGraph = ".nv.callgraph";
constexpr uint8_t kSized = 4;       // an attribute with its size: format, id, u16 bytes, payload
constexpr uint8_t kExterns = 0x0f;  // u32 symbols of functions outside of the image
// Callees of the call graph that say what follows: calls, functions whose address is taken,
// functions that call through a pointer, and calls through a pointer whose end is known.
constexpr uint32_t kFirstMark = 0xfffffff0, kDirect = 0xffffffff, kAddressTaken = 0xfffffffe,
                   kResolved = 0xfffffffc;

bool is_outside(const Elf64_Sym& symbol) {
  return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx == SHN_UNDEF;
}

class CallFinder {
 public:
  CallFinder(std::span<const std::byte> bytes, std::span<const char* const> names)
      : bytes_(bytes), elf_(bytes), names_(names), bodies_(bytes.size()) {}

  bool run(CallsByFunction* out) {
    Elf64_Shdr strings;
    if (!elf_.good() || !elf_.first_of_type(SHT_SYMTAB, &symbols_) ||
        !elf_.section(symbols_.sh_link, &strings))
      return false;
    count_ = symbols_.sh_size / sizeof(Elf64_Sym);
    if (count_ > kMostSymbols) return false;
    calls_.resize(count_);
    if (!read_symbols(strings) || !read_sections()) return false;
    spread();
    for (const auto& [name, symbol] : functions_) (*out)[std::string(name)] |= calls_[symbol];
    return (present_ & ~called_) == 0;
  }

 private:
  // The wanted names among the symbols, and which symbols are functions.
  bool read_symbols(const Elf64_Shdr& strings) {
    ElfNames symbol_names(elf_, strings);
    for (size_t i = 0; i < count_; ++i) {
      Elf64_Sym symbol;
      if (!read(bytes_, symbols_.sh_offset + i * sizeof(symbol), &symbol)) continue;
      const std::string_view name = symbol_names.at(symbol.st_name);
      if (const uint32_t bit = wanted_bit(name, is_outside(symbol)); bit != 0) {
        wanted_[static_cast<uint32_t>(i)] = bit;
        present_ |= bit;
      }
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF)
        functions_.emplace_back(name, static_cast<uint32_t>(i));
    }
    std::sort(functions_.begin(), functions_.end());
    return symbol_names.good();
  }

  uint32_t wanted_bit(std::string_view name, bool outside) const {
    uint32_t other = 0;
    for (size_t n = 0; n < names_.size(); ++n) {
      if (names_[n] == nullptr) other = outside ? 1u << n : 0;
      else if (name == names_[n]) return 1u << n;
    }
    return other;
  }

  // The last function of that name.
  const uint32_t* function(std::string_view name) const {
    const auto after = std::upper_bound(functions_.begin(), functions_.end(), std::pair(name, ~0u));
    return after != functions_.begin() && std::prev(after)->first == name
               ? &std::prev(after)->second
               : nullptr;
  }

  bool read_sections() {
    Elf64_Shdr strings;
    if (!elf_.section(elf_.section_names(), &strings)) return false;
    ElfNames section_names(elf_, strings);
    for (uint32_t i = 0; i < elf_.sections(); ++i) {
      Elf64_Shdr section;
      if (!elf_.section(i, &section)) return false;
      if (section.sh_type == SHT_NOBITS) continue;
      const std::string_view name = section_names.at(section.sh_name);
      const bool graph = name == kCallGraph;
      if ((!graph && !name.starts_with(kInfo)) || !bodies_.take(section.sh_size)) continue;
      const auto body = bytes_.subspan(section.sh_offset, section.sh_size);
      if (graph) {
        read_graph(body);
      } else if (const uint32_t* owner = function(name.substr(kInfo.size()));
                 owner != nullptr && !read_externs(body, *owner)) {
        return false;
      }
    }
    return section_names.good() && bodies_.good();
  }

  bool read_externs(std::span<const std::byte> body, uint32_t owner) {
    for (uint64_t at = 0; at < body.size();) {
      uint8_t format = 0, id = 0;
      uint16_t size = 0;
      if (!read(body, at, &format) || !read(body, at + 1, &id) || !read(body, at + 2, &size))
        return false;
      at += 4;
      if (format != kSized) continue;
      if (size > body.size() - at) return false;
      for (uint64_t end = at + size; id == kExterns && end - at >= 4; at += 4) {
        uint32_t symbol = 0;
        (void)read(body, at, &symbol);
        add_call(owner, symbol);
      }
      at += id == kExterns ? size % 4 : size;
    }
    return true;
  }

  void read_graph(std::span<const std::byte> body) {
    uint32_t kind = kDirect;
    for (uint64_t at = 0; body.size() - at >= 8; at += 8) {
      uint32_t caller = 0, callee = 0;
      (void)read(body, at, &caller);
      (void)read(body, at + 4, &callee);
      if (callee >= kFirstMark) {
        kind = callee;
      } else if (caller >= count_ || kind == kAddressTaken) {
        continue;
      } else if (kind != kDirect && kind != kResolved) {
        through_pointer_.push_back(caller);
      } else if (!add_call(caller, callee) && callee < count_) {
        callers_[callee].push_back(caller);
      }
    }
  }

  // True when the symbol is one of the names.
  bool add_call(uint32_t caller, uint32_t symbol) {
    const auto found = wanted_.find(symbol);
    if (found == wanted_.end()) return false;
    calls_[caller] |= found->second;
    called_ |= found->second;
    return true;
  }

  // From the callees to everybody who calls them.
  void spread() {
    for (uint32_t caller : through_pointer_) calls_[caller] |= called_ | kCallsThroughPointer;
    std::vector<uint32_t> changed;
    for (const auto& [callee, callers] : callers_) changed.push_back(callee);
    while (!changed.empty()) {
      const uint32_t callee = changed.back();
      changed.pop_back();
      const auto callers = callers_.find(callee);
      if (callers == callers_.end()) continue;
      for (uint32_t caller : callers->second) {
        if ((calls_[callee] & ~calls_[caller]) == 0) continue;
        calls_[caller] |= calls_[callee];
        changed.push_back(caller);
      }
    }
  }

  std::span<const std::byte> bytes_;
  Elf elf_;
  std::span<const char* const> names_;
  ReadBudget bodies_;  // of the sections that are read
  Elf64_Shdr symbols_{};
  size_t count_ = 0;
  uint32_t present_ = 0, called_ = 0;                             // of the names
  std::unordered_map<uint32_t, uint32_t> wanted_;                 // symbol -> bit
  std::vector<std::pair<std::string_view, uint32_t>> functions_;  // with their symbols, sorted
  std::unordered_map<uint32_t, std::vector<uint32_t>> callers_;
  std::vector<uint32_t> through_pointer_;
  std::vector<uint32_t> calls_;  // by symbol
};

}  // namespace

bool kernel_calls(std::span<const std::byte> untrusted_elf, std::span<const char* const> names,
                  CallsByFunction* calls) {
  return CallFinder(untrusted_elf, names).run(calls);
}

bool calls_outside(std::span<const std::byte> untrusted_elf) {
  const Elf elf(untrusted_elf);
  Elf64_Shdr symbols;
  if (!elf.good() || !elf.first_of_type(SHT_SYMTAB, &symbols)) return true;
  const size_t count = std::min<size_t>(symbols.sh_size / sizeof(Elf64_Sym), kMostSymbols);
  for (size_t i = 0; i < count; ++i) {
    Elf64_Sym symbol;
    if (read(untrusted_elf, symbols.sh_offset + i * sizeof(symbol), &symbol) && is_outside(symbol))
      return true;
  }
  return false;
}

}  // namespace tube::image
