#include "tools/tubectl/pattern.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/machine/topology.h"

namespace tube::ctl {
namespace {

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

Error in_line(const toml::source_region& where, const std::string& what) {
  return errorf("line %u: %s", static_cast<unsigned>(where.begin.line), what.c_str());
}

Status read_passes(const toml::node& passes, Pattern* pattern) {
  if (!passes.is_array())
    return in_line(passes.source(), "passes is a list: [\"FROM:TO:BYTES\", ..]");
  for (const toml::node& pass : *passes.as_array()) {
    if (!pass.is_string()) return in_line(pass.source(), "a pass is a text: \"FROM:TO:BYTES\"");
    if (Status added = add_pass(pass.as_string()->get(), pattern); !added)
      return in_line(pass.source(), added.error().message);
  }
  return {};
}

Status read_shares(const toml::node& shares, Pattern* pattern) {
  if (!shares.is_table()) return in_line(shares.source(), "shares is a table: [shares]");
  for (const auto& [function, share] : *shares.as_table()) {
    const double value = share.value<double>().value_or(-1);
    if (Status set = set_share(std::string(function.str()), value, pattern); !set)
      return in_line(share.source(), set.error().message);
  }
  return {};
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

Status set_share(const std::string& function, double share, Pattern* pattern) {
  const auto found = std::find(pattern->functions.begin(), pattern->functions.end(), function);
  if (found == pattern->functions.end())
    return errorf("%s: no pass names this function", function.c_str());
  if (!(share >= 0 && share <= 1))
    return errorf("%s: a share is a number from 0 to 1", function.c_str());
  pattern->plan.share[found - pattern->functions.begin()] =
      static_cast<uint32_t>(std::lround(share * policies::kWholeGpu));
  return {};
}

Result<Pattern> parse_pattern(const std::string& text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) return in_line(parsed.error().source(), std::string(parsed.error().description()));
  Pattern pattern;
  const toml::table& table = parsed.table();
  for (const auto& [key, value] : table) {
    if (key.str() != "passes" && key.str() != "shares")
      return in_line(key.source(), "no such key: " + std::string(key.str()));
  }
  // Shares name functions of passes.
  for (const auto& [key, read] : {std::pair{"passes", &read_passes}, {"shares", &read_shares}}) {
    const toml::node* node = table.get(key);
    if (node == nullptr) continue;
    if (Status done = read(*node, &pattern); !done) return done.error();
  }
  if (pattern.plan.passes == 0) return errorf("no passes");
  return pattern;
}

}  // namespace tube::ctl
