// What copies_client measures on command: each kind of task by its first word.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/copies/path.h"

namespace bench {

// Lines of the script. Not std::cin: a bulk task asks between two copies whether there is one.
class Lines {
 public:
  // False at the end of the input.
  bool next(std::string& line);
  // Whether next() would return at once.
  bool waiting();
  // The next line must be this word.
  void await(const char* word);

 private:
  bool read_more();
  std::string buffer_;
};

// What all tasks of a program have: its context, and memory that is kept from one task to the next.
class Client {
 public:
  Client();
  // Of at least `bytes`, and of at least the `keep` bytes that the script announced.
  Path& path(bool up, Host kind, size_t bytes);
  void keep(size_t bytes) { keep_ = bytes; }
  // Gives all memory back.
  void drop() { paths_.clear(); }
  // A kernel of the program: mix(out, in, rounds) makes out[i] = in[i] after so many rounds of
  // mixed(), a 32-bit word a thread.
  CUfunction kernel();
  Lines lines;

 private:
  CUcontext context_ = nullptr;
  CUfunction kernel_ = nullptr;
  size_t keep_ = 0;
  std::map<std::pair<bool, Host>, std::unique_ptr<Path>> paths_;
};

constexpr uint32_t mixed(uint32_t x) { return x * 1664525 + 1013904223; }

struct Block {
  std::vector<int64_t> latency_ns;
  // Bulk: when a round of copies was seen to have ended.
  std::vector<int64_t> ended_ns;
  std::vector<int64_t> free_ns;
  // Of one sample, or of one round of a bulk.
  size_t bytes = 0;
  // Marks that had gone by when the copy before had ended.
  int64_t missed = 0;
  // Requests whose result was wrong.
  int64_t wrong = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  // Untimed: memory, and every call once.
  virtual void prepare() {}
  virtual void measure(Block& block) = 0;
  // Empty, or what was wrong with the bytes.
  virtual std::string verify() = 0;
};

// Each reads the rest of its command line.
//   copy WAY HOST BYTES SAMPLES       WAY: up, down, both at once; HOST: pinned, touched, untouched
//   relay WAY BYTES SAMPLES LINKS    pinned copies in pieces over so many GPUs' links, the first's
//                                     among them
//   victim WAY BYTES PERIOD_US MS LEAD_MS     a copy every PERIOD_US for MS, LEAD_MS behind the
//   start function IN OUT ROUNDS PERIOD_US MS LEAD_MS     copy in, kernel, copy out instead of a
//   copy bulk KIND BYTES PIECES            rounds of copies until the line "stop"; KIND: up, down,
//                                     pageable, graph, load; pin: pinned memory is allocated
//   allocate BYTES SAMPLES PAUSE_MS [keep]    pinned memory, freed behind each sample or at the end
//   deliver HOW HOST BYTES SAMPLES    pageable bytes to the device by HOW: pageable, registered,
//                                     allocated, staging
//   take PART BYTES SAMPLES           GPU memory, freed behind each sample; PART of it is timed:
//                                     allocate, free, use (allocated and first used)
//   steps KERNELS BLOCKS ROUNDS PERIOD_US MS LEAD_MS    so many kernels and a wait, every PERIOD_US
//                                     (0: one behind the other)
//   turn BYTES BLOCKS                 a first call and a wait on memory that stays from turn to
//   turn busy KERNELS BLOCKS ROUNDS        so many kernels a round, without pause, until the line
//   "stop"
//   requests BYTES PAUSE_US MS        pageable bytes in, a kernel, bytes out, a pause, for MS
//   stand STREAMS                     so many streams wait for a value until the line "stop"
std::unique_ptr<Task> make_copy(Client& client, std::istream& words);
std::unique_ptr<Task> make_relay(Client& client, std::istream& words);
std::unique_ptr<Task> make_victim(Client& client, std::istream& words);
std::unique_ptr<Task> make_function(Client& client, std::istream& words);
std::unique_ptr<Task> make_bulk(Client& client, std::istream& words);
std::unique_ptr<Task> make_allocate(Client& client, std::istream& words);
std::unique_ptr<Task> make_deliver(Client& client, std::istream& words);
std::unique_ptr<Task> make_take_memory(Client& client, std::istream& words);
std::unique_ptr<Task> make_steps(Client& client, std::istream& words);
std::unique_ptr<Task> make_stand(Client& client, std::istream& words);
std::unique_ptr<Task> make_busy(Client& client, std::istream& words);
std::unique_ptr<Task> make_requests(Client& client, std::istream& words);
std::unique_ptr<Task> make_turn(Client& client, std::istream& words);

Host host_named(const std::string& name);
// "up" is true, "down" false; anything else ends the program.
bool way_named(const std::string& name);
CUstream new_stream();

}  // namespace bench
