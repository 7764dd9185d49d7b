// Fault injection. Rules are parsed once and never change; each keeps its own atomic call counter,
// so a call costs one load while no rule is set and one string comparison per rule otherwise.
#include "sim/machine/fault.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "sim/machine/topology.h"

namespace tube::sim {
namespace {

struct Rule {
  std::string call;
  int error = 0;
  int fault = 0;
  uint64_t after = 0;           // calls that still succeed
  uint64_t count = UINT64_MAX;  // how many then fail
  std::atomic<uint64_t> seen{0};
};

std::vector<std::unique_ptr<Rule>>* rules = nullptr;  // leaked
std::atomic<bool> armed{false};

bool parse_number(std::string_view text, double* value) {
  std::string copy(text);
  char* end = nullptr;
  *value = std::strtod(copy.c_str(), &end);
  return !copy.empty() && *end == '\0';
}

bool parse_rule(std::string_view text, Fabric* fabric) {
  auto rule = std::make_unique<Rule>();
  int64_t link = -1;
  double bandwidth = -1;
  while (!text.empty()) {
    size_t colon = text.find(':');
    std::string_view field = text.substr(0, colon);
    text = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    size_t equals = field.find('=');
    if (equals == std::string_view::npos) return false;
    std::string_view key = field.substr(0, equals), value = field.substr(equals + 1);
    if (key == "call") {
      rule->call = value;
      continue;
    }
    double number = 0;
    if (!parse_number(value, &number) || number < 0) return false;
    if (key == "error") rule->error = static_cast<int>(number);
    else if (key == "fault") rule->fault = static_cast<int>(number);
    else if (key == "after") rule->after = static_cast<uint64_t>(number);
    else if (key == "count") rule->count = static_cast<uint64_t>(number);
    else if (key == "link") link = static_cast<int64_t>(number);
    else if (key == "bandwidth") bandwidth = number;
    else return false;
  }
  if (link >= 0)
    return bandwidth > 0 && fabric->set_bandwidth(static_cast<size_t>(link), bandwidth);
  if (rule->call.empty() || (rule->error == 0) == (rule->fault == 0)) return false;
  rules->push_back(std::move(rule));
  return true;
}

}  // namespace

void load_faults(const char* text, Fabric* fabric, std::string* error) {
  rules = new std::vector<std::unique_ptr<Rule>>;
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    size_t semicolon = rest.find(';');
    std::string_view one = rest.substr(0, semicolon);
    rest = semicolon == std::string_view::npos ? std::string_view() : rest.substr(semicolon + 1);
    if (!one.empty() && !parse_rule(one, fabric))
      *error = "TUBE_SIM_FAULT: not understood: " + std::string(one);
  }
  armed.store(!rules->empty(), std::memory_order_release);
}

Injected count_call(const char* call) {
  Injected result;
  if (!armed.load(std::memory_order_acquire)) return result;
  for (auto& rule : *rules) {
    if (rule->call != call) continue;
    uint64_t n = rule->seen.fetch_add(1, std::memory_order_relaxed);
    if (n < rule->after || n - rule->after >= rule->count) continue;
    if (rule->error != 0) result.error = static_cast<CUresult>(rule->error);
    if (rule->fault != 0) result.fault = static_cast<CUresult>(rule->fault);
  }
  return result;
}

}  // namespace tube::sim
