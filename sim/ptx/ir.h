// The checked form of a PTX module: instructions with their handler and register slots resolved,
// nothing looked up by name at run time.
//
// A slot names 32 lanes of one register. Slots >= 0 count 128-byte units from the frame's
// registers; a 64-bit register takes two units; a predicate keeps one lane mask in the first word.
// Slots < 0 are constants: unit ~slot of the function's constant pool, which repeats each constant
// for 32 lanes so that handlers need not tell them apart.
#pragma once

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/ptx/ast.h"
#include "sim/ptx/ptx.h"

namespace tube::sim::ptx {

struct Warp;
struct Inst;
// Executes one instruction for the lanes in `mask` (never 0). The program counter already points
// behind it.
using Handler = void (*)(Warp& warp, const Inst& in, uint32_t mask);

constexpr int32_t kNoSlot = INT_MIN;
constexpr uint32_t kLanes = 32;

struct Inst {
  Handler run = nullptr;
  int32_t guard = kNoSlot;  // predicate slot
  bool guard_not = false;
  uint8_t count = 1;    // vector elements, or handler-specific
  uint8_t mode = 0;     // handler-specific
  uint8_t mode2 = 0;    // handler-specific
  int32_t d = kNoSlot;  // destination
  int32_t p = kNoSlot;  // second destination
  int32_t a = kNoSlot, b = kNoSlot, c = kNoSlot, e = kNoSlot;
  uint32_t target = 0;  // code index, or offset into Function::lists
  int32_t line = 0;
  uint64_t imm = 0;  // address offset, or handler-specific
};

struct Formal {
  bool in_param = true;    // .param (frame memory) or .reg
  uint32_t offset = 0;     // frame offset of a .param
  int32_t slot = kNoSlot;  // of a .reg
  Class cls = Class::k32;
  uint32_t size = 0;
};

// What a call passes: bytes of the caller's frame, or a register or constant.
struct Actual {
  bool in_param = true;
  uint32_t offset = 0;
  int32_t slot = kNoSlot;
  Class cls = Class::k32;
  uint32_t size = 0;
};

struct CallSite {
  uint32_t function = UINT32_MAX;  // UINT32_MAX: indirect, Inst::a holds the address
  std::vector<Actual> args;
  std::vector<Actual> returns;
};

struct ConstReloc {
  enum class Kind : uint8_t { kVariable, kShared };
  Kind kind = Kind::kVariable;
  uint32_t unit = 0;
  uint32_t index = 0;  // variable or shared variable
  uint64_t addend = 0;
};

struct Function {
  std::string name;
  uint32_t index = 0;
  bool entry = false;
  bool has_body = false;
  Handler builtin =
      nullptr;  // device runtime functions: called with the caller's warp and call instruction
  std::vector<Inst> code;
  std::vector<int32_t> lists;
  std::vector<uint32_t> consts;
  std::vector<ConstReloc> relocs;
  std::vector<CallSite> calls;
  std::vector<Formal> params;  // of a .func
  std::vector<Formal> returns;
  uint32_t reg_units = 0;
  uint32_t frame_bytes = 0;  // local memory a frame takes: .local and .param variables
  uint32_t stack_bytes = 0;  // its larger .local variables alone: what a GPU has no registers for
  std::vector<uint32_t> callees;
  bool calls_indirect = false;
  std::vector<uint32_t> takes_address;  // functions whose address this one uses
  std::vector<uint32_t> shared;         // shared variables it mentions
};

struct SharedVariable {
  uint64_t size = 0;
  uint32_t align = 1;
  bool dynamic = false;
};

struct KernelInfo {
  uint32_t function = 0;
  std::vector<uint64_t> shared_offset;  // by shared variable; dynamic ones too
  uint32_t static_shared = 0;
  uint32_t local_capacity = 0;      // bytes of local memory per thread
  std::vector<uint32_t> reachable;  // functions
};

class ModuleImpl final : public Module {
 public:
  const std::vector<Kernel>& kernels() const override { return kernels_; }
  const std::vector<Variable>& variables() const override { return variables_; }
  int target_sm() const override { return target_sm_; }
  int isa_version() const override { return isa_version_; }

  std::vector<Kernel> kernels_;
  std::vector<Variable> variables_;
  int target_sm_ = 0;
  int isa_version_ = 0;
  std::vector<Function> functions;
  std::vector<SharedVariable> shared;
  std::vector<KernelInfo> infos;  // same order as kernels_
};

// Generic addresses: global memory as it is (user addresses stay below 2^47), everything else in a
// window above.
constexpr uint64_t kSharedWindow = uint64_t{1} << 48;
constexpr uint64_t kLocalWindow = uint64_t{2} << 48;
constexpr uint64_t kParamWindow = uint64_t{3} << 48;
constexpr uint64_t kWorkspaceWindow = uint64_t{4}
                                      << 48;  // the grid barrier of a cooperative launch
constexpr uint64_t kCodeWindow = uint64_t{5} << 48;
constexpr uint64_t kWindowMask = ~((uint64_t{1} << 48) - 1);
constexpr unsigned kClusterShift = 24;  // shared::cluster addresses carry rank + 1 here

inline uint64_t function_address(uint32_t index) {
  return kCodeWindow + (uint64_t{index} + 1) * 16;
}

}  // namespace tube::sim::ptx
