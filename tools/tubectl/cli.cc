// The command line, by way of CLI11. CLI11 reports by exception; parse errors end here, anything
// else in main.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>

#include "base/runtime_dir.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr const char* kFooter = R"(Examples:
  tubectl run -- python infer.py          run a CUDA program through the proxy `default`
  tubectl run -w shop --function resize -- ./resize in.ppm out.ppm
  tubectl ps                              which functions share the GPU now
  tubectl doctor                          what is found on this machine, and what to do about it

Exit codes: 0 done, 1 a problem was found or a request refused, 2 usage, 3 no such proxy, 4 the proxy did not start;
`run` passes the program's own exit code or signal on, and gives 125 when Tube failed before the program started,
126 when the program cannot be executed and 127 when it was not found.)";

std::string workflow_problem(const std::string& name) {
  return valid_workflow_name(name)
             ? ""
             : "a workflow name is 1 to 64 of the characters A-Z a-z 0-9 _ . -";
}

}  // namespace

Verb Verb::verb(const char* name, const char* help) {
  return Verb(app_->add_subcommand(name, help), command_);
}

Verb& Verb::needs_verb() {
  app_->require_subcommand(1);
  return *this;
}

Verb& Verb::footer(const char* text) {
  app_->footer(text);
  return *this;
}

Verb& Verb::text(const char* flags, std::string& value, const char* type, const char* help) {
  app_->add_option(flags, value, help)->type_name(type);
  return *this;
}

Verb& Verb::number(const char* flags, size_t& value, const char* help) {
  app_->add_option(flags, value, help)->type_name("N")->capture_default_str();
  return *this;
}

Verb& Verb::flag(const char* flags, bool& value, const char* help) {
  app_->add_flag(flags, value, help);
  return *this;
}

Verb& Verb::choice(const char* flags, std::string& value, std::vector<std::string> words,
                   const char* help) {
  app_->add_option(flags, value, help)->check(CLI::IsMember(std::move(words)))->type_name("KIND");
  return *this;
}

Verb& Verb::required(const char* flags) {
  app_->get_option(flags)->required();
  return *this;
}

Verb& Verb::workflow(std::string& value) {
  const char* preset = std::getenv("TUBE_WORKFLOW");
  value = preset != nullptr && *preset != '\0' ? preset : "default";
  app_->add_option(
          "-w,--workflow", value,
          "name of the workflow, which is the name of its proxy ($TUBE_WORKFLOW, else default)")
      ->check(workflow_problem)
      ->type_name("NAME");
  return *this;
}

Verb& Verb::json(bool& value) { return flag("--json", value, "print JSON instead of text"); }

Verb& Verb::takes_program() {
  app_->prefix_command(true);
  return *this;
}

bool Verb::given(const char* flag) const { return app_->count(flag) > 0; }

std::vector<std::string> Verb::program() const {
  return command_->program.empty() ? app_->remaining() : command_->program;
}

void Verb::action(std::function<int()> run) {
  app_->callback([command = command_, run = std::move(run)] { command->run = run; });
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Tube: many unmodified CUDA programs in one context per GPU", "tubectl"};
  app.footer(kFooter);
  app.set_version_flag("--version", "tubectl " TUBE_VERSION);
  app.require_subcommand(1);
  Command command;
  Verb root(&app, &command);
  for (auto add : {add_run, add_proxy, add_ps, add_status, add_stat, add_doctor, add_completion})
    add(root);
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

}  // namespace tube::ctl
