// Says what it takes from the environment; secure_env_test.py gives it more rights than its caller.
#include <sys/auxv.h>

#include <cstdio>

#include "base/env.h"

int main() {
  const char* file = tube::env_text(tube::Env::kLogFile);
  std::printf("%lu %s\n", getauxval(AT_SECURE), file != nullptr ? file : "none");
  return 0;
}
