// tubectl completion: prints the completion file of a shell, which is part of the program so that
// it always fits it.
#include <cstdio>
#include <memory>

#include "tools/tubectl/completion_files.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {

void add_completion(Verb& root) {
  auto shell = std::make_shared<std::string>();
  root.verb("completion", "print the completion file for bash or zsh")
      .choice("shell", *shell, {"bash", "zsh"}, "bash or zsh")
      .required("shell")
      .footer(
          "Examples:\n  source <(tubectl completion bash)\n  tubectl completion zsh > "
          "~/.zfunc/_tubectl")
      .action([shell] {
        return std::fputs(*shell == "bash" ? kBashCompletion : kZshCompletion, stdout) < 0
                   ? kExitProblem
                   : kExitOk;
      });
}

}  // namespace tube::ctl
