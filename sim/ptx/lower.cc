// Module-level lowering. Symbols first, then variables' images, then bodies, then what each kernel
// reaches.
#include "sim/ptx/lower.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/ptx/half.h"

namespace tube::sim::ptx {
namespace {

constexpr uint64_t kMaxShared = 16u << 20;
constexpr uint32_t kMaxLocal = 512u << 10;
constexpr uint32_t kRecursionStack = 32u << 10;  // per thread, when the depth of calls is not known
constexpr uint64_t kMaxParams = 32764;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

bool is_global(const VariableDecl& decl) {
  return decl.visible || decl.is_extern || decl.weak || decl.common;
}

uint64_t element_bits(const InitValue& value, Type type) {
  if (value.kind == InitValue::Kind::kInt) {
    if (type == Type::kF32)
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(value.value)));
    if (type == Type::kF64)
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(value.value)));
    return value.value;
  }
  double number = value.kind == InitValue::Kind::kF64
                      ? std::bit_cast<double>(value.value)
                      : std::bit_cast<float>(static_cast<uint32_t>(value.value));
  if (type == Type::kF64 || type == Type::kB64)
    return value.kind == InitValue::Kind::kF64 ? value.value : std::bit_cast<uint64_t>(number);
  if (type == Type::kF16) return float_to_half(static_cast<float>(number));
  if (value.kind == InitValue::Kind::kF32) return value.value;
  return std::bit_cast<uint32_t>(static_cast<float>(number));
}

}  // namespace

void ModuleLowering::fail(const Unit& unit, int line, std::string_view at,
                          const std::string& message) {
  throw Failure{{line, statement_text(unit.text, at), message}};
}

const Symbol* ModuleLowering::find(const Unit& unit, std::string_view name) const {
  const auto locals = local_.find(&unit);
  if (locals != local_.end()) {
    const auto found = locals->second.find(name);
    if (found != locals->second.end()) return &found->second;
  }
  const auto found = global_.find(name);
  return found != global_.end() ? &found->second : nullptr;
}

Symbol& ModuleLowering::global_or_local(const Unit& unit, std::string_view name, bool global) {
  return global ? global_[name] : local_[&unit][name];
}

uint32_t ModuleLowering::add_variable(const VariableDecl& decl, std::string name) {
  Variable out;
  out.name = std::move(name);
  out.space = decl.space == Space::kConst ? Variable::Space::kConst : Variable::Space::kGlobal;
  out.size = decl.bytes();
  out.align = decl.alignment();
  out.visible = decl.visible || decl.weak || decl.common || decl.is_extern;
  out.managed = decl.managed;
  module_->variables_.push_back(std::move(out));
  definitions_.emplace_back(nullptr, nullptr);
  return static_cast<uint32_t>(module_->variables_.size() - 1);
}

uint32_t ModuleLowering::add_shared(const VariableDecl& decl) {
  SharedVariable out;
  out.size = decl.bytes();
  out.align = decl.alignment();
  out.dynamic = decl.is_extern && decl.elements == 0;
  module_->shared.push_back(out);
  return static_cast<uint32_t>(module_->shared.size() - 1);
}

void ModuleLowering::declare_variable(const Unit& unit, const VariableDecl& decl) {
  const bool shared = decl.space == Space::kShared;
  Symbol& symbol = global_or_local(unit, decl.name, is_global(decl));
  const bool dynamic = shared && decl.is_extern && decl.elements == 0;
  const bool defines = !decl.is_extern || dynamic;
  const auto kind = shared ? Symbol::Kind::kShared : Symbol::Kind::kVariable;
  if (symbol.variable == nullptr && symbol.function == nullptr) {
    symbol.kind = kind;
    symbol.index = shared ? add_shared(decl) : add_variable(decl, std::string(decl.name));
    symbol.variable = &decl;
  } else if (symbol.kind != kind) {
    fail(unit, decl.line, decl.name,
         "'" + std::string(decl.name) + "' is declared twice as different things");
  }
  if (!defines) return;
  if (symbol.defined && !(decl.weak || decl.common || symbol.weak || dynamic))
    fail(unit, decl.line, decl.name, "'" + std::string(decl.name) + "' is defined twice");
  if (symbol.defined && !symbol.weak) return;
  symbol.defined = true;
  symbol.weak = decl.weak || decl.common;
  symbol.variable = &decl;
  if (shared) {
    module_->shared[symbol.index].size = decl.bytes();
    module_->shared[symbol.index].align = decl.alignment();
    module_->shared[symbol.index].dynamic = dynamic;
    return;
  }
  Variable& variable = module_->variables_[symbol.index];
  variable.size = decl.bytes();
  variable.align = std::max(variable.align, decl.alignment());
  variable.managed |= decl.managed;
  variable.visible |= decl.visible;
  definitions_[symbol.index] = {&unit, &decl};
}

void ModuleLowering::declare_function(const Unit& unit, const FunctionDecl& decl) {
  const bool global = decl.visible || decl.is_extern || decl.weak || decl.entry;
  const auto locals = local_.find(&unit);
  const bool known_here = locals != local_.end() && locals->second.contains(decl.name);
  Symbol& symbol = global_or_local(unit, decl.name, global && !known_here);
  if (symbol.function == nullptr && symbol.variable == nullptr) {
    symbol.kind = Symbol::Kind::kFunction;
    symbol.index = static_cast<uint32_t>(module_->functions.size());
    symbol.function = &decl;
    Function function;
    function.name = decl.name;
    function.index = symbol.index;
    function.entry = decl.entry;
    module_->functions.push_back(std::move(function));
    bodies_.push_back(nullptr);
    body_units_.push_back(nullptr);
  } else if (symbol.kind != Symbol::Kind::kFunction) {
    fail(unit, decl.line, decl.at,
         "'" + std::string(decl.name) + "' is declared twice as different things");
  }
  if (!decl.has_body) return;
  if (bodies_[symbol.index] != nullptr) {
    if (decl.weak) return;
    if (!bodies_[symbol.index]->weak)
      fail(unit, decl.line, decl.at, "function '" + std::string(decl.name) + "' is defined twice");
  }
  symbol.function = &decl;
  symbol.defined = true;
  bodies_[symbol.index] = &decl;
  body_units_[symbol.index] = &unit;
  module_->functions[symbol.index].has_body = true;
  module_->functions[symbol.index].entry = decl.entry;
}

void ModuleLowering::declare(const Unit& unit) {
  for (const VariableDecl& decl : unit.variables) declare_variable(unit, decl);
  for (const FunctionDecl& decl : unit.functions) declare_function(unit, decl);
  for (const auto& [alias, target] : unit.aliases) {
    const Symbol* const found = find(unit, target);
    if (found == nullptr || found->kind != Symbol::Kind::kFunction)
      fail(unit, 0, alias, "alias of an unknown function");
    const Symbol copy = *found;
    if (global_.contains(alias)) global_[alias] = copy;
    else local_[&unit][alias] = copy;
  }
}

// The image of a variable: constants in place, addresses as relocations, code addresses as numbers.
void ModuleLowering::image(const Unit& unit, const VariableDecl& decl, Variable& out) {
  const uint32_t width = type_bytes(decl.type);
  if (decl.init.size() > (uint64_t{1} << 30) / std::max(1u, width))
    fail(unit, decl.line, decl.name, "image too large");
  out.image.resize(decl.init.size() * width);
  for (size_t i = 0; i < decl.init.size(); ++i) {
    const InitValue& value = decl.init[i];
    std::byte* const at = out.image.data() + i * width;
    if (value.kind != InitValue::Kind::kSymbol) {
      const uint64_t bits = element_bits(value, decl.type);
      std::memcpy(at, &bits, std::min<uint32_t>(width, 8));
      continue;
    }
    const Symbol* const symbol = find(unit, value.symbol);
    if (symbol == nullptr)
      fail(unit, decl.line, decl.name, "unknown symbol '" + std::string(value.symbol) + "'");
    if (symbol->kind == Symbol::Kind::kShared)
      fail(unit, decl.line, decl.name, "the address of a shared variable is not a constant");
    // 0xFF(s), 0xFF00(s), ...: the bytes of one address, written one by one
    const bool bytes = value.mask != 0 && width == 1;
    const uint64_t span = bytes ? 8 : width;
    if (bytes && value.mask != 0xff) {
      const unsigned shift = static_cast<unsigned>(std::countr_zero(value.mask));
      if (shift % 8 != 0 || i < shift / 8)
        fail(unit, decl.line, decl.name, "unsupported address mask");
      continue;  // part of the group begun at mask 0xFF
    }
    if (span < 4 || (i * width) + span > out.size)
      fail(unit, decl.line, decl.name, "address does not fit here");
    if (symbol->kind == Symbol::Kind::kFunction) {
      const uint64_t address = function_address(symbol->index) + value.value;
      for (uint64_t k = 0; k < std::min<uint64_t>(span, 8) && i * width + k < out.image.size(); ++k)
        at[k] = static_cast<std::byte>(address >> (8 * k));
      continue;
    }
    out.relocations.push_back({i * width, symbol->index, value.value,
                               static_cast<uint32_t>(std::min<uint64_t>(span, 8))});
  }
}

void ModuleLowering::lower(const Unit& unit) {
  for (const FunctionDecl& decl : unit.functions) {
    if (!decl.has_body) continue;
    const Symbol* const symbol = find(unit, decl.name);
    if (symbol == nullptr || bodies_[symbol->index] != &decl) continue;  // a weak one that lost
    // The function's own vector may grow no more: all were declared.
    Builder(*this, unit, decl, module_->functions[symbol->index]).run();
  }
}

void ModuleLowering::reach(uint32_t function, std::vector<bool>& seen) const {
  std::vector<uint32_t> work{function};
  bool indirect = false;
  while (!work.empty()) {
    const uint32_t index = work.back();
    work.pop_back();
    if (seen[index]) continue;
    seen[index] = true;
    const Function& body = module_->functions[index];
    work.insert(work.end(), body.callees.begin(), body.callees.end());
    if (body.calls_indirect && !indirect) {
      // Any function whose address is in reach of anyone: virtual tables are plain memory.
      indirect = true;
      for (uint32_t i = 0; i < module_->functions.size(); ++i)
        if (!module_->functions[i].entry &&
            (module_->functions[i].has_body || module_->functions[i].builtin))
          work.push_back(i);
    }
  }
}

// Bytes of local memory the deepest chain of calls takes. `depths` remembers: -1 not seen, -2 being
// visited.
uint32_t ModuleLowering::stack_depth(uint32_t function, std::vector<int64_t>& depths, int level,
                                     bool* unbounded) const {
  if (depths[function] >= 0) return static_cast<uint32_t>(depths[function]);
  const Function& body = module_->functions[function];
  if (body.calls_indirect) *unbounded = true;
  if (depths[function] == -2 || level > 500) {
    *unbounded = true;
    return 0;
  }
  depths[function] = -2;
  uint32_t deepest = 0;
  for (const uint32_t callee : body.callees)
    deepest = std::max(deepest, stack_depth(callee, depths, level + 1, unbounded));
  depths[function] = body.frame_bytes + deepest;
  return body.frame_bytes + deepest;
}

void ModuleLowering::kernel(const FunctionDecl& decl, uint32_t function) {
  const Unit& unit = *body_units_[function];
  const Function& body = module_->functions[function];
  Kernel out;
  KernelInfo info;
  info.function = function;
  out.name = decl.name;
  out.index = static_cast<uint32_t>(module_->kernels_.size());
  uint64_t offset = 0;
  for (const VariableDecl& param : decl.params) {
    offset = align_up(offset, std::max(1u, param.alignment()));
    out.params.push_back({std::string(param.name), static_cast<uint32_t>(offset),
                          static_cast<uint32_t>(param.bytes()), param.alignment()});
    offset += param.bytes();
  }
  out.param_bytes = static_cast<uint32_t>(offset);
  for (int i = 0; i < 3; ++i) out.required_block[static_cast<size_t>(i)] = decl.required_threads[i];
  const uint64_t most = uint64_t{decl.max_threads[0]} * decl.max_threads[1] * decl.max_threads[2];
  out.max_threads = static_cast<uint32_t>(std::min<uint64_t>(most, 1024));

  std::vector<bool> seen(module_->functions.size());
  reach(function, seen);
  info.shared_offset.assign(module_->shared.size(), UINT64_MAX);
  uint64_t shared = 0;
  uint32_t dynamic_align = 16;
  std::vector<uint32_t> used;
  for (uint32_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) continue;
    info.reachable.push_back(i);
    out.stack_bytes += module_->functions[i].stack_bytes;
    if (module_->functions[i].builtin != nullptr && module_->functions[i].name == "vprintf")
      out.prints = true;
    used.insert(used.end(), module_->functions[i].shared.begin(),
                module_->functions[i].shared.end());
  }
  for (const uint32_t index : used) {
    const SharedVariable& variable = module_->shared[index];
    if (variable.dynamic) dynamic_align = std::max(dynamic_align, variable.align);
    if (variable.dynamic || info.shared_offset[index] != UINT64_MAX) continue;
    shared = align_up(shared, std::max(1u, variable.align));
    info.shared_offset[index] = shared;
    shared += variable.size;
    if (shared > kMaxShared) fail(unit, decl.line, decl.at, "too much shared memory");
  }
  for (const uint32_t index : used)
    if (module_->shared[index].dynamic) info.shared_offset[index] = align_up(shared, dynamic_align);
  info.static_shared = static_cast<uint32_t>(shared);
  out.static_shared_bytes = info.static_shared;

  bool unbounded = false;
  std::vector<int64_t> depths(module_->functions.size(), -1);
  uint64_t local = stack_depth(function, depths, 0, &unbounded);
  out.local_bytes = static_cast<uint32_t>(local);
  if (unbounded) local += kRecursionStack;
  if (local > kMaxLocal) fail(unit, decl.line, decl.at, "too much local memory");
  info.local_capacity = static_cast<uint32_t>(align_up(local, 16));
  out.registers = std::clamp(body.reg_units / 4 + 8, 16u, 255u);
  module_->kernels_.push_back(std::move(out));
  module_->infos.push_back(std::move(info));
}

void ModuleLowering::kernels() {
  for (uint32_t i = 0; i < bodies_.size(); ++i)
    if (bodies_[i] != nullptr && bodies_[i]->entry) kernel(*bodies_[i], i);
}

std::shared_ptr<ModuleImpl> ModuleLowering::run() {
  for (const Unit& unit : units_) {
    module_->target_sm_ = std::max(module_->target_sm_, unit.target_sm);
    module_->isa_version_ = std::max(module_->isa_version_, unit.isa_version);
    declare(unit);
  }
  for (const Unit& unit : units_) {
    for (const FunctionDecl& decl : unit.functions) {
      uint64_t bytes = 0;
      for (const VariableDecl& param : decl.params) bytes += param.bytes();
      if (bytes > kMaxParams) fail(unit, decl.line, decl.at, "too many bytes of parameters");
    }
  }
  for (uint32_t i = 0; i < module_->functions.size(); ++i)
    if (!module_->functions[i].has_body)
      module_->functions[i].builtin = device_runtime(module_->functions[i].name);
  for (const Unit& unit : units_) lower(unit);
  for (size_t i = 0; i < definitions_.size(); ++i) {
    const auto& [unit, decl] = definitions_[i];
    if (decl != nullptr) image(*unit, *decl, module_->variables_[i]);
  }
  for (const auto& [name, symbol] : global_) {
    if (symbol.kind == Symbol::Kind::kVariable && !symbol.defined)
      throw Failure{
          {symbol.variable->line, std::string(name), "extern variable that nothing defines"}};
  }
  kernels();
  return module_;
}

CompileResult link(const std::vector<std::string_view>& texts) {
  CompileResult result;
  try {
    std::vector<Unit> units;
    units.reserve(texts.size());
    for (const std::string_view text : texts) units.push_back(parse(text));
    result.module = ModuleLowering(units).run();
  } catch (const Failure& failure) {
    result.error = failure.error;
  } catch (const std::exception& error) {
    result.error.message = std::string("the module could not be compiled: ") + error.what();
  }
  return result;
}

CompileResult compile(std::string_view text) { return link({text}); }

}  // namespace tube::sim::ptx
