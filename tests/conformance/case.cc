// The program around a chapter's cases: `PROGRAM --list` prints "KIND NAME [holds_streams]" lines,
// `PROGRAM NAME` runs that one case.
#include "tests/conformance/case.h"

#include <dlfcn.h>

namespace conformance {
namespace {

Case* g_first = nullptr;
Case** g_end = &g_first;
bool g_holds_streams = false;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kOrdinary: return "ordinary";
    case Kind::kFaulting: return "faulting";
    case Kind::kTwoDevices: return "two_devices";
  }
  return "?";
}

}  // namespace

Case::Case(const char* case_name, Kind case_kind, void (*case_body)()) : name(case_name), kind(case_kind), body(case_body) {
  *g_end = this;
  g_end = &next;
}

bool declare_holding() { return g_holds_streams = true; }

void a_stream_waits() { expect(g_holds_streams, "a case holds streams: its chapter says so with CASES_HOLD_STREAMS", __FILE__, __LINE__); }

void skip(const char* why) {
  printf("SKIPPED: %s\n", why);
  fflush(stdout);
  exit(77);
}

void* exported(const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); }

static int run(int count, char** arguments) {
  if (count == 2 && strcmp(arguments[1], "--list") == 0) {
    for (const Case* c = g_first; c != nullptr; c = c->next) {
      printf("%s %s%s\n", kind_name(c->kind), c->name, g_holds_streams ? " holds_streams" : "");
    }
    return 0;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);  // what was observed before a crash must not be lost with it
  for (const Case* c = g_first; c != nullptr && count == 2; c = c->next) {
    if (strcmp(arguments[1], c->name) != 0) continue;
    c->body();
    return 0;
  }
  fprintf(stderr, "usage: %s --list | CASE\n", arguments[0]);
  return 2;
}

}  // namespace conformance

int main(int count, char** arguments) { return conformance::run(count, arguments); }
