#include "proxy/evict/evictor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/memory/block_pool.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::milliseconds kLook{1};          // between looks of those who wait
constexpr uint64_t kFruitlessNs = 250'000'000;         // for a return, while others wait
constexpr uint64_t kUnexplained = uint64_t{32} << 20;  // the driver refuses what seems to fit
constexpr uint64_t kAskAgainNs = 500'000'000;          // the driver, what is free
constexpr uint64_t kSayNs = 5'000'000'000;

}  // namespace

Evictor::Evictor(const Driver& driver, MemoryMap& map, BlockPool& pool, HostArena& arena,
                 const Options& options)
    : driver_(driver), map_(map), pool_(pool), arena_(arena), options_(options) {}

std::shared_ptr<Evictor::Member> Evictor::join(uint64_t session, int pid, std::string name,
                                               std::shared_ptr<MemoryAccount> account,
                                               std::function<void()> wake) {
  if (!on()) return nullptr;
  auto member =
      std::make_shared<Member>(session, pid, std::move(name), std::move(account), std::move(wake));
  {
    std::lock_guard lock(mutex_);
    members_.push_back(member);
  }
  if (functions_changed_) functions_changed_();
  return member;
}

void Evictor::leave(Member& member) {
  std::lock_guard lock(mutex_);
  std::erase_if(members_, [&](const auto& each) { return each.get() == &member; });
  member.wanted_.clear();
  ++changes_;
  changed_.notify_all();
}

uint32_t Evictor::functions() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(members_.size());
}

policies::HostAheadGpu Evictor::outlook(uint32_t gpu, uint64_t total_bytes) const {
  policies::HostAheadGpu seen;
  seen.capacity_bytes = std::min(total_bytes, map_.budgets().now(gpu).limit_bytes);
  for (const auto& member : members()) {
    const uint64_t held = member->account_->now(gpu).held_bytes;
    seen.held_bytes += held;
    seen.largest_bytes = std::max(seen.largest_bytes, held);
    ++seen.functions;
  }
  return seen;
}

Evictor::Standing::Standing(Evictor& evictor, Member& who) : evictor_(evictor), who_(&who) {
  std::lock_guard lock(evictor_.mutex_);
  if (who.age_ == 0) who.age_ = ++evictor_.ages_;
  else who_ = nullptr;
}

Evictor::Standing::~Standing() {
  if (who_ == nullptr) return;
  std::lock_guard lock(evictor_.mutex_);
  who_->age_ = 0;
}

void Evictor::at_work(Member& member, bool works, uint64_t now_ns) {
  std::lock_guard lock(member.turns_mutex_);
  if (works) member.turns_.began(now_ns);
  else member.turns_.ended(now_ns);
}

std::optional<Evictor::Wanted> Evictor::wanted(Member& member) {
  std::lock_guard lock(mutex_);
  if (member.wanted_.empty()) {
    member.asked_.store(false, std::memory_order_relaxed);
    return std::nullopt;
  }
  const auto& [gpu, bytes] = *member.wanted_.begin();
  const std::deque<Ticket*>& queue = queues_[gpu];
  if (queue.empty()) return Wanted{gpu, bytes, "it is idle", true};
  return Wanted{gpu, bytes, "for " + queue.front()->who->name_, false};
}

void Evictor::answered(Member& member, const Wanted& wanted, uint64_t until_ns) {
  std::lock_guard lock(mutex_);
  member.wanted_.erase(wanted.gpu);
  if (member.wanted_.empty()) member.asked_.store(false, std::memory_order_relaxed);
  (wanted.idle ? member.idle_again_ns_ : member.not_before_ns_) = until_ns;
  ++changes_;
  changed_.notify_all();
}

void Evictor::moving(uint32_t gpu, bool moves) {
  std::lock_guard lock(mutex_);
  moves ? ++moving_[gpu] : --moving_[gpu];
}

void Evictor::progress() {
  std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

void Evictor::note(const Member& member, uint32_t gpu, uint64_t bytes, uint64_t took_ns,
                   bool to_gpu, std::string why) {
  Move move{now_ns(), member.pid_, member.name_, gpu, bytes, took_ns, to_gpu, std::move(why)};
  log_debug("%lu bytes of function '%s' (pid %d) %s GPU %u in %lu us (%s)", move.bytes,
            move.name.c_str(), move.pid, move.to_gpu ? "are back on" : "left", move.gpu,
            move.took_ns / 1000, move.why.c_str());
  std::lock_guard lock(mutex_);
  ++(move.to_gpu ? counts_.returns : counts_.evictions);
  (move.to_gpu ? counts_.returned_bytes : counts_.evicted_bytes) += move.bytes;
  history_.push_back(std::move(move));
  if (history_.size() > kHistory) history_.pop_front();
}

std::vector<std::shared_ptr<Evictor::Member>> Evictor::members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

Evictor::Movable Evictor::movable(const Member& member, uint32_t gpu) const {
  Movable bytes;
  for (const auto& block : map_.movable(member.session_, static_cast<int>(gpu)))
    (map_.is_promised(block.block) ? bytes.promised : bytes.there) += block.bytes;
  return bytes;
}

void Evictor::ask_idle(std::span<const uint64_t> gpu_bytes) {
  uint64_t most_held = 0;
  for (uint32_t gpu = 0; gpu < gpu_bytes.size(); ++gpu)
    most_held = std::max(most_held, std::min(gpu_bytes[gpu], map_.budgets().now(gpu).limit_bytes));
  const uint64_t now = now_ns();
  for (const auto& member : members()) {
    {
      std::lock_guard lock(member->turns_mutex_);
      const policies::Turns& turns = member->turns_;
      if (!policies::is_idle(turns.working(), turns.used_ns(now), now, options_.idle_ns)) continue;
    }
    for (uint32_t gpu = 0; gpu < gpu_bytes.size(); ++gpu)
      if (member->account_->now(gpu).held_bytes != 0) ask_idle(member, gpu, most_held);
  }
}

void Evictor::ask_idle(const std::shared_ptr<Member>& member, uint32_t gpu, uint64_t most_held) {
  const Movable bytes = movable(*member, gpu);
  if (bytes.there == 0) return;
  uint64_t used = arena_.counts().used_bytes;
  std::lock_guard lock(mutex_);
  // What others are asked for is not there yet, or is counted twice.
  for (const auto& each : members_)
    for (const auto& [of, wanted] : each->wanted_) used += wanted;
  const bool here = std::find(members_.begin(), members_.end(), member) != members_.end();
  if (!here || member->age_ != 0 || member->wanted_.contains(gpu) ||
      now_ns() < member->idle_again_ns_ ||
      !policies::host_room_for_allocation(used, bytes.there, most_held, arena_.most_bytes()))
    return;
  want(*member, gpu, bytes.there + bytes.promised);
}

// mutex_ held.
void Evictor::want(Member& member, uint32_t gpu, uint64_t bytes) {
  member.wanted_[gpu] = bytes;
  member.asked_.store(true, std::memory_order_relaxed);
  member.wake_();
}

Evictor::Others Evictor::others(const Member& who, uint32_t gpu, bool patient) const {
  Others others;
  const uint64_t now = now_ns();
  for (const auto& member : members()) {
    others.largest = std::max(others.largest, member->account_->now(gpu).held_bytes);
    if (member.get() == &who) continue;
    const Movable its = movable(*member, gpu);
    const uint64_t bytes = its.there + its.promised;
    others.movable += bytes;
    policies::EvictionCandidate candidate{member->session_, bytes, 0, 0, 0};
    bool working = false;
    {
      std::lock_guard lock(member->turns_mutex_);
      const policies::Turns& turns = member->turns_;
      working = turns.working();
      candidate.next_turn_ns = turns.next_ns(now);
      candidate.used_ns = turns.used_ns(now);
      const auto expected = turns.expected_ns(now);
      if (expected && (patient || !working)) {
        candidate.next_turn_ns = *expected;
        candidate.distance_ns = turns.distance_ns();
      }
    }
    std::lock_guard lock(mutex_);
    const bool older = member->age_ != 0 && member->age_ < who.age_;
    const bool not_now = older || member->wanted_.contains(gpu);
    candidate.not_before_ns =
        not_now ? policies::EvictionCandidate::kNotNow : member->not_before_ns_;
    candidate.soon = patient && candidate.distance_ns != 0 &&
                     policies::quiet_soon(working, candidate.not_before_ns, now);
    others.able.push_back(candidate);
  }
  return others;
}

bool Evictor::alone(const Member& who, uint32_t gpu) const {
  return others(who, gpu, false).movable == 0;
}

// What GPU and workflow have left.
uint64_t Evictor::room(uint32_t gpu, bool anew) {
  const policies::MemoryBudget now = map_.budgets().now(gpu);
  Free last;
  {
    std::lock_guard lock(mutex_);
    last = free_[gpu];
  }
  if (anew || last.asked_ns == 0 || now_ns() - last.asked_ns >= kAskAgainNs) {
    size_t free_bytes = 0, total_bytes = 0;
    if (driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return 0;
    last = {now_ns(), map_.promised().unpromised(gpu, free_bytes), now.held_bytes};
    std::lock_guard lock(mutex_);
    free_[gpu] = last;
  }
  const uint64_t before = last.bytes + last.held;
  return std::min(before > now.held_bytes ? before - now.held_bytes : 0, now.room());
}

// Has as many others asked as are needed. False: it would be of no use.
bool Evictor::ask(const Ticket& ticket, uint32_t gpu, bool allocation, uint64_t bytes, Ask when) {
  const bool patient = options_.order == policies::EvictionOrder::kQueue &&
                       now_ns() - ticket.first_ns < policies::eviction_patience_ns(bytes);
  const Others all = others(*ticket.who, gpu, patient);
  if (all.movable == 0) return false;
  uint64_t room_bytes = room(gpu, false);
  const auto hopeless = [&] {
    return allocation && bytes > room_bytes && all.movable < bytes - room_bytes;
  };
  if (hopeless()) room_bytes = room(gpu, true);
  if (hopeless()) return false;
  const uint64_t unexplained = when == Ask::kRefused ? kUnexplained : 0;
  uint64_t missing = bytes > room_bytes ? bytes - room_bytes : unexplained;
  const uint64_t used = arena_.counts().used_bytes;
  if (allocation && !policies::host_room_for_allocation(
                        used, std::min(missing, all.movable),
                        policies::exchange_bytes(all.largest, bytes), arena_.most_bytes()))
    return false;
  std::lock_guard lock(mutex_);
  for (const auto& member : members_) {
    const auto asked = member->wanted_.find(gpu);
    if (asked != member->wanted_.end()) missing -= std::min(missing, asked->second);
  }
  if (missing == 0) return true;
  for (const auto& share :
       policies::choose_evictions(options_.order, all.able, missing, all.largest, now_ns())) {
    for (const auto& member : members_) {
      if (member->session_ != share.function || share.awaited) continue;
      want(*member, gpu, share.bytes);
    }
  }
  return true;
}

// mutex_ held, as for the next four.
void Evictor::line_up(uint32_t gpu, Ticket& ticket) {
  std::deque<Ticket*>& queue = queues_[gpu];
  const auto younger = std::find_if(queue.begin(), queue.end(), [&](const Ticket* each) {
    return each->who->age_ > ticket.who->age_;
  });
  queue.insert(younger, &ticket);
}

bool Evictor::is_first(uint32_t gpu, Ticket& ticket) {
  const bool first = queues_[gpu].front() == &ticket;
  if (!first) ticket.first_ns = 0;  // an older one has come
  else if (ticket.first_ns == 0) ticket.first_ns = now_ns();
  return first;
}

// Nobody is asked for the first one's sake any more; who moves memory already goes on.
void Evictor::withdraw(uint32_t gpu) {
  for (const auto& member : members_) {
    member->wanted_.erase(gpu);
    if (member->wanted_.empty()) member->asked_.store(false, std::memory_order_relaxed);
  }
  ++changes_;
  changed_.notify_all();
}

void Evictor::rotate(uint32_t gpu, Ticket& ticket) {
  std::deque<Ticket*>& queue = queues_[gpu];
  const uint64_t since_ns = std::max(ticket.first_ns, ticket.gained_ns);
  if (counts_.waiting < 2 || queue.front() != &ticket || now_ns() - since_ns < kFruitlessNs) return;
  std::erase(queue, &ticket);
  ticket.who->age_ = ++ages_;
  ticket.first_ns = 0;
  line_up(gpu, ticket);
  withdraw(gpu);
}

void Evictor::quit(uint32_t gpu, Ticket& ticket) {
  std::deque<Ticket*>& queue = queues_[gpu];
  const bool first = queue.front() == &ticket;
  std::erase(queue, &ticket);
  --counts_.waiting;
  if (first) withdraw(gpu);
}

// Whether no memory has left the GPU since `seen`: what was found out since is true of one moment.
bool Evictor::still(uint32_t gpu, uint64_t seen) const {
  std::lock_guard lock(mutex_);
  return moving_[gpu] == 0 && changes_ == seen;
}

// Whether an allocation that has waited so long gives up.
bool Evictor::too_long(uint32_t gpu, uint64_t waited_ns) const {
  if (waited_ns < options_.wait_ns) return false;
  std::lock_guard lock(mutex_);
  return moving_[gpu] == 0 || waited_ns / kMovingWaits >= options_.wait_ns;
}

Evictor::End Evictor::request(Member& who, uint32_t gpu, bool allocation, const Caller& caller) {
  const Standing standing(*this, who);
  Ticket ticket{&who};
  const uint64_t begin_ns = now_ns();
  uint64_t seen = 0;
  bool said = false;
  {
    std::lock_guard lock(mutex_);
    line_up(gpu, ticket);
    ++counts_.waiting;
    if (allocation) ++counts_.waited;
  }
  const auto refuse = [&] {
    std::lock_guard lock(mutex_);
    ++counts_.refused;
    return End::kRefused;
  };
  const auto ask_others = [&](Ask when) {
    return caller.make_current() && ask(ticket, gpu, allocation, caller.bytes(), when);
  };
  const ScopeGuard over([&] {
    std::lock_guard lock(mutex_);
    quit(gpu, ticket);
  });
  while (!caller.stop()) {
    bool first = false, now_first = false;
    {
      std::lock_guard lock(mutex_);
      const bool before = ticket.first_ns != 0;
      first = is_first(gpu, ticket);
      now_first = first && !before;
      seen = changes_;
    }
    caller.serve();
    // Others' memory is on its way out while what fits already comes back.
    if (now_first && !allocation) (void)ask_others(Ask::kAhead);
    if (first) {
      if (caller.again()) return End::kServed;
      const uint64_t missing = caller.bytes();
      if (missing < std::exchange(ticket.missing_bytes, missing)) ticket.gained_ns = now_ns();
      if (!ask_others(Ask::kRefused)) {
        if (allocation && still(gpu, seen)) return refuse();
        caller.last_resort();
      }
    }
    const uint64_t passed = now_ns() - begin_ns;
    // Who never came to the front has not asked yet.
    if (allocation && too_long(gpu, passed))
      return caller.make_current() && caller.again() ? End::kServed : refuse();
    if (passed >= kSayNs && !std::exchange(said, true))
      log_warn("function '%s' (pid %d) has waited for %lu s for its memory on GPU %u",
               who.name_.c_str(), who.pid_, passed / 1'000'000'000, gpu);
    std::unique_lock lock(mutex_);
    if (first && !allocation) rotate(gpu, ticket);
    (void)changed_.wait_for(lock, kLook, [&] { return changes_ != seen; });
  }
  return End::kStopped;
}

Evictor::Counts Evictor::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Evictor::Move> Evictor::history() const {
  std::lock_guard lock(mutex_);
  return {history_.begin(), history_.end()};
}

}  // namespace tube::proxy
