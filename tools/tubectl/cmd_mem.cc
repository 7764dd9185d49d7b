// tubectl mem: where the GPU memory of a proxy is, whose it is, and what became of it lately.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct MemOptions {
  std::string workflow, function;
  size_t every_s = 0, last = 20;
  bool json = false;
};

double real(const Json& object, const char* key) { return object.value(key, 0.0); }

std::string bytes(const Json& object, const char* key) { return human_bytes(number(object, key)); }

// What is not known is "-".
std::string bytes_or_unknown(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number() ? bytes(object, key) : "-";
}

std::string gpu_table(const Json& gpus) {
  Table table({"GPU", "NAME", "TOTAL", "HELD", "LIMIT", "POOL", "CODE", "KEPT CODE", "CONTEXT"},
              "rlrrrrrrr");
  for (const Json& gpu : gpus) {
    const Json memory = gpu.value("memory", Json::object());
    table.add({std::to_string(number(gpu, "index")), text(gpu, "name"), bytes(gpu, "memory_total"),
               bytes(memory, "held_bytes"), limit_text(memory, "limit_bytes"),
               bytes(gpu, "pool_bytes"), bytes(gpu, "code_bytes"), bytes(gpu, "kept_code_bytes"),
               bytes_or_unknown(gpu, "context_bytes")});
  }
  return table.str();
}

std::string function_table(const Json& functions) {
  Table table({"FUNCTION", "PID", "GPU", "RESERVED", "HELD", "LIMIT", "ON GPU", "PROMISED",
               "EVICTED", "CANNOT MOVE", "POOL", "CODE", "PINNED", "RETURNS", "LONGEST"},
              "lrrrrrrrrrrrrrr");
  for (const Json& function : functions) {
    const Json moves = function.value("moves", Json::object());
    for (const Json& gpu : function.value("gpus", Json::array()))
      table.add({text(function, "name"), std::to_string(number(function, "pid")),
                 std::to_string(number(gpu, "gpu")), bytes(function, "reserved_bytes"),
                 bytes(gpu, "held_bytes"), limit_text(gpu, "limit_bytes"),
                 bytes(gpu, "backed_bytes"), bytes(gpu, "promised_bytes"),
                 bytes(gpu, "evicted_bytes"), bytes(gpu, "stays_bytes"), bytes(gpu, "pool_bytes"),
                 bytes(gpu, "code_bytes"), bytes(function, "pinned_bytes"),
                 std::to_string(number(moves, "returns")),
                 fmt::format("{:.1f} ms", real(moves, "longest_ms"))});
  }
  return table.str();
}

std::string history_table(const Json& history, size_t last) {
  if (history.empty() || last == 0) return "";
  Table table({"AGO", "WHAT", "FUNCTION", "PID", "GPU", "BYTES", "TIMES", "TOOK", "WHY"},
              "rllrrrrrl");
  for (size_t i = history.size() - std::min(last, history.size()); i < history.size(); ++i) {
    const Json& event = history[i];
    const uint64_t pid = number(event, "pid");
    table.add({human_age(static_cast<uint64_t>(real(event, "ago_s"))), text(event, "what"),
               text(event, "name"), pid == 0 ? "-" : std::to_string(pid),
               std::to_string(number(event, "gpu")), bytes(event, "bytes"),
               std::to_string(number(event, "times", 1)),
               event.contains("ms") ? fmt::format("{:.1f} ms", real(event, "ms")) : "-",
               text(event, "why")});
  }
  return "\n" + table.str();
}

void print(const MemOptions& options, const Json& answer) {
  const Json host = answer.value("evicted", Json::object());
  const Json pinned = answer.value("pinned", Json::object());
  fmt::print(
      "{}\n{}\nhost: {} pinned for functions, {} of it idle; evicted: {} of {} ({} pinned), order: "
      "{}, {} out, {} back, {} waiting\n{}",
      gpu_table(answer.value("gpus", Json::array())),
      function_table(answer.value("functions", Json::array())), bytes(pinned, "held_bytes"),
      bytes(pinned, "idle_bytes"), bytes(host, "used_bytes"), bytes(host, "limit_bytes"),
      bytes(host, "pinned_bytes"), text(host, "policy"), bytes(host, "evicted_bytes"),
      bytes(host, "returned_bytes"), number(host, "waiting"),
      history_table(answer.value("history", Json::array()), options.last));
}

int mem(const MemOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  for (bool first = true;; first = false) {
    Answer answer = ask(options.workflow, "mem");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
    answer.body["functions"] = functions_named(answer.body, options.function);
    answer.body["workflow"] = options.workflow;
    if (options.json) {
      fmt::print("{}\n", answer.body.dump(options.every_s == 0 ? 2 : -1));
    } else {
      // Like top: over what was there; into a file one after the other.
      if (!first) fmt::print("{}", terminal ? "\033[H\033[2J" : "\n");
      print(options, answer.body);
    }
    fflush(stdout);
    if (options.every_s == 0) return kExitOk;
    sleep(static_cast<unsigned>(options.every_s));
  }
}

}  // namespace

void add_mem(Verb& root) {
  auto options = std::make_shared<MemOptions>();
  root.verb("mem", "where GPU memory is, whose it is, and what became of it lately")
      .workflow(options->workflow)
      .text("-f,--function", options->function, "NAME", "only functions of this name")
      .number("--watch", options->every_s, "again every N seconds, until it is interrupted")
      .number("--last", options->last, "how many of the last events to show (default: 20)")
      .json(options->json)
      .footer(
          "RESERVED are addresses. HELD counts for a function's limit; of it EVICTED is in host "
          "memory until its next\nwork, and nothing is behind PROMISED yet. CANNOT MOVE is shared "
          "with other processes or mapped by "
          "the "
          "program itself. POOL is held ready for the\nnext request and counts as free. CODE is "
          "estimated from the images; what several functions use is shared\nout among them, KEPT "
          "CODE is used by none. CONTEXT is what making it took, where NVML says so. LONGEST is\n"
          "how long a call has waited for memory to come back.\n\n"
          "Examples:\n  tubectl mem\n  tubectl mem -w shop --json\n  tubectl mem --watch 1")
      .action([options] { return mem(*options); });
}

}  // namespace tube::ctl
