// The measured side of bench/neighbours, bench/isolate, bench/attacks, bench/pinned_copies,
// bench/pageable, bench/pinned, bench/pool and bench/multipath: a driver-API program that copies on
// command and reports its times.
//
// It talks to the script over its standard streams, one line each way (tests/gpu/arms.py reads
// them). A command is a task of task.h with its words, or one of
//
//   keep BYTES       memory made from now on is at least so large, so that it is made once
//   together COUNT   the next task begins when COUNT programs have come to the barrier file that
//                    BENCH_BARRIER names
//   drop             gives all memory back
//   finish
//
// A task goes in steps: `@prepared`, on `go` `@block {...}`, on `verify` `@verified {...}`: what
// was wrong with the bytes, or nothing.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bench/client/barrier.h"
#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

void say(const char* kind, const std::string& values) {
  printf("@%s {%s}\n", kind, values.c_str());
  fflush(stdout);
}

std::string member(const char* name, int64_t value) {
  return std::string("\"") + name + "\": " + std::to_string(value);
}

std::string member(const char* name, const std::vector<int64_t>& values) {
  std::string out = std::string("\"") + name + "\": [";
  for (size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  return out + "]";
}

void say_block(const Block& block, int64_t cpu) {
  say("block", member("latency_ns", block.latency_ns) + ", " + member("ended_ns", block.ended_ns) +
                   ", " + member("free_ns", block.free_ns) + ", " +
                   member("bytes", static_cast<int64_t>(block.bytes)) + ", " +
                   member("missed", block.missed) + ", " + member("wrong", block.wrong) + ", " +
                   member("begin_ns", block.begin_ns) + ", " + member("end_ns", block.end_ns) +
                   ", " + member("cpu_ns", cpu));
}

std::unique_ptr<Task> make_task(Client& client, const std::string& command, std::istream& words) {
  if (command == "copy") return make_copy(client, words);
  if (command == "relay") return make_relay(client, words);
  if (command == "victim") return make_victim(client, words);
  if (command == "function") return make_function(client, words);
  if (command == "bulk") return make_bulk(client, words);
  if (command == "allocate") return make_allocate(client, words);
  if (command == "deliver") return make_deliver(client, words);
  if (command == "take") return make_take_memory(client, words);
  if (command == "steps") return make_steps(client, words);
  if (command == "requests") return make_requests(client, words);
  if (command == "turn") return make_turn(client, words);
  if (command == "stand") return make_stand(client, words);
  if (command == "busy") return make_busy(client, words);
  fprintf(stderr, "cannot do: %s\n", command.c_str());
  exit(2);
}

void run(Client& client, Task& task, uint32_t together) {
  task.prepare();
  say("prepared", "");
  client.lines.await("go");
  if (together != 0) {
    static Barrier barrier(getenv("BENCH_BARRIER"));
    barrier.arrive(together);
  }
  Block block;
  const int64_t cpu = cpu_ns();
  task.measure(block);
  say_block(block, cpu_ns() - cpu);
  client.lines.await("verify");
  say("verified", "\"wrong\": \"" + task.verify() + "\"");
}

void serve(Client& client) {
  std::string line, command;
  uint32_t together = 0;
  while (client.lines.next(line)) {
    std::istringstream words(line);
    size_t bytes = 0;
    words >> command;
    if (command == "finish") return client.drop();
    if (command == "keep") {
      words >> bytes;
      client.keep(bytes);
    } else if (command == "together") {
      words >> together;
    } else if (command == "drop") {
      client.drop();
    } else {
      run(client, *make_task(client, command, words), together);
      together = 0;
    }
  }
}

}  // namespace
}  // namespace bench

int main() {
  bench::Client client;
  bench::say("ready", bench::member("pid", getpid()));
  bench::serve(client);
  bench::say("done", "\"hashes\": {}");
  return 0;
}
