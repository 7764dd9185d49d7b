// Prints the ENVIRONMENT section of tube.7 from the table that the code reads (base/env.h).
#include <cstdio>

#include "base/env.h"

int main() { return std::fputs(tube::env_manual_section().c_str(), stdout) < 0; }
