// What the parser makes of one PTX text: declarations and function bodies as lists of statements,
// names unresolved. Views point into the text.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/ptx/token.h"
#include "sim/ptx/types.h"

namespace tube::sim::ptx {

enum class Space : uint8_t {
  kNone,
  kReg,
  kSpecial,
  kConst,
  kGlobal,
  kLocal,
  kParam,
  kShared,
  kGeneric
};

struct Operand {
  enum class Kind : uint8_t {
    kName,     // register, variable, function, label; `component` for %tid.x
    kInt,      // value
    kF32,      // value: bits
    kF64,      // value: bits
    kAddress,  // [name+offset] or [offset]; elements hold further coordinates, if any
    kVector,   // {a, b}
    kList,     // (a, b)
    kPair,     // a|b
    kSink,     // _
  };
  Kind kind = Kind::kInt;
  bool negated = false;  // !p
  std::string_view name;
  std::string_view component;
  uint64_t value = 0;  // constant, or the offset of an address or of name+offset
  std::vector<Operand> elements;
};

struct Instruction {
  std::string_view guard;  // predicate's name, empty when there is none
  bool guard_not = false;
  std::string_view name;                    // "add"
  std::vector<std::string_view> modifiers;  // "rn", "ftz", "f32"
  std::vector<Operand> operands;
};

// One element of an initialiser.
struct InitValue {
  enum class Kind : uint8_t { kInt, kF32, kF64, kSymbol };
  Kind kind = Kind::kInt;
  uint64_t value = 0;  // constant, bits, or the addend of a symbol
  uint64_t mask = 0;   // 0xFF00(symbol): one byte of the address
  std::string_view symbol;
};

struct VariableDecl {
  Space space = Space::kNone;
  Type type = Type::kNone;
  uint32_t vector = 1;
  uint32_t align = 0;  // 0: natural
  bool is_extern = false, visible = false, weak = false, common = false, managed = false;
  bool is_array = false;
  bool unsized = false;  // name[]
  bool pointer = false;  // .ptr on a kernel parameter
  uint64_t elements = 1;
  uint32_t range = 0;  // %r<10>: 10
  std::string_view name;
  std::vector<InitValue> init;  // flattened, row-major
  int line = 0;

  uint64_t element_bytes() const { return static_cast<uint64_t>(type_bytes(type)) * vector; }
  uint64_t bytes() const { return element_bytes() * elements; }
  uint32_t alignment() const { return align != 0 ? align : static_cast<uint32_t>(element_bytes()); }
};

struct FunctionDecl;

struct Statement {
  enum class Kind : uint8_t {
    kInstruction,
    kLabel,
    kOpen,
    kClose,
    kVariable,
    kTargets,
    kPrototype
  };
  Kind kind = Kind::kInstruction;
  int line = 0;
  std::string_view at;     // where it starts in the text
  std::string_view label;  // kLabel, kTargets, kPrototype
  Instruction instruction;
  VariableDecl variable;
  std::vector<std::string_view> targets;
  std::shared_ptr<FunctionDecl> prototype;
};

struct FunctionDecl {
  bool entry = false;
  bool has_body = false;
  bool is_extern = false, visible = false, weak = false;
  std::string_view name;
  std::vector<VariableDecl> returns;
  std::vector<VariableDecl> params;
  uint32_t max_threads[3] = {0, 0, 0};
  uint32_t required_threads[3] = {0, 0, 0};
  std::vector<Statement> body;
  int line = 0;
  std::string_view at;
};

struct Unit {
  std::string_view text;
  int isa_version = 0;
  int target_sm = 0;
  std::vector<VariableDecl> variables;
  std::vector<FunctionDecl> functions;
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
};

// Throws Failure.
Unit parse(std::string_view text);

}  // namespace tube::sim::ptx
