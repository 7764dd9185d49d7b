// Drives a fuzz target without libFuzzer (gcc, ordinary test runs): a fixed number of seeded random
// inputs, then the
// files named on the command line.   usage: TARGET [--runs N] [--seed S] [FILE ...]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  uint64_t runs = 20000, seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
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
  std::printf("%llu runs, seed %llu\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(seed));
  return 0;
}
