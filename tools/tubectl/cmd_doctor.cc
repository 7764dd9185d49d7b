// tubectl doctor: what is found on this machine, and what to do about what is not right.
#include <fmt/core.h>

#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/doctor.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

const char* word(Severity severity) {
  switch (severity) {
    case Severity::kFine: return "ok";
    case Severity::kNote: return "note";
    case Severity::kProblem: return "problem";
  }
  return "";
}

int doctor(const std::string& program, bool json) {
  Layout layout = find_layout();
  Findings findings;
  check_driver(findings);
  check_install(findings, layout);
  check_system(findings);
  check_proxies(findings);
  if (!program.empty()) check_program(findings, program);

  size_t problems = 0;
  Json list = Json::array();
  for (const Finding& finding : findings) {
    problems += finding.severity == Severity::kProblem;
    list.push_back({{"state", word(finding.severity)},
                    {"subject", finding.subject},
                    {"detail", finding.detail},
                    {"remedy", finding.remedy}});
    if (json) continue;
    constexpr size_t kDetail = 25;  // where it begins
    fmt::print("{}", wrapped(fmt::format("{:<8} {:<15} {}", word(finding.severity), finding.subject,
                                         finding.detail),
                             kColumns, kDetail));
    if (!finding.remedy.empty())
      fmt::print("{}",
                 wrapped(fmt::format("{:<24} -> {}", "", finding.remedy), kColumns, kDetail + 3));
  }
  if (json)
    fmt::print("{}\n",
               Json{{"ok", problems == 0}, {"version", TUBE_VERSION}, {"findings", list}}.dump(2));
  if (!json)
    fmt::print("\n{}\n",
               problems == 0 ? "nothing is wrong" : fmt::format("{} problem(s)", problems));
  return problems == 0 ? kExitOk : kExitProblem;
}

}  // namespace

void add_doctor(Verb& root) {
  struct Options {
    std::string program;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  root.verb("doctor", "look for what is missing or wrong, with a remedy for each finding")
      .text("--program", options->program, "FILE",
            "also tell whether the hook can get under this program")
      .json(options->json)
      .footer(
          "Exit code 0 when nothing is wrong (notes are fine), else 1.\n\n"
          "Examples:\n  tubectl doctor\n  tubectl doctor --program $(which python3)\n  tubectl "
          "doctor --json")
      .action([options] { return doctor(options->program, options->json); });
}

}  // namespace tube::ctl
