// tubectl completion: prints the completion file of a shell, which is part of the program so that it always fits it.
#include <fmt/core.h>

#include "tools/tubectl/completion_files.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {

void add_completion(CLI::App& app, Command& command) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("completion", "print the completion file for bash or zsh");
  verb->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}))->type_name("SHELL");
  verb->footer("Examples:\n  source <(tubectl completion bash)\n  tubectl completion zsh > ~/.zfunc/_tubectl");
  verb->callback([shell, &command] {
    command.run = [shell] {
      fmt::print("{}", *shell == "bash" ? kBashCompletion : kZshCompletion);
      return kExitOk;
    };
  });
}

}  // namespace tube::ctl
