// Module-level lowering: symbols of all texts, variables with their images, function indices,
// kernel layouts.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/ptx/builder.h"

namespace tube::sim::ptx {

struct Symbol {
  enum class Kind : uint8_t { kVariable, kShared, kFunction };
  Kind kind = Kind::kVariable;
  uint32_t index = 0;
  const VariableDecl* variable = nullptr;
  const FunctionDecl* function = nullptr;
  bool defined = false;
  bool weak = false;
};

// Used once, by link(). Throws Failure.
class ModuleLowering {
 public:
  explicit ModuleLowering(const std::vector<Unit>& units) : units_(units) {}
  std::shared_ptr<ModuleImpl> run();

  const Symbol* find(const Unit& unit, std::string_view name) const;
  ModuleImpl& module() { return *module_; }
  uint32_t add_variable(const VariableDecl& decl, std::string name);
  uint32_t add_shared(const VariableDecl& decl);
  void image(const Unit& unit, const VariableDecl& decl, Variable& out);
  [[noreturn]] static void fail(const Unit& unit, int line, std::string_view at,
                                const std::string& message);

 private:
  void declare(const Unit& unit);
  void declare_variable(const Unit& unit, const VariableDecl& decl);
  void declare_function(const Unit& unit, const FunctionDecl& decl);
  Symbol& global_or_local(const Unit& unit, std::string_view name, bool global);
  void lower(const Unit& unit);
  void kernels();
  void kernel(const FunctionDecl& decl, uint32_t function);
  void reach(uint32_t function, std::vector<bool>& seen) const;
  uint32_t stack_depth(uint32_t function, std::vector<int64_t>& depths, int level,
                       bool* unbounded) const;

  const std::vector<Unit>& units_;
  std::shared_ptr<ModuleImpl> module_ = std::make_shared<ModuleImpl>();
  std::unordered_map<std::string_view, Symbol> global_;
  std::unordered_map<const Unit*, std::unordered_map<std::string_view, Symbol>> local_;
  std::vector<const FunctionDecl*> bodies_;  // by function
  std::vector<const Unit*> body_units_;
  std::vector<std::pair<const Unit*, const VariableDecl*>>
      definitions_;  // by variable, null for function-scope ones
};

}  // namespace tube::sim::ptx
