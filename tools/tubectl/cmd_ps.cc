// tubectl ps: one line for each function process of a proxy, or of all proxies.
//
// A line fits 80 columns unless --wide asks for everything. A proxy that does not answer is named
// on standard error and keeps nobody's line away.
#include <fmt/core.h>

#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr size_t kLongestWorkflow = 12, kLongestFunction = 18;  // in a line of 80 columns

// One word when it is the same on all GPUs, else one for each GPU that has something to tell.
template <class F>
std::string on_gpus(const Json& function, F word) {
  std::vector<std::string> words;
  bool same = true;
  std::string line;
  for (const Json& gpu : function.value("memory", Json::array())) {
    words.push_back(word(gpu));
    same = same && words.back() == words.front();
    if (words.back() == "0 B" || words.back() == "-") continue;
    line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", number(gpu, "gpu"), words.back());
  }
  if (words.empty()) return "-";
  return same ? words.front() : line;
}

uint64_t of_all_gpus(const Json& function, const char* key) {
  uint64_t sum = 0;
  for (const Json& gpu : function.value("memory", Json::array())) sum += number(gpu, key);
  return sum;
}

struct PsOptions {
  std::string workflow;
  bool one = false;  // of this workflow only
  bool wide = false;
  bool json = false;
};

// What all proxies said, and who said nothing.
struct Found {
  Json functions = Json::array();
  Json faults = Json::array();
  Json unreachable = Json::array();
  size_t reached = 0;
};

Found look(const std::vector<std::string>& workflows) {
  Found found;
  const std::vector<Answer> answers = ask_all(workflows, "ps");
  for (size_t i = 0; i < workflows.size(); ++i) {
    const Answer& answer = answers[i];
    if (answer.reach == Reach::kNotRunning) continue;
    if (!answer.ok()) {
      const std::string refused = text(answer.body, "error", "it refused");
      found.unreachable.push_back(
          {{"workflow", workflows[i]},
           {"pid", answer.pid},
           {"error", answer.reach == Reach::kAnswered ? refused : answer.error}});
      continue;
    }
    ++found.reached;
    for (Json function : answer.body.value("functions", Json::array())) {
      function["workflow"] = workflows[i];
      found.functions.push_back(std::move(function));
    }
    for (Json fault : answer.body.value("faults", Json::array())) {
      fault["workflow"] = workflows[i];
      found.faults.push_back(std::move(fault));
    }
  }
  return found;
}

std::string narrow(const Json& functions) {
  Table table({"WORKFLOW", "PID", "FUNCTION", "GPU", "STATE", "AGE", "HELD", "ERRORS"}, "lrlrlrrr");
  for (const Json& f : functions) {
    table.add({shortened(text(f, "workflow"), kLongestWorkflow), std::to_string(number(f, "pid")),
               shortened(text(f, "name"), kLongestFunction), std::to_string(number(f, "gpu")),
               text(f, "state"), human_age(number(f, "age_s")),
               human_bytes(of_all_gpus(f, "held_bytes")), std::to_string(number(f, "errors"))});
  }
  return table.str();
}

std::string wide(const Json& functions) {
  Table table(
      {"WORKFLOW", "ID", "PID", "FUNCTION", "GPU", "SHARE", "STATE", "AGE", "DEVICE", "HELD",
       "LIMIT", "EVICTED", "POOL", "PINNED", "STREAMS", "RECORDS", "TRIPS", "ERRORS"},
      "lrrlrrlrrrrrrrrrrr");
  for (const Json& f : functions) {
    auto count = [&](const char* key) { return std::to_string(number(f, key)); };
    table.add(
        {text(f, "workflow"), count("id"), count("pid"), text(f, "name"), count("gpu"),
         fmt::format("{:.0f}%", f.value("gpu_share", 0.0) * 100), text(f, "state"),
         human_age(number(f, "age_s")), human_bytes(number(f, "device_bytes")),
         on_gpus(f, [](const Json& gpu) { return human_bytes(number(gpu, "held_bytes")); }),
         on_gpus(f, [](const Json& gpu) { return limit_text(gpu, "limit_bytes"); }),
         on_gpus(f, [](const Json& gpu) { return human_bytes(number(gpu, "evicted_bytes")); }),
         on_gpus(f, [](const Json& gpu) { return human_bytes(number(gpu, "pool_bytes")); }),
         human_bytes(number(f, "pinned_bytes")), count("streams"), count("records"),
         count("round_trips"), count("errors")});
  }
  return table.str();
}

// Without -w all proxies are shown: who types `ps` wants to see what there is.
int ps(const PsOptions& options) {
  std::vector<std::string> workflows = {options.workflow};
  if (options.one) {
    const Answer answer = ask(options.workflow, "ping");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
  } else {
    Result<std::vector<std::string>> known = known_workflows();
    if (!known.ok()) {
      fmt::print(stderr, "tubectl: {}\n", known.error().message);
      return kExitProblem;
    }
    workflows = known.take();
  }
  const Found found = look(workflows);
  const int code = found.unreachable.empty() ? kExitOk : kExitProblem;
  if (options.json) {
    fmt::print("{}\n", Json{{"ok", code == kExitOk},
                            {"functions", found.functions},
                            {"faults", found.faults},
                            {"unreachable", found.unreachable}}
                           .dump(2));
    return code;
  }
  if (found.reached == 0 && found.unreachable.empty()) fmt::print("no proxy runs\n");
  if (found.reached != 0)
    fmt::print("{}", options.wide ? wide(found.functions) : narrow(found.functions));
  for (const Json& fault : found.faults)
    fmt::print("{}", wrapped("fault: " + text(fault, "text"), kColumns, 2));
  std::fflush(stdout);
  for (const Json& one : found.unreachable) fmt::print(stderr, "tubectl: {}\n", text(one, "error"));
  return code;
}

}  // namespace

void add_ps(Verb& root) {
  auto options = std::make_shared<PsOptions>();
  Verb verb = root.verb("ps", "the function processes, their memory and their traffic");
  verb.workflow(options->workflow)
      .flag("--wide", options->wide, "all columns, and names in full")
      .json(options->json)
      .footer(
          "Without -w the functions of all proxies of this user are shown. SHARE is the part of "
          "its "
          "GPU's time that a function had since the last look. STATE is idle, running "
          "(a kernel or copy of it is not over), stopped (by a signal), faulted (its context is "
          "dead) or dead. HELD is what it takes of all GPUs. With --wide also DEVICE, what it has "
          "allocated, LIMIT, how much it may hold, EVICTED, how much of HELD is in host memory, "
          "RECORDS, how many it sent, and TRIPS, how often it waited for an answer.\n\n"
          "Examples:\n  tubectl ps\n  tubectl ps -w shop --json")
      .action([options, verb] {
        options->one = verb.given("--workflow");
        return ps(*options);
      });
}

}  // namespace tube::ctl
