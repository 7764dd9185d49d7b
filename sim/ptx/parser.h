// Recursive-descent parser over the token list; parser.cc has the module level, parser_body.cc what
// stands in functions. A Parser is used once, on one thread. All functions throw Failure.
#pragma once

#include <string>

#include "sim/ptx/ast.h"

namespace tube::sim::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), tokens_(tokenize(text)) {}
  Unit run();

 private:
  // Tokens
  const Token& peek(size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(char punct, size_t ahead = 0) const {
    return peek(ahead).kind == Tok::kPunct && peek(ahead).punct == punct;
  }
  bool is_dot(std::string_view name) const {
    return peek().kind == Tok::kDot && peek().text == name;
  }
  bool accept(char punct);
  bool accept_dot(std::string_view name);
  void expect(char punct);
  std::string_view identifier(const char* what);
  uint64_t integer(const char* what);
  [[noreturn]] void fail(const std::string& message);

  // Module level
  void target(Unit& unit);
  void function(Unit& unit, bool is_extern, bool visible, bool weak, bool entry);
  void function_attributes(FunctionDecl& out);
  void dimensions(uint32_t* out);
  std::vector<VariableDecl> formals();
  void skip_debug();  // .file, .loc, .section, .pragma; leaves anything else alone
  bool debug_directive() const;

  // Declarations: after the state space
  void variables(std::vector<VariableDecl>& out, const VariableDecl& prefix, bool formal);
  VariableDecl linkage();
  bool state_space(VariableDecl& out);
  void array_suffix(VariableDecl& out);
  void initialiser(VariableDecl& out, int depth);
  InitValue init_value();

  // Bodies
  void body(FunctionDecl& out);
  void statement(FunctionDecl& out);
  void instruction(Statement& out);
  Operand operand(int depth);
  Operand address(int depth);
  void labelled_directive(Statement& out);

  // Constant expressions
  struct Constant {
    InitValue::Kind kind = InitValue::Kind::kInt;
    uint64_t value = 0;
  };
  Constant expression(int depth = 0, int level = 0);
  Constant unary(int depth);
  int binary_level(std::string* op) const;

  std::string_view text_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::string_view statement_at_;
};

}  // namespace tube::sim::ptx
