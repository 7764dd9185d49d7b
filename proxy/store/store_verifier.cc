#include "proxy/store/store_verifier.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "proxy/common/contained.h"
#include "proxy/store/store.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::milliseconds kTurn{250};
constexpr std::chrono::microseconds kUnwritten{200};  // to the next look at bytes on their way
constexpr uint32_t kTurnsOfAll = 8;

}  // namespace

StoreVerifier::Watched* StoreVerifier::watched(uint32_t slot, uint64_t generation) {
  const auto found = watched_.find(slot);
  return found != watched_.end() && found->second.generation == generation ? &found->second
                                                                           : nullptr;
}

// The lock is held.
void StoreVerifier::poke() {
  poked_ = true;
  changed_.notify_all();
  if (thread_.joinable() || stopped_) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warn("no thread that verifies objects of the store: %s", error.what());
  }
}

void StoreVerifier::sealed(uint32_t slot, uint64_t generation, const std::string& name,
                           const std::string& maker) {
  std::lock_guard lock(mutex_);
  Watched& watched = watched_[slot] = Watched{};
  watched.generation = generation;
  watched.name = name;
  watched.maker = maker;
  poke();
}

void StoreVerifier::taken(uint32_t slot, uint64_t generation, const std::string& function) {
  std::lock_guard lock(mutex_);
  Watched* object = watched(slot, generation);
  if (object == nullptr) return;
  Holder& holder = object->holders[function];
  ++holder.holds;
  holder.gone = false;
}

void StoreVerifier::released(uint32_t slot, uint64_t generation, const std::string& function) {
  std::lock_guard lock(mutex_);
  Watched* object = watched(slot, generation);
  if (object == nullptr) return;
  // Its maker had it before the seal.
  const auto holder = object->holders.find(function);
  if (holder != object->holders.end() && holder->second.holds != 0) --holder->second.holds;
  object->due = true;
  poke();
}

void StoreVerifier::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StoreVerifier::run() {
  store_.enter_thread();
  std::unique_lock lock(mutex_);
  for (uint32_t turns = 1; !stopped_; ++turns) {
    poked_ = false;
    lock.unlock();
    bool soon = false;
    (void)contained("the verifier of the store", [&] { soon = turn(turns % kTurnsOfAll == 0); });
    lock.lock();
    const auto asked = [this] { return stopped_ || poked_; };
    if (soon) changed_.wait_for(lock, kUnwritten, asked);
    else if (!watched_.empty()) changed_.wait_for(lock, kTurn, asked);
    else changed_.wait(lock, asked);
  }
}

// True: bytes that nobody gets before their sum is known are still on their way.
bool StoreVerifier::turn(bool all) {
  std::vector<std::pair<uint32_t, uint64_t>> due;
  {
    std::lock_guard lock(mutex_);
    for (auto& [slot, object] : watched_) {
      const bool held = std::any_of(object.holders.begin(), object.holders.end(),
                                    [](const auto& one) { return one.second.holds != 0; });
      if (!all && !held && !object.due) continue;
      object.due = false;
      for (auto& [function, holder] : object.holders) holder.gone = holder.holds == 0;
      due.emplace_back(slot, object.generation);
    }
  }
  for (const auto& [slot, generation] : due) look(slot, generation);
  std::lock_guard lock(mutex_);
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const auto& one) { return !one.second.summed; });
}

void StoreVerifier::look(uint32_t slot, uint64_t generation) {
  Store::Checked checked;
  switch (store_.begin_check(slot, generation, &checked)) {
    case wire::StoreAnswer::kOk: break;
    case wire::StoreAnswer::kBusy: {
      std::lock_guard lock(mutex_);
      if (Watched* object = watched(slot, generation)) object->due = true;
      return;
    }
    default: {
      std::lock_guard lock(mutex_);
      if (watched(slot, generation) != nullptr) watched_.erase(slot);
      return;
    }
  }
  if (!checked.rests) still_used(slot, generation);
  uint64_t sum = 0;
  const CUresult error = sums_.sum(checked.piece, checked.bytes, &sum);
  if (error == CUDA_SUCCESS) compare(slot, generation, sum, store_.pinning(slot));
  else log_warn("an object of the store cannot be verified: CUDA error %d", error);
  store_.end_check(slot, generation);
}

// Who released it behind work that goes on may write yet.
void StoreVerifier::still_used(uint32_t slot, uint64_t generation) {
  std::lock_guard lock(mutex_);
  Watched* object = watched(slot, generation);
  if (object == nullptr) return;
  for (auto& [function, holder] : object->holders) holder.gone = false;
  object->due = true;
}

void StoreVerifier::compare(uint32_t slot, uint64_t generation, uint64_t sum,
                            const std::vector<std::string>& pinning) {
  std::string name, maker, functions;
  {
    std::lock_guard lock(mutex_);
    Watched* object = watched(slot, generation);
    if (object == nullptr) return;
    const bool first = !std::exchange(object->summed, true);
    const bool differs = std::exchange(object->sum, sum) != sum && !first;
    if (differs) {
      name = object->name;
      maker = object->maker;
      std::set<std::string> had(pinning.begin(), pinning.end());
      for (const auto& [function, holder] : object->holders) had.insert(function);
      for (const std::string& function : had)
        functions += (functions.empty() ? "" : ", ") + function;
      if (functions.empty()) functions = "nobody";
    }
    std::erase_if(object->holders, [](const auto& one) { return one.second.gone; });
  }
  if (name.empty()) return;
  log_error(
      "object '%s' of the store was written to behind its seal: since its bytes were last right it "
      "was held by %s; made by %s",
      name.c_str(), functions.c_str(), maker.c_str());
  store_.note_changed(slot, generation, functions);
}

}  // namespace tube::proxy
