#include "proxy/session/output.h"

#include <algorithm>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/gpu/device_output.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/context_shares.h"
#include "sharedmem/accessors.h"
#include "sharedmem/words.h"

namespace tube::proxy {

namespace {

// Others may become the owner in between; each that does has launched something, so one of us goes
// on.
constexpr int kTries = 16;

}  // namespace

CUresult Output::launch(const StreamOp& op, uint32_t writes, uint64_t sequence,
                        const std::function<CUresult()>& launch, LaunchGate how) {
  ContextGate& gate = gpus_.gate();
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  if (shares_.captures() && driver_.cuStreamIsCapturing(op.stream, &capturing) == CUDA_SUCCESS &&
      capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
    graph_gains(writes);  // it writes when the graph is launched
    return gate.launch(this_caller(), how, launch);
  }
  if ((writes & wire::kKernelAsserts) != 0) op.state->last_assert = sequence;
  if ((writes & wire::kKernelPrints) == 0 || device_ == nullptr)
    return gate.launch(this_caller(), how, launch);
  const auto write = [&](DeviceOutput::Turn&& turn) {
    const CUresult error = launch();
    if (error == CUDA_SUCCESS) turn.launched(shares_.current().gpu, op.stream, &op.state->printed);
    return error;
  };
  if (how == LaunchGate::kNone) return write(DeviceOutput::Turn(*device_, client_));
  // Inside the gate nobody may wait for the kernels of another client: they may need a wait of its
  // program, which stands until the gate opens.
  for (int i = 0; i < kTries; ++i) {
    (void)DeviceOutput::Turn(*device_, client_);
    bool owner = false;
    const CUresult error = gate.launch(this_caller(), how, [&] {
      DeviceOutput::Turn turn(*device_, client_, DeviceOutput::Turn::IfOwner{});
      owner = static_cast<bool>(turn);
      return owner ? write(std::move(turn)) : CUDA_SUCCESS;
    });
    if (owner) return error;
  }
  const auto at_last = [&] { return write(DeviceOutput::Turn(*device_, client_)); };
  return gate.launch(this_caller(), how, at_last);
}

bool Output::may_have_asserted() {
  const auto ended = [this](const StreamState& stream, uint32_t) {
    if (stream.last_assert == 0) return true;
    return stream.marked > stream.last_assert && shared::valid_word(stream.mark_word) &&
           static_cast<int64_t>(shared::load_word(segment_.word(stream.mark_word)) -
                                stream.mark_value) >= 0;
  };
  return !shares_.all_streams(ended);
}

void Output::fetch_assertion() {
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    if (gpus_[gpu].failed.load(std::memory_order_relaxed) != CUDA_ERROR_ASSERT) continue;
    if (std::exchange(assertion_told_, true) || !may_have_asserted()) return;
    // The driver writes the text when somebody synchronises; on a dead context that returns at
    // once.
    if (shares_.make_current(gpu) == CUDA_SUCCESS) (void)driver_.cuCtxSynchronize();
    assertion_text_ = device_->assertions();
    return;
  }
}

std::string Output::take_assertion(size_t room) {
  std::string taken = assertion_text_.substr(0, std::min(assertion_text_.size(), room));
  assertion_text_.erase(0, taken.size());
  return taken;
}

std::string Output::collect(size_t room, bool* outstanding, bool* more) {
  return device_->collect(client_, room, outstanding, more);
}

void Output::forget() {
  if (device_ != nullptr) device_->forget(client_);
}

}  // namespace tube::proxy
