// tubectl gpu: who has the GPUs' time, what runs, who waits for whom, and whose deadlines are kept.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct GpuOptions {
  std::string workflow;
  size_t every_s = 0;
  bool json = false;
};

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }
std::string ms_text(uint64_t us) { return fmt::format("{:.1f} ms", static_cast<double>(us) / 1e3); }

std::string reasons_text(const Json& launches) {
  std::string words;
  const Json reasons = launches.value("held_for", Json::object());
  for (const auto& [reason, count] : reasons.items())
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", reason, count.get<uint64_t>());
  return words.empty() ? "-" : words;
}

std::string deadlines_text(const Json& function) {
  if (!function.contains("deadlines")) return "-";
  const Json& deadlines = function["deadlines"];
  return fmt::format("{}/{}", number(deadlines, "missed"), number(deadlines, "steps"));
}

std::string slices_text(const Json& function) {
  std::string words;
  for (const Json& slice : function.value("slices", Json::array()))
    words += fmt::format("{}{} of GPU {}", words.empty() ? "" : ", ",
                         number(slice, "multiprocessors"), number(slice, "gpu"));
  return words.empty() ? "-" : words;
}

std::string functions_text(const Json& functions) {
  Table table({"ID", "FUNCTION", "PID", "GPU", "SHARE", "USED", "LONG", "HELD", "LONGEST", "OUT",
               "LOADS", "MISSED", "SMS", "HELD FOR"},
              "rlrrrrrrrrrrll");
  for (const Json& function : functions) {
    const Json launches = function.value("launches", Json::object());
    const auto count = [&](const char* key) { return std::to_string(number(launches, key)); };
    table.add({std::to_string(number(function, "id")), text(function, "name"),
               std::to_string(number(function, "pid")), std::to_string(number(function, "gpu")),
               percent(function.value("gpu_share", 0.0)),
               fmt::format("{:.2f} s", launches.value("gpu_ms", 0.0) / 1e3), count("long"),
               count("held"), ms_text(number(launches, "longest_hold_us")), count("holds_ran_out"),
               count("quiet_moments"), deadlines_text(function), slices_text(function),
               reasons_text(launches)});
  }
  return table.str();
}

std::string now_text(const Json& gpu, const std::map<uint64_t, std::string>& names) {
  const auto name = [&](uint64_t id) {
    const auto found = names.find(id);
    return found != names.end() ? fmt::format("'{}' ({})", found->second, id)
           : id == 0            ? std::string("the proxy")
                                : fmt::format("a function that is gone ({})", id);
  };
  std::string lines;
  for (const Json& one : gpu.value("runs", Json::array()))
    lines += fmt::format("  runs: {} of {}, for {}\n", text(one, "what"),
                         name(number(one, "function")), ms_text(number(one, "since_us")));
  for (const Json& one : gpu.value("waits", Json::array())) {
    lines += fmt::format("  waits: {} of {}, for {}, behind {}", text(one, "what"),
                         name(number(one, "function")), ms_text(number(one, "since_us")),
                         text(one, "for"));
    if (one.contains("behind")) lines += fmt::format(" of {}", name(number(one, "behind")));
    lines += '\n';
  }
  return lines;
}

std::string gpus_text(const Json& answer) {
  std::map<uint64_t, std::string> names;
  for (const Json& function : answer["functions"])
    names[number(function, "id")] = text(function, "name");
  std::string lines;
  for (const Json& gpu : answer["gpus"]) {
    lines += fmt::format("GPU {}: {}", number(gpu, "index"), text(gpu, "name"));
    const Json slices = gpu.value("slices", Json::object());
    if (slices.contains("multiprocessors"))
      lines += fmt::format(", {} multiprocessors are function {}'s, {} the others'",
                           number(slices, "multiprocessors"), number(slices, "function"),
                           number(slices, "others"));
    lines += "\n" + now_text(gpu, names);
  }
  return lines;
}

int show_gpu(const GpuOptions& options) {
  while (true) {
    Answer answer = ask(options.workflow, "gpu");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
    answer.body["workflow"] = options.workflow;
    if (options.json) {
      fmt::print("{}\n", answer.body.dump(options.every_s == 0 ? 2 : -1));
    } else {
      if (options.every_s != 0) fmt::print("\033[H\033[J");
      fmt::print("{}turns: {}\n{}", gpus_text(answer.body), text(answer.body, "policy"),
                 functions_text(answer.body["functions"]));
    }
    if (options.every_s == 0) return kExitOk;
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(options.every_s));
  }
}

}  // namespace

void add_gpu(Verb& root) {
  auto options = std::make_shared<GpuOptions>();
  root.verb("gpu",
            "who has the GPUs' time, what runs, who waits for whom, whose deadlines are kept")
      .workflow(options->workflow)
      .number("--watch", options->every_s, "again every N seconds, until it is interrupted")
      .json(options->json)
      .footer(
          "SHARE is the part of its GPU's time that a function had since the last look, USED all "
          "that it had; both as far\nas kernels are measured. LONG counts launches that took "
          "turns, HELD those that waited for one, OUT holds that ran\ninto their bound, LOADS "
          "calls "
          "that need the whole GPU idle. MISSED: steps that took longer than --slo-ms, of all.\n"
          "SMS: multiprocessors of its own.\n\nExamples:\n  tubectl gpu\n  tubectl gpu -w shop "
          "--watch 1\n  tubectl gpu --json")
      .action([options] { return show_gpu(*options); });
}

}  // namespace tube::ctl
