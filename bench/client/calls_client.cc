// The measured side of bench/calls: a driver-API program that runs operations on command and
// reports their times.
//
// It talks to the script over its standard streams, one line each way (tests/gpu/arms.py reads
// them). Commands:
//
//   run OP SAMPLES              one thread, the calling one
//   threads OP SAMPLES COUNT    COUNT threads with a stream each, SAMPLES each, starting together
//   together OP SAMPLES COUNT   one of COUNT processes that start together (the barrier file named
//                               by BENCH_BARRIER)
//   anatomy SAMPLES             every operation of anatomy.h, taken apart: `@anatomy {"name":
//                               [[before, returned, complete], ...], ...}`
//   pin CORE                    keeps the main thread on a core; -1 lets it go
//   finish
//
// A measurement goes in three steps, so that the script can read the proxy's counters before and
// behind exactly what is measured: `@prepared` after the warm-up, then on `go` `@block {...}` (a
// histogram of times, when it began and ended, the process's CPU time), then on `verify` `@verified
// {...}`: what was wrong with the operation's effect, or nothing. `calls_client --list` prints the
// operations' names.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "bench/client/anatomy.h"
#include "bench/client/barrier.h"
#include "bench/client/common.h"
#include "bench/client/lane.h"
#include "bench/client/operations.h"

namespace bench {
namespace {

struct Block {
  Histogram times;
  int64_t begin_ns = 0,
          end_ns = 0;  // the last one includes the synchronise behind the last operation
  int64_t cpu_ns = 0;
};

void say(const char* kind, const std::string& values) {
  printf("@%s {%s}\n", kind, values.c_str());
  fflush(stdout);
}

void say_block(const Operation& op, const Block& block, uint32_t threads) {
  say("block", "\"op\": \"" + op.name + "\", \"per_sample\": " + std::to_string(op.per_sample) +
                   ", \"threads\": " + std::to_string(threads) +
                   ", \"begin_ns\": " + std::to_string(block.begin_ns) +
                   ", \"end_ns\": " + std::to_string(block.end_ns) +
                   ", \"cpu_ns\": " + std::to_string(block.cpu_ns) + ", " + block.times.json());
}

// The texts are our own: nothing in them needs escaping.
void say_verified(const std::string& wrong) { say("verified", "\"wrong\": \"" + wrong + "\""); }

// Waits for the script's next line, which must be this word.
void await(const char* word) {
  std::string line;
  if (std::getline(std::cin, line) && line == word) return;
  fprintf(stderr, "expected %s, got %s\n", word, line.c_str());
  exit(2);
}

// Everything posted so far has been executed, and counted, by whoever serves us: a call that must
// be answered. The script takes it out of the counts (call_runs.py).
void fence() {
  size_t free_bytes, total_bytes;
  CU(cuMemGetInfo(&free_bytes, &total_bytes));
}

void warm_up(const Operation& op, Lane& lane, int samples) {
  for (int i = 0; i < samples / 20 + 2; ++i) op.body(lane);
  lane.sync();
}

void measure(const Operation& op, Lane& lane, int samples, Block& block) {
  block.begin_ns = now_ns();
  uint32_t in_burst = 0;
  for (int i = 0; i < samples; ++i) {
    const int64_t before = now_ns();
    op.body(lane);
    block.times.add(now_ns() - before);
    if (op.burst != 0 && ++in_burst == op.burst) {
      lane.sync();
      in_burst = 0;
    }
  }
  lane.sync();
  block.end_ns = now_ns();
}

// Threads of one measurement come to the same points together; the main thread opens each gate.
class Gate {
 public:
  void pass() {
    waiting_.fetch_add(1);
    while (!open_.load()) std::this_thread::yield();
  }
  void await(uint32_t count) {
    while (waiting_.load() < count) std::this_thread::yield();
  }
  void open() { open_.store(true); }

 private:
  std::atomic<uint32_t> waiting_{0};
  std::atomic<bool> open_{false};
};

class Client {
 public:
  Client() {
    CUdevice device;
    context_ = enter_first_gpu(&device);
    CU(cuModuleLoadData(&module_, kPtx));
    CU(cuModuleGetFunction(&kernel_, module_, "count_up"));
    lane_ = std::make_unique<Lane>(kernel_);
    lane_->launch();
    if (const std::string wrong = lane_->check_counter(); !wrong.empty()) {
      fprintf(stderr, "first kernel: %s\n", wrong.c_str());
      exit(1);
    }
    if (const char* path = getenv("BENCH_BARRIER")) barrier_ = std::make_unique<Barrier>(path);
  }

  void solo(const Operation& op, int samples, uint32_t together) {
    Block block;
    op.prepare(*lane_);
    warm_up(op, *lane_, samples);
    fence();
    say("prepared", "");
    await("go");
    if (together != 0 && barrier_ != nullptr) barrier_->arrive(together);
    const int64_t cpu = cpu_ns();
    measure(op, *lane_, samples, block);
    block.cpu_ns = cpu_ns() - cpu;
    fence();
    say_block(op, block, 1);
    await("verify");
    say_verified(op.verify(*lane_));
  }

  void threads(const Operation& op, int samples, uint32_t count) {
    std::vector<Block> blocks(count);
    std::vector<std::string> wrong(count);
    std::vector<std::thread> running;
    Gate prepared, measured;
    for (uint32_t i = 0; i < count; ++i) {
      running.emplace_back([&, i] {
        CU(cuCtxSetCurrent(context_));
        Lane lane(kernel_);
        op.prepare(lane);
        warm_up(op, lane, samples);
        prepared.pass();
        measure(op, lane, samples, blocks[i]);
        measured.pass();
        wrong[i] = op.verify(lane);
      });
    }
    prepared.await(count);
    fence();
    say("prepared", "");
    await("go");
    const int64_t cpu = cpu_ns();
    prepared.open();
    measured.await(count);
    Block all = blocks[0];
    all.cpu_ns = cpu_ns() - cpu;
    fence();
    for (size_t i = 1; i < blocks.size(); ++i) {
      all.times.add(blocks[i].times);
      all.begin_ns = std::min(all.begin_ns, blocks[i].begin_ns);
      all.end_ns = std::max(all.end_ns, blocks[i].end_ns);
    }
    say_block(op, all, count);
    await("verify");
    measured.open();
    for (std::thread& thread : running) thread.join();
    for (const std::string& text : wrong) {
      if (!text.empty()) return say_verified(text);
    }
    say_verified("");
  }

  void anatomy(int samples) {
    std::string values;
    for (const Anatomy& one : anatomies()) {
      values +=
          (values.empty() ? "\"" : ", \"") + one.name + "\": " + take_apart(one, *lane_, samples);
    }
    say("anatomy", values);
    await("verify");
    say_verified(lane_->check_counter());
  }

  void finish() {
    lane_.reset();
    CU(cuModuleUnload(module_));
    CU(cuDevicePrimaryCtxRelease(0));
  }

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<Barrier> barrier_;
};

int serve(Client& client) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, name;
    int samples = 0;
    uint32_t count = 0;
    words >> command;
    if (command == "finish") {
      client.finish();
      say("done", "\"hashes\": {}");
      return 0;
    }
    if (command == "pin") {
      words >> samples;
      pin(samples);
      continue;
    }
    if (command == "anatomy") {
      words >> samples;
      client.anatomy(samples);
      continue;
    }
    words >> name >> samples >> count;
    const Operation* op = find_operation(name);
    if (op == nullptr || samples < 1) {
      fprintf(stderr, "cannot do: %s\n", line.c_str());
      return 2;
    }
    samples = std::max(samples / static_cast<int>(op->cost), 3);
    if (command == "threads") {
      client.threads(*op, samples, count);
    } else {
      client.solo(*op, samples, command == "together" ? count : 0);
    }
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--list") {
    for (const bench::Operation& op : bench::operations()) printf("%s\n", op.name.c_str());
    return 0;
  }
  bench::Client client;
  bench::say("ready", "\"pid\": " + std::to_string(getpid()));
  return bench::serve(client);
}
