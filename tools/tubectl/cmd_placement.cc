// tubectl placement: on which GPUs the functions of a workflow would go, so that the data between
// them goes over fast links (policies/paths/placement.h).
#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/machine.h"
#include "tools/tubectl/pattern.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct PlacementOptions {
  std::string topology, pattern_file, passes, shares, busy;
  std::string score = "time", links = "direct";
  bool json = false;
};

std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

Result<Pattern> asked_pattern(const PlacementOptions& options) {
  Pattern pattern;
  if (!options.pattern_file.empty()) {
    std::ifstream file(options.pattern_file);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) return errorf("%s: cannot be read", options.pattern_file.c_str());
    Result<Pattern> parsed = parse_pattern(text.str());
    if (!parsed)
      return errorf("%s: %s", options.pattern_file.c_str(), parsed.error().message.c_str());
    pattern = parsed.take();
  }
  for (const std::string& pass : comma_list(options.passes))
    if (Status added = add_pass(pass, &pattern); !added) return added.error();
  for (const std::string& share : comma_list(options.shares)) {
    const size_t colon = share.rfind(':');
    if (colon == share.npos) return errorf("%s: a share is FUNCTION:PART", share.c_str());
    const std::string part = share.substr(colon + 1);
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    if (Status set =
            set_share(share.substr(0, colon), part.empty() || *end != '\0' ? -1 : value, &pattern);
        !set)
      return set.error();
  }
  if (pattern.plan.passes == 0) return errorf("no pattern: give --pass or --pattern");
  return pattern;
}

Status take_busy(const std::string& list, policies::PlacementGpus* gpus) {
  for (const std::string& word : comma_list(list)) {
    char* end = nullptr;
    const unsigned long gpu = std::strtoul(word.c_str(), &end, 10);
    if (word.empty() || *end != '\0' || gpu >= gpus->count)
      return errorf("--busy: %s is no GPU of this topology", word.c_str());
    gpus->free_share[gpu] = 0;
  }
  return {};
}

policies::PlacementScore score_named(const std::string& name) {
  if (name == "aggregated") return policies::PlacementScore::kAggregated;
  if (name == "preserved") return policies::PlacementScore::kPreserved;
  return policies::PlacementScore::kTime;
}

std::string function_name(const Pattern& pattern, uint32_t function) {
  return function == policies::kHost ? "host" : pattern.functions[function];
}

// What one pass costs where it was placed; on one GPU nothing.
struct PlacedPass {
  std::string from_gpu, to_gpu;
  uint64_t bytes_per_s = 0;
  uint64_t ns = 0;
};

PlacedPass placed(const policies::PlacementGpus& gpus, const policies::Placement& placement,
                  const policies::PassedData& pass) {
  const auto gpu = [&](uint32_t f) {
    return f == policies::kHost ? policies::kHost : placement.gpu[f];
  };
  const auto named = [](uint32_t g) {
    return g == policies::kHost ? std::string("host") : std::to_string(g);
  };
  const uint32_t from = gpu(pass.from), to = gpu(pass.to);
  PlacedPass p{named(from), named(to), 0, 0};
  if (from == to) return p;
  p.bytes_per_s = from == policies::kHost ? gpus.up_bytes_per_s[to]
                  : to == policies::kHost ? gpus.down_bytes_per_s[from]
                                          : gpus.between_bytes_per_s[from][to];
  if (p.bytes_per_s != 0)
    p.ns = static_cast<uint64_t>(static_cast<double>(pass.bytes) * 1e9 /
                                 static_cast<double>(p.bytes_per_s));
  return p;
}

void print_placement(const PlacementOptions& options, const Pattern& pattern,
                     const policies::PlacementGpus& gpus, const policies::Placement& found) {
  Table functions({"FUNCTION", "GPU", "SHARE"}, "lrr");
  for (uint32_t f = 0; f < pattern.plan.functions; ++f)
    functions.add({pattern.functions[f], std::to_string(found.gpu[f]),
                   fmt::format("{:.2f}", pattern.plan.share[f] / 1.0 / policies::kWholeGpu)});
  Table passes({"PASS", "BYTES", "GPUS", "GB/S", "MS"}, "lrlrr");
  for (uint32_t i = 0; i < pattern.plan.passes; ++i) {
    const policies::PassedData& pass = pattern.plan.pass[i];
    const PlacedPass p = placed(gpus, found, pass);
    const bool stays = p.from_gpu == p.to_gpu;
    passes.add({function_name(pattern, pass.from) + " -> " + function_name(pattern, pass.to),
                human_bytes(pass.bytes), p.from_gpu + " -> " + p.to_gpu,
                stays ? "-" : fmt::format("{:.1f}", static_cast<double>(p.bytes_per_s) / 1e9),
                fmt::format("{:.3f}", static_cast<double>(p.ns) / 1e6)});
  }
  fmt::print("{}\n{}\n", functions.str(), passes.str());
  fmt::print(
      "on {} by {}: data of a request {:.3f} ms, aggregated {:.1f} GB/s, preserved {:.1f} GB/s\n",
      options.topology, options.score, static_cast<double>(found.time_ns) / 1e6,
      static_cast<double>(found.aggregated_bytes_per_s) / 1e9,
      static_cast<double>(found.preserved_bytes_per_s) / 1e9);
  if (!found.exact) fmt::print("the search was cut short: there may be a better placement\n");
}

Json placement_json(const PlacementOptions& options, const Pattern& pattern,
                    const policies::PlacementGpus& gpus, const policies::Placement& found) {
  Json out = {{"ok", true},
              {"topology", options.topology},
              {"score", options.score},
              {"links", options.links},
              {"exact", found.exact},
              {"functions", Json::array()},
              {"passes", Json::array()},
              {"time_ns", found.time_ns},
              {"aggregated_bytes_per_s", found.aggregated_bytes_per_s},
              {"preserved_bytes_per_s", found.preserved_bytes_per_s}};
  for (uint32_t f = 0; f < pattern.plan.functions; ++f)
    out["functions"].push_back({{"name", pattern.functions[f]},
                                {"gpu", found.gpu[f]},
                                {"share", pattern.plan.share[f] / 1.0 / policies::kWholeGpu}});
  for (uint32_t i = 0; i < pattern.plan.passes; ++i) {
    const policies::PassedData& pass = pattern.plan.pass[i];
    const PlacedPass p = placed(gpus, found, pass);
    out["passes"].push_back({{"from", function_name(pattern, pass.from)},
                             {"to", function_name(pattern, pass.to)},
                             {"bytes", pass.bytes},
                             {"bytes_per_s", p.bytes_per_s},
                             {"ns", p.ns}});
  }
  return out;
}

int placement_usage(const std::string& message) {
  fmt::print(stderr, "tubectl: placement: {}\n", message);
  return kExitUsage;
}

int placement(const PlacementOptions& options) {
  if (options.topology.empty())
    return placement_usage(
        "a proxy does not tell its machine's links yet: give --topology, a preset (1x, dgx-v100, "
        "hgx-h200, 4xa10) or a file");
  const Result<Machine> machine = load_machine(options.topology);
  if (!machine) return placement_usage(machine.error().message);
  const Result<Pattern> pattern = asked_pattern(options);
  if (!pattern) return placement_usage(pattern.error().message);
  policies::PlacementGpus gpus =
      placement_gpus(*machine, options.links == "paths" ? Between::kPaths : Between::kDirect);
  if (Status busy = take_busy(options.busy, &gpus); !busy)
    return placement_usage(busy.error().message);
  const policies::Placement found =
      policies::place(gpus, pattern->plan, score_named(options.score));
  if (!found.found) {
    const std::string why = "the GPUs that are free do not have room for all functions";
    if (options.json) fmt::print("{}\n", Json{{"ok", false}, {"error", why}}.dump(2));
    else fmt::print(stderr, "tubectl: placement: {}\n", why);
    return kExitProblem;
  }
  if (options.json) fmt::print("{}\n", placement_json(options, *pattern, gpus, found).dump(2));
  else print_placement(options, *pattern, gpus, found);
  return kExitOk;
}

}  // namespace

void add_placement(Verb& root) {
  auto options = std::make_shared<PlacementOptions>();
  root.verb("placement", "on which GPUs a workflow's functions would go")
      .text("--topology", options->topology, "NAME", "a preset of the simulated GPU, or a file")
      .text("--pattern", options->pattern_file, "FILE",
            "TOML: which function passes how much to which")
      .text("--pass", options->passes, "LIST", "the same here: FROM:TO:BYTES, with commas between")
      .text("--share", options->shares, "LIST",
            "FUNCTION:PART of a GPU, with commas between; 1 else")
      .text("--busy", options->busy, "LIST", "GPUs that are not free, e.g. 0,3")
      .choice("--score", options->score, {"time", "aggregated", "preserved"},
              "what is best: time of a request's data (default), bandwidth used, bandwidth left")
      .choice("--links", options->links, {"direct", "paths"},
              "data goes over a pair's own link (default), or over several paths")
      .json(options->json)
      .footer(
          "Nothing is started. FROM and TO are names of functions, or host; BYTES e.g. 25M.\n\n"
          "Examples:\n"
          "  tubectl placement --topology dgx-v100 --pass host:decode:100M,decode:detect:25M\n"
          "  tubectl placement --topology my.topology --pattern shop.toml --busy 0,1 --json")
      .action([options] { return placement(*options); });
}

}  // namespace tube::ctl
