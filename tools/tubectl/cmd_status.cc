// tubectl status: the whole state of one proxy.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr size_t kLongestGpuName = 20;
constexpr size_t kIndent = 11;

// 13000 is CUDA 13.0.
std::string cuda_version(uint64_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void print_gpus(const Json& gpus) {
  if (gpus.empty()) return;
  Table table({"GPU", "NAME", "MEMORY", "USED", "HELD", "LIMIT", "POOL"}, "rlrrrrr");
  for (const Json& gpu : gpus) {
    table.add({std::to_string(number(gpu, "index")), shortened(text(gpu, "name"), kLongestGpuName),
               human_bytes(number(gpu, "memory_total")),
               human_bytes(number(gpu, "memory_used_by_clients")),
               human_bytes(number(gpu.value("memory", Json()), "held_bytes")),
               limit_text(gpu.value("memory", Json()), "limit_bytes"),
               human_bytes(number(gpu, "pool_bytes"))});
  }
  fmt::print("\n{}", table.str());
  for (const Json& gpu : gpus) fmt::print("GPU {}: {}\n", number(gpu, "index"), text(gpu, "uuid"));
}

void print_counts(const char* title, const Json& counts) {
  std::string line;
  for (const auto& [name, value] : counts.items()) {
    // No line ends between a name and its number.
    if (value.is_number()) line += fmt::format("  {}\1{}", name, value.dump());
  }
  std::string out = wrapped(title + line, kColumns, kIndent);
  std::replace(out.begin(), out.end(), '\1', ' ');
  if (!line.empty()) fmt::print("{}", out);
}

// Who stands at the context gate, and for whom.
void print_gate(const Json& gate) {
  for (const Json& one : gate) {
    std::string behind = "streams that are about to wait";
    if (number(one, "behind_pid") != 0 || !text(one, "behind").empty()) {
      behind = fmt::format("{} (pid {}{})", text(one, "behind"), number(one, "behind_pid"),
                           one.value("stopped", false) ? ", stopped" : "");
      behind += text(one, "behind_call").empty()
                    ? ", whose stream waits for its program"
                    : fmt::format(", in the driver with {}", text(one, "behind_call"));
    }
    fmt::print("{}", wrapped(fmt::format(
                                 "stands     {} (pid {}) for {:.1f} s {} with {}: behind {}",
                                 text(one, "function"), number(one, "pid"), one.value("for_s", 0.0),
                                 one.value("in_driver", false) ? "in the driver" : "at the gate",
                                 text(one, "call"), behind),
                             kColumns, kIndent));
  }
}

std::string amount(const Json& budget, const char* key) {
  if (!budget.contains(key) || !budget[key].is_number()) return "-";
  const uint64_t value = number(budget, key);
  return text(budget, "unit") == "bytes" ? human_bytes(value) : std::to_string(value);
}

// What all functions share of the proxy, as use against limit.
void print_budgets(const Json& budgets) {
  if (budgets.empty()) return;
  Table table({"BUDGET", "USED", "LIMIT", "EACH", "BEYOND IT"}, "lrrrl");
  for (const Json& budget : budgets) {
    table.add({text(budget, "name"), amount(budget, "used"), amount(budget, "limit"),
               amount(budget, "client_limit"), text(budget, "refused")});
  }
  fmt::print("\n{}", table.str());
}

// Whose thread in the proxy is held to a share of a core.
void print_shares(const Json& functions) {
  for (const Json& one : functions) {
    const Json cpu = one.value("cpu", Json());
    if (number(cpu, "share_thousandths") == 0) continue;
    fmt::print("cores      {} (pid {}): {:.2f} of a core; {} ms used, {} ms rested\n",
               text(one, "name"), number(one, "pid"),
               static_cast<double>(number(cpu, "share_thousandths")) / 1000, number(cpu, "used_ms"),
               number(cpu, "rested_ms"));
  }
}

// Who makes no progress.
void print_stalls(const Json& stalls) {
  for (const Json& one : stalls)
    fmt::print("stalls     {} for {:.1f} s: {}\n", text(one, "who"), one.value("for_s", 0.0),
               text(one, "what"));
}

int status(const std::string& workflow, bool json) {
  Answer answer = ask(workflow, "status");
  if (!answer.ok()) return report_unusable(workflow, answer);
  const Json& body = answer.body;
  if (json) {
    fmt::print("{}\n", body.dump(2));
    return kExitOk;
  }
  fmt::print("{}", wrapped(fmt::format("proxy `{}`  pid {}  version {}  backend {}  CUDA {}  up {}",
                                       text(body, "workflow", workflow), number(body, "pid"),
                                       text(body, "version"), text(body, "backend"),
                                       cuda_version(number(body, "driver_version")),
                                       human_age(number(body, "uptime_s"))),
                           kColumns, kIndent));
  print_gpus(body.value("gpus", Json::array()));
  Json functions = body.value("functions", Json::array());
  fmt::print("\n");
  for (const Json& fault : body.value("faults", Json::array()))
    fmt::print("{}", wrapped("fault      " + text(fault, "text"), kColumns, kIndent));
  print_counts(fmt::format("functions  {} now", functions.size()).c_str(),
               body.value("totals", Json::object()));
  print_counts("objects    ", body.value("objects", Json::object()));
  print_gate(body.value("gate", Json::array()));
  print_shares(functions);
  print_stalls(body.value("stalls", Json::array()));
  print_budgets(body.value("budgets", Json::array()));
  return kExitOk;
}

}  // namespace

void add_status(Verb& root) {
  struct Options {
    std::string workflow;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  root.verb("status", "the state of one proxy: GPUs, memory, objects, totals")
      .workflow(options->workflow)
      .json(options->json)
      .footer("Examples:\n  tubectl status\n  tubectl status -w shop --json")
      .action([options] { return status(options->workflow, options->json); });
}

}  // namespace tube::ctl
