// Functions that use pinned memory and leave in several ways, one scene per argument;
// pinned_test.py says what must come of it. It knows nothing of Tube.
#include <unistd.h>

#include <cstring>
#include <random>

#include "tests/programs/common.h"

namespace {

constexpr size_t kMiB = 1u << 20;
constexpr unsigned char kMark = 0x5a;

unsigned char* allocate(size_t bytes) {
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, bytes, 0));
  return static_cast<unsigned char*>(memory);
}

size_t count(const unsigned char* memory, size_t bytes, unsigned char value) {
  size_t found = 0;
  for (size_t i = 0; i < bytes; ++i) found += memory[i] == value;
  return found;
}

void say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

void wait_for_end() {
  while (getchar() != EOF) {
  }
}

// Writes all over its memory, and leaves it.
void fill(size_t bytes) {
  unsigned char* memory = allocate(bytes);
  memset(memory, kMark, bytes);
  say("filled");
  _exit(0);
}

// Which bytes of somebody else it finds, in its allocation and behind it; and whether the GPU
// reaches all of it.
void look(size_t bytes) {
  unsigned char* memory = allocate(bytes);
  printf("%zu of somebody's bytes\n", count(memory, bytes, kMark));
  memset(memory, 7, bytes);
  CUdeviceptr device = 0;
  CU(cuMemAlloc(&device, bytes));
  CU(cuMemcpyHtoD(device, memory, bytes));
  memset(memory, 0, bytes);
  CU(cuMemcpyDtoH(memory, device, bytes));
  printf("%s\n", count(memory, bytes, 7) == bytes ? "equal" : "different");
  CU(cuMemFree(device));
  CU(cuMemFreeHost(memory));
}

// One allocation after the other, as many as the lines that it reads; an answer to each.
void keep(size_t bytes) {
  for (int c = getchar(); c != EOF; c = getchar()) {
    allocate(bytes);
    say("here");
  }
  _exit(0);
}

// More than a program keeps for itself when it frees it.
void give_back(size_t bytes) {
  CU(cuMemFreeHost(allocate(bytes)));
  CU(cuCtxSynchronize());
  say("freed");
  wait_for_end();
  look(bytes);
}

// Without pause until it is killed; every byte that it holds is its own.
void churn(size_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto mine = static_cast<unsigned char>(seed % 100 + 100);
  struct Held {
    unsigned char* memory;
    size_t bytes;
  };
  std::vector<Held> held;
  while (true) {
    if (held.size() < 8 && random() % 2 == 0) {
      const size_t bytes = (random() % 4 == 0 ? random() % (8 * kMiB) : random() % 200000) + 1;
      unsigned char* memory = allocate(bytes);
      memset(memory, mine, bytes);
      held.push_back({memory, bytes});
    } else if (!held.empty()) {
      const Held gone = held.back();
      held.pop_back();
      EXPECT(count(gone.memory, gone.bytes, mine) == gone.bytes);
      CU(cuMemFreeHost(gone.memory));
    }
    say("on");
  }
}

// Its child keeps the memory for longer than it.
void leave_a_child(size_t bytes) {
  unsigned char* memory = allocate(bytes);
  memset(memory, kMark, bytes);
  if (fork() != 0) {
    say("left");
    _exit(0);
  }
  wait_for_end();
  say(count(memory, bytes, kMark) == bytes ? "all still there" : "overwritten");
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string scene = argv[1];
  const size_t number = strtoul(argv[2], nullptr, 10);
  Gpu gpu;
  if (scene == "fill") fill(number * kMiB);
  if (scene == "look") look(number * kMiB);
  if (scene == "keep") keep(number * kMiB);
  if (scene == "give_back") give_back(number * kMiB);
  if (scene == "churn") churn(number);
  if (scene == "leave_a_child") leave_a_child(number * kMiB);
  return 0;
}
