#include "proxy/device_output.h"

#include <poll.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/client_limits.h"
#include "proxy/gpus.h"

namespace tube::proxy {

DeviceOutput::~DeviceOutput() {
  for (Tail& t : tails_) {
    if (t.event != nullptr) driver_.cuEventDestroy_v2(t.event);
    if (t.idle != nullptr) driver_.cuStreamDestroy_v2(t.idle);
    if (t.stream != nullptr) driver_.cuStreamDestroy_v2(t.stream);
  }
}

DeviceOutput::Turn::Turn(DeviceOutput& output, uint64_t client) : output_(output), lock_(output.mutex_) { output_.pass_to(client); }

void DeviceOutput::Turn::launched(uint32_t gpu, CUstream stream, CUevent* event) {
  const Driver& driver = output_.driver_;
  Tail* tail = output_.tail(gpu);
  if (tail == nullptr) return;
  if (*event == nullptr && driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  if (driver.cuEventRecord(*event, stream) == CUDA_SUCCESS) driver.cuStreamWaitEvent(tail->stream, *event, 0);
}

// In the GPU's own context: the current one may be a client's green context, which ends before us.
DeviceOutput::Tail* DeviceOutput::tail(uint32_t gpu) {
  if (tails_.size() < gpus_.count()) tails_.resize(gpus_.count());
  Tail& t = tails_[gpu];
  if (t.event != nullptr) return &t;
  if (driver_.cuCtxPushCurrent_v2(gpus_[gpu].context) != CUDA_SUCCESS) return nullptr;
  if (t.stream == nullptr) driver_.cuStreamCreate(&t.stream, CU_STREAM_NON_BLOCKING);
  if (t.idle == nullptr) driver_.cuStreamCreate(&t.idle, CU_STREAM_NON_BLOCKING);
  if (t.stream != nullptr && t.idle != nullptr) driver_.cuEventCreate(&t.event, CU_EVENT_DISABLE_TIMING);
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
  return t.event != nullptr ? &t : nullptr;
}

bool DeviceOutput::tails_idle() {
  for (const Tail& t : tails_) {
    if (t.stream != nullptr && driver_.cuStreamQuery(t.stream) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

bool DeviceOutput::wait_tails() {
  const uint64_t deadline = now_ns() + uint64_t{limits::kOutputMs} * 1'000'000u;
  for (int pause_ms = 0; !tails_idle(); pause_ms = pause_ms == 0 ? 1 : pause_ms) {
    if (now_ns() > deadline) return false;
    poll(nullptr, 0, pause_ms);  // a wait for the GPU with an end; nobody wakes it
  }
  return true;
}

// Synchronising is what makes the driver empty the buffer. While kernels run it is done in a stream that has none.
void DeviceOutput::flush(bool ended) {
  for (const Tail& t : tails_) {
    if (t.event == nullptr) continue;
    if (!ended) driver_.cuEventRecord(t.event, t.idle);
    driver_.cuStreamSynchronize(ended ? t.stream : t.idle);
  }
}

void DeviceOutput::take_text() {
  std::string text;
  process_.take(&text);
  if (text.empty()) return;
  if (owner_ == kNobody) return process_.forward(text);
  Text& kept = texts_[owner_];
  if (kept.bytes.size() - kept.given + text.size() > limits::kOutputBytes) {
    if (!kept.full) log_warn("client %lu does not collect what its kernels print: text is lost", owner_);
    kept.full = true;
    return;
  }
  kept.bytes.append(text);
}

void DeviceOutput::pass_to(uint64_t client) {
  if (owner_ == client) return;
  if (owner_ != kNobody) {
    const bool ended = wait_tails();
    if (!ended) log_warn("a kernel of client %lu that may print does not end: its text may be taken for that of client %lu", owner_, client);
    flush(ended);
  }
  take_text();
  owner_ = client;
}

std::string DeviceOutput::collect(uint64_t client, size_t room, bool* outstanding, bool* more) {
  std::lock_guard guard(mutex_);
  *outstanding = *more = false;
  if (owner_ == client) {
    const bool ended = tails_idle();
    flush(ended);
    take_text();
    *outstanding = !ended;
  }
  auto found = texts_.find(client);
  if (found == texts_.end()) return {};
  Text& text = found->second;
  std::string piece = text.bytes.substr(text.given, room);
  text.given += piece.size();
  *more = text.given < text.bytes.size();
  if (!*more) texts_.erase(found);
  return piece;
}

std::string DeviceOutput::assertions() {
  std::lock_guard guard(mutex_);
  assertions_ += process_.take_assertions();
  return assertions_;
}

void DeviceOutput::forget(uint64_t client) {
  std::lock_guard guard(mutex_);
  if (owner_ == client) {
    flush(tails_idle());
    take_text();
    owner_ = kNobody;
  }
  texts_.erase(client);
}

}  // namespace tube::proxy
