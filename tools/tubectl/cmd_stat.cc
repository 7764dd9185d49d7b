// tubectl stat: what each function sent: records, round trips, and the driver calls behind them by name.
#include <fmt/core.h>

#include <algorithm>

#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct StatOptions {
  std::string workflow, function;
  size_t top = 15;
  bool json = false;
};

std::vector<std::pair<std::string, uint64_t>> most_frequent(const Json& calls, size_t top) {
  std::vector<std::pair<std::string, uint64_t>> sorted;
  for (const auto& [name, count] : calls.items()) {
    if (count.is_number_unsigned()) sorted.emplace_back(name, count.get<uint64_t>());
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (top != 0 && sorted.size() > top) sorted.resize(top);
  return sorted;
}

void print_function(const Json& function, size_t top) {
  fmt::print("{} (id {}, pid {}): {} records, {} posted, {} round trips, {} errors\n", text(function, "name"), number(function, "id"),
             number(function, "pid"), number(function, "records"), number(function, "posted"), number(function, "round_trips"),
             number(function, "errors"));
  Table table({"  COUNT", "CALL"}, "rl");
  auto calls = most_frequent(function.value("calls", Json::object()), top);
  for (const auto& [name, count] : calls) table.add({std::to_string(count), name});
  if (!calls.empty()) fmt::print("{}", table.str());
}

int stat(const StatOptions& options) {
  Answer answer = ask(options.workflow, "status");
  if (!answer.ok()) return report_unusable(options.workflow, answer);
  Json functions = Json::array();
  for (const Json& function : answer.body.value("functions", Json::array())) {
    if (options.function.empty() || text(function, "name") == options.function) functions.push_back(function);
  }
  if (options.json) {
    fmt::print("{}\n", Json{{"ok", true}, {"workflow", options.workflow}, {"functions", functions}}.dump(2));
    return kExitOk;
  }
  if (functions.empty()) fmt::print("no function {}runs under proxy `{}`\n", options.function.empty() ? "" : "of that name ", options.workflow);
  for (const Json& function : functions) print_function(function, options.top);
  return kExitOk;
}

}  // namespace

void add_stat(Verb& root) {
  auto options = std::make_shared<StatOptions>();
  root.verb("stat", "records and round trips of each function, by driver call")
      .workflow(options->workflow)
      .text("-f,--function", options->function, "NAME", "only functions of this name")
      .number("-n,--top", options->top, "how many calls to show for each function, 0 for all")
      .json(options->json)
      .footer("A posted record costs the function no waiting; a round trip does.\n\n"
              "Examples:\n  tubectl stat\n  tubectl stat -w shop --function classify --top 0\n  tubectl stat --json")
      .action([options] { return stat(*options); });
}

}  // namespace tube::ctl
