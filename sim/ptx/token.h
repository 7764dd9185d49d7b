// Splits PTX text into tokens, all at once. Views point into the text, which must outlive them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/ptx/ptx.h"

namespace tube::sim::ptx {

// Thrown and caught inside compile() and link() only.
struct Failure {
  CompileError error;
};

enum class Tok : uint8_t {
  kEnd,
  kIdent,   // add, %r1, $L__BB0_1
  kDot,     // .f32, .shared::cta: text is without the leading dot
  kInt,     // value
  kF32,     // 0f3F800000: value is the bits
  kF64,     // 0d... or 1.5: value is the bits
  kString,  // text without quotes, escapes untouched
  kPunct,   // punct; "<<" is two tokens, the expression parser looks ahead
};

struct Token {
  Tok kind = Tok::kEnd;
  char punct = 0;
  bool glued = false;  // no white space since the token before
  int line = 0;
  std::string_view text;
  uint64_t value = 0;
};

// Always ends with a kEnd token. Throws Failure on bytes that are no token.
std::vector<Token> tokenize(std::string_view text);

// The statement around a token as the user wrote it: for CompileError::instruction.
std::string statement_text(std::string_view text, std::string_view at);

}  // namespace tube::sim::ptx
