#include "proxy/memory/block_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/scope_guard.h"
#include "proxy/common/contained_thread.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {

namespace {
using std::chrono::nanoseconds;
// Between two looks for blocks that nobody wants. By demand they follow each other closely, until
// there is nothing more to give back.
constexpr nanoseconds kLook = std::chrono::seconds(1);
constexpr nanoseconds kNearLook{policies::kPoolLookNs}, kFarLook = std::chrono::milliseconds(8);
}  // namespace

BlockPool::BlockPool(MemoryMap& map, const Gpus& gpus, uint64_t allowed_bytes,
                     policies::PoolPolicy policy)
    : map_(map), gpus_(gpus), allowed_bytes_(allowed_bytes), policy_(policy) {
  if (allowed_bytes_ == 0) return;
  map_.budgets().on_shortage(
      [this](uint32_t gpu, const MemoryAccount* of, uint64_t seen,
             const std::function<bool()>& again) { return make_room(gpu, of, seen, again); });
}

BlockPool::~BlockPool() { close(); }

void BlockPool::start() {
  if (allowed_bytes_ == 0) return;
  thread_ =
      contained_thread("tube-pool", "the thread that holds GPU memory ready", [this] { run(); });
}

void BlockPool::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

policies::PoolBudget BlockPool::budget(uint32_t gpu) const {
  return gpu < gpus_.count() ? policies::pool_budget(allowed_bytes_, gpus_[gpu].total_bytes)
                             : policies::PoolBudget{};
}

std::shared_ptr<BlockOffers> BlockPool::join(BlockOffers::Client client,
                                             const shared::Segment& segment) {
  if (allowed_bytes_ == 0) return nullptr;
  auto offers = std::make_shared<BlockOffers>(*this, map_, std::move(client), segment);
  std::lock_guard lock(mutex_);
  members_.push_back(offers);
  return offers;
}

void BlockPool::leave(const BlockOffers& offers) {
  std::lock_guard lock(mutex_);
  std::erase_if(members_, [&](const auto& member) { return member.get() == &offers; });
}

std::vector<std::shared_ptr<BlockOffers>> BlockPool::members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

void BlockPool::note(const BlockOffers& of, const char* why, BlockId block) {
  const std::optional<BlockPlace> place = map_.find(block);
  if (!place || place->device < 0) return;
  const MemoryAccount& account = *of.client().account;
  map_.budgets().events().note({.what = "pool",
                                .name = account.name(),
                                .pid = account.pid(),
                                .gpu = static_cast<uint32_t>(place->device),
                                .bytes = place->bytes,
                                .why = why});
}

template <class Withdraw>
bool BlockPool::give_back(const BlockOffers& of, const char* why, Withdraw withdraw) {
  std::lock_guard lock(giving_);
  std::vector<BlockId> gone;
  withdraw(&gone);
  for (const BlockId block : gone) {
    note(of, why, block);
    map_.release(block);
  }
  if (!gone.empty()) map_.budgets().idle_given_back();
  return !gone.empty();
}

bool BlockPool::has_room(uint32_t gpu, uint64_t bytes) const {
  return budget(gpu).fits(map_.budgets().idle_bytes(gpu), bytes);
}

void BlockPool::look() {
  {
    std::lock_guard lock(mutex_);
    news_ = true;
  }
  wanted_.notify_one();
}

void BlockPool::bound(uint32_t gpu) {
  while (map_.budgets().idle_bytes(gpu) > budget(gpu).bytes && shrink_one(gpu)) {
  }
}

void BlockPool::has_grown(uint32_t gpu) {
  bound(gpu);
  {
    std::lock_guard lock(mutex_);
    if (watching_) return;
    news_ = true;
  }
  wanted_.notify_one();
}

// The client with the most idle memory gives up its oldest block.
bool BlockPool::shrink_one(uint32_t gpu) {
  std::vector<std::pair<uint64_t, std::shared_ptr<BlockOffers>>> by_size;
  for (auto& member : members()) {
    const uint64_t bytes = member->idle_bytes(gpu);
    if (bytes != 0) by_size.emplace_back(bytes, std::move(member));
  }
  std::sort(by_size.begin(), by_size.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  return std::any_of(by_size.begin(), by_size.end(), [&](const auto& entry) {
    return give_back(*entry.second, "more than the pool may hold", [&](std::vector<BlockId>* gone) {
      (void)entry.second->withdraw_oldest(gpu, gone);
    });
  });
}

bool BlockPool::make_room(uint32_t gpu, const MemoryAccount* of, uint64_t seen,
                          const std::function<bool()>& again) {
  if (allowed_bytes_ == 0) return false;
  short_.fetch_add(1);
  const ScopeGuard over([this] { short_.fetch_sub(1); });
  { std::lock_guard out_of_the_way(making_); }
  const auto try_again = [&] {
    const uint64_t now = map_.budgets().times_given_back();
    return std::exchange(seen, now) != now && again();
  };
  for (const auto& member : members()) {
    if (of != nullptr && member->client().account.get() != of) continue;
    (void)give_back(*member,
                    of != nullptr ? "its own limit was in the way" : "a request found no memory",
                    [&](std::vector<BlockId>* gone) { member->withdraw_all(gpu, gone); });
    if (try_again()) return true;
  }
  { std::lock_guard nothing_on_its_way(giving_); }
  return try_again();
}

void BlockPool::while_steady(const std::function<void()>& look) {
  std::lock_guard making(making_);
  std::lock_guard giving(giving_);
  look();
}

// ---- the thread --------------------------------------------------------------------------------

// False: there is nothing to make for this client, or it cannot be had.
bool BlockPool::make_one_ahead(const std::shared_ptr<BlockOffers>& offers, uint64_t now_ns) {
  const auto wish = offers->next_ahead(now_ns);
  if (!wish) return false;
  std::lock_guard lock(making_);
  if (short_.load() != 0) return false;
  const BlockOffers::Client& client = offers->client();
  Placed placed;
  map_.enter_context(wish->gpu);
  if (map_.allocate_ahead(client.window, client.session, static_cast<int>(wish->gpu), wish->bytes,
                          *client.account, &placed) != CUDA_SUCCESS)
    return false;
  if (offers->add_ahead(placed.block)) return true;
  map_.release(placed.block);
  return false;
}

// Whether a block went back.
bool BlockPool::go_round() {
  bool gave = false;
  for (const auto& member : members()) {
    while (make_one_ahead(member, now_ns())) {
    }
    gave |= give_back(*member, "nobody wanted it", [&](std::vector<BlockId>* gone) {
      member->withdraw_expired(now_ns(), gone);
    });
  }
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) bound(gpu);
  return gave;
}

bool BlockPool::any_idle() const {
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu)
    if (map_.budgets().idle_bytes(gpu) != 0) return true;
  return false;
}

void BlockPool::run() {
  map_.enter_context(0);
  nanoseconds pause = kLook;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    news_ = false;
    watching_ = true;
    lock.unlock();
    const bool gave = go_round();
    const bool watch = any_idle();
    if (policy_ == policies::PoolPolicy::kDemand)
      pause = gave || pause > kFarLook ? kNearLook : std::min(2 * pause, kFarLook);
    lock.lock();
    const auto called = [this] { return stop_ || news_; };
    watching_ = watch;
    if (watch) (void)wanted_.wait_for(lock, pause, called);
    else wanted_.wait(lock, called);
  }
}

}  // namespace tube::proxy
