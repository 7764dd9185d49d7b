// tubectl ps: one line for each function process of a proxy, or of all proxies.
#include <fmt/core.h>

#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

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

struct PsOptions {
  std::string workflow;
  bool one = false;  // of this workflow only
  bool json = false;
};

// Without -w all proxies are shown: who types `ps` wants to see what there is.
int ps(const PsOptions& options) {
  bool one = options.one;
  std::vector<std::string> workflows =
      one ? std::vector<std::string>{options.workflow} : known_workflows();
  Json functions = Json::array();
  bool reached = false;
  for (const std::string& workflow : workflows) {
    Answer answer = ask(workflow, "ps");
    if (!answer.ok() && !one && answer.reach == Reach::kNotRunning) continue;
    if (!answer.ok()) return report_unusable(workflow, answer);
    reached = true;
    for (Json function : answer.body.value("functions", Json::array())) {
      function["workflow"] = workflow;
      functions.push_back(std::move(function));
    }
  }
  if (options.json) {
    fmt::print("{}\n", Json{{"ok", true}, {"functions", functions}}.dump(2));
    return kExitOk;
  }
  if (!reached) {
    fmt::print("no proxy runs\n");
    return kExitOk;
  }
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
  fmt::print("{}", table.str());
  return kExitOk;
}

}  // namespace

void add_ps(Verb& root) {
  auto options = std::make_shared<PsOptions>();
  Verb verb = root.verb("ps", "the function processes, their memory and their traffic");
  verb.workflow(options->workflow)
      .json(options->json)
      .footer(
          "Without -w the functions of all proxies of this user are shown. SHARE is the part of "
          "its "
          "GPU's time that a function had since the last look. DEVICE is what a "
          "function "
          "has allocated, HELD\n"
          "what it takes of each GPU, LIMIT how much it may, EVICTED how much of HELD is in host "
          "memory. RECORDS counts what it sent, TRIPS "
          "how "
          "often it waited for an answer.\n\nExamples:\n  tubectl ps\n  tubectl ps -w shop --json")
      .action([options, verb] {
        options->one = verb.given("--workflow");
        return ps(*options);
      });
}

}  // namespace tube::ctl
