// The command line, by way of CLI11. CLI11 reports by exception; parse errors end here, anything
// else in main.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/byte_size.h"
#include "base/env.h"
#include "base/runtime_dir.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

constexpr const char* kFooter = R"(Examples:
  tubectl run -- python infer.py          run a CUDA program through the proxy `default`
  tubectl run -w shop --function resize -- ./resize in.ppm out.ppm
  tubectl ps                              which functions share the GPU now
  tubectl doctor                          what is found on this machine, and what to do about it

Exit codes: 0 done, 1 a problem was found or a request refused, 2 usage, 3 no such proxy, 4 the proxy did not start, 5 the proxy's context is dead (ping). `run` passes the program's own exit code or signal on, and gives 125 when Tube failed before the program started, 126 when the program cannot be executed and 127 when it was not found.)";

std::string workflow_problem(const std::string& name) {
  return valid_workflow_name(name)
             ? ""
             : "a workflow name is 1 to 64 of the characters A-Z a-z 0-9 _ . -";
}

// As the driver reads CUDA_VISIBLE_DEVICES, which drops everything from the first bad word on.
std::string gpus_problem(const std::string& list) {
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == word.npos;
    if (!number && !word.starts_with("GPU-") && !word.starts_with("MIG-"))
      return "'" + word + "' is no GPU: numbers or UUIDs, with commas between them, e.g. 0,1";
    at = end + 1;
  }
  return "";
}

std::string number_problem(const std::string& text) {
  constexpr size_t kMostDigits = 18;  // of 64 bits
  const bool number = !text.empty() && text.size() <= kMostDigits &&
                      text.find_first_not_of("0123456789") == text.npos;
  return number ? "" : "'" + text + "' is not a number";
}

// How many letters have to be changed, added or left out to make `b` of `a`.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before + (a[i - 1] != b[j - 1]);
      before = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// ", did you mean --memory?", or nothing.
std::string suggestion(const CLI::App& verb, const std::string& wrong) {
  const std::string name = wrong.substr(0, wrong.find('='));
  std::string best;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& known : option->get_lnames()) {
      if (const std::string flag = "--" + known;
          distance(name, flag) < std::min<size_t>(distance(name, best), 4))
        best = flag;
    }
  }
  return best.empty() ? "" : ", did you mean " + best + "?";
}

// What the verb was given and did not understand: of `run` all words from the first unknown one on,
// which are the program's only where they begin with its name and no `--` divides them from it.
std::string not_understood(const CLI::App& app, const Command& command) {
  for (const CLI::App* verb : app.get_subcommands()) {
    const std::vector<std::string> rest = verb->remaining();
    if (rest.empty() || (!command.divided && !rest[0].starts_with("-"))) continue;
    if (rest[0].starts_with("-"))
      return fmt::format("{}: no option {}{}", verb->get_name(), rest[0],
                         suggestion(*verb, rest[0]));
    return fmt::format("{}: `{}` stands before --; the program and its arguments stand after it",
                       verb->get_name(), rest[0]);
  }
  return "";
}

int print_help(const CLI::App& app, const CLI::ParseError& error) {
  constexpr size_t kIndent = 30;  // where CLI11 begins what an option is for
  std::ostringstream text;
  const int code = app.exit(error, text, text);
  // What follows the table of options is prose and examples.
  const std::string all = text.str();
  const size_t prose =
      std::min(all.find("\n\n", std::min(all.find("Options:"), all.size())), all.size());
  const size_t table = std::min(all.find("Subcommands:"), all.size());
  const size_t end = table == all.size() ? prose : std::min(all.find("\n\n", table), all.size());
  fmt::print("{}{}", wrapped(all.substr(0, end), kColumns, kIndent),
             wrapped(all.substr(end), kColumns, 4));
  return code;
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
  app_->add_option(flags, value, help)
      ->check(number_problem)
      ->type_name("N")
      ->capture_default_str();
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

Verb& Verb::gpus(std::string& value, const char* help) {
  app_->add_option("--gpus", value, help)->check(gpus_problem)->type_name("LIST");
  return *this;
}

Verb& Verb::backend(std::string& value, const char* help) {
  app_->add_option("--backend", value, help)
      ->check(CLI::IsMember({"auto", "driver", "sim"}))
      ->envname(env_entry(Env::kBackend).name)
      ->type_name("KIND");
  return *this;
}

Verb& Verb::copy_policy(std::string& value, const char* help) {
  app_->add_option("--copy-policy", value,
                   std::string("whose copy goes next where functions share a link") +
                       (*help != '\0' ? std::string(", ") + help : "") +
                       ": arrival, round-robin, rates or deadlines (default)")
      ->check(CLI::IsMember({"arrival", "round-robin", "rates", "deadlines"}))
      ->type_name("ORDER");
  return *this;
}

Verb& Verb::memory(const char* flag, std::string& value, bool several, const char* help) {
  app_->add_option(flag, value, help)
      ->check([several](const std::string& text) {
        const Result<std::vector<uint64_t>> limits = parse_byte_limits(text);
        if (!limits.ok()) return limits.error().message;
        return several || limits->size() == 1 ? "" : "'" + text + "' is more than one size";
      })
      ->type_name("SIZE");
  return *this;
}

Verb& Verb::takes_program() {
  app_->prefix_command(true);
  return *this;
}

bool Verb::given(const char* flag) const { return app_->count(flag) > 0; }

std::vector<std::string> Verb::program() const {
  return command_->divided ? command_->program : app_->remaining();
}

void Verb::action(std::function<int()> run) {
  app_->callback([command = command_, run = std::move(run)] { command->run = run; });
}

namespace {

// The proxy and its functions have working folders of their own: they are told a whole path.
void complete_runtime_dir() {
  const char* dir = std::getenv("TUBE_DIR");
  if (dir == nullptr || *dir == '\0' || *dir == '/') return;
  setenv("TUBE_DIR", std::filesystem::absolute(dir).lexically_normal().c_str(), 1);
}

}  // namespace

int parse_and_run(int argc, char** argv) {
  complete_runtime_dir();
  CLI::App app{"Tube: many unmodified CUDA programs in one context per GPU", "tubectl"};
  app.footer(kFooter);
  app.set_version_flag("--version", "tubectl " TUBE_VERSION);
  app.require_subcommand(1);
  Command command;
  Verb root(&app, &command);
  for (auto add : {add_run, add_profile, add_proxy, add_ping, add_ps, add_status, add_stat,
                   add_copies, add_gpu, add_mem, add_store, add_topo, add_limit, add_doctor,
                   add_placement, add_completion})
    add(root);
  // CLI11 would look for options behind `--` too; they are the program's.
  int own = 1;
  while (own < argc && strcmp(argv[own], "--") != 0) ++own;
  command.divided = own < argc;
  if (command.divided) command.program.assign(argv + own + 1, argv + argc);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return print_help(app, error);  // or --version
    fmt::print(stderr, "tubectl: {}; see: tubectl --help\n", error.what());
    return kExitUsage;
  }
  if (const std::string problem = not_understood(app, command); !problem.empty()) {
    fmt::print(stderr, "tubectl: {}; see: tubectl --help\n", problem);
    return kExitUsage;
  }
  return command.run ? command.run() : kExitUsage;
}

}  // namespace tube::ctl
