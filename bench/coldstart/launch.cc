// Starts COPIES of a program at the same moment, takes the time right before each exec, and tells
// how they fared.
//
//   launch COPIES SECONDS PROGRAM [ARGUMENT...]
//
// prints [{"pid": n, "exec": ns, "end": ns, "code": n, "out": last line}, ...].
//
// The copies are forked first and let go together, so that the forks are not part of anybody's
// start. Each copy writes its own stamp into shared memory as its last act before exec. A copy that
// outlasts SECONDS is killed (code -9).
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct Copy {
  pid_t pid = -1;
  int out = -1;
  std::string text;
  long long end = 0;
  int code = 0;
};

long long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

[[noreturn]] void die(const char* what) {
  perror(what);
  exit(3);
}

Copy start(char** program, int gate, long long* stamp) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) die("pipe");
  Copy copy;
  copy.pid = fork();
  if (copy.pid < 0) die("fork");
  if (copy.pid == 0) {
    dup2(pipe_ends[1], 1);
    char byte;
    while (read(gate, &byte, 1) < 0 && errno == EINTR) {
    }
    *stamp = now();
    execvp(program[0], program);
    perror(program[0]);
    _exit(127);
  }
  close(pipe_ends[1]);
  copy.out = pipe_ends[0];
  return copy;
}

// Reads until everybody's output has ended, or the time is up.
void collect(std::vector<Copy>& copies, long long deadline) {
  for (size_t left = copies.size(); left != 0;) {
    std::vector<pollfd> waiting;
    waiting.reserve(copies.size());
    for (const Copy& copy : copies)
      waiting.push_back({copy.out, POLLIN, 0});  // poll passes over -1
    const long long ms = (deadline - now()) / 1000000;
    if (ms <= 0 || poll(waiting.data(), waiting.size(), static_cast<int>(ms)) <= 0) return;
    for (size_t i = 0; i < copies.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = read(copies[i].out, buffer, sizeof buffer);
      if (n > 0) {
        copies[i].text.append(buffer, static_cast<size_t>(n));
        continue;
      }
      close(copies[i].out);
      copies[i].out = -1;
      --left;
    }
  }
}

void finish(Copy& copy, long long deadline) {
  int status = 0;
  pid_t got;
  while ((got = waitpid(copy.pid, &status, WNOHANG)) == 0 && now() < deadline) usleep(200);
  if (got == 0) {
    kill(copy.pid, SIGKILL);
    waitpid(copy.pid, &status, 0);
  }
  copy.end = now();
  copy.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// JSON: the programs print a JSON line of their own; anything else is told by its absence.
std::string last_line(const std::string& text) {
  size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "null";
  size_t begin = text.rfind('\n', end);
  begin = begin == std::string::npos ? 0 : begin + 1;
  std::string line = text.substr(begin, end - begin + 1);
  return line[0] == '{' ? line : "null";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int count = atoi(argv[1]);
  const long long patience = atoll(argv[2]) * 1000000000ll;
  auto* stamps =
      static_cast<long long*>(mmap(nullptr, sizeof(long long) * static_cast<size_t>(count),
                                   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int gate[2];
  if (stamps == MAP_FAILED || pipe2(gate, O_CLOEXEC) != 0) die("mmap or pipe");
  std::vector<Copy> copies;
  copies.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) copies.push_back(start(argv + 3, gate[0], &stamps[i]));
  usleep(20000);  // let them reach the gate
  const std::vector<char> go(static_cast<size_t>(count), 'g');
  if (write(gate[1], go.data(), go.size()) != static_cast<ssize_t>(go.size())) die("write");
  const long long deadline = now() + patience;
  collect(copies, deadline);
  for (Copy& copy : copies) finish(copy, deadline);
  for (int i = 0; i < count; ++i) {
    const Copy& copy = copies[static_cast<size_t>(i)];
    printf("%s{\"pid\": %d, \"exec\": %lld, \"end\": %lld, \"code\": %d, \"out\": %s}",
           i == 0 ? "[" : ",\n", copy.pid, stamps[i], copy.end, copy.code,
           last_line(copy.text).c_str());
  }
  printf("]\n");
  return 0;
}
