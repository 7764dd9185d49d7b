// What the instruction families use to turn one parsed instruction into IR: modifiers, operands,
// slots, emission.
//
// A family (ops_*.cc) registers a build function per mnemonic. It consumes the modifiers it knows
// with has() and type(), fetches operand slots, and emits. finish() then complains about any
// modifier nobody consumed, so that nothing unknown passes silently. All functions throw Failure.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/ptx/ir.h"

namespace tube::sim::ptx {

class Builder;
class ModuleLowering;
struct Symbol;
using BuildFunction = void (*)(Builder&);
using BuildTable = std::unordered_map<std::string_view, BuildFunction>;

void register_integer(BuildTable& table);
void register_extended(BuildTable& table);
void register_bits(BuildTable& table);
void register_float(BuildTable& table);
void register_math(BuildTable& table);
void register_half(BuildTable& table);
void register_compare(BuildTable& table);
void register_convert(BuildTable& table);
void register_move(BuildTable& table);
void register_memory(BuildTable& table);
void register_async(BuildTable& table);
void register_atomic(BuildTable& table);
void register_control(BuildTable& table);
void register_warp(BuildTable& table);
void register_matrix(BuildTable& table);
void register_texture(BuildTable& table);
void register_surface(BuildTable& table);
const BuildTable& build_table();

struct Address {
  int32_t base = kNoSlot;  // 64-bit slot, or kNoSlot
  uint64_t offset = 0;
  bool frame = false;         // relative to the frame's local memory
  bool kernel_param = false;  // offset into the kernel's parameter buffer
};

class Builder {
 public:
  Builder(ModuleLowering& module, const Unit& unit, const FunctionDecl& decl, Function& out);
  void run();

  // Modifiers
  bool has(std::string_view modifier);  // consumes it
  template <class... Names>
  bool any(Names... names) {
    return (static_cast<int>(has(names)) | ...) != 0;
  }
  Type type();                       // consumes the first one left that is a type
  Type type_or(Type fallback);       // the same when there is one
  Type needed(Type type);            // fails on kNone
  std::string_view next_modifier();  // consumes the first left, or answers ""

  // Operands
  const std::string_view name() const { return current_->instruction.name; }
  size_t operands() const { return current_->instruction.operands.size(); }
  const Operand& operand(size_t index);
  void count(size_t least, size_t most);
  void count(size_t exact) { count(exact, exact); }

  int32_t source(const Operand& operand, Type type);
  int32_t source(size_t index, Type type) { return source(operand(index), type); }
  int32_t target(const Operand& operand, Type type);
  int32_t target(size_t index, Type type) { return target(operand(index), type); }
  // Predicate sources may be negated: then a slot that holds the negation.
  int32_t predicate_source(const Operand& operand);
  Address address(const Operand& operand, Space space);
  Type register_type(const Operand& operand);  // kNone when it is no register
  uint64_t immediate(const Operand& operand);  // fails when it is no integer constant

  int32_t constant(uint64_t bits, Class cls);
  int32_t temporary(Class cls);
  uint32_t list(const std::vector<int32_t>& slots);
  Function& function() { return out_; }
  ModuleLowering& module() { return module_; }
  const FunctionDecl& decl() const { return decl_; }

  // Appends an instruction under the statement's guard; before() appends one without guard.
  Inst& emit(Handler handler);
  Inst& emit(Handler handler, int32_t d, int32_t a = kNoSlot, int32_t b = kNoSlot,
             int32_t c = kNoSlot);
  Inst& before(Handler handler);
  void label_target(Inst& in, std::string_view label);  // resolved when its scope closes
  void list_label(uint32_t list_index, std::string_view label);
  const std::vector<std::string_view>* targets(std::string_view label);
  const FunctionDecl* prototype(std::string_view label);
  const Symbol* find_symbol(std::string_view name);
  CallSite& call_site(Inst& in);
  Actual actual(const Operand& operand, const VariableDecl* formal);

  [[noreturn]] void fail(const std::string& message);

 private:
  struct Binding {
    enum class Kind : uint8_t { kRegister, kRange, kLocal, kParam, kShared, kGlobal };
    Kind kind = Kind::kRegister;
    Type type = Type::kNone;
    int32_t slot = 0;
    uint32_t range = 0;
    uint64_t offset = 0;  // kLocal: in the frame; kParam: in the parameter buffer
    uint64_t size = 0;
    uint32_t index = 0;  // kShared, kGlobal
  };
  struct Fixup {
    size_t inst;
    size_t list;  // SIZE_MAX: Inst::target, else this list entry
    std::string_view label;
    const Statement* at;
  };
  struct Scope {
    std::unordered_map<std::string_view, Binding> names;
    std::unordered_map<std::string_view, uint32_t> labels;
    std::unordered_map<std::string_view, const Statement*> directives;
    std::vector<Fixup> fixups;
  };

  void formals();
  void declare(const VariableDecl& variable);
  void bind(std::string_view name, const Binding& binding);
  void statement(const Statement& statement);
  void close_scope();
  bool find(std::string_view name, Binding* out);
  int32_t new_slot(Class cls);
  uint64_t new_frame_bytes(uint64_t size, uint32_t align);
  int32_t special(const Operand& operand, Type type);
  int32_t symbol(const Operand& operand, std::string_view name, uint64_t offset, Type type);
  int32_t relocated(ConstReloc::Kind kind, uint32_t index, uint64_t addend);
  int32_t widen(int32_t slot, Class from, Class to, bool sign);
  uint64_t literal(const Operand& operand, Type type);

  ModuleLowering& module_;
  const Unit& unit_;
  const FunctionDecl& decl_;
  Function& out_;
  const Statement* current_ = nullptr;
  std::vector<bool> consumed_;
  std::vector<Scope> scopes_;
  std::vector<Inst> after_;
  int32_t guard_ = kNoSlot;
  std::unordered_map<uint64_t, int32_t> constants_[2];
};

// Gives the warp-wide value of special registers; mode says which. In ops_move.cc.
bool special_register(std::string_view name, std::string_view component, uint8_t* mode, Type* type);
void read_special(Warp& warp, const Inst& in, uint32_t mask);

// Conversions between storage classes, in ops_move.cc.
Handler widen_handler(Class from, Class to, bool sign);
void move32(Warp& warp, const Inst& in, uint32_t mask);
void move64(Warp& warp, const Inst& in, uint32_t mask);
void move_predicate(Warp& warp, const Inst& in, uint32_t mask);
void not_predicate(Warp& warp, const Inst& in, uint32_t mask);
void frame_address(Warp& warp, const Inst& in, uint32_t mask);  // imm + local base

// Device runtime functions, in runtime.cc. Null when the name is none of them.
Handler device_runtime(std::string_view name);

}  // namespace tube::sim::ptx
