// A driver-API program beside a proxy that is stopped or has nothing left to give, one scene per
// argument; hostile_test.py says what must come of it. It knows nothing of Tube.
#include <sys/wait.h>

#include <thread>

#include "tests/programs/common.h"

namespace {

void wait_for_the_test(const char* said) {
  printf("%s\n", said);
  fflush(stdout);
  char byte;
  EXPECT(read(0, &byte, 1) >= 0);
}

void compute() {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  printf("computes %u\n", data.read()[63]);
}

// "S" in the thread's line of /proc: it waits for somebody.
bool sleeps(pid_t thread) {
  char path[64], line[512] = {};
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  FILE* file = fopen(path, "re");
  EXPECT(file != nullptr && fgets(line, sizeof line, file) != nullptr);
  fclose(file);
  return strncmp(strrchr(line, ')'), ") S", 3) == 0;
}

// One thread registers memory with a proxy that the test has stopped; the main thread forks
// meanwhile.
void fork_beside_a_registration() {
  Gpu gpu;
  alignas(4096) static char memory[1 << 20];
  memory[0] = 1;
  std::atomic<pid_t> thread{0};
  std::atomic<bool> go{false};
  CUresult registered = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    thread = gettid();
    while (!go) sched_yield();
    registered = cuMemHostRegister(memory, sizeof memory, 0);
  });
  while (thread == 0) sched_yield();
  wait_for_the_test("ready");
  go = true;
  while (!sleeps(thread)) sched_yield();
  memory[0] = 2;
  const pid_t child = fork();
  if (child == 0) {
    const bool copied = memory[0] == 2;
    memory[0] = 3;
    _exit(copied ? 7 : 1);
  }
  int status = 0;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  printf("child %d, parent %d\n", WEXITSTATUS(status), memory[0]);
  fflush(stdout);
  other.join();
  printf("registered: %s, parent %d\n", code_name(registered), memory[0]);
  CU(cuMemHostUnregister(memory));
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  const std::string scene = argv[1];
  if (scene == "compute") compute();
  else if (scene == "fork_beside_a_registration") fork_beside_a_registration();
  else return 2;
  return 0;
}
