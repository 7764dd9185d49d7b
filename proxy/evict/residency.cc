#include "proxy/evict/residency.h"

#include <poll.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/memory/block_offers.h"
#include "proxy/memory/block_pool.h"

namespace tube::proxy {
namespace {

constexpr size_t kAtOnce = 32;  // blocks under way: their copies follow each other in the lane
constexpr const char* kShares = "it shares memory with other processes or maps its own";
constexpr uint64_t kLeastPauseNs = 1'000'000, kMostPauseNs = 64'000'000;

}  // namespace

// What the record may reach is wanted; true: nothing promised is.
bool Residency::needs_none(wire::Call call, std::span<const std::byte> payload) {
  if (works_promised(call)) return true;
  if (!lazy_.by_address()) return false;
  switch (reach_.of(call, payload, lazy_.spans())) {
    case Reach::kNamed: break;
    case Reach::kEverything: lazy_.want_all(); break;
    case Reach::kUnknown: back_at_once(kShares); break;
  }
  return !lazy_.wants();
}

CUresult Residency::before(wire::Call call, std::span<const std::byte> payload) {
  std::optional<Evictor::Standing> standing;
  do {
    if (away_ && !works_away(call)) {
      if (!standing) standing.emplace(*evictor_, *member_);
      if (const CUresult error = come_back(); error != CUDA_SUCCESS) return error;
    }
    if (profiled_ && begins_capture(call)) (void)hooks_.settle();
    if (!lazy_.waits()) {
      if (lazy_.by_address() && reach_.note(call, payload) == Reach::kUnknown)
        back_at_once(kShares);
      return CUDA_SUCCESS;
    }
    if (needs_none(call, payload)) return CUDA_SUCCESS;
    if (lost_ != CUDA_SUCCESS) return lost_;
    if (const CUresult error = back_promises(); error != CUDA_SUCCESS) return error;
  } while (away_);  // while it waited for one GPU's, what it has on another one may have been moved
  return CUDA_SUCCESS;
}

void Residency::back_at_once(const char* why) {
  if (!lazy_.by_address()) return;
  lazy_.set_by_address(false);
  counts_.departures.fetch_add(1, std::memory_order_relaxed);
  log_info("function '%s' (pid %d): all its memory is backed from now on, because %s",
           client_.name.c_str(), client_.pid, why);
}

void Residency::open(Evictor* evictor, BlockPool* pool, CopyEngine* engine, Client client,
                     BlockOffers* offers, uint32_t gpus) {
  client_ = std::move(client);
  gpus_ = gpus;
  pool_ = pool;
  offers_ = offers;
  if (evictor == nullptr) return;
  evictor_ = evictor;
  member_ =
      evictor->join(client_.session, client_.pid, client_.name, client_.account, client_.wake);
  if (member_ != nullptr) moves_ = std::make_unique<BlockMoves>(driver_, engine, client_.session);
}

void Residency::close() {
  if (member_ == nullptr) return;
  evictor_->leave(*member_);
  member_.reset();
  moves_.reset();
  evictor_->progress();
}

void Residency::sleeps(uint64_t now_ns) {
  if (member_ == nullptr || slept_ns_ != 0) return;
  slept_ns_ = now_ns;
  evictor_->at_work(*member_, false, now_ns);
}

// By a record, or because it is asked.
void Residency::woke(uint64_t now_ns) {
  if (member_ == nullptr || slept_ns_ == 0 || !hooks_.has_record()) return;
  slept_ns_ = 0;
  evictor_->at_work(*member_, true, now_ns);
}

uint64_t Residency::quiet_ns(uint64_t now_ns) const {
  return slept_ns_ != 0 && now_ns > slept_ns_ ? now_ns - slept_ns_ : 0;
}

// ---- leaving -----------------------------------------------------------------------------------

bool Residency::serve() {
  const auto wanted = evictor_->wanted(*member_);
  if (!wanted) return false;
  if (wanted->idle) {
    serve_idle(*wanted);
    return false;
  }
  const uint64_t now = now_ns();
  // Who waits for memory has nothing to lose by giving some away.
  const policies::Leave how = waits_ || hooks_.captures()
                                  ? policies::Leave::kWhenIdle
                                  : policies::may_leave(came_ns_, took_ns_, quiet_ns(now), now);
  bool idle = how != policies::Leave::kStays && hooks_.at_rest();
  if (!idle && how == policies::Leave::kDrained) idle = drain(now + kDrainNs, false);
  if (!idle) {
    pause_ns_ = std::clamp(2 * pause_ns_, kLeastPauseNs, kMostPauseNs);
    evictor_->answered(*member_, *wanted, now_ns() + pause_ns_);
    return false;
  }
  pause_ns_ = 0;
  const uint64_t moved = move_out(*wanted, hooks_.stop);
  evictor_->answered(*member_, *wanted, moved != 0 ? 0 : now_ns() + kMostPauseNs);
  return moved != 0;
}

void Residency::serve_within() {
  const bool waited = waits_.exchange(true);
  (void)serve();
  waits_ = waited;
}

// Nobody needs it: whoever has got work meanwhile, or still has some on the GPU, stays, or what is
// left of it does.
void Residency::serve_idle(const Evictor::Wanted& wanted) {
  const auto works = [&] { return hooks_.stop() || hooks_.has_record(); };
  if (!works() && quiet_ns(now_ns()) >= evictor_->options().idle_ns && !waits_ && hooks_.at_rest())
    (void)move_out(wanted, works);
  evictor_->answered(*member_, wanted, now_ns() + evictor_->options().idle_ns);
}

// Records that are kept back go on meanwhile, but not within another one.
bool Residency::drain(uint64_t end_ns, bool within_record) {
  while (!hooks_.stop()) {
    if (!within_record) (void)hooks_.go_on();
    if (hooks_.at_rest()) return true;
    if (now_ns() >= end_ns) break;
    poll(nullptr, 0, 1);
  }
  came_ns_ = now_ns();  // it works on for as long again
  return false;
}

void Residency::finish_leaving(std::vector<Leaving>& leaving, uint64_t* moved) {
  const BlockMoves::Finished finished = moves_->finish_oldest();
  Leaving first = std::move(leaving.front());
  leaving.erase(leaving.begin());
  const uint64_t begin = now_ns();
  if (finished.error != CUDA_SUCCESS || !map_.send_away(first.block, std::move(first.copies)))
    return;
  calls_ns_ += now_ns() - begin;
  away_ = true;
  *moved += finished.block.bytes;
  evictor_->progress();
}

// Host memory for each part that the block will have. CUDA_ERROR_OUT_OF_MEMORY: there is none.
CUresult Residency::begin_leaving(uint32_t gpu, Leaving& each) {
  const uint64_t most =
      each.block.whole ? policies::part_bytes(each.block.bytes) : each.block.bytes;
  std::vector<const HostCopy*> copies;
  for (uint64_t done = 0; done < each.block.bytes; done += most) {
    auto copy = evictor_->arena().take(std::min(most, each.block.bytes - done));
    if (copy == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    copies.push_back(copy.get());
    each.copies.push_back(std::move(copy));
  }
  return moves_->begin(gpu, each.block, copies, false);
}

// Of at least so many bytes, if there are.
uint64_t Residency::move_out(const Evictor::Wanted& wanted, const std::function<bool()>& stop) {
  const uint32_t gpu = wanted.gpu;
  if (hooks_.make_current(gpu) != CUDA_SUCCESS) return 0;
  const uint64_t begin = now_ns();
  evictor_->moving(gpu, true);
  const ScopeGuard moved_all([&] { evictor_->moving(gpu, false); });
  const auto blocks = map_.movable(client_.session, static_cast<int>(gpu));
  std::vector<uint64_t> sizes;
  sizes.reserve(blocks.size());
  for (const auto& block : blocks) sizes.push_back(block.bytes);
  const uint64_t moved = move_out(gpu, blocks, policies::choose_blocks(sizes, wanted.bytes), stop);
  if (moved == 0) return 0;
  counts_.evicted_bytes.fetch_add(moved, std::memory_order_relaxed);
  evictor_->note(*member_, gpu, moved, now_ns() - begin, false, wanted.why);
  return moved;
}

uint64_t Residency::move_out(uint32_t gpu, std::span<const MemoryMap::Movable> blocks,
                             std::span<const size_t> which, const std::function<bool()>& stop) {
  std::vector<Leaving> leaving;
  uint64_t moved = 0;
  calls_ns_ = 0;
  for (const size_t each : which) {
    if (stop()) break;
    if (map_.is_promised(blocks[each].block)) {  // it takes no room but in the count
      if (!map_.send_away(blocks[each], {})) continue;
      away_ = true;
      moved += blocks[each].bytes;
      evictor_->progress();
      continue;
    }
    leaving.push_back({blocks[each], {}});
    if (begin_leaving(gpu, leaving.back()) != CUDA_SUCCESS) {
      leaving.pop_back();
      break;
    }
    while (moves_->under_way() >= kAtOnce || (moves_->under_way() != 0 && !moves_->oldest_waits()))
      finish_leaving(leaving, &moved);
  }
  while (moves_->under_way() != 0) finish_leaving(leaving, &moved);
  log_debug("%lu bytes: giving memory back took %lu us of the calls", moved, calls_ns_ / 1000);
  return moved;
}

CUresult Residency::unite(BlockId block) {
  if (member_ == nullptr || !map_.divided(block)) return CUDA_SUCCESS;
  if (!drain(now_ns() + evictor_->options().wait_ns, true)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int device = map_.find(block)->device;
  const auto gpu = static_cast<uint32_t>(device);
  if (const CUresult error = hooks_.make_current(gpu); error != CUDA_SUCCESS) return error;
  const auto blocks = map_.movable(client_.session, device);
  std::vector<size_t> parts;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i].block == block) parts.push_back(i);
  (void)move_out(gpu, blocks, parts, hooks_.stop);
  const bool united = map_.unite(block);
  const CUresult error = come_back();
  return united || error != CUDA_SUCCESS ? error : CUDA_ERROR_OUT_OF_MEMORY;
}

// ---- coming back -------------------------------------------------------------------------------

uint64_t Residency::away_bytes(uint32_t gpu) const {
  uint64_t bytes = 0;
  for (const auto& block : map_.away(client_.session, static_cast<int>(gpu))) bytes += block.bytes;
  return bytes;
}

// Idle blocks without memory go, unless the client has just taken them.
void Residency::withdraw_idle() {
  if (offers_ == nullptr) return;
  std::vector<BlockId> gone;
  offers_->withdraw_without_memory(&gone);
  for (const BlockId block : gone) map_.release(block);
}

void Residency::finish_coming() {
  while (moves_->under_way() != 0) {
    const BlockMoves::Finished finished = moves_->finish_oldest();
    if (finished.error == CUDA_SUCCESS) {
      map_.drop_host_copy(finished.block);
      continue;
    }
    failed_ = finished.error;  // its bytes are still on the host
    (void)map_.send_away(finished.block, {});
  }
}

CUresult Residency::bring_block(const MemoryMap::Movable& block, uint32_t gpu) {
  if (lazy_.waits_for_address(block.block) && map_.promise_again(block.block)) return CUDA_SUCCESS;
  const uint64_t seen = map_.budgets().times_given_back();
  const uint64_t begin = now_ns();
  CUresult error = map_.bring_back(block, false);
  calls_ns_ += now_ns() - begin;
  const auto again = [&] { return error = map_.bring_back(block, false); };
  if (error == CUDA_ERROR_OUT_OF_MEMORY)
    (void)evictor_->pool().make_room(gpu, nullptr, seen,
                                     [&] { return again() != CUDA_ERROR_OUT_OF_MEMORY; });
  if (error == CUDA_ERROR_OUT_OF_MEMORY) error = hooks_.move_objects(gpu, block.bytes, again);
  // A limit that was lowered meanwhile takes nothing away from whom it held before.
  if (error == CUDA_ERROR_OUT_OF_MEMORY && !map_.budgets().now(gpu).fits(block.bytes) &&
      evictor_->alone(*member_, gpu))
    error = map_.bring_back(block, true);
  if (error != CUDA_SUCCESS) return error;
  const HostCopy* copy = map_.host_copy(block);
  if (copy == nullptr) return CUDA_SUCCESS;
  error = moves_->begin(gpu, block, {&copy, 1}, true);
  if (error != CUDA_SUCCESS) (void)map_.send_away(block, {});
  return error;
}

// As many blocks as there is memory for; CUDA_ERROR_OUT_OF_MEMORY: some are still away.
CUresult Residency::bring(uint32_t gpu, bool* all) {
  *all = false;
  // Another GPU's memory may have been moved meanwhile.
  if (const CUresult error = hooks_.make_current(gpu); error != CUDA_SUCCESS) return error;
  withdraw_idle();
  uint64_t too_large = UINT64_MAX;  // for what room there is; smaller ones may fit
  for (const auto& block : map_.away(client_.session, static_cast<int>(gpu))) {
    if (block.bytes >= too_large) continue;
    const CUresult error = bring_block(block, gpu);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) too_large = block.bytes;
    if (error == CUDA_ERROR_OUT_OF_MEMORY) continue;
    if (error != CUDA_SUCCESS) return error;
    while (moves_->under_way() >= kAtOnce) {
      const BlockMoves::Finished finished = moves_->finish_oldest();
      if (finished.error == CUDA_SUCCESS) map_.drop_host_copy(finished.block);
      else failed_ = finished.error;
      if (failed_ == CUDA_SUCCESS) continue;
      (void)map_.send_away(finished.block, {});
      return failed_;
    }
  }
  if (too_large != UINT64_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
  *all = true;
  return CUDA_SUCCESS;
}

CUresult Residency::come_back(uint32_t gpu) {
  const uint64_t bytes = away_bytes(gpu);
  if (bytes == 0) return CUDA_SUCCESS;
  CUresult error = failed_ = CUDA_SUCCESS;
  uint64_t began = 0;
  calls_ns_ = 0;
  const auto bring_some = [&] {
    bool all = false;
    if (began == 0) began = now_ns();
    error = bring(gpu, &all);
    return error != CUDA_ERROR_OUT_OF_MEMORY;
  };
  const Evictor::End end = request(
      gpu, false, [] { return 0; }, bring_some, hooks_.stop);
  const uint64_t sent = now_ns();
  finish_coming();
  log_debug("%lu bytes: memory took %lu us of the calls, the copies came %lu us behind them", bytes,
            calls_ns_ / 1000, (now_ns() - sent) / 1000);
  if (end == Evictor::End::kStopped) return CUDA_ERROR_NOT_READY;
  if (error == CUDA_SUCCESS) error = std::exchange(failed_, CUDA_SUCCESS);
  failed_ = CUDA_SUCCESS;
  came_ns_ = now_ns();
  took_ns_ += came_ns_ - began;
  if (error != CUDA_SUCCESS) return error;
  counts_.returned_bytes.fetch_add(bytes, std::memory_order_relaxed);
  evictor_->note(*member_, gpu, bytes, came_ns_ - began, true, "it has work");
  return CUDA_SUCCESS;
}

CUresult Residency::come_back() {
  const Evictor::Standing standing(*evictor_, *member_);
  const uint64_t begin = now_ns();
  took_ns_ = 0;
  withdraw_idle();
  // While it waits for one GPU's, what it has on another one may be asked for.
  for (bool again = true; again;) {
    again = false;
    for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
      if (client_.account->away_bytes(gpu) == 0 || away_bytes(gpu) == 0) continue;
      if (const CUresult error = come_back(gpu); error != CUDA_SUCCESS) return error;
      again = gpus_ > 1;
    }
  }
  away_ = false;
  for (uint32_t gpu = 0; gpu < gpus_; ++gpu) away_ |= client_.account->away_bytes(gpu) != 0;
  const uint64_t took = now_ns() - begin;
  counts_.returns.fetch_add(1, std::memory_order_relaxed);
  counts_.stalled_ns.fetch_add(took, std::memory_order_relaxed);
  if (took > counts_.longest_ns.load(std::memory_order_relaxed))
    counts_.longest_ns.store(took, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// ---- promises ----------------------------------------------------------------------------------

CUresult Residency::back_promises(uint32_t gpu) {
  CUresult error = hooks_.make_current(gpu);
  if (error != CUDA_SUCCESS) return error;
  const auto again = [&] {
    error = lazy_.back(gpu);
    return error != CUDA_ERROR_OUT_OF_MEMORY;
  };
  const uint64_t seen = client_.account->times_given_back();
  if (again() || (pool_ != nullptr && pool_->make_room(gpu, nullptr, seen, again)) ||
      (hooks_.drop_code(gpu) && again()) || member_ == nullptr)
    return error;
  // Its work has been accepted: it waits its turn like memory that is away, but not for ever.
  const uint64_t end = now_ns() + evictor_->options().wait_ns;
  wait_for_room(
      gpu, false, [&] { return lazy_.wanted_bytes(gpu); }, again,
      [&] { return hooks_.stop() || now_ns() >= end; });
  return error;
}

CUresult Residency::back_promises() {
  withdraw_idle();
  if (profiled_ && lazy_.by_address()) {
    for (std::string& kernel : hooks_.settle()) unsure_.push_back(std::move(kernel));
  }
  for (const uint32_t gpu : lazy_.places(gpus_)) {
    const CUresult error = back_promises(gpu);
    if (error == CUDA_SUCCESS) continue;
    if (!hooks_.stop()) hooks_.fail(gpu, error);
    return lost_ = error;
  }
  lazy_.settled();
  return CUDA_SUCCESS;
}

CUresult Residency::make_room(uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take) {
  CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
  if (member_ == nullptr || !client_.account->own_fits(gpu, bytes)) return error;
  wait_for_room(
      gpu, true, [&] { return bytes; },
      [&] {
        error = take();
        return error != CUDA_ERROR_OUT_OF_MEMORY;
      },
      hooks_.stop);
  return error;
}

// Until `take` is true, which finds `bytes` missing still; what was taken from the client meanwhile
// comes first: all of it must fit at once.
void Residency::wait_for_room(uint32_t gpu, bool allocation, const std::function<uint64_t()>& bytes,
                              const std::function<bool()>& take, std::function<bool()> stop) {
  const auto again = [&] {
    bool all = false;
    const CUresult back = bring(gpu, &all);
    finish_coming();
    return all ? take() : back != CUDA_ERROR_OUT_OF_MEMORY;
  };
  (void)request(gpu, allocation, bytes, again, std::move(stop));
}

// Waits until `again` is true. `bytes`: that are missing beside what is away.
Evictor::End Residency::request(uint32_t gpu, bool allocation,
                                const std::function<uint64_t()>& bytes,
                                const std::function<bool()>& again, std::function<bool()> stop) {
  waits_ = true;
  const ScopeGuard over([&] { waits_ = false; });
  const auto serve_others = [&] {
    if (!member_->asked()) return;
    finish_coming();
    (void)serve();
  };
  return evictor_->request(
      *member_, gpu, allocation,
      {.make_current = [&] { return hooks_.make_current(gpu) == CUDA_SUCCESS; },
       .bytes = [&] { return away_bytes(gpu) + bytes(); },
       .again = again,
       .serve = serve_others,
       .last_resort = [&] { (void)hooks_.drop_code(gpu); },
       .stop = std::move(stop)});
}

}  // namespace tube::proxy
