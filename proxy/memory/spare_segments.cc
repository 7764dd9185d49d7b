#include "proxy/memory/spare_segments.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained.h"
#include "proxy/common/contained_thread.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/host_budget.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tube::proxy {

namespace {
constexpr std::chrono::seconds kQuiet{60};

// The driver then only takes the pages, instead of having them mapped one by one in its lock. A
// kernel without it (before 5.14) does that.
void map_pages(void* at, uint64_t bytes) { (void)madvise(at, bytes, MADV_POPULATE_WRITE); }

uint64_t bytes_of(const PreparedSegment& segment) {
  return abi::kFirstBytes + (segment.more_chunks ? abi::kMoreChunksBytes : 0);
}

uint64_t bytes_of(const std::list<PreparedSegment>& segments) {
  uint64_t bytes = 0;
  for (const PreparedSegment& segment : segments) bytes += bytes_of(segment);
  return bytes;
}
}  // namespace

SpareSegments::SpareSegments(const Driver& driver, Gpus& gpus, uint32_t fewest,
                             std::function<void(bool too_many)> something_old,
                             uint64_t most_old_bytes)
    : driver_(driver),
      gpus_(gpus),
      fewest_(fewest),
      something_old_(std::move(something_old)),
      most_old_bytes_(most_old_bytes),
      target_(fewest) {}

SpareSegments::~SpareSegments() {
  close();
  drop_old();
}

void SpareSegments::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mutex_);
  for (auto* kept : {&ready_, &used_}) old_.splice(old_.end(), *kept);
}

void SpareSegments::start() {
  if (fewest_ == 0) return;
  // Without the thread every function makes its own.
  thread_ =
      contained_thread("tube-spares", "the thread that prepares shared memory", [this] { run(); });
}

CUresult register_more_chunks(const Driver& driver, const shared::Segment& segment,
                              Registrations* registrations, uint64_t owner) {
  for (uint32_t chunk = abi::kFirstChunks; chunk < abi::kChunkCount; ++chunk) {
    map_pages(segment.chunk(chunk), abi::chunk_bytes(chunk));
    const CUresult error = add_registration(registrations, driver, Registrant::kChunks, owner,
                                            segment.chunk(chunk), abi::chunk_bytes(chunk),
                                            Registrations::kMapped, Registrations::Need::kAhead);
    if (error == CUDA_SUCCESS) continue;
    while (chunk-- > abi::kFirstChunks)
      (void)remove_registration(registrations, driver, Registrant::kChunks, segment.chunk(chunk));
    return error;
  }
  return CUDA_SUCCESS;
}

void unregister_more_chunks(const Driver& driver, const shared::Segment& segment,
                            Registrations* registrations) {
  for (uint32_t chunk = abi::kFirstChunks; chunk < abi::kChunkCount; ++chunk)
    (void)remove_registration(registrations, driver, Registrant::kChunks, segment.chunk(chunk));
}

Result<PreparedSegment> SpareSegments::make(const Driver& driver, uint64_t session_id,
                                            Registrations* registrations,
                                            Registrations::Need need) {
  Result<shared::Segment> segment = shared::Segment::create(session_id);
  if (!segment.ok()) return segment.error();
  PreparedSegment made{segment.take(), 0, false};
  map_pages(made.segment.registered(), abi::kRegisteredBytes);
  CUresult error =
      add_registration(registrations, driver, Registrant::kSegments, 0, made.segment.registered(),
                       abi::kRegisteredBytes, Registrations::kMapped, need);
  if (error == CUDA_SUCCESS) {
    error = driver.cuMemHostGetDevicePointer_v2(&made.registered, made.segment.registered(), 0);
    if (error != CUDA_SUCCESS)
      (void)remove_registration(registrations, driver, Registrant::kSegments,
                                made.segment.registered());
  }
  if (error != CUDA_SUCCESS)
    return errorf("the driver refuses the shared segment: %s", result_text(driver, error).c_str());
  return made;
}

Result<PreparedSegment> SpareSegments::take(uint64_t session_id) {
  PreparedSegment spare;
  {
    std::lock_guard lock(mutex_);
    failed_ = false;
    if (bytes_of(old_) > most_old_bytes_)
      return errorf("%zu segments of functions that left cannot be given back to the driver",
                    old_.size());
    if (!ready_.empty()) {
      spare = std::move(ready_.front());
      ready_.pop_front();
    } else if (fewest_ != 0) {
      target_ = std::min(target_ * 2, kMostSpares);
    }
  }
  if (fewest_ != 0) wanted_.notify_one();
  if (spare.segment.valid()) {
    spare.segment.header().session_id = session_id;
    return spare;
  }
  driver_.cuCtxSetCurrent(gpus_[0].context);
  return make_counted(session_id, Registrations::Need::kNow);
}

Result<PreparedSegment> SpareSegments::make_counted(uint64_t session_id, Registrations::Need need) {
  if (!take_host(host_, HostUse::kSegments, abi::kFirstBytes))
    return errorf("the proxy has no memory left for its %lu MiB of shared memory",
                  abi::kFirstBytes >> 20);
  ScopeGuard give([this] { give_host(host_, HostUse::kSegments, abi::kFirstBytes); });
  Result<PreparedSegment> made = make(driver_, session_id, &gpus_.registrations(), need);
  if (made.ok()) give.dismiss();
  return made;
}

SpareSegments::Counts SpareSegments::counts() const {
  std::lock_guard lock(mutex_);
  const auto ready = static_cast<uint32_t>(ready_.size());
  return {ready + static_cast<uint32_t>(used_.size()) + wiping_, ready,
          unsettled_ == 0 && old_.empty()};
}

void SpareSegments::give_back(PreparedSegment&& used) {
  if (fewest_ == 0) return retire(std::move(used));
  bool too_many = false;
  {
    std::lock_guard lock(mutex_);
    used_.push_back(std::move(used));
    bound();
    if (old_.empty()) return wanted_.notify_one();
    too_many = too_many_old();
  }
  wanted_.notify_one();
  if (something_old_) something_old_(too_many);
}

void SpareSegments::retire(PreparedSegment&& used) {
  bool too_many = false;
  {
    std::lock_guard lock(mutex_);
    old_.push_back(std::move(used));
    too_many = too_many_old();
  }
  if (something_old_) something_old_(too_many);
}

// mutex_ is held.
bool SpareSegments::too_many_old() const { return bytes_of(old_) >= limits::kKeptSegmentBytes; }

// mutex_ is held. Those that grew go first: one costs as much as five others. While the janitor is
// held back, what is kept is used again instead of growing old, so that it does not add up.
void SpareSegments::bound() {
  const auto large = [](const PreparedSegment& segment) { return segment.more_chunks; };
  uint64_t bytes = wiping_bytes_ + bytes_of(ready_) + bytes_of(used_);
  while (bytes > limits::kKeptSegmentBytes && !too_many_old()) {
    const bool grew = std::any_of(ready_.begin(), ready_.end(), large) &&
                      std::none_of(used_.begin(), used_.end(), large);
    std::list<PreparedSegment>& from = grew ? ready_ : used_;
    if (from.empty()) return;
    auto first = std::find_if(from.begin(), from.end(), large);
    if (first == from.end()) first = from.begin();
    bytes -= bytes_of(*first);
    old_.splice(old_.end(), from, first);
  }
}

void SpareSegments::trim() {
  std::lock_guard lock(mutex_);
  old_.splice(old_.end(), used_);
  while (ready_.size() > target_) old_.splice(old_.end(), ready_, std::prev(ready_.end()));
}

void SpareSegments::drop_old() {
  std::list<PreparedSegment> old;
  {
    std::lock_guard lock(mutex_);
    if (old_.empty()) return;
    old.swap(old_);
    ++unsettled_;
  }
  driver_.cuCtxSetCurrent(gpus_[0].context);
  for (PreparedSegment& each : old) {
    Registrations& registrations = gpus_.registrations();
    (void)registrations.remove(driver_, Registrant::kSegments, each.segment.registered());
    if (each.more_chunks) unregister_more_chunks(driver_, each.segment, &registrations);
    give_host(host_, HostUse::kSegments, bytes_of(each));
  }
  old.clear();
  std::lock_guard lock(mutex_);
  --unsettled_;
}

// Makes a used segment a ready one; false when there is none or no need.
bool SpareSegments::clean_one(std::unique_lock<std::mutex>& lock) {
  if (used_.empty() || ready_.size() >= kMostSpares) return false;
  std::list<PreparedSegment> one;
  one.splice(one.end(), used_, used_.begin());
  PreparedSegment& segment = one.front();
  ++wiping_;
  wiping_bytes_ += bytes_of(segment);
  lock.unlock();
  segment.segment.wipe(segment.more_chunks);
  segment.segment.begin(0);
  lock.lock();
  --wiping_;
  wiping_bytes_ -= bytes_of(segment);
  ready_.splice(ready_.end(), one);
  return true;
}

// mutex_ is held, but not meanwhile.
void SpareSegments::make_one(std::unique_lock<std::mutex>& lock) {
  ++unsettled_;
  lock.unlock();
  std::list<PreparedSegment> one;  // its place first, then what must not be lost
  (void)contained("a spare segment", [&] {
    one.emplace_back();
    Result<PreparedSegment> made = make_counted(0, Registrations::Need::kAhead);
    if (made.ok()) one.front() = made.take();
    else log_debug("no spare segment: %s", made.error().message.c_str());
  });
  lock.lock();
  --unsettled_;
  failed_ = one.empty() || !one.front().segment.valid();
  if (!failed_) ready_.splice(ready_.end(), one);
}

void SpareSegments::run() {
  driver_.cuCtxSetCurrent(gpus_[0].context);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (clean_one(lock)) continue;
    if (ready_.size() < target_ && !failed_ && gpus_[0].failed.load() == 0) {
      make_one(lock);
      continue;
    }
    if (wanted_.wait_for(lock, kQuiet) == std::cv_status::timeout)
      target_ = std::max(target_ / 2, fewest_);
  }
}

}  // namespace tube::proxy
