// tubectl copies: which way each function's copies between host and GPU go and why, how long they
// wait for their turn, and at what rate they move.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

struct CopiesOptions {
  std::string workflow, function;
  size_t every_s = 0;
  bool json = false;
};

struct Sum {
  uint64_t copies = 0, bytes = 0;
};

Sum all_ways(const Json& direction) {
  Sum sum;
  const Json ways = direction.value("ways", Json::object());
  for (const auto& [name, way] : ways.items()) {
    sum.copies += number(way, "copies");
    sum.bytes += number(way, "bytes");
  }
  return sum;
}

// "alone 12, lane busy 3": the most frequent reason first.
std::string ways_text(const Json& direction) {
  const Json ways = direction.value("ways", Json::object());
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [name, way] : ways.items()) sorted.emplace_back(number(way, "copies"), name);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string words;
  for (const auto& [copies, name] : sorted)
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, copies);
  return words;
}

std::string rate_text(uint64_t bytes_per_s) {
  return bytes_per_s == 0 ? "-" : human_bytes(bytes_per_s) + "/s";
}

// The numbers of a function's lanes together; `key` of all of them, or the largest.
uint64_t of_lanes(const Json& direction, const char* key, bool largest = false) {
  uint64_t result = 0;
  for (const Json& lane : direction.value("lanes", Json::array()))
    result = largest ? std::max(result, number(lane, key)) : result + number(lane, key);
  return result;
}

std::string slo_text(const Json& function) {
  const double slo = function.value("slo_ms", 0.0), infer = function.value("infer_ms", 0.0);
  if (slo == 0) return "-";
  if (infer == 0) return fmt::format("{:g}", slo);
  const bool learnt = function.value("infer_learnt", false);
  return fmt::format("{:g} less {:.3g}{}", slo, infer, learnt ? " learnt" : "");
}

// Bytes of each function and direction when they were shown last, for their rate since then; what
// was never shown has that of its lanes.
using Before = std::map<std::pair<uint64_t, std::string>, uint64_t>;

std::string table(const Json& functions, Before& before, size_t every_s) {
  Table table({"FUNCTION", "PID", "DIRECTION", "COPIES", "BYTES", "NOW", "IN LANES", "WAITED",
               "LONGEST", "NEEDS", "SLO MS", "WHY SO"},
              "lrlrrrrrrrll");
  for (const Json& function : functions) {
    for (const Json& direction : function.value("directions", Json::array())) {
      const Sum sum = all_ways(direction);
      if (sum.copies == 0) continue;
      const auto [last, first] =
          before.try_emplace({number(function, "id"), text(direction, "direction")}, sum.bytes);
      const uint64_t lately = first ? of_lanes(direction, "bytes_per_s")
                                    : (sum.bytes - std::min(last->second, sum.bytes)) / every_s;
      last->second = sum.bytes;
      const uint64_t in_lanes = of_lanes(direction, "copies");
      const uint64_t waited = in_lanes == 0 ? 0 : of_lanes(direction, "waited_us") / in_lanes;
      table.add(
          {text(function, "name"), std::to_string(number(function, "pid")),
           text(direction, "direction"), std::to_string(sum.copies), human_bytes(sum.bytes),
           rate_text(lately), std::to_string(in_lanes),
           in_lanes == 0 ? "-" : fmt::format("{} us", waited),
           in_lanes == 0 ? "-" : fmt::format("{} us", of_lanes(direction, "longest_wait_us", true)),
           rate_text(of_lanes(direction, "needed_bytes_per_s")), slo_text(function),
           ways_text(direction)});
    }
  }
  return table.str();
}

// What went over the links of several GPUs; empty: nothing.
std::string several_links_text(const Json& answer) {
  const Json counts = answer.value("several_links", Json::object());
  if (number(counts, "copies") == 0) return "";
  return fmt::format("over several links: {} copies of {}, {} of it by way of other GPUs\n",
                     number(counts, "copies"), human_bytes(number(counts, "bytes")),
                     human_bytes(number(counts, "relayed_bytes")));
}

// Host memory that was registered with the driver, during which all functions' calls may stand;
// empty: none was.
std::string registrations_text(const Json& answer) {
  Table table({"REGISTERED FOR", "TIMES", "BYTES", "ON REQUEST", "LONGEST", "UNREGISTERED",
               "LONGEST", "FAILED"},
              "lrrrrrrr");
  bool any = false;
  for (const Json& who : answer.value("registrations", Json::array())) {
    if (number(who, "registered") + number(who, "failed") == 0) continue;
    any = true;
    table.add({text(who, "who"), std::to_string(number(who, "registered")),
               human_bytes(number(who, "bytes")), std::to_string(number(who, "on_request")),
               fmt::format("{:.2f} ms", who.value("longest_ms", 0.0)),
               std::to_string(number(who, "unregistered")),
               fmt::format("{:.2f} ms", who.value("longest_removal_ms", 0.0)),
               std::to_string(number(who, "failed"))});
  }
  return any ? "\n" + table.str() : "";
}

int copies(const CopiesOptions& options) {
  Before before;
  while (true) {
    Answer answer = ask(options.workflow, "copies");
    if (!answer.ok()) return report_unusable(options.workflow, answer);
    answer.body["functions"] = functions_named(answer.body, options.function);
    answer.body["workflow"] = options.workflow;
    if (options.json) {
      fmt::print("{}\n", answer.body.dump(options.every_s == 0 ? 2 : -1));
    } else {
      if (options.every_s != 0) fmt::print("\033[H\033[J");
      fmt::print("lanes: {}, order: {}\n{}{}{}", text(answer.body, "lanes"),
                 text(answer.body, "policy"), several_links_text(answer.body),
                 table(answer.body["functions"], before, options.every_s),
                 registrations_text(answer.body));
    }
    if (options.every_s == 0) return kExitOk;
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(options.every_s));
  }
}

}  // namespace

void add_copies(Verb& root) {
  auto options = std::make_shared<CopiesOptions>();
  root.verb("copies", "which way each function's copies go, why, and how long they wait")
      .workflow(options->workflow)
      .text("-f,--function", options->function, "NAME", "only functions of this name")
      .number("--watch", options->every_s, "again every N seconds, until it is interrupted")
      .json(options->json)
      .footer(
          "Copies go on their function's own stream while nobody else uses the link of that GPU "
          "and direction, and\nthrough its lane in company. IN LANES, WAITED and LONGEST are of "
          "the latter. NOW is the rate of the lanes, with\n--watch that of all copies since the "
          "last look. WHY SO counts copies by the reason for their way. REGISTERED FOR "
          "is host memory\nthat the proxy gave the driver, with the longest time that took, in "
          "which "
          "all calls may stand.\n\n"
          "Examples:\n  tubectl copies\n  tubectl copies -w shop --watch 1\n  tubectl copies "
          "--json")
      .action([options] { return copies(*options); });
}

}  // namespace tube::ctl
