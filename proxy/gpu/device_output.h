// Which client a kernel's printed text belongs to.
//
// A context has one printf buffer, which the driver empties into this process's standard output
// whenever it synchronises (process_output.h). So that text has one possible author, the right to
// launch kernels that may print belongs to one client at a time. Another client that wants it first
// waits for the former one's printing kernels (for a bounded time; a kernel that outlives it may
// have its text attributed to the wrong client, which is logged) and collects what they wrote.
// Meanwhile the former one collects its text and goes on: its kernels may be waiting for what its
// program does next. Only with launching more of them it waits for a moment, so that one which
// always prints leaves the others a gap. A client asks for its text when it has synchronised;
// nothing waits for the GPU then but for work that has ended.
//
// Every printing launch is recorded in a stream per GPU that does nothing but wait for them, the
// tail: when it is idle, all printing kernels have ended. A launch that may print costs two driver
// calls more and an uncontended lock. Session threads; one lock, rank 15, held over the launch so
// that ownership cannot change in between, and given back while waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/process_output.h"

namespace tube::proxy {

struct Driver;
class Gpus;

class DeviceOutput {
 public:
  // `patience_ms`: how long another client's kernels are waited for.
  DeviceOutput(const Driver& driver, Gpus& gpus, ProcessOutput& process,
               uint32_t patience_ms = limits::kOutputMs)
      : driver_(driver), gpus_(gpus), process_(process), patience_ms_(patience_ms) {}
  DeviceOutput(const DeviceOutput&) = delete;
  DeviceOutput& operator=(const DeviceOutput&) = delete;
  // After the last session; the GPUs are still open.
  ~DeviceOutput();

  // While one lives, the client may launch kernels that print: make it before the launch, say
  // launched() behind it. A launch that passes the context gate must not wait for the
  // owner's kernels inside of it: this first, given back, then the gate, then IfOwner.
  class Turn {
   public:
    Turn(DeviceOutput& output, uint64_t client);
    // Waits for nobody: it is one only when the client has the right already.
    struct IfOwner {};
    Turn(DeviceOutput& output, uint64_t client, IfOwner);
    explicit operator bool() const { return lock_.owns_lock(); }
    // `stream` is of `gpu`, whose context is current; `event` is the stream's own, made when null.
    void launched(uint32_t gpu, CUstream stream, CUevent* event);

   private:
    DeviceOutput& output_;
    std::unique_lock<std::mutex> lock_;
  };

  // Moves at most `room` bytes of the client's text out. `*outstanding`: kernels of its that may
  // print still run. `*more`: text is left. Some GPU's context is current.
  std::string collect(uint64_t client, size_t room, bool* outstanding, bool* more);
  // The assertions of a context that died; each session that may have made them gets the same text.
  std::string assertions();
  // The client is gone: what it did not ask for goes with it.
  void forget(uint64_t client);

 private:
  static constexpr uint64_t kNobody = 0;
  struct Tail {  // of a GPU, made when something may print there
    CUstream stream = nullptr;
    CUstream idle = nullptr;  // never has work: to synchronise while kernels run
    CUevent event = nullptr;  // made last: the others are there when it is
  };
  struct Text {
    std::string bytes;
    size_t given = 0;
    bool full = false;
  };

  void take_turn(uint64_t client, std::unique_lock<std::mutex>& lock);
  bool wait_for_owner(uint64_t client, std::unique_lock<std::mutex>& lock);
  bool tails_idle();
  void flush(bool ended);
  void take_text();
  Tail* tail(uint32_t gpu);  // nullptr: the driver refuses the streams

  const Driver& driver_;
  Gpus& gpus_;
  ProcessOutput& process_;
  const uint32_t patience_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t owner_ = kNobody;
  uint32_t wanting_ = 0;  // clients that wait for the owner's kernels
  std::vector<Tail> tails_;
  std::map<uint64_t, Text> texts_;
  std::string assertions_;
};

}  // namespace tube::proxy
