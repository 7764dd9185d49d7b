// For programs that tests drive by their standard input: a line says what to do, a line is the
// answer.
#pragma once

#include <cstdio>

// Says "ready", then calls answer(verb, a, b) for each line "VERB [A [B]]", until there is none.
template <typename Answer>
void do_as_told(Answer answer) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  puts("ready");
  char line[256];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    char verb[32] = "";
    unsigned long a = 0, b = 0;
    (void)sscanf(line, "%31s %lu %lu", verb, &a, &b);
    answer(verb, a, b);
  }
}
