// What keeps the log of a process that serves others within bounds: how many lines each source may
// write, no waiting for whoever reads the log, and a file that begins anew when it is large.
//
// A program's own log (the hook's) uses none of it. In tubed every line that a client can cause
// counts against that client and against all clients together; beyond that it is left out, and the
// next line that goes through says how many were. With a level of `debug` or `trace`, which
// somebody asked for, lines are not counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tube {

// A burst of lines, then so many a second. Any thread; no lock.
class LogBudget {
 public:
  // Lines count against `of_all`, too, which outlives this.
  constexpr LogBudget(uint32_t burst, uint32_t a_second, LogBudget* of_all = nullptr)
      : step_ns_(1'000'000'000 / a_second), burst_ns_(step_ns_ * burst), of_all_(of_all) {}

  // False: this line is one too many.
  bool take(uint64_t now_ns);
  void leave_out(uint64_t lines = 1);
  // Lines that were left out since this was asked last.
  uint64_t take_left_out() { return left_out_.exchange(0, std::memory_order_relaxed); }

 private:
  const uint64_t step_ns_, burst_ns_;
  LogBudget* const of_all_;
  std::atomic<uint64_t> free_ns_{0};  // from when on nothing would be owed
  std::atomic<uint64_t> left_out_{0};
};

// Lines of all threads are counted from here on, against `own` where nothing else is said; it lives
// for ever.
void bound_log(LogBudget* own);
// The calling thread's lines count against `budget`, until it says nullptr.
void log_within(LogBudget* budget);

// From here on a line for which a pipe, socket or terminal has no room is left out instead of
// waiting for its reader. Once, before other threads.
void log_without_waiting();
// A log file in `folder` that has grown beyond `most_bytes` is renamed to its name with ".1", which
// replaces the last one, and begun anew; standard error follows it. Once, before other threads.
void begin_log_anew(std::string folder, uint64_t most_bytes);
// Lines of this process that were left out so far. Any thread.
uint64_t log_lines_left_out();
// Text that is no line of ours, to where the log goes, under the same two rules.
void log_text(const char* text, size_t bytes);

namespace log_internal {  // log.cc
bool admits(bool counted, uint64_t* left_out);
// `told`: so many lines that were left out are told in this one.
void put(int fd, const char* text, size_t bytes, uint64_t told = 0);
int output();
void replace_output(int fd);
void reset_limits_for_test();
}  // namespace log_internal

}  // namespace tube
