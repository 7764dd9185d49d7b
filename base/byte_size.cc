#include "base/byte_size.h"

#include <algorithm>

namespace tube {
namespace {

// How far the number is shifted by its unit; -1: no unit.
int shift_of(char unit) {
  switch (unit) {
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    case 't':
    case 'T': return 40;
    default: return -1;
  }
}

Error no_size(std::string_view text, const char* why) {
  return errorf("'%.*s' is no size: %s", static_cast<int>(text.size()), text.data(), why);
}

}  // namespace

Result<uint64_t> parse_byte_size(std::string_view text) {
  constexpr const char* kForm = "a whole number of bytes, or one followed by K, M, G or T, e.g. 4G";
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty() && shift_of(digits.back()) >= 0) {
    shift = shift_of(digits.back());
    digits.remove_suffix(1);
  }
  if (digits.empty()) return no_size(text, kForm);
  uint64_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return no_size(text, kForm);
    if (__builtin_mul_overflow(number, uint64_t{10}, &number) ||
        __builtin_add_overflow(number, static_cast<uint64_t>(digit - '0'), &number))
      return no_size(text, "it is too large");
  }
  if (number == 0) return no_size(text, "it is 0");
  if (number > (UINT64_MAX - 1) >> shift) return no_size(text, "it is too large");
  return number << shift;
}

Result<uint64_t> parse_byte_limit(std::string_view text) {
  if (text == "none") return UINT64_MAX;
  Result<uint64_t> bytes = parse_byte_size(text);
  if (bytes.ok()) return bytes;
  return errorf("%s; `none` is no limit", bytes.error().message.c_str());
}

Result<std::vector<uint64_t>> parse_byte_limits(std::string_view text) {
  std::vector<uint64_t> limits;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    Result<uint64_t> limit = parse_byte_limit(text.substr(at, end - at));
    if (!limit.ok()) return limit.error();
    limits.push_back(*limit);
    at = end + 1;
  }
  return limits;
}

std::string byte_limit_text(uint64_t limit_bytes) {
  return limit_bytes == UINT64_MAX ? "none" : std::to_string(limit_bytes);
}

std::string byte_limits_text(const std::vector<uint64_t>& limits_bytes) {
  std::string text;
  for (const uint64_t limit : limits_bytes) {
    if (!text.empty()) text += ',';
    text += byte_limit_text(limit);
  }
  return text;
}

}  // namespace tube
