// tubectl: the command line of Tube. Understands the arguments, runs one verb, returns its exit code.
//
// CLI11 reports by exception; they end here.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tools/tubectl/verbs.h"

namespace tube::ctl {

void add_workflow_option(CLI::App& verb, std::string& workflow) {
  const char* preset = std::getenv("TUBE_WORKFLOW");
  workflow = preset != nullptr && *preset != '\0' ? preset : "default";
  verb.add_option("-w,--workflow", workflow, "name of the workflow, which is the name of its proxy ($TUBE_WORKFLOW, else default)")
      ->check([](const std::string& name) -> std::string {
        const char* kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
        bool ok = !name.empty() && name.size() <= 64 && name[0] != '.' && name.find_first_not_of(kAllowed) == name.npos;
        return ok ? "" : "a workflow name is 1 to 64 of the characters A-Z a-z 0-9 _ . - and does not start with a dot";
      })
      ->type_name("NAME");
}

void add_json_flag(CLI::App& verb, bool& json) { verb.add_flag("--json", json, "print JSON instead of text"); }

namespace {

constexpr const char* kFooter = R"(Examples:
  tubectl run -- python infer.py          run a CUDA program through the proxy `default`
  tubectl run -w shop --function resize -- ./resize in.ppm out.ppm
  tubectl ps                              which functions share the GPU now
  tubectl doctor                          what is found on this machine, and what to do about it

Exit codes: 0 done, 1 a problem was found or a request refused, 2 usage, 3 no such proxy, 4 the proxy did not start;
`run` passes the program's own exit code or signal on, and gives 125 when Tube failed before the program started,
126 when the program cannot be executed and 127 when it was not found.)";

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Tube: many unmodified CUDA programs in one context per GPU", "tubectl"};
  app.footer(kFooter);
  app.set_version_flag("--version", "tubectl " TUBE_VERSION);
  app.require_subcommand(1);
  Command command;
  add_run(app, command);
  add_proxy(app, command);
  add_ps(app, command);
  add_status(app, command);
  add_stat(app, command);
  add_doctor(app, command);
  add_completion(app, command);
  // CLI11 would look for options behind `--` too; they are the program's.
  int own = 1;
  while (own < argc && strcmp(argv[own], "--") != 0) ++own;
  if (own < argc) command.program.assign(argv + own + 1, argv + argc);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "tubectl: {}; see: tubectl --help\n", error.what());
    return kExitUsage;
  }
  return command.run ? command.run() : kExitUsage;
}

}  // namespace
}  // namespace tube::ctl

int main(int argc, char** argv) {
  try {
    return tube::ctl::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tubectl: internal error: {}\n", error.what());
    return tube::ctl::kExitProblem;
  }
}
