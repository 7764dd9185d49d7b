// The main program of every library's cases: choice of cases, the lines on standard output, the
// files of results.
#include "case.h"

#include <fnmatch.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace library {
namespace {

struct Case {
  const char* name;
  Body body;
};

struct Skip {
  std::string reason;
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

const char* running = "";
std::string notes;

bool listed(const char* variable, const char* name) {
  const char* list = std::getenv(variable);
  return list != nullptr &&
         ("," + std::string(list) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

bool matches(const char* patterns, const char* name) {
  std::stringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ',');) {
    if (fnmatch(pattern.c_str(), name, 0) == 0) return true;
  }
  return false;
}

bool wanted(const char* name) {
  const char* only = std::getenv("ITEM_ONLY");
  return !listed("ITEM_SKIP", name) && (only == nullptr || *only == 0 || matches(only, name));
}

void run(const Case& one) {
  running = one.name;
  notes.clear();
  printf("@begin %s\n", one.name);
  fflush(stdout);
  try {
    one.body();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize at the end", 0);
    if (!notes.empty()) save_bytes("notes", "txt", notes.data(), notes.size());
    printf("@end %s\n", one.name);
  } catch (const Skip& skipped) {
    printf("@skipped %s %s\n", one.name, skipped.reason.c_str());
  } catch (const std::exception& error) {
    printf("@failed %s %s\n", one.name, error.what());
  }
  fflush(stdout);
  cudaGetLastError();  // An expected failure of this case is not the next one's.
}

}  // namespace

Registration::Registration(const char* name, Body body) { cases().push_back({name, body}); }

void save_bytes(const char* name, const char* type, const void* data, size_t size_bytes) {
  const char* folder = std::getenv("ITEM_OUTPUTS");
  if (folder == nullptr) return;
  const std::string path = std::string(folder) + "/" + running + "." + name + "." + type;
  FILE* file = fopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path + ": " + strerror(errno));
  const bool written = fwrite(data, 1, size_bytes, file) == size_bytes;
  if (fclose(file) != 0 || !written)
    throw std::runtime_error("cannot write " + path + ": " + strerror(errno));
}

void note(const char* format, ...) {
  char line[512];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof(line), format, list);
  va_end(list);
  notes += std::string(line) + "\n";
}

void skip(const std::string& reason) { throw Skip{reason}; }

uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t value =
      seed * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull + 0x94d049bb133111ebull;
  for (int round = 0; round < 2; ++round) {
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ull;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebull;
    value ^= value >> 31;
  }
  return value;
}

}  // namespace library

int main(int argc, char**) {
  if (argc > 1) {
    for (const auto& one : library::cases()) puts(one.name);
    return 0;
  }
  for (const auto& one : library::cases()) {
    if (library::wanted(one.name)) library::run(one);
  }
  return 0;
}
