// When a session saw each record and when it had executed it, for measurements (bench/calls, group
// anatomy).
//
// Off unless TUBE_TRACE_RECORDS names a file; then two clock reads a record, and at the session's
// end a line for each of the first records, "pid call seen_ns done_ns", CLOCK_MONOTONIC. Session
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tube::proxy {

class RecordTrace {
 public:
  // nullptr when nothing is to be traced.
  static std::unique_ptr<RecordTrace> from_environment();
  explicit RecordTrace(std::string path);

  void add(uint32_t call, uint64_t seen_ns, uint64_t done_ns);
  // Appends the lines to the file, by one write. A file that cannot be written is said in the log.
  void write(int pid) const;

 private:
  static constexpr size_t kMost = 1 << 17;
  struct Entry {
    uint32_t call;
    uint64_t seen_ns, done_ns;
  };
  std::string path_;
  std::vector<Entry> entries_;
};

}  // namespace tube::proxy
