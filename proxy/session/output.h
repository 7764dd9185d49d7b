// What a client's kernels print and assert, as far as its session keeps account of it: launches
// that may write, which of them may still run, and the text of a failed assertion on its way.
//
// Whose printed text it is decides gpu/device_output.h for all clients. A failed assertion ends the
// context for everybody; its text goes to the clients that had a kernel with assertions in flight,
// which as a rule is one. Session thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/cuda_api.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

class ContextShares;
class DeviceOutput;
struct Driver;
class Gpus;
enum class LaunchGate : uint32_t;  // context_gate.h
struct StreamOp;

class Output {
 public:
  // All outlive it. `device`: nullptr when what kernels print is not sorted by client. `segment`
  // has the client's progress words.
  Output(const Driver& driver, Gpus& gpus, ContextShares& shares, DeviceOutput* device,
         const shared::Segment& segment, uint64_t client)
      : driver_(driver),
        gpus_(gpus),
        shares_(shares),
        device_(device),
        segment_(segment),
        client_(client) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Launches through `launch`, with what the kernels may write (wire::kKernelPrints, ...) accounted
  // for. `sequence` is the record's. The launch's code. May wait for another client's kernels
  // (device_output.h), and at the context gate.
  CUresult launch(const StreamOp& op, uint32_t writes, uint64_t sequence,
                  const std::function<CUresult()>& launch, LaunchGate gate);
  // What kernels of the client's graphs may write; grows with each captured or added node.
  uint32_t graph_writes() const { return graph_writes_; }
  void graph_gains(uint32_t writes) { graph_writes_ |= writes; }

  // Fetches the text of the assertion that a GPU of the client has died of, once.
  void fetch_assertion();
  // At most `room` bytes of it that were not taken yet.
  std::string take_assertion(size_t room);
  bool assertion_is_left() const { return !assertion_text_.empty(); }
  // Some kernel that may have failed an assertion was not known to have ended. Meaningful when the
  // context has died.
  bool may_have_asserted();
  // At most `room` bytes of what the client's kernels printed. `*outstanding`: some that may print
  // still run. `*more`: text is left.
  std::string collect(size_t room, bool* outstanding, bool* more);
  // The client is gone: what it did not ask for goes with it.
  void forget();

 private:
  const Driver& driver_;
  Gpus& gpus_;
  ContextShares& shares_;
  DeviceOutput* const device_;
  const shared::Segment& segment_;
  const uint64_t client_;
  uint32_t graph_writes_ = 0;
  bool assertion_told_ = false;
  std::string assertion_text_;  // not yet handed over
};

}  // namespace tube::proxy
