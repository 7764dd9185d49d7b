// What a client has in flight, for the moment in which a context dies: of each stream the last
// kernels, and how far the GPU is known to have come.
//
// A dead context tells that one of its kernels broke it, not which. So each launch leaves its
// kernel's name in its stream's note, and each progress word behind a launch says, once the GPU has
// written it, that the launches before are over; words do not move any more when the context is
// dead. What is left may have broken it. The words lie in memory that the client writes too: one
// that lies about its progress is not named for it.
//
// The session's thread writes, a launch costs three relaxed stores; any thread reads, and may be a
// launch behind.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sharedmem/accessors.h"

namespace tube::proxy {

class LaunchNote {
 public:
  static constexpr uint64_t kKept = 4;  // kernels behind the last known progress, the newest

  // `kernel` stays until forget(), or outlives the session.
  void launched(const std::string* kernel) {
    const uint64_t count = launches_.load(std::memory_order_relaxed);
    kernels_[count % kKept].store(kernel, std::memory_order_relaxed);
    launches_.store(count + 1, std::memory_order_release);
  }
  // The GPU writes `value` to `word` behind all that was launched so far.
  void marked(uint64_t* word, uint64_t value) {
    if (reached()) over_.store(marked_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    marked_.store(launches_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    value_.store(value, std::memory_order_relaxed);
    word_.store(word, std::memory_order_release);
  }
  // The name is about to end; LaunchNotes' lock is held.
  void forget(const std::string* kernel) {
    for (auto& kept : kernels_)
      if (kept.load(std::memory_order_relaxed) == kernel)
        kept.store(nullptr, std::memory_order_relaxed);
  }
  // The names of those that may not be over, each once, the newest first.
  std::vector<std::string> in_flight() const {
    const uint64_t launches = launches_.load(std::memory_order_acquire);
    uint64_t over = (reached() ? marked_ : over_).load(std::memory_order_relaxed);
    if (launches > kKept) over = std::max(over, launches - kKept);
    std::vector<std::string> names;
    for (uint64_t at = launches; at > over; --at) {
      const std::string* name = kernels_[(at - 1) % kKept].load(std::memory_order_relaxed);
      if (name != nullptr && std::find(names.begin(), names.end(), *name) == names.end())
        names.push_back(*name);
    }
    return names;
  }

 private:
  bool reached() const {
    uint64_t* const word = word_.load(std::memory_order_acquire);
    return word != nullptr && shared::load_word(*word) >= value_.load(std::memory_order_relaxed);
  }

  std::array<std::atomic<const std::string*>, kKept> kernels_{};
  std::atomic<uint64_t> launches_{0};
  std::atomic<uint64_t> over_{0};    // launches known to be over when the last mark was made
  std::atomic<uint64_t> marked_{0};  // launches before the last mark
  std::atomic<uint64_t*> word_{nullptr};
  std::atomic<uint64_t> value_{0};
};

// Of all streams of one client.
class LaunchNotes {
 public:
  // Session thread. Kept while somebody else holds it, and for some time longer: work of a
  // destroyed stream goes on.
  std::shared_ptr<LaunchNote> add() {
    std::lock_guard lock(mutex_);
    if (notes_.size() >= kMost)
      std::erase_if(notes_, [](const auto& note) { return note.use_count() == 1; });
    notes_.push_back(std::make_shared<LaunchNote>());
    return notes_.back();
  }
  // Session thread: the name ends with its kernel.
  void forget(const std::string* kernel) {
    std::lock_guard lock(mutex_);
    for (const auto& note : notes_) note->forget(kernel);
  }
  // Any thread.
  std::vector<std::string> in_flight() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& note : notes_)
      for (std::string& name : note->in_flight())
        if (std::find(names.begin(), names.end(), name) == names.end())
          names.push_back(std::move(name));
    return names;
  }

 private:
  static constexpr size_t kMost = 64;  // before those of destroyed streams are forgotten
  mutable std::mutex mutex_;           // leaf: names do not end while it is held
  std::vector<std::shared_ptr<LaunchNote>> notes_;
};

}  // namespace tube::proxy
