#include "tools/tubectl/pattern.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "sim/machine/topology.h"

namespace tube::ctl {
namespace {

// Reads a file from its beginning to its end.
class TomlText {
 public:
  explicit TomlText(const std::string& text) : text_(text) {}

  int line() const { return line_; }
  // Also over the ends of lines and over comments.
  void skip_space() {
    while (!ended()) {
      const char c = text_[at_];
      if (c == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::isspace(static_cast<unsigned char>(c)) == 0) return;
      else if (++at_; c == '\n') ++line_;
    }
  }
  bool ended() const { return at_ >= text_.size(); }
  bool take(char c) {
    skip_space();
    if (ended() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // A bare key or a number; empty: there is none.
  std::string word() {
    skip_space();
    const size_t begin = at_;
    const auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    };
    while (!ended() && part(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool string(std::string* value) {
    if (!take('"')) return false;
    const size_t end = text_.find_first_of("\"\n", at_);
    if (end == text_.npos || text_[end] == '\n') return false;
    *value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

 private:
  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
};

Result<uint32_t> function_number(const std::string& name, Pattern* pattern) {
  if (name == "host") return policies::kHost;
  if (name.empty()) return errorf("a function without a name");
  const auto found = std::find(pattern->functions.begin(), pattern->functions.end(), name);
  const auto number = static_cast<uint32_t>(found - pattern->functions.begin());
  if (found != pattern->functions.end()) return number;
  if (number == policies::kMaxFunctions)
    return errorf("more than %u functions", policies::kMaxFunctions);
  pattern->functions.push_back(name);
  pattern->plan.functions = number + 1;
  pattern->plan.share[number] = policies::kWholeGpu;
  return number;
}

Status read_passes(TomlText& toml, Pattern* pattern) {
  if (!toml.take('[')) return errorf("passes is a list: [\"FROM:TO:BYTES\", ..]");
  while (!toml.take(']')) {
    std::string pass;
    if (!toml.string(&pass)) return errorf("a pass is a text: \"FROM:TO:BYTES\"");
    if (Status added = add_pass(pass, pattern); !added) return added;
    if (toml.take(',')) continue;
    if (!toml.take(']')) return errorf("no , or ] behind a pass");
    return {};
  }
  return {};
}

// One key or the heading of a table.
Status read_entry(TomlText& toml, bool* in_shares, Pattern* pattern) {
  if (toml.take('[')) {
    if (toml.word() != "shares" || !toml.take(']')) return errorf("the only table is [shares]");
    *in_shares = true;
    return {};
  }
  const std::string key = toml.word();
  if (key.empty() || !toml.take('=')) return errorf("not understood: a key and = are expected");
  if (*in_shares) return set_share(key, toml.word(), pattern);
  return key == "passes" ? read_passes(toml, pattern)
                         : Status(errorf("no such key: %s", key.c_str()));
}

}  // namespace

Status add_pass(const std::string& text, Pattern* pattern) {
  const size_t first = text.find(':'), last = text.rfind(':');
  if (first == text.npos || first == last)
    return errorf("%s: a pass is FROM:TO:BYTES, e.g. decode:detect:25M", text.c_str());
  if (pattern->plan.passes == policies::kMaxPasses)
    return errorf("more than %u passes", policies::kMaxPasses);
  policies::PassedData pass;
  if (!sim::parse_bytes(text.substr(last + 1), &pass.bytes))
    return errorf("%s: %s is no size, e.g. 25M", text.c_str(), text.substr(last + 1).c_str());
  for (auto [name, end] : {std::pair{text.substr(0, first), &pass.from},
                           std::pair{text.substr(first + 1, last - first - 1), &pass.to}}) {
    const Result<uint32_t> number = function_number(name, pattern);
    if (!number) return errorf("%s: %s", text.c_str(), number.error().message.c_str());
    *end = *number;
  }
  if (pass.from == pass.to) return errorf("%s: from a function to itself", text.c_str());
  pattern->plan.pass[pattern->plan.passes++] = pass;
  return {};
}

Status set_share(const std::string& function, const std::string& share, Pattern* pattern) {
  const auto found = std::find(pattern->functions.begin(), pattern->functions.end(), function);
  if (found == pattern->functions.end())
    return errorf("%s: no pass names this function", function.c_str());
  char* end = nullptr;
  const double value = std::strtod(share.c_str(), &end);
  if (share.empty() || *end != '\0' || !(value >= 0 && value <= 1))
    return errorf("%s: a share is a number from 0 to 1", function.c_str());
  pattern->plan.share[found - pattern->functions.begin()] =
      static_cast<uint32_t>(std::lround(value * policies::kWholeGpu));
  return {};
}

Result<Pattern> parse_pattern(const std::string& toml) {
  Pattern pattern;
  TomlText text(toml);
  bool in_shares = false;
  for (text.skip_space(); !text.ended(); text.skip_space())
    if (Status read = read_entry(text, &in_shares, &pattern); !read)
      return errorf("line %d: %s", text.line(), read.error().message.c_str());
  if (pattern.plan.passes == 0) return errorf("no passes");
  return pattern;
}

}  // namespace tube::ctl
