// tubectl: the command line of Tube. Understands the arguments, runs one verb, returns its exit
// code.
#include <cstdio>
#include <exception>

#include "tools/tubectl/verbs.h"

int main(int argc, char** argv) {
  try {
    return tube::ctl::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tubectl: internal error: %s\n", error.what());
    return tube::ctl::kExitProblem;
  }
}
