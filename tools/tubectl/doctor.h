// The checks behind `tubectl doctor`. Each adds findings; a finding that is not fine carries its
// remedy.
#pragma once

#include <string>
#include <vector>

#include "tools/tubectl/layout.h"

namespace tube::ctl {

enum class Severity {
  kFine,
  kNote,     // works, but worth knowing
  kProblem,  // something will not work
};

struct Finding {
  Severity severity;
  std::string subject;  // one word or two
  std::string detail;   // what was found, where
  std::string remedy;   // what to do about it; empty when fine
};

using Findings = std::vector<Finding>;

void check_driver(Findings& findings);  // library, version, GPUs, device nodes
void check_system(
    Findings& findings);  // runtime folder, address windows, memfd, limits, environment
void check_install(Findings& findings,
                   const Layout& layout);  // hook and its symbols, simulated GPU, tubed
void check_proxies(Findings& findings);    // running proxies answer and have this version
// Whether the hook can get under this program at all.
void check_program(Findings& findings, const std::string& program);

}  // namespace tube::ctl
