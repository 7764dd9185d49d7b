// tubectl stat: what each function sent and waited for: records, round trips and bytes, spins and
// sleeps, and the calls by name.
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
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (top != 0 && sorted.size() > top) sorted.resize(top);
  return sorted;
}

// "label a 1, b 2" of what is not zero; empty when all is.
std::string listed(const char* label,
                   const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string line;
  for (const auto& [name, value] : parts)
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", value, name);
  return line.empty() ? line : fmt::format("  {:9} {}\n", label, line);
}

void print_volume(const Json& function) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (const auto& [key, name] : {std::pair{"record_bytes", "of records"},
                                  {"reply_bytes", "of answers"},
                                  {"copy_bytes", "copied"}}) {
    if (number(function, key) != 0) parts.emplace_back(name, human_bytes(number(function, key)));
  }
  fmt::print("{}", listed("bytes", parts));
  if (number(function, "coalesced_runs") != 0) {
    fmt::print("  {:9} {} launches in {} graphs\n", "coalesced",
               number(function, "coalesced_launches"), number(function, "coalesced_runs"));
  }
}

void print_memory(const Json& function) {
  for (const Json& gpu : function.value("memory", Json::array())) {
    const bool limited = number(gpu, "limit_bytes") != 0;
    if (!limited && number(gpu, "held_bytes") == 0) continue;
    fmt::print("  memory    {} held of GPU {}{}\n", human_bytes(number(gpu, "held_bytes")),
               number(gpu, "gpu"), limited ? ", at most " + limit_text(gpu, "limit_bytes") : "");
  }
  const Json blocks = function.value("blocks", Json());
  if (blocks.is_object() && number(blocks, "posted") + number(blocks, "made") != 0)
    fmt::print("  {:9} {} taken without asking, {} asked for and there, {} asked for and made\n",
               "blocks", number(blocks, "posted"), number(blocks, "reused"),
               number(blocks, "made"));
  if (number(function, "memory_refusals") != 0)
    fmt::print("  memory    {} requests refused by a limit\n", number(function, "memory_refusals"));
}

// How waits ended; those that found everything done at once are not counted.
void print_waits(const Json& function) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"reply", "for answers"},
      {"word", "for a stream"},
      {"chunk", "for a staging chunk"},
      {"ring_space", "for room in the ring"},
      {"callback", "for a host function's turn"},
      {"record", "of the session for records"}};
  const Json waits = function.value("waits", Json::object());
  for (const char* how : {"spun", "slept"}) {
    std::vector<std::pair<std::string, std::string>> parts;
    for (const auto& [key, name] : kNames) {
      const uint64_t count = waits.contains(key) ? number(waits[key], how) : 0;
      if (count != 0) parts.emplace_back(name, std::to_string(count));
    }
    fmt::print("{}", listed(how, parts));
  }
}

void print_function(const Json& function, size_t top) {
  fmt::print("{} (id {}, pid {}): {} records, {} posted, {} round trips, {} errors\n",
             text(function, "name"), number(function, "id"), number(function, "pid"),
             number(function, "records"), number(function, "posted"),
             number(function, "round_trips"), number(function, "errors"));
  fmt::print(
      "  images: {} loaded, {} shared with other functions, {} bytes sent; kernels: {} loaded, {} "
      "shared\n",
      number(function, "images_loaded"), number(function, "images_shared"),
      number(function, "image_bytes"), number(function, "kernels_loaded"),
      number(function, "kernels_shared"));
  print_memory(function);
  print_volume(function);
  print_waits(function);
  Table table({"  COUNT", "WAITED FOR", "CALL"}, "rrl");
  const Json waited = function.value("round_trip_calls", Json::object());
  auto calls = most_frequent(function.value("calls", Json::object()), top);
  for (const auto& [name, count] : calls)
    table.add({std::to_string(count), std::to_string(number(waited, name.c_str())), name});
  if (!calls.empty()) fmt::print("{}", table.str());
}

int stat(const StatOptions& options) {
  Answer answer = ask(options.workflow, "status");
  if (!answer.ok()) return report_unusable(options.workflow, answer);
  const Json functions = functions_named(answer.body, options.function);
  if (options.json) {
    fmt::print(
        "{}\n",
        Json{{"ok", true}, {"workflow", options.workflow}, {"functions", functions}}.dump(2));
    return kExitOk;
  }
  if (functions.empty())
    fmt::print("no function {}runs under proxy `{}`\n",
               options.function.empty() ? "" : "of that name ", options.workflow);
  for (const Json& function : functions) print_function(function, options.top);
  return kExitOk;
}

}  // namespace

void add_stat(Verb& root) {
  auto options = std::make_shared<StatOptions>();
  root.verb("stat", "records, round trips, bytes and waits of each function, by driver call")
      .workflow(options->workflow)
      .text("-f,--function", options->function, "NAME", "only functions of this name")
      .number("-n,--top", options->top, "how many calls to show for each function, 0 for all")
      .json(options->json)
      .footer(
          "A posted record costs the function no waiting; a round trip does.\n\n"
          "Examples:\n  tubectl stat\n  tubectl stat -w shop --function classify --top 0\n  "
          "tubectl stat --json")
      .action([options] { return stat(*options); });
}

}  // namespace tube::ctl
