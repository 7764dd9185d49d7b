// tubectl mem: where the GPU memory of a proxy's functions is, and what was moved, when and why.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct MemOptions {
  std::string workflow, function;
  bool json = false;
};

double real(const Json& object, const char* key) { return object.value(key, 0.0); }

std::string function_table(const Json& functions) {
  Table table({"FUNCTION", "PID", "GPU", "HELD", "ON GPU", "EVICTED", "CANNOT MOVE", "POOL",
               "PINNED", "RETURNS", "LONGEST"},
              "lrrrrrrrrrr");
  for (const Json& function : functions) {
    const Json moves = function.value("moves", Json::object());
    for (const Json& gpu : function.value("gpus", Json::array())) {
      const uint64_t held = number(gpu, "held_bytes"), away = number(gpu, "evicted_bytes");
      table.add({text(function, "name"), std::to_string(number(function, "pid")),
                 std::to_string(number(gpu, "gpu")), human_bytes(held),
                 human_bytes(held - std::min(held, away)), human_bytes(away),
                 human_bytes(number(gpu, "stays_bytes")), human_bytes(number(gpu, "pool_bytes")),
                 human_bytes(number(function, "pinned_bytes")),
                 std::to_string(number(moves, "returns")),
                 fmt::format("{:.1f} ms", real(moves, "longest_ms"))});
    }
  }
  return table.str();
}

std::string move_table(const Json& moves) {
  if (moves.empty()) return "";
  Table table({"AGO", "FUNCTION", "PID", "GPU", "TO", "BYTES", "TOOK", "WHY"}, "rlrrlrrl");
  for (const Json& move : moves)
    table.add({human_age(static_cast<uint64_t>(real(move, "ago_s"))), text(move, "name"),
               std::to_string(number(move, "pid")), std::to_string(number(move, "gpu")),
               text(move, "to"), human_bytes(number(move, "bytes")),
               fmt::format("{:.1f} ms", real(move, "ms")), text(move, "why")});
  return "\n" + table.str();
}

int mem(const MemOptions& options) {
  Answer answer = ask(options.workflow, "mem");
  if (!answer.ok()) return report_unusable(options.workflow, answer);
  answer.body["functions"] = functions_named(answer.body, options.function);
  answer.body["workflow"] = options.workflow;
  if (options.json) {
    fmt::print("{}\n", answer.body.dump(2));
    return kExitOk;
  }
  const Json host = answer.body.value("evicted", Json::object());
  fmt::print(
      "evicted: {} of {} of host memory ({} pinned), order: {}, {} out, {} back, {} waiting\n{}{}",
      human_bytes(number(host, "used_bytes")), human_bytes(number(host, "limit_bytes")),
      human_bytes(number(host, "pinned_bytes")), text(host, "policy"),
      human_bytes(number(host, "evicted_bytes")), human_bytes(number(host, "returned_bytes")),
      number(host, "waiting"), function_table(answer.body["functions"]),
      move_table(answer.body.value("moves", Json::array())));
  return kExitOk;
}

}  // namespace

void add_mem(Verb& root) {
  auto options = std::make_shared<MemOptions>();
  root.verb("mem", "where functions' GPU memory is, and what moved to the host and back")
      .workflow(options->workflow)
      .text("-f,--function", options->function, "NAME", "only functions of this name")
      .json(options->json)
      .footer(
          "HELD counts for a function's limit; EVICTED of it is in host memory until its next "
          "work. CANNOT MOVE is\nshared with other processes or mapped by the program itself. POOL "
          "is held ready for the next request and\ncounts as free. LONGEST is how long a call has "
          "waited for memory to come back.\n\n"
          "Examples:\n  tubectl mem\n  tubectl mem -w shop --json")
      .action([options] { return mem(*options); });
}

}  // namespace tube::ctl
