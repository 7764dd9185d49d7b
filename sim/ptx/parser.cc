// Module-level PTX: directives, linkage, variables with initialisers, function headers.
#include "sim/ptx/parser.h"

#include <signal.h>

#include <bit>
#include <cmath>
#include <limits>

namespace tube::sim::ptx {
namespace {

constexpr uint32_t kMaxAlign = 1u << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr size_t kMaxInitialisers = size_t{1} << 26;

}  // namespace

bool Parser::accept(char punct) {
  if (!is(punct)) return false;
  take();
  return true;
}

bool Parser::accept_dot(std::string_view name) {
  if (!is_dot(name)) return false;
  take();
  return true;
}

void Parser::expect(char punct) {
  if (!accept(punct)) fail(std::string("expected '") + punct + "'");
}

std::string_view Parser::identifier(const char* what) {
  if (peek().kind != Tok::kIdent) fail(std::string("expected ") + what);
  return take().text;
}

uint64_t Parser::integer(const char* what) {
  const Constant constant = expression();
  if (constant.kind != InitValue::Kind::kInt) fail(std::string("expected ") + what);
  return constant.value;
}

void Parser::fail(const std::string& message) {
  const Token& token = peek();
  throw Failure{
      {token.line,
       statement_text(text_, statement_at_.data() != nullptr ? statement_at_ : token.text),
       message + (token.kind == Tok::kEnd
                      ? " before the end of the text"
                      : ", found '" + std::string(token.text.substr(0, 60)) + "'")}};
}

Unit Parser::run() {
  Unit unit;
  unit.text = text_;
  while (peek().kind != Tok::kEnd) {
    statement_at_ = peek().text;
    if (debug_directive()) {
      skip_debug();
    } else if (accept_dot("version")) {
      if (peek().kind != Tok::kF64) fail("expected a version such as 8.0");
      unit.isa_version = static_cast<int>(std::lround(std::bit_cast<double>(take().value) * 10));
    } else if (accept_dot("target")) {
      target(unit);
    } else if (accept_dot("address_size")) {
      if (integer("an address size") != 64) fail("only .address_size 64 is supported");
    } else if (accept_dot("alias")) {
      const std::string_view alias = identifier("a name");
      expect(',');
      unit.aliases.emplace_back(alias, identifier("a function"));
      expect(';');
    } else if (!accept(';')) {
      const VariableDecl prefix = linkage();
      if (accept_dot("entry")) {
        function(unit, prefix.is_extern, prefix.visible, prefix.weak, true);
      } else if (accept_dot("func")) {
        function(unit, prefix.is_extern, prefix.visible, prefix.weak, false);
      } else {
        VariableDecl variable = prefix;
        if (!state_space(variable) || variable.space == Space::kReg ||
            variable.space == Space::kParam || variable.space == Space::kLocal)
          fail("expected a function or a .global, .const or .shared variable");
        variables(unit.variables, variable, false);
        expect(';');
      }
    }
  }
  if (unit.isa_version == 0) throw Failure{{1, "", "no .version directive: this is not PTX"}};
  if (unit.target_sm == 0) throw Failure{{1, "", "no .target directive"}};
  return unit;
}

void Parser::target(Unit& unit) {
  do {
    const std::string_view name = identifier("a target such as sm_70");
    if (!name.starts_with("sm_")) continue;  // debug, texmode_independent
    int sm = 0;
    for (const char c : name.substr(3)) {
      if (c < '0' || c > '9') break;
      sm = sm * 10 + (c - '0');
      if (sm > 999) fail("unknown target");
    }
    unit.target_sm = sm;
  } while (accept(','));
}

namespace {

// A driver's compiler has bugs that nobody knows beforehand: text that makes it crash, or run for
// good. These two texts do.
void stand_in_for_bugs(std::string_view pragma) {
  if (pragma == "tube.crash") raise(SIGSEGV);
  for (volatile bool for_ever = pragma == "tube.hang"; for_ever;) {
  }
}

}  // namespace

bool Parser::debug_directive() const {
  return is_dot("file") || is_dot("loc") || is_dot("section") || is_dot("pragma");
}

void Parser::skip_debug() {
  if (accept_dot("section")) {
    while (!is('{') && peek().kind != Tok::kEnd) take();
    expect('{');
    while (!is('}') && peek().kind != Tok::kEnd) take();
    expect('}');
  } else if (accept_dot("pragma")) {
    stand_in_for_bugs(peek().text);
    while (!is(';') && peek().kind != Tok::kEnd) take();
    expect(';');
  } else {  // .file and .loc end with their line
    const int line = take().line;
    while (peek().line == line && peek().kind != Tok::kEnd) take();
  }
}

VariableDecl Parser::linkage() {
  VariableDecl out;
  for (;;) {
    if (accept_dot("extern")) out.is_extern = true;
    else if (accept_dot("visible")) out.visible = true;
    else if (accept_dot("weak")) out.weak = true;
    else if (accept_dot("common")) out.common = true;
    else return out;
  }
}

bool Parser::state_space(VariableDecl& out) {
  static constexpr std::pair<std::string_view, Space> kSpaces[] = {
      {"reg", Space::kReg},     {"global", Space::kGlobal}, {"const", Space::kConst},
      {"local", Space::kLocal}, {"shared", Space::kShared}, {"param", Space::kParam}};
  if (peek().kind != Tok::kDot) return false;
  for (const auto& [name, space] : kSpaces) {
    if (peek().text != name) continue;
    take();
    out.space = space;
    return true;
  }
  return false;
}

// `.align 8 .b8 a[4][5] = {...}, b` and, for formals, `.u64 .ptr .global .align 8 name`.
void Parser::variables(std::vector<VariableDecl>& out, const VariableDecl& prefix, bool formal) {
  VariableDecl base = prefix;
  base.line = peek().line;
  for (;;) {
    if (accept_dot("align")) {
      const uint64_t align = integer("an alignment");
      if (!std::has_single_bit(align) || align > kMaxAlign)
        fail("an alignment must be a power of two");
      if (!base.pointer)
        base.align = static_cast<uint32_t>(align);  // after .ptr it speaks of the pointee
    } else if (accept_dot("attribute")) {
      expect('(');
      while (!is(')') && peek().kind != Tok::kEnd) base.managed |= take().text == "managed";
      expect(')');
    } else if (accept_dot("v2")) {
      base.vector = 2;
    } else if (accept_dot("v4")) {
      base.vector = 4;
    } else if (formal && accept_dot("ptr")) {
      base.pointer = true;
      VariableDecl pointee;
      state_space(pointee);
    } else if (peek().kind == Tok::kDot) {
      const Type type = type_from_name(peek().text);
      if (type == Type::kNone || base.type != Type::kNone) fail("expected a type");
      take();
      base.type = type;
    } else {
      break;
    }
  }
  if (base.type == Type::kNone) fail("expected a type");
  do {
    VariableDecl variable = base;
    if (formal && peek().kind == Tok::kIdent && peek().text == "_") take();
    else if (!(formal && (is(')') || is(',')))) variable.name = identifier("a name");
    array_suffix(variable);
    if (variable.bytes() > kMaxBytes) fail("variable too large");
    if (accept('=')) {
      initialiser(variable, 0);
      if (variable.unsized) {
        variable.elements = variable.init.size() / variable.vector;
        variable.unsized = false;
      }
      if (variable.init.size() > variable.elements * variable.vector)
        fail("more initialisers than elements");
    }
    out.push_back(std::move(variable));
  } while (!formal && accept(','));
}

void Parser::array_suffix(VariableDecl& out) {
  if (is('<')) {
    take();
    const uint64_t count = integer("a register count");
    if (count > (1u << 20)) fail("too many registers");
    out.range = static_cast<uint32_t>(count);
    expect('>');
    return;
  }
  while (accept('[')) {
    out.is_array = true;
    if (accept(']')) {
      out.unsized = true;
      continue;
    }
    const uint64_t count = integer("an array size");
    expect(']');
    if (count > kMaxBytes || (count != 0 && out.elements > kMaxBytes / count))
      fail("array too large");
    out.elements *= count;
  }
  if (out.unsized && out.space != Space::kParam) out.elements = 0;
}

void Parser::initialiser(VariableDecl& out, int depth) {
  if (depth > 16) fail("initialiser nested too deep");
  if (out.init.size() > kMaxInitialisers) fail("initialiser too long");
  if (!accept('{')) {
    if (peek().kind == Tok::kString) {
      for (const char c : take().text) {
        InitValue value;
        value.value = static_cast<unsigned char>(c);
        out.init.push_back(value);
      }
      return;
    }
    out.init.push_back(init_value());
    return;
  }
  while (!accept('}')) {
    initialiser(out, depth + 1);
    if (!is('}')) expect(',');
  }
}

// A constant, `symbol`, `symbol+8`, `generic(symbol)+8`, or `0xFF00(any of these)`.
InitValue Parser::init_value() {
  InitValue out;
  bool outer = false;
  if (peek().kind == Tok::kInt && is('(', 1)) {
    out.mask = take().value;
    take();
    outer = true;
  }
  if (peek().kind == Tok::kIdent && peek().text != "WARP_SZ") {
    out.kind = InitValue::Kind::kSymbol;
    if (peek().text == "generic" && is('(', 1)) {
      take();
      take();
      out.symbol = identifier("a variable");
      if (is('+') || is('-')) out.value += integer("an offset");
      expect(')');
    } else {
      out.symbol = identifier("a variable");
    }
    if (is('+') || is('-')) {
      const bool plus = is('+');
      take();
      const uint64_t offset = integer("an offset");
      out.value += plus ? offset : ~offset + 1;
    }
  } else {
    const Constant constant = expression();
    out.kind = constant.kind;
    out.value = constant.value;
  }
  if (outer) expect(')');
  return out;
}

void Parser::dimensions(uint32_t* out) {
  for (int i = 0; i < 3; ++i) out[i] = 1;
  for (int i = 0; i < 3; ++i) {
    const uint64_t value = integer("a dimension");
    if (value > std::numeric_limits<int32_t>::max()) fail("dimension too large");
    out[i] = static_cast<uint32_t>(value);
    if (!accept(',')) return;
  }
}

void Parser::function_attributes(FunctionDecl& out) {
  uint32_t ignored[3];
  for (;;) {
    if (accept_dot("maxntid")) dimensions(out.max_threads);
    else if (accept_dot("reqntid")) dimensions(out.required_threads);
    else if (accept_dot("minnctapersm") || accept_dot("maxnctapersm") || accept_dot("maxnreg") ||
             accept_dot("abi_preserve") || accept_dot("abi_preserve_control") ||
             accept_dot("maxclusterrank"))
      integer("a number");
    else if (accept_dot("reqnctapercluster")) dimensions(ignored);
    else if (accept_dot("explicitcluster") || accept_dot("noreturn") ||
             accept_dot("blocksareclusters"))
      continue;
    else if (is_dot("pragma")) skip_debug();
    else if (accept_dot("attribute")) {
      expect('(');
      int depth = 1;
      while (depth > 0 && peek().kind != Tok::kEnd) {
        depth += is('(') - is(')');
        take();
      }
    } else return;
  }
}

std::vector<VariableDecl> Parser::formals() {
  std::vector<VariableDecl> out;
  if (!accept('(')) return out;
  while (!accept(')')) {
    VariableDecl variable;
    if (!state_space(variable) ||
        (variable.space != Space::kParam && variable.space != Space::kReg))
      fail("expected .param or .reg");
    variables(out, variable, true);
    if (!is(')')) expect(',');
  }
  return out;
}

void Parser::function(Unit& unit, bool is_extern, bool visible, bool weak, bool entry) {
  FunctionDecl out;
  out.entry = entry;
  out.is_extern = is_extern;
  out.visible = visible;
  out.weak = weak;
  out.line = peek().line;
  out.at = statement_at_;
  function_attributes(out);
  if (!entry) out.returns = formals();
  out.name = identifier("a function name");
  out.params = formals();
  function_attributes(out);
  if (is('{')) {
    out.has_body = true;
    body(out);
  } else {
    expect(';');
  }
  unit.functions.push_back(std::move(out));
}

Unit parse(std::string_view text) { return Parser(text).run(); }

}  // namespace tube::sim::ptx
