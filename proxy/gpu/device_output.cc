#include "proxy/gpu/device_output.h"

#include <chrono>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{
    1};  // between two looks whether the owner's kernels have ended
constexpr std::chrono::milliseconds kGap{
    20};  // how long an owner's launch waits for those who want the turn: some looks long
}  // namespace

DeviceOutput::~DeviceOutput() {
  for (Tail& t : tails_) {
    if (t.event != nullptr) driver_.cuEventDestroy_v2(t.event);
    if (t.idle != nullptr) driver_.cuStreamDestroy_v2(t.idle);
    if (t.stream != nullptr) driver_.cuStreamDestroy_v2(t.stream);
  }
}

DeviceOutput::Turn::Turn(DeviceOutput& output, uint64_t client)
    : output_(output), lock_(output.mutex_) {
  output_.take_turn(client, lock_);
}

DeviceOutput::Turn::Turn(DeviceOutput& output, uint64_t client, IfOwner)
    : output_(output), lock_(output.mutex_) {
  if (output.owner_ != client) lock_.unlock();
}

void DeviceOutput::Turn::launched(uint32_t gpu, CUstream stream, CUevent* event) {
  const Driver& driver = output_.driver_;
  Tail* tail = output_.tail(gpu);
  if (tail == nullptr) return;
  if (*event == nullptr && driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return;
  if (driver.cuEventRecord(*event, stream) == CUDA_SUCCESS)
    driver.cuStreamWaitEvent(tail->stream, *event, 0);
}

// In the GPU's own context: the current one may be a client's green context, which ends before us.
DeviceOutput::Tail* DeviceOutput::tail(uint32_t gpu) {
  if (tails_.size() < gpus_.count()) tails_.resize(gpus_.count());
  Tail& t = tails_[gpu];
  if (t.event != nullptr) return &t;
  if (driver_.cuCtxPushCurrent_v2(gpus_[gpu].context) != CUDA_SUCCESS) return nullptr;
  if (t.stream == nullptr) driver_.cuStreamCreate(&t.stream, CU_STREAM_NON_BLOCKING);
  if (t.idle == nullptr) driver_.cuStreamCreate(&t.idle, CU_STREAM_NON_BLOCKING);
  if (t.stream != nullptr && t.idle != nullptr)
    driver_.cuEventCreate(&t.event, CU_EVENT_DISABLE_TIMING);
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
  return t.event != nullptr ? &t : nullptr;
}

bool DeviceOutput::tails_idle() {
  for (const Tail& t : tails_) {
    if (t.stream != nullptr && driver_.cuStreamQuery(t.stream) == CUDA_ERROR_NOT_READY)
      return false;
  }
  return true;
}

// False: the owner's kernels still run, and the time is up. The owner may have changed.
bool DeviceOutput::wait_for_owner(uint64_t client, std::unique_lock<std::mutex>& lock) {
  const auto owned = [this, client] { return owner_ != kNobody && owner_ != client; };
  const auto deadline = Clock::now() + std::chrono::milliseconds(patience_ms_);
  ++wanting_;
  bool idle = tails_idle();
  while (owned() && !idle && Clock::now() < deadline) {
    changed_.wait_for(lock, kLook);  // nobody tells when the kernels end
    idle = tails_idle();
  }
  --wanting_;
  changed_.notify_all();
  return idle || !owned();
}

// Synchronising is what makes the driver empty the buffer. While kernels run it is done in a stream
// that has none.
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
    if (!kept.full)
      log_warn("client %lu does not collect what its kernels print: text is lost", owner_);
    kept.full = true;
    return;
  }
  kept.bytes.append(text);
}

void DeviceOutput::take_turn(uint64_t client, std::unique_lock<std::mutex>& lock) {
  if (owner_ == client && wanting_ != 0) {
    changed_.wait_for(lock, kGap, [this, client] { return wanting_ == 0 || owner_ != client; });
  }
  if (owner_ == client) return;
  const bool ended = owner_ == kNobody || wait_for_owner(client, lock);
  if (!ended)
    log_warn(
        "a kernel of client %lu that may print does not end: its text may be taken for that of "
        "client %lu",
        owner_, client);
  if (owner_ != kNobody) flush(ended);
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
