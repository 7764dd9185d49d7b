// tubectl ping: whether the proxy of a workflow is there and well, by the exit code.
#include <fmt/core.h>

#include <memory>

#include "tools/tubectl/control_client.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

int ping(const std::string& workflow, bool json) {
  const Answer answer = ask(workflow, "ping");
  if (!answer.ok()) return report_unusable(workflow, answer);
  const Json faults = answer.body.value("faults", Json::array());
  if (json) {
    fmt::print("{}\n", answer.body.dump(2));
  } else if (faults.empty()) {
    fmt::print("proxy `{}` (pid {}) is well\n", workflow, answer.pid);
  } else {
    for (const Json& fault : faults) fmt::print(stderr, "tubectl: {}\n", text(fault, "text"));
  }
  return faults.empty() ? kExitOk : kExitFault;
}

}  // namespace

void add_ping(Verb& root) {
  struct Options {
    std::string workflow;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  root.verb("ping", "whether a proxy is there and well, by the exit code")
      .workflow(options->workflow)
      .json(options->json)
      .footer(
          "Exit code 0 when it is well, 1 when it does not answer, 3 when none runs, 5 when the "
          "context of a GPU is dead: then standard error names who broke it.\n\n"
          "Examples:\n  tubectl ping\n  tubectl ping -w shop && echo well")
      .action([options] { return ping(options->workflow, options->json); });
}

}  // namespace tube::ctl
