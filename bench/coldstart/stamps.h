// Monotonic stamps of a program's start, printed as one JSON line: {"main": ns, "init": ns, ...}.
// CLOCK_MONOTONIC is one clock for all processes, so the launcher's stamp before exec and these
// compare.
#pragma once

#include <time.h>

#include <cstdio>

struct Stamps {
  static constexpr int kMost = 16;
  const char* names[kMost];
  long long times[kMost];
  int count = 0;

  static long long now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
  }
  void mark(const char* name) {
    if (count == kMost) return;
    names[count] = name;
    times[count++] = now();
  }
  void print() const {
    for (int i = 0; i < count; ++i)
      printf("%s\"%s\": %lld", i == 0 ? "{" : ", ", names[i], times[i]);
    printf("}\n");
    fflush(stdout);
  }
};
