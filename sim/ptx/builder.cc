// Function-level lowering: scopes, names, labels, guards; the instructions themselves are built by
// the ops_*.cc families.
#include "sim/ptx/builder.h"

#include <algorithm>
#include <bit>

#include "sim/ptx/exec.h"
#include "sim/ptx/half.h"
#include "sim/ptx/lower.h"

namespace tube::sim::ptx {
namespace {

// A small array costs no local memory on a GPU: ptxas spreads one of 64 bytes over registers
// (control_flow of tests/programs, sm_90).
constexpr uint64_t kKeptInRegisters = 64;

constexpr uint64_t kMaxFrame = 512u << 10;
constexpr int32_t kMaxUnits = 4 << 20;

void return_from(Warp& warp, const Inst&, uint32_t mask) { warp.ret(mask); }

}  // namespace

const BuildTable& build_table() {
  static const BuildTable* const table = [] {
    auto* out = new BuildTable;
    register_integer(*out);
    register_extended(*out);
    register_bits(*out);
    register_float(*out);
    register_math(*out);
    register_half(*out);
    register_compare(*out);
    register_convert(*out);
    register_move(*out);
    register_memory(*out);
    register_async(*out);
    register_atomic(*out);
    register_control(*out);
    register_warp(*out);
    register_matrix(*out);
    register_texture(*out);
    register_surface(*out);
    return out;
  }();
  return *table;
}

Builder::Builder(ModuleLowering& module, const Unit& unit, const FunctionDecl& decl, Function& out)
    : module_(module), unit_(unit), decl_(decl), out_(out) {
  scopes_.emplace_back();
}

void Builder::fail(const std::string& message) {
  const int line = current_ != nullptr ? current_->line : decl_.line;
  ModuleLowering::fail(unit_, line, current_ != nullptr ? current_->at : decl_.at, message);
}

int32_t Builder::new_slot(Class cls) {
  const auto slot = static_cast<int32_t>(out_.reg_units);
  out_.reg_units += cls == Class::k64 ? 2 : 1;
  if (slot > kMaxUnits) fail("too many registers");
  return slot;
}

int32_t Builder::temporary(Class cls) { return new_slot(cls); }

uint64_t Builder::new_frame_bytes(uint64_t size, uint32_t align) {
  const uint64_t unit = std::max<uint64_t>(1, align);
  const uint64_t at = (out_.frame_bytes + unit - 1) / unit * unit;
  if (size > kMaxFrame || at + size > kMaxFrame) fail("too much local memory");
  out_.frame_bytes = static_cast<uint32_t>(at + size);
  return at;
}

void Builder::bind(std::string_view name, const Binding& binding) {
  if (name.empty()) return;
  if (!scopes_.back().names.emplace(name, binding).second)
    fail("'" + std::string(name) + "' is declared twice");
}

void Builder::formals() {
  uint64_t offset = 0;
  for (const VariableDecl& param : decl_.params) {
    if (!decl_.entry) continue;
    const uint64_t align = std::max(1u, param.alignment());
    offset = (offset + align - 1) / align * align;
    Binding binding;
    binding.kind = Binding::Kind::kParam;
    binding.type = param.type;
    binding.offset = offset;
    binding.size = param.bytes();
    bind(param.name, binding);
    offset += param.bytes();
  }
  if (decl_.entry) return;
  const auto add = [&](const VariableDecl& decl, std::vector<Formal>& list) {
    Formal formal;
    Binding binding;
    binding.type = decl.type;
    formal.size = static_cast<uint32_t>(std::min<uint64_t>(decl.bytes(), kMaxFrame));
    if (decl.space == Space::kReg) {
      formal.in_param = false;
      formal.cls = type_class(decl.type);
      formal.slot = binding.slot = new_slot(formal.cls);
      binding.kind = Binding::Kind::kRegister;
    } else {
      binding.kind = Binding::Kind::kLocal;
      binding.offset = new_frame_bytes(decl.bytes(), decl.alignment());
      formal.offset = static_cast<uint32_t>(binding.offset);
    }
    bind(decl.name, binding);
    list.push_back(formal);
  };
  for (const VariableDecl& decl : decl_.returns) add(decl, out_.returns);
  for (const VariableDecl& decl : decl_.params) add(decl, out_.params);
}

void Builder::declare(const VariableDecl& variable) {
  Binding binding;
  binding.type = variable.type;
  binding.size = variable.bytes();
  switch (variable.space) {
    case Space::kReg: {
      if (variable.type == Type::kB128 || variable.vector != 1)
        fail("128-bit and vector registers are not supported");
      binding.kind = variable.range != 0 ? Binding::Kind::kRange : Binding::Kind::kRegister;
      binding.range = variable.range;
      const Class cls = type_class(variable.type);
      binding.slot = new_slot(cls);
      const uint32_t units = cls == Class::k64 ? 2 : 1;
      if (variable.range > 1) out_.reg_units += units * (variable.range - 1);
      if (out_.reg_units > static_cast<uint32_t>(kMaxUnits)) fail("too many registers");
      break;
    }
    case Space::kLocal:
    case Space::kParam:
      binding.kind = Binding::Kind::kLocal;
      binding.offset = new_frame_bytes(variable.bytes(), variable.alignment());
      if (variable.space == Space::kLocal && variable.bytes() > kKeptInRegisters)
        out_.stack_bytes += static_cast<uint32_t>(variable.bytes());
      break;
    case Space::kShared: {
      binding.kind = Binding::Kind::kShared;
      binding.index = module_.add_shared(variable);
      break;
    }
    case Space::kGlobal:
    case Space::kConst: {
      binding.kind = Binding::Kind::kGlobal;
      binding.index = module_.add_variable(variable, std::string(variable.name));
      module_.image(unit_, variable, module_.module().variables_[binding.index]);
      break;
    }
    case Space::kNone:
    case Space::kSpecial:
    case Space::kGeneric: fail("expected a state space");
  }
  bind(variable.name, binding);
}

bool Builder::find(std::string_view name, Binding* out) {
  size_t digits = name.size();
  while (digits > 1 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto exact = scope->names.find(name);
    if (exact != scope->names.end() && exact->second.kind != Binding::Kind::kRange) {
      *out = exact->second;
      return true;
    }
    // %r12 of %r<20>; the prefix may itself end in digits: %rd64<4> declares %rd640
    for (size_t split = digits; split < name.size() && name.size() - split < 9; ++split) {
      if (name[split] == '0' && split + 1 < name.size()) continue;
      const auto range = scope->names.find(name.substr(0, split));
      if (range == scope->names.end() || range->second.kind != Binding::Kind::kRange) continue;
      uint32_t number = 0;
      for (const char c : name.substr(split)) number = number * 10 + static_cast<uint32_t>(c - '0');
      if (number >= range->second.range) continue;
      *out = range->second;
      out->kind = Binding::Kind::kRegister;
      out->slot += static_cast<int32_t>(number) * (type_class(out->type) == Class::k64 ? 2 : 1);
      return true;
    }
  }
  return false;
}

void Builder::close_scope() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const Fixup& fixup : scope.fixups) {
    const auto found = scope.labels.find(fixup.label);
    if (found != scope.labels.end()) {
      if (fixup.list == SIZE_MAX) out_.code[fixup.inst].target = found->second;
      else out_.lists[fixup.list] = static_cast<int32_t>(found->second);
    } else if (!scopes_.empty()) {
      scopes_.back().fixups.push_back(fixup);
    } else {
      current_ = fixup.at;
      fail("unknown label '" + std::string(fixup.label) + "'");
    }
  }
}

void Builder::label_target(Inst& in, std::string_view label) {
  scopes_.back().fixups.push_back(
      {static_cast<size_t>(&in - out_.code.data()), SIZE_MAX, label, current_});
}

void Builder::list_label(uint32_t list_index, std::string_view label) {
  scopes_.back().fixups.push_back({0, list_index, label, current_});
}

const std::vector<std::string_view>* Builder::targets(std::string_view label) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->directives.find(label);
    if (found != scope->directives.end() && found->second->kind == Statement::Kind::kTargets)
      return &found->second->targets;
  }
  return nullptr;
}

const FunctionDecl* Builder::prototype(std::string_view label) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->directives.find(label);
    if (found != scope->directives.end() && found->second->prototype != nullptr)
      return found->second->prototype.get();
  }
  return nullptr;
}

void Builder::statement(const Statement& statement) {
  current_ = &statement;
  switch (statement.kind) {
    case Statement::Kind::kOpen: scopes_.emplace_back(); return;
    case Statement::Kind::kClose: close_scope(); return;
    case Statement::Kind::kVariable: declare(statement.variable); return;
    case Statement::Kind::kLabel:
      if (!scopes_.back().labels.emplace(statement.label, out_.code.size()).second)
        fail("label used twice");
      return;
    case Statement::Kind::kTargets:
    case Statement::Kind::kPrototype:
      scopes_.back().directives[statement.label] = &statement;
      return;
    case Statement::Kind::kInstruction: break;
  }
  const Instruction& in = statement.instruction;
  const auto found = build_table().find(in.name);
  if (found == build_table().end()) fail("unknown instruction '" + std::string(in.name) + "'");
  consumed_.assign(in.modifiers.size(), false);
  after_.clear();
  guard_ = kNoSlot;
  if (!in.guard.empty()) {
    Binding binding;
    if (!find(in.guard, &binding) || binding.kind != Binding::Kind::kRegister ||
        binding.type != Type::kPred)
      fail("'" + std::string(in.guard) + "' is not a predicate");
    guard_ = binding.slot;
  }
  found->second(*this);
  for (size_t i = 0; i < consumed_.size(); ++i)
    if (!consumed_[i]) fail("unknown modifier '." + std::string(in.modifiers[i]) + "'");
  for (const Inst& inst : after_) out_.code.push_back(inst);
}

void Builder::run() {
  formals();
  for (const Statement& each : decl_.body)
    if (each.kind == Statement::Kind::kTargets || each.kind == Statement::Kind::kPrototype)
      scopes_.front().directives.emplace(each.label, &each);
  for (const Statement& each : decl_.body) statement(each);
  guard_ = kNoSlot;
  current_ = nullptr;
  Inst end;
  end.run = return_from;
  end.line = decl_.body.empty() ? decl_.line : decl_.body.back().line;
  out_.code.push_back(end);
  while (!scopes_.empty()) close_scope();
  // Frames follow each other on the local stack: keep them 16-byte aligned.
  out_.frame_bytes = (out_.frame_bytes + 15) & ~15u;
}

bool Builder::has(std::string_view modifier) {
  const auto& modifiers = current_->instruction.modifiers;
  for (size_t i = 0; i < modifiers.size(); ++i) {
    if (consumed_[i] || modifiers[i] != modifier) continue;
    consumed_[i] = true;
    return true;
  }
  return false;
}

Type Builder::type_or(Type fallback) {
  const auto& modifiers = current_->instruction.modifiers;
  for (size_t i = 0; i < modifiers.size(); ++i) {
    if (consumed_[i]) continue;
    const Type type = type_from_name(modifiers[i]);
    if (type == Type::kNone) continue;
    consumed_[i] = true;
    return type;
  }
  return fallback;
}

Type Builder::needed(Type type) {
  if (type == Type::kNone) fail("missing or unsupported type");
  return type;
}

Type Builder::type() { return needed(type_or(Type::kNone)); }

std::string_view Builder::next_modifier() {
  for (size_t i = 0; i < consumed_.size(); ++i) {
    if (consumed_[i]) continue;
    consumed_[i] = true;
    return current_->instruction.modifiers[i];
  }
  return {};
}

const Operand& Builder::operand(size_t index) {
  if (index >= operands()) fail("too few operands");
  return current_->instruction.operands[index];
}

void Builder::count(size_t least, size_t most) {
  if (operands() < least) fail("too few operands");
  if (operands() > most) fail("too many operands");
}

int32_t Builder::constant(uint64_t bits, Class cls) {
  if (cls != Class::k64) bits &= UINT32_MAX;
  auto& known = constants_[cls == Class::k64];
  const auto found = known.find(bits);
  if (found != known.end()) return found->second;
  const auto slot = static_cast<int32_t>(~(out_.consts.size() / kLanes));
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    out_.consts.push_back(static_cast<uint32_t>(bits));
    if (cls == Class::k64) out_.consts.push_back(static_cast<uint32_t>(bits >> 32));
  }
  known.emplace(bits, slot);
  return slot;
}

int32_t Builder::relocated(ConstReloc::Kind kind, uint32_t index, uint64_t addend) {
  for (const ConstReloc& reloc : out_.relocs)
    if (reloc.kind == kind && reloc.index == index && reloc.addend == addend)
      return static_cast<int32_t>(~reloc.unit);
  ConstReloc reloc;
  reloc.kind = kind;
  reloc.index = index;
  reloc.addend = addend;
  reloc.unit = static_cast<uint32_t>(out_.consts.size() / kLanes);
  out_.consts.resize(out_.consts.size() + 2 * kLanes);
  out_.relocs.push_back(reloc);
  if (kind == ConstReloc::Kind::kShared &&
      std::find(out_.shared.begin(), out_.shared.end(), index) == out_.shared.end())
    out_.shared.push_back(index);
  return static_cast<int32_t>(~reloc.unit);
}

uint32_t Builder::list(const std::vector<int32_t>& slots) {
  const auto at = static_cast<uint32_t>(out_.lists.size());
  out_.lists.insert(out_.lists.end(), slots.begin(), slots.end());
  return at;
}

Inst& Builder::before(Handler handler) {
  Inst in;
  in.run = handler;
  in.line = current_ != nullptr ? current_->line : decl_.line;
  out_.code.push_back(in);
  return out_.code.back();
}

Inst& Builder::emit(Handler handler) {
  Inst& in = before(handler);
  in.guard = guard_;
  in.guard_not = current_->instruction.guard_not;
  return in;
}

Inst& Builder::emit(Handler handler, int32_t d, int32_t a, int32_t b, int32_t c) {
  Inst& in = emit(handler);
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  return in;
}

int32_t Builder::widen(int32_t slot, Class from, Class to, bool sign) {
  const int32_t wide = temporary(to);
  Inst& in = before(widen_handler(from, to, sign));
  in.d = wide;
  in.a = slot;
  return wide;
}

}  // namespace tube::sim::ptx
