// The lexer: one forward pass, no backtracking, every read guarded by the end of the text.
#include "sim/ptx/token.h"

#include <bit>
#include <cstdlib>

namespace tube::sim::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
bool is_word(char c) { return is_alpha(c) || is_digit(c); }
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    tokens.reserve(text_.size() / 4);
    for (;;) {
      const size_t before = at_;
      skip_blank();
      Token token = next();
      token.glued = before == begin_ && begin_ != 0;
      tokens.push_back(token);
      if (token.kind == Tok::kEnd) return tokens;
    }
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  [[noreturn]] void fail(const char* message) {
    throw Failure{{line_,
                   statement_text(text_, text_.substr(at_ < text_.size() ? at_ : text_.size(), 0)),
                   message}};
  }

  void skip_blank() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (is_space(c)) continue;
      if (c == '\0') {  // images are often NUL-padded; nothing follows
        at_ = text_.size();
        return;
      }
      if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        --at_;
      } else if (c == '/' && peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail("comment without an end");
        for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
        ++at_;
      } else {
        return;
      }
    }
  }

  Token make(Tok kind, size_t skip_front = 0, size_t skip_back = 0) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text_.substr(begin_ + skip_front, at_ - begin_ - skip_front - skip_back);
    return token;
  }

  Token next() {
    begin_ = at_;
    if (at_ >= text_.size()) return make(Tok::kEnd);
    const char c = peek();
    if (is_alpha(c) || (c == '%' && is_word(peek(1)))) {
      ++at_;
      while (is_word(peek())) ++at_;
      return make(Tok::kIdent);
    }
    if (c == '.' && is_word(peek(1))) return dot();
    if (is_digit(c)) return number();
    if (c == '"') return string();
    ++at_;
    Token token = make(Tok::kPunct);
    token.punct = c;
    return token;
  }

  Token dot() {
    ++at_;
    for (;;) {
      while (is_word(peek())) ++at_;
      if (peek() != ':' || peek(1) != ':' || !is_word(peek(2))) break;
      at_ += 2;
    }
    return make(Tok::kDot, 1);
  }

  Token string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\n') fail("string without an end");
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    if (at_ >= text_.size()) {
      at_ = text_.size();
      fail("string without an end");
    }
    ++at_;
    return make(Tok::kString, 1, 1);
  }

  Token hex_float(Tok kind, unsigned digits) {
    at_ += 2;
    uint64_t value = 0;
    for (unsigned i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_value(peek());
      if (digit < 0) fail("a float constant needs 8 (0f) or 16 (0d) hexadecimal digits");
      value = value << 4 | static_cast<uint64_t>(digit);
    }
    Token token = make(kind);
    token.value = value;
    return token;
  }

  Token number() {
    const char second = peek(1);
    if (peek() == '0' && (second == 'f' || second == 'F')) return hex_float(Tok::kF32, 8);
    if (peek() == '0' && (second == 'd' || second == 'D')) return hex_float(Tok::kF64, 16);
    unsigned base = 10;
    if (peek() == '0' && (second == 'x' || second == 'X')) base = 16;
    if (peek() == '0' && (second == 'b' || second == 'B')) base = 2;
    if (base != 10) {
      at_ += 2;
    } else {
      if (peek() == '0') base = 8;
      size_t end = at_;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      const bool exponent = end < text_.size() && (text_[end] == 'e' || text_[end] == 'E');
      if (exponent || (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) ||
          (end < text_.size() && text_[end] == '.' &&
           !(end + 1 < text_.size() && is_word(text_[end + 1]))))
        return decimal_float();
    }
    uint64_t value = 0;
    bool any = base == 10 || base == 8;
    for (;; ++at_) {
      const int digit = hex_value(peek());
      if (digit < 0 || static_cast<unsigned>(digit) >= base) break;
      const uint64_t grown = value * base + static_cast<unsigned>(digit);
      if (value > (UINT64_MAX - static_cast<unsigned>(digit)) / base)
        fail("integer constant above 64 bits");
      value = grown;
      any = true;
    }
    if (!any || is_digit(peek())) fail("bad integer constant");
    if (peek() == 'U' || peek() == 'u') ++at_;
    Token token = make(Tok::kInt);
    token.value = value;
    return token;
  }

  Token decimal_float() {
    std::string digits;
    while (at_ < text_.size() && digits.size() < 400) {
      const char c = peek();
      const bool sign = (c == '+' || c == '-') && !digits.empty() &&
                        (digits.back() == 'e' || digits.back() == 'E');
      if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
      digits += c;
      ++at_;
    }
    Token token = make(Tok::kF64);
    token.value = std::bit_cast<uint64_t>(std::strtod(digits.c_str(), nullptr));
    return token;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Lexer(text).run(); }

std::string statement_text(std::string_view text, std::string_view at) {
  if (at.data() < text.data() || at.data() > text.data() + text.size()) return {};
  size_t begin = static_cast<size_t>(at.data() - text.data());
  size_t end = begin;
  while (begin > 0 && text[begin - 1] != ';' && text[begin - 1] != '\n' && text[begin - 1] != '{')
    --begin;
  while (end < text.size() && text[end] != ';' && text[end] != '\n') ++end;
  if (end < text.size() && text[end] == ';') ++end;
  if (end - begin > 400) end = begin + 400;
  while (begin < end && is_space(text[begin])) ++begin;
  while (end > begin && is_space(text[end - 1])) --end;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace tube::sim::ptx
