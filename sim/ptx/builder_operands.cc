// Operands of instructions: constants, registers, special registers, symbols and addresses as
// slots.
#include <algorithm>
#include <bit>

#include "sim/ptx/builder.h"
#include "sim/ptx/exec.h"
#include "sim/ptx/half.h"
#include "sim/ptx/lower.h"

namespace tube::sim::ptx {

uint64_t Builder::immediate(const Operand& operand) {
  if (operand.kind != Operand::Kind::kInt) fail("expected an integer constant");
  return operand.value;
}

uint64_t Builder::literal(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::kInt) {
    if (type == Type::kPred) return operand.value != 0 ? UINT32_MAX : 0;
    if (type == Type::kF32)
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(operand.value)));
    if (type == Type::kF64)
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(operand.value)));
    return type_bits(type) == 16 ? operand.value & 0xffff : operand.value;
  }
  const double number =
      operand.kind == Operand::Kind::kF64
          ? std::bit_cast<double>(operand.value)
          : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.value)));
  switch (type_bits(type)) {
    case 64:
      return operand.kind == Operand::Kind::kF64 ? operand.value : std::bit_cast<uint64_t>(number);
    case 32:
      return operand.kind == Operand::Kind::kF32
                 ? operand.value
                 : std::bit_cast<uint32_t>(static_cast<float>(number));
    case 16:
      return narrow(number, type == Type::kBf16 ? kBfloatFormat : kHalfFormat, Round::kNearest);
    default: fail("a float constant does not fit here");
  }
}

Type Builder::register_type(const Operand& operand) {
  Binding binding;
  if (operand.kind != Operand::Kind::kName || !find(operand.name, &binding) ||
      binding.kind != Binding::Kind::kRegister)
    return Type::kNone;
  return binding.type;
}

int32_t Builder::special(const Operand& operand, Type type) {
  uint8_t mode = 0;
  Type given = Type::kNone;
  if (!special_register(operand.name, operand.component, &mode, &given)) return kNoSlot;
  const int32_t slot = temporary(type_class(given));
  Inst& in = before(read_special);
  in.d = slot;
  in.mode = mode;
  if (type_class(type) == type_class(given)) return slot;
  return widen(slot, type_class(given), type_class(type), false);
}

// The address of a variable or function as a value.
int32_t Builder::symbol(const Operand& operand, std::string_view name, uint64_t offset, Type type) {
  Binding binding;
  int32_t slot = kNoSlot;
  if (find(name, &binding)) {
    switch (binding.kind) {
      case Binding::Kind::kLocal: {
        slot = temporary(Class::k64);
        Inst& in = before(frame_address);
        in.d = slot;
        in.imm = binding.offset + offset;
        break;
      }
      case Binding::Kind::kParam: return constant(binding.offset + offset, type_class(type));
      case Binding::Kind::kShared:
        slot = relocated(ConstReloc::Kind::kShared, binding.index, offset);
        break;
      case Binding::Kind::kGlobal:
        slot = relocated(ConstReloc::Kind::kVariable, binding.index, offset);
        break;
      case Binding::Kind::kRegister:
      case Binding::Kind::kRange: fail("expected a variable");
    }
  } else {
    const Symbol* const found = module_.find(unit_, name);
    if (found == nullptr) fail("unknown name '" + std::string(operand.name) + "'");
    switch (found->kind) {
      case Symbol::Kind::kVariable:
        slot = relocated(ConstReloc::Kind::kVariable, found->index, offset);
        break;
      case Symbol::Kind::kShared:
        slot = relocated(ConstReloc::Kind::kShared, found->index, offset);
        break;
      case Symbol::Kind::kFunction:
        out_.takes_address.push_back(found->index);
        slot = constant(function_address(found->index) + offset, Class::k64);
        break;
    }
  }
  return type_class(type) == Class::k64 ? slot : widen(slot, Class::k64, Class::k32, false);
}

int32_t Builder::source(const Operand& operand, Type type) {
  const Class cls = type_class(type);
  switch (operand.kind) {
    case Operand::Kind::kInt:
    case Operand::Kind::kF32:
    case Operand::Kind::kF64: return constant(literal(operand, type), cls);
    case Operand::Kind::kName: break;
    case Operand::Kind::kAddress:
    case Operand::Kind::kVector:
    case Operand::Kind::kList:
    case Operand::Kind::kPair:
    case Operand::Kind::kSink: fail("expected a register or a constant");
  }
  if (operand.negated) return predicate_source(operand);
  Binding binding;
  if (find(operand.name, &binding) && binding.kind == Binding::Kind::kRegister) {
    if (!operand.component.empty() || operand.value != 0) fail("register with a suffix");
    const Class have = type_class(binding.type);
    if (have == cls) return binding.slot;
    if (have == Class::k64 && cls == Class::k32) return widen(binding.slot, have, cls, false);
    fail("register '" + std::string(operand.name) + "' of type ." + type_name(binding.type) +
         " where ." + type_name(type) + " is needed");
  }
  if (operand.name.starts_with('%')) {
    const int32_t slot = special(operand, type);
    if (slot != kNoSlot) return slot;
    std::string full(operand.name);
    if (!operand.component.empty()) full.append(".").append(operand.component);
    fail("unknown register '" + full + "'");
  }
  return symbol(operand, operand.name, operand.value, type);
}

int32_t Builder::predicate_source(const Operand& operand) {
  if (!operand.negated) return source(operand, Type::kPred);
  Operand plain = operand;
  plain.negated = false;
  const int32_t slot = temporary(Class::kPred);
  const int32_t from = source(plain, Type::kPred);
  Inst& in = before(not_predicate);
  in.d = slot;
  in.a = from;
  return slot;
}

int32_t Builder::target(const Operand& operand, Type type) {
  const Class cls = type_class(type);
  if (operand.kind == Operand::Kind::kSink) return temporary(cls);
  Binding binding;
  if (operand.kind != Operand::Kind::kName || !find(operand.name, &binding) ||
      binding.kind != Binding::Kind::kRegister)
    fail("expected a register as destination");
  const Class have = type_class(binding.type);
  if (have == cls) return binding.slot;
  if (have != Class::k64 || cls != Class::k32)
    fail("register '" + std::string(operand.name) + "' of type ." + type_name(binding.type) +
         " where ." + type_name(type) + " is needed");
  const int32_t slot = temporary(cls);
  Inst in;
  in.run = widen_handler(cls, have, is_signed(type));
  in.guard = guard_;
  in.guard_not = current_->instruction.guard_not;
  in.line = current_->line;
  in.d = binding.slot;
  in.a = slot;
  after_.push_back(in);
  return slot;
}

Address Builder::address(const Operand& operand, Space space) {
  if (operand.kind != Operand::Kind::kAddress || !operand.elements.empty())
    fail("expected an address in brackets");
  Address out;
  out.offset = operand.value;
  if (operand.name.empty()) {
    out.kernel_param = space == Space::kParam && decl_.entry;
    return out;
  }
  Binding binding;
  if (find(operand.name, &binding)) {
    switch (binding.kind) {
      case Binding::Kind::kRegister: {
        const Class have = type_class(binding.type);
        if (have == Class::kPred) fail("a predicate is no address");
        out.base = have == Class::k64 ? binding.slot : widen(binding.slot, have, Class::k64, false);
        out.kernel_param = space == Space::kParam && decl_.entry;
        return out;
      }
      case Binding::Kind::kLocal:
        out.frame = true;
        out.offset += binding.offset;
        return out;
      case Binding::Kind::kParam:
        out.kernel_param = true;
        out.offset += binding.offset;
        return out;
      case Binding::Kind::kShared:
      case Binding::Kind::kGlobal:
      case Binding::Kind::kRange: break;
    }
  }
  out.base = symbol(operand, operand.name, 0, Type::kU64);
  return out;
}

const Symbol* Builder::find_symbol(std::string_view name) { return module_.find(unit_, name); }

CallSite& Builder::call_site(Inst& in) {
  in.target = static_cast<uint32_t>(out_.calls.size());
  out_.calls.emplace_back();
  return out_.calls.back();
}

Actual Builder::actual(const Operand& operand, const VariableDecl* formal) {
  Actual out;
  Binding binding;
  if (operand.kind == Operand::Kind::kName && find(operand.name, &binding) &&
      binding.kind == Binding::Kind::kLocal) {
    out.offset = static_cast<uint32_t>(binding.offset);
    out.size = static_cast<uint32_t>(binding.size);
    return out;
  }
  Type type = register_type(operand);
  if (type == Type::kNone) type = formal != nullptr ? formal->type : Type::kB64;
  out.in_param = false;
  out.cls = type_class(type);
  out.size = out.cls == Class::k64 ? 8 : 4;
  out.slot = source(operand, type);
  return out;
}

}  // namespace tube::sim::ptx
