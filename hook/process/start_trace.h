// Where the time of a program's start goes: TUBE_TRACE_START=FILE appends one JSON line to the file
// when the program exits.
//
// A mark is the monotonic time at which something happened for the first time; bench/coldstart
// reads them next to the program's own stamps. The counts are of the whole run. Off, each of these
// costs one load. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube::hook {

enum class StartMark : uint32_t {
  kLoaded,         // this library's constructor
  kDriverThread,   // TUBE_PREINIT's thread runs
  kDriverAsked,    // it decided to start the driver and asked the proxy for its GPUs
  kDriverStarted,  // the real driver's cuInit is done
  kInit,           // the first cuInit begins
  kConnected,      // the socket
  kReserved,       // the address windows
  kGreeted,        // the proxy's answer is here
  kAttached,       // its memory is mapped
  kReady,          // cuInit returns
  kTable,          // the first export table that is the real driver's is asked for
  kTableReady,     // and was given
  kLoad,           // the first image
  kLoadEnd,
  kKernel,  // the first kernel
  kKernelEnd,
  kLaunch,  // the first launch returns
  kCount,
};

enum class Tally : uint32_t {
  kRoundTrips,  // replies waited for
  kImages,      // loads asked of the proxy
  kFiles,       // of them by file
  kImageBytes,  // of images that went inside records or were copied into a memory file
  kMapReads,    // of the process's list of mappings, for an image's file
  kLookups,     // kernels asked of the proxy
  kKnown,       // kernels that the load's reply had brought
  kLoadNs,      // time in loads and look-ups
  kLookupNs,
  kCount,
};

namespace start_trace {
extern std::atomic<bool> on;
void record(StartMark mark);
void add(Tally tally, uint64_t amount);
uint64_t now_ns();
}  // namespace start_trace

// From the library's constructor: reads the environment variable.
void begin_start_trace();
// From the exit handler; once.
void write_start_trace();

inline bool tracing_start() { return start_trace::on.load(std::memory_order_relaxed); }
inline void mark_start(StartMark what) {
  if (start_trace::on.load(std::memory_order_relaxed)) [[unlikely]]
    start_trace::record(what);
}
inline void tally(Tally what, uint64_t amount = 1) {
  if (start_trace::on.load(std::memory_order_relaxed)) [[unlikely]]
    start_trace::add(what, amount);
}

// Adds the time of its life.
class TallyTime {
 public:
  explicit TallyTime(Tally what)
      : what_(what),
        begin_(start_trace::on.load(std::memory_order_relaxed) ? start_trace::now_ns() : 0) {}
  ~TallyTime() {
    if (begin_ != 0) start_trace::add(what_, start_trace::now_ns() - begin_);
  }
  TallyTime(const TallyTime&) = delete;
  TallyTime& operator=(const TallyTime&) = delete;

 private:
  Tally what_;
  uint64_t begin_;
};

}  // namespace tube::hook
