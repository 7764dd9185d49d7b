// What stands inside a function: statements, operands, constant expressions.
//
// Scopes are kept as open and close statements; names are resolved by the lowering, which sees them
// in order.
#include <bit>

#include "sim/ptx/parser.h"

namespace tube::sim::ptx {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

void Parser::body(FunctionDecl& out) {
  expect('{');
  int depth = 1;
  while (depth > 0) {
    statement_at_ = peek().text;
    if (peek().kind == Tok::kEnd) fail("function without an end");
    if (is('{') || is('}')) {
      const bool open = is('{');
      depth += open ? 1 : -1;
      if (depth > kMaxDepth * 16) fail("scopes nested too deep");
      if (depth > 0) {
        Statement statement;
        statement.kind = open ? Statement::Kind::kOpen : Statement::Kind::kClose;
        statement.line = peek().line;
        out.body.push_back(std::move(statement));
      }
      take();
    } else {
      statement(out);
    }
  }
}

void Parser::statement(FunctionDecl& out) {
  if (debug_directive()) return skip_debug();
  if (accept(';')) return;
  Statement statement;
  statement.line = peek().line;
  statement.at = peek().text;
  if (peek().kind == Tok::kIdent && is(':', 1)) {
    statement.kind = Statement::Kind::kLabel;
    statement.label = take().text;
    take();
    if (peek().kind == Tok::kDot) labelled_directive(statement);
    out.body.push_back(std::move(statement));
    return;
  }
  if (peek().kind == Tok::kDot) {
    VariableDecl prefix = linkage();
    if (!state_space(prefix)) fail("unknown directive");
    std::vector<VariableDecl> declared;
    variables(declared, prefix, false);
    expect(';');
    for (VariableDecl& variable : declared) {
      statement.kind = Statement::Kind::kVariable;
      statement.variable = std::move(variable);
      out.body.push_back(statement);
    }
    return;
  }
  instruction(statement);
  out.body.push_back(std::move(statement));
}

// name: .branchtargets a, b;   name: .calltargets f, g;   name: .callprototype (ret) _ (params)
// .noreturn;
void Parser::labelled_directive(Statement& out) {
  if (accept_dot("branchtargets") || accept_dot("calltargets")) {
    out.kind = Statement::Kind::kTargets;
    do {
      out.targets.push_back(identifier("a label"));
      if (accept('<')) fail("label ranges are not supported");
    } while (accept(','));
    expect(';');
  } else if (accept_dot("callprototype")) {
    out.kind = Statement::Kind::kPrototype;
    out.prototype = std::make_shared<FunctionDecl>();
    out.prototype->returns = formals();
    identifier("'_'");
    out.prototype->params = formals();
    function_attributes(*out.prototype);
    expect(';');
  }
}

void Parser::instruction(Statement& out) {
  Instruction& in = out.instruction;
  if (accept('@')) {
    in.guard_not = accept('!');
    in.guard = identifier("a predicate");
  }
  in.name = identifier("an instruction");
  while (peek().kind == Tok::kDot) in.modifiers.push_back(take().text);
  while (!is(';')) {
    in.operands.push_back(operand(0));
    if (!is(';')) expect(',');
  }
  expect(';');
}

Operand Parser::operand(int depth) {
  if (depth > 4) fail("operand nested too deep");
  Operand out;
  if (is('[')) return address(depth);
  if (is('{') || is('(')) {
    const char close = is('{') ? '}' : ')';
    // (1+2) is a constant; a list in call starts with a name or is empty.
    if (is('(') && peek(1).kind != Tok::kIdent && !is(')', 1) && depth > 0) {
      out.value = integer("a constant");
      return out;
    }
    out.kind = close == '}' ? Operand::Kind::kVector : Operand::Kind::kList;
    take();
    while (!accept(close)) {
      out.elements.push_back(operand(depth + 1));
      if (!is(close)) expect(',');
    }
    return out;
  }
  if (is('!')) {
    take();
    out = operand(depth + 1);
    if (out.kind != Operand::Kind::kName) fail("expected a predicate after '!'");
    out.negated = true;
    return out;
  }
  if (peek().kind == Tok::kIdent && peek().text != "WARP_SZ") {
    const std::string_view name = take().text;
    if (name == "_") {
      out.kind = Operand::Kind::kSink;
    } else {
      out.kind = Operand::Kind::kName;
      out.name = name;
      if (peek().kind == Tok::kDot) out.component = take().text;
      if (is('+') || is('-')) {
        const bool plus = take().punct == '+';
        const uint64_t offset = integer("an offset");
        out.value = plus ? offset : ~offset + 1;
      }
    }
    if (is('|')) {
      take();
      Operand pair;
      pair.kind = Operand::Kind::kPair;
      pair.elements.push_back(std::move(out));
      pair.elements.push_back(operand(depth + 1));
      return pair;
    }
    return out;
  }
  const Constant constant = expression();
  out.value = constant.value;
  out.kind = constant.kind == InitValue::Kind::kF32   ? Operand::Kind::kF32
             : constant.kind == InitValue::Kind::kF64 ? Operand::Kind::kF64
                                                      : Operand::Kind::kInt;
  return out;
}

Operand Parser::address(int depth) {
  Operand out;
  out.kind = Operand::Kind::kAddress;
  expect('[');
  if (peek().kind == Tok::kIdent) {
    out.name = take().text;
    if (is('+') || is('-')) {
      const bool plus = take().punct == '+';
      const uint64_t offset = integer("an offset");
      out.value = plus ? offset : ~offset + 1;
    }
  } else {
    out.value = integer("an address");
  }
  while (accept(',')) out.elements.push_back(operand(depth + 1));
  expect(']');
  return out;
}

// Level of the binary operator at the cursor, 0 for none; higher binds tighter.
int Parser::binary_level(std::string* op) const {
  static constexpr struct {
    const char* text;
    int level;
  } kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 6}, {"!=", 6}, {"<=", 7}, {">=", 7},
                    {"<<", 8}, {">>", 8}, {"|", 3},  {"^", 4},  {"&", 5},  {"<", 7},
                    {">", 7},  {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}};
  if (peek().kind != Tok::kPunct) return 0;
  for (const auto& candidate : kOperators) {
    const std::string_view text = candidate.text;
    if (peek().punct != text[0]) continue;
    if (text.size() == 2 && !(peek(1).glued && is(text[1], 1))) continue;
    *op = text;
    return candidate.level;
  }
  return 0;
}

Parser::Constant Parser::expression(int depth, int level) {
  if (depth > kMaxDepth) fail("expression nested too deep");
  Constant left = unary(depth + 1);
  for (;;) {
    std::string op;
    const int here = binary_level(&op);
    // '>' closes %r<10>, '|' joins predicate pairs: both stay unread here
    if (here == 0 || here <= level || op == ">" || op == "|") return left;
    if (left.kind != InitValue::Kind::kInt) fail("only integers can be combined in constants");
    for (size_t i = 0; i < op.size(); ++i) take();
    const Constant right = expression(depth + 1, here);
    if (right.kind != InitValue::Kind::kInt) fail("only integers can be combined in constants");
    const uint64_t a = left.value, b = right.value;
    if ((op == "/" || op == "%") && b == 0) fail("division by zero in a constant");
    const bool overflow = static_cast<int64_t>(a) == INT64_MIN && b == UINT64_MAX;
    if (op == "+") left.value = a + b;
    else if (op == "-") left.value = a - b;
    else if (op == "*") left.value = a * b;
    else if (op == "/")
      left.value =
          overflow ? a : static_cast<uint64_t>(static_cast<int64_t>(a) / static_cast<int64_t>(b));
    else if (op == "%")
      left.value =
          overflow ? 0 : static_cast<uint64_t>(static_cast<int64_t>(a) % static_cast<int64_t>(b));
    else if (op == "<<") left.value = b < 64 ? a << b : 0;
    else if (op == ">>") left.value = b < 64 ? a >> b : 0;
    else if (op == "&") left.value = a & b;
    else if (op == "^") left.value = a ^ b;
    else if (op == "||") left.value = a != 0 || b != 0;
    else if (op == "&&") left.value = a != 0 && b != 0;
    else if (op == "==") left.value = a == b;
    else if (op == "!=") left.value = a != b;
    else if (op == "<=") left.value = static_cast<int64_t>(a) <= static_cast<int64_t>(b);
    else if (op == ">=") left.value = static_cast<int64_t>(a) >= static_cast<int64_t>(b);
    else if (op == "<") left.value = static_cast<int64_t>(a) < static_cast<int64_t>(b);
  }
}

Parser::Constant Parser::unary(int depth) {
  if (depth > kMaxDepth) fail("expression nested too deep");
  Constant out;
  const Token& token = peek();
  if (token.kind == Tok::kPunct) {
    const char op = token.punct;
    if (op == '(') {
      take();
      if (peek().kind == Tok::kDot) {  // (.s64) cast
        take();
        expect(')');
        return unary(depth + 1);
      }
      out = expression(depth + 1);
      expect(')');
      return out;
    }
    if (op == '-' || op == '+' || op == '~' || op == '!') {
      take();
      out = unary(depth + 1);
      if (op == '-' && out.kind == InitValue::Kind::kF64) out.value ^= uint64_t{1} << 63;
      else if (op == '-' && out.kind == InitValue::Kind::kF32) out.value ^= uint64_t{1} << 31;
      else if (op == '-') out.value = ~out.value + 1;
      else if (out.kind != InitValue::Kind::kInt && op != '+') fail("expected an integer");
      else if (op == '~') out.value = ~out.value;
      else if (op == '!') out.value = out.value == 0;
      return out;
    }
    fail("expected a constant");
  }
  if (token.kind == Tok::kIdent && token.text == "WARP_SZ") {
    take();
    out.value = 32;
    return out;
  }
  switch (token.kind) {
    case Tok::kInt: break;
    case Tok::kF32: out.kind = InitValue::Kind::kF32; break;
    case Tok::kF64: out.kind = InitValue::Kind::kF64; break;
    case Tok::kEnd:
    case Tok::kIdent:
    case Tok::kDot:
    case Tok::kString:
    case Tok::kPunct: fail("expected a constant");
  }
  out.value = take().value;
  return out;
}

}  // namespace tube::sim::ptx
