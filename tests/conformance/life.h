// What the chapters of process life share: children that report to their parent, work that proves
// itself, streams that wait.
//
// Children report through a pipe (in_child), so that the order of the output is fixed. Nothing
// sleeps: a wait that must last until something else happened is a stream waiting for a value that
// this something writes (Gate).
#pragma once

#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "tests/conformance/case.h"

// How a child ended, in words that are the same everywhere.
inline void print_end(const char* who, int status) {
  if (WIFEXITED(status)) printf("%s exited with %d\n", who, WEXITSTATUS(status));
  else if (WIFSIGNALED(status)) printf("%s was ended by signal %d\n", who, WTERMSIG(status));
}

inline int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Runs `body` in a forked child whose stdout comes back through a pipe; prints it and how the child
// ended.
template <class Body>
void in_child(const char* who, Body body) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    body();
    fflush(stdout);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char block[4096];
  for (ssize_t n; (n = read(ends[0], block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(n));
  close(ends[0]);
  const int status = wait_for(pid);
  fputs(text.c_str(), stdout);
  print_end(who, status);
}

// A word in pinned memory that a stream can wait for.
struct Gate {
  std::atomic<uint32_t>* word = nullptr;
  CUdeviceptr address = 0;
  Gate() {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    word = new (memory) std::atomic<uint32_t>(0);
    CU(cuMemHostGetDevicePointer(&address, memory, 0));
  }
  void hold(CUstream stream) const {
    conformance::a_stream_waits();
    CU(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() const { *word = 1; }
};

// Work whose result says that this process really computes: 64 values of 3 * 7 + 1.
inline void compute(const char* who) {
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 7));
  LAUNCH(module.function("step"), {1}, {64}, 0, nullptr, data.pointer, 3u, 1u, 64);
  const std::vector<uint32_t> got = data.read();
  printf("%s computes %u %u\n", who, got[0], got[63]);
}

inline void compute_with_gpu(const char* who) {
  Gpu gpu;
  compute(who);
}
