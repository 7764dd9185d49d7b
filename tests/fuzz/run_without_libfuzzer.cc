// Drives a fuzz target without libFuzzer (gcc, ordinary test runs): the inputs that are kept of it
// (a line each, in hexadecimal digits: guided), then a fixed number of seeded random ones; or the
// files named on the command line.   usage: TARGET [--corpus FILE] [--runs N] [--seed S] [FILE ...]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// False: there is no such file, or it is no corpus.
bool run_corpus(const char* name, uint64_t* inputs) {
  std::ifstream file(name);
  if (!file) return false;
  for (std::string line; std::getline(file, line); ++*inputs) {
    std::vector<uint8_t> input;
    for (size_t at = 0; at < line.size(); at += 2) {
      const std::string digits = line.substr(at, 2);
      char* end = nullptr;
      input.push_back(static_cast<uint8_t>(std::strtoul(digits.c_str(), &end, 16)));
      if (end != digits.c_str() + 2) return false;
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t kept = 0;
  uint64_t runs = 20000, seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--corpus") == 0 && i + 1 < argc) {
      if (!run_corpus(argv[++i], &kept)) {
        std::fprintf(stderr, "%s cannot be read\n", argv[i]);
        return 2;
      }
    } else {
      std::ifstream file(argv[i], std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      runs = 0;
    }
  }
  std::mt19937_64 random(seed);
  std::vector<uint8_t> input;
  for (uint64_t run = 0; run < runs; ++run) {
    input.resize(random() % 600);
    // Small values dominate real headers; pure noise never gets past the first check.
    const bool small = random() % 2 == 0;
    for (uint8_t& byte : input) {
      byte = small && random() % 4 != 0 ? 0 : static_cast<uint8_t>(random() % (small ? 64 : 256));
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%llu kept inputs, %llu runs, seed %llu\n", static_cast<unsigned long long>(kept),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
