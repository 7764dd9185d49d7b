// Objects in more than one place: copies for consumers elsewhere, and moves when memory is short.
//
// A move is a copy to the new place (copy_to) and the loss of the old one (drop). While bytes are
// copied the object may be taken as ever. To lose a place it is taken out of everybody's reach for
// a moment, as a deleted object would be: its state says doomed, the pins are read behind a fence,
// and only if there is none it comes back as another generation, of the new address.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/current_context.h"
#include "proxy/memory/memory_map.h"
#include "proxy/store/store.h"
#include "proxy/store/store_exchange.h"
#include "proxy/store/store_verifier.h"

namespace tube::proxy {
namespace {

constexpr const char* kLimit = "the store's limit";

}  // namespace

// ---- copies ------------------------------------------------------------------------------------

Store::Held* Store::copy_on(Object& object, int device) {
  const auto found =
      std::find_if(object.copies.begin(), object.copies.end(),
                   [&](const Held& copy) { return !copy.empty() && copy.piece.device == device; });
  return found == object.copies.end() ? nullptr : &*found;
}

// A place for a copy on that device; nullptr: there are too many.
Store::Held* Store::begin_copy(Object& object, int device) {
  const auto found = std::find_if(object.copies.begin(), object.copies.end(),
                                  [](const Held& copy) { return copy.empty(); });
  if (found == object.copies.end()) return nullptr;
  found->making = true;
  found->piece = StorePiece{};
  found->piece.device = device;
  return &*found;
}

void Store::publish(uint32_t slot, Held& copy) {
  Object& object = objects_[slot];
  copy.ready = true;
  index_.set_other(slot, static_cast<uint32_t>(&copy - object.copies.data()), copy.piece.address,
                   copy.piece.device);
}

CUresult Store::take(uint32_t window, int device, uint64_t bytes, StorePiece* piece) {
  if (device < 0) {
    {
      std::lock_guard lock(mutex_);
      if (bytes > host_room()) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return memory_.take_host(window, bytes, piece);
  }
  keep_within(device, bytes);
  const auto once = [&] { return memory_.take(window, device, bytes, piece); };
  const CUresult error = once();
  return error == CUDA_ERROR_OUT_OF_MEMORY ? make_room(device, bytes, once) : error;
}

Store::Copy Store::copy_in(uint32_t slot, uint64_t generation, int device, uint64_t most_bytes) {
  Copy copy;
  uint32_t window = 0;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr || object->piece.device == device) {
      copy.answer = wire::StoreAnswer::kInvalid;
      return copy;
    }
    copy.from = object->piece;
    copy.bytes = object->body.bytes;
    copy.sealed = object->sealed;
    if (const Held* there = copy_on(*object, device)) {
      if (there->making) copy.answer = wire::StoreAnswer::kBusy;
      copy.piece = there->piece;
      copy.written = there->ready ? nullptr : there->written;
      return copy;
    }
    if (device >= 0 && copy.bytes > most_bytes) {
      copy.answer = wire::StoreAnswer::kNoMemory;
      return copy;
    }
    if (begin_copy(*object, device) == nullptr) {
      copy.answer = wire::StoreAnswer::kTooMany;
      return copy;
    }
    window = object->piece.window;
  }
  const CUresult taken = take(window, device, copy.bytes, &copy.piece);
  copy.answer = wire::StoreAnswer::kNotFound;
  if (taken == CUDA_SUCCESS) return copy;
  copy.piece = StorePiece{};
  copy.piece.device = device;
  not_copied(slot, generation, copy.piece);
  copy.answer = wire::StoreAnswer::kNoMemory;
  return copy;
}

bool Store::copied(uint32_t slot, uint64_t generation, const StorePiece& piece, CUevent written) {
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  Held* copy = object == nullptr ? nullptr : copy_on(*object, piece.device);
  if (copy == nullptr || !copy->making) return false;
  *copy = Held{piece, written, false, false};
  ++object->touched;
  ++counts_.fetched;
  counts_.fetched_bytes += object->body.bytes;
  count(piece, true);
  if (written == nullptr) publish(slot, *copy);
  return true;
}

void Store::not_copied(uint32_t slot, uint64_t generation, const StorePiece& piece) {
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    Held* copy = object == nullptr ? nullptr : copy_on(*object, piece.device);
    if (copy != nullptr && copy->making) *copy = {};
  }
  memory_.give(piece);
}

void Store::copy_is_ready(uint32_t slot, uint64_t generation, int device) {
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  Held* copy = object == nullptr ? nullptr : copy_on(*object, device);
  if (copy != nullptr && !copy->making && !copy->ready) publish(slot, *copy);
}

// ---- a move ------------------------------------------------------------------------------------

// The reads of pins are a hint here, for no fence is before them.
bool Store::in_nobodys_hands(uint32_t slot) const {
  const Object& object = objects_[slot];
  return object.state == abi::StoreState::kSealed && !object.hidden && !object.moving &&
         !object.reaping && !held(slot);
}

// Asks the driver whether the GPU is done with the object. Then that is noted: what is written is
// ready, and nobody uses it. False: not yet, or somebody has taken it meanwhile.
bool Store::settle(const Candidate& one) {
  std::vector<CUevent> events;
  uint64_t touched = 0;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(one.slot, one.generation);
    if (object == nullptr || !in_nobodys_hands(one.slot)) return false;
    touched = object->touched;
    if (!object->ready && object->written != nullptr) events.push_back(object->written);
    for (const Held& copy : object->copies) {
      if (copy.making) return false;
      if (!copy.ready && copy.written != nullptr) events.push_back(copy.written);
    }
    for (const Use& use : object->uses) events.push_back(use.event);
  }
  for (const CUevent event : events)
    if (driver_.cuEventQuery(event) == CUDA_ERROR_NOT_READY) return false;
  std::lock_guard lock(mutex_);
  Object* object = live(one.slot, one.generation);
  if (object == nullptr || object->touched != touched) return false;
  if (!std::exchange(object->ready, true)) index_.set_ready(one.slot);
  for (Held& copy : object->copies)
    if (!copy.empty() && !copy.ready) publish(one.slot, copy);
  for (const Use& use : object->uses) give(use.event);
  object->uses.clear();
  return true;
}

// A copy of a settled object on that device, complete on return. `moving_` is held.
bool Store::copy_to(const Candidate& one, int device) {
  StorePiece from, to;
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(one.slot, one.generation);
    if (object == nullptr || !in_nobodys_hands(one.slot) || !object->ready) return false;
    if (const Held* there = copy_on(*object, device)) return there->ready;
    if (device < 0 && object->body.bytes > host_room()) return false;
    if (begin_copy(*object, device) == nullptr) return false;
    object->moving = true;
    if (device >= 0) ++arriving_[static_cast<size_t>(device)];
    from = object->piece;
    bytes = object->body.bytes;
  }
  CUresult error = device < 0 ? memory_.take_host(from.window, bytes, &to)
                              : memory_.take(from.window, device, bytes, &to);
  if (error == CUDA_SUCCESS) error = transfer_.copy(from, to, bytes);
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    Object& object = objects_[one.slot];  // nobody ends it while it moves
    object.moving = false;
    Held& copy = *copy_on(object, device);
    copy = {};
    if (error == CUDA_SUCCESS) {
      copy.piece = to;
      count(to, true);
      publish(one.slot, copy);
    }
    if (device >= 0) --arriving_[static_cast<size_t>(device)];
    over = object.state == abi::StoreState::kDoomed;
  }
  if (error != CUDA_SUCCESS) memory_.give(to);
  if (over) reap();
  return error == CUDA_SUCCESS && !over;
}

// The object's place on `gpu` goes; it is complete in another one. mutex_ is held, nobody can reach
// the object. An empty piece: it is not.
StorePiece Store::lose_place(uint32_t slot, int gpu) {
  Object& object = objects_[slot];
  Held* copy = copy_on(object, gpu);
  const auto end = [&](Held& held) {
    give(held.written);
    return std::exchange(held, {}).piece;
  };
  if (copy != nullptr) {
    index_.set_other(slot, static_cast<uint32_t>(copy - object.copies.data()), 0, 0);
    index_.stay(slot, object.generation);
    return end(*copy);
  }
  const auto heir = std::find_if(object.copies.begin(), object.copies.end(),
                                 [](const Held& held) { return held.ready; });
  if (object.piece.device != gpu || heir == object.copies.end()) {
    index_.stay(slot, object.generation);
    return {};
  }
  if (object.maker != nullptr)
    object.maker->made_bytes[static_cast<size_t>(gpu)] -= std::exchange(object.charged, 0);
  const StorePiece gone = std::exchange(object.piece, end(*heir));
  ++object.generation;
  ++object.moves;
  object.body.address = object.piece.address;
  object.body.device = object.piece.device;
  index_.moved(slot, object.generation, object.body);
  for (Held& held : object.copies)
    if (held.ready) publish(slot, held);
  return gone;
}

uint64_t Store::drop(const Candidate& one, int gpu, const char* why) {
  const std::shared_lock giving(giving_);
  StorePiece gone;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(one.slot, one.generation);
    if (object == nullptr || !in_nobodys_hands(one.slot) || !object->ready || !object->uses.empty())
      return 0;
    if (const Held* copy = copy_on(*object, gpu); copy != nullptr && !copy->ready) return 0;
    index_.begin_move(one.slot, one.generation);
    if (held(one.slot)) index_.stay(one.slot, one.generation);
    else gone = lose_place(one.slot, gpu);
    tell();
    if (gone.address == 0) return 0;
    object->why = why;
    object->left_ns = now_ns();
    ++counts_.left;
    counts_.left_bytes += object->body.bytes;
    count(gone, false);
  }
  away_.store(true, std::memory_order_relaxed);
  memory_.give(gone);
  return gone.block == BlockId::kNone ? 0 : gone.bytes;
}

// ---- memory is short ---------------------------------------------------------------------------

policies::GpuSpace Store::space(int gpu) const {
  const auto index = static_cast<uint32_t>(gpu);
  const CurrentContext current(driver_, map_.context(index));
  size_t free_bytes = 0, total_bytes = 0;
  if (driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return {gpu, 0, 0};
  free_bytes += map_.budgets().idle_bytes(index);
  return {gpu, std::min<uint64_t>(free_bytes, map_.budgets().now(index).room()), total_bytes};
}

int Store::place_for(int from, uint64_t bytes) const {
  if (map_.gpus() < 2) return policies::kToHost;
  std::vector<policies::GpuSpace> spaces;
  for (uint32_t gpu = 0; gpu < map_.gpus(); ++gpu) {
    const int number = static_cast<int>(gpu);
    if (number == from || map_.peers(static_cast<uint32_t>(from), gpu))
      spaces.push_back(space(number));
  }
  return policies::choose_place(spaces, from, bytes);
}

policies::StoredObject Store::seen(uint32_t slot, int gpu) const {
  const Object& object = objects_[slot];
  policies::StoredObject seen;
  seen.bytes = object.piece.bytes;
  if (!turns_.empty()) {
    const auto turn = turns_.find(std::string(object.body.name, object.body.name_bytes));
    if (turn != turns_.end()) seen.turn = turn->second;
  }
  seen.made_ns = object.body.created_ns;
  seen.used_ns = object.used_ns;
  if (object.maker != nullptr) seen.waits_ns = object.maker->waits.mean_ns();
  seen.taken = object.taken;
  const auto on_gpu = [&](const StorePiece& piece) { return piece.device == gpu; };
  if (on_gpu(object.piece)) seen.whole = object.piece.block != BlockId::kNone;
  seen.elsewhere = !on_gpu(object.piece);
  for (const Held& copy : object.copies) {
    if (!copy.ready) continue;
    if (on_gpu(copy.piece)) seen.whole = copy.piece.block != BlockId::kNone;
    else seen.elsewhere = true;
  }
  return seen;
}

// Objects that could leave the GPU, or come back to it; `of`: that it made.
std::vector<Store::Candidate> Store::candidates(int gpu, bool returning, const StoreMember* of) {
  std::vector<Candidate> found;
  std::lock_guard lock(mutex_);
  for (uint32_t slot = 0; slot < objects_.size(); ++slot) {
    Object& object = objects_[slot];
    if (object.state != abi::StoreState::kSealed || object.piece.lease != 0) continue;
    if (of != nullptr && object.maker != of) continue;
    const bool here = object.piece.device == gpu || copy_on(object, gpu) != nullptr;
    if (here == returning || (returning && object.home != gpu) || !in_nobodys_hands(slot)) continue;
    Candidate& one = found.emplace_back(Candidate{slot, object.generation, seen(slot, gpu)});
    if (returning) one.seen.used_ns = object.left_ns;
  }
  return found;
}

std::vector<policies::StoredObject> Store::as_seen(const std::vector<Candidate>& candidates) {
  std::vector<policies::StoredObject> list;
  list.reserve(candidates.size());
  for (const Candidate& one : candidates) list.push_back(one.seen);
  return list;
}

// What became free when the object is on the GPU no more. `moving_` is held.
uint64_t Store::leave_one(const Candidate& one, int gpu, const char* why) {
  if (!settle(one)) return 0;
  bool elsewhere = false;
  {
    std::lock_guard lock(mutex_);
    if (live(one.slot, one.generation) == nullptr) return 0;
    elsewhere = seen(one.slot, gpu).elsewhere;
  }
  if (elsewhere) return drop(one, gpu, why);
  const int place = place_for(gpu, one.seen.bytes);
  bool there = place >= 0 && copy_to(one, place);
  if (!there) there = copy_to(one, policies::kToHost);
  return there ? drop(one, gpu, why) : 0;
}

// `least_age_ns`: younger ones stay, for they are about to be taken. Whether memory became free.
bool Store::leave(int gpu, uint64_t bytes, uint64_t least_age_ns, const char* why,
                  const StoreMember* of) {
  if (!options_.moves) return false;
  std::lock_guard moving(moving_);
  std::vector<Candidate> able = candidates(gpu, false, of);
  const uint64_t now = now_ns();
  if (least_age_ns != 0)
    std::erase_if(able, [&](const auto& one) { return one.seen.used_ns + least_age_ns > now; });
  const std::vector<policies::StoredObject> seen = as_seen(able);
  uint64_t freed = 0;
  for (const size_t index : policies::choose_leaving(options_.order, seen, ~uint64_t{0}, now)) {
    if (freed >= bytes) break;
    freed += leave_one(able[index], gpu, why);
  }
  const bool given = [&] {
    const std::shared_lock giving(giving_);
    return memory_.give_idle_back(gpu);
  }();
  if (away_.load(std::memory_order_relaxed)) mover_.poke();
  return freed != 0 || given;
}

CUresult Store::make_room(int gpu, uint64_t bytes, const std::function<CUresult()>& take) {
  CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
  for (bool more = true; more && error == CUDA_ERROR_OUT_OF_MEMORY; error = take())
    more = make_some_room(gpu, bytes);
  return error;
}

bool Store::is_short(int gpu) const {
  const uint64_t then = short_ns_[static_cast<size_t>(gpu)].load(std::memory_order_relaxed);
  return then != 0 && now_ns() < then + policies::kTurnWindowNs;
}

bool Store::make_some_room(int gpu, uint64_t bytes) {
  short_ns_[static_cast<size_t>(gpu)].store(now_ns(), std::memory_order_relaxed);
  reap();
  {
    const std::unique_lock nobody_gives(giving_);  // nor will have begun to before the next look
    if (memory_.give_idle_back(gpu)) return true;
    std::lock_guard lock(mutex_);
    // An object on its way back here has taken its memory already.
    if (gpu_bytes_[static_cast<size_t>(gpu)] == 0 && arriving_[static_cast<size_t>(gpu)] == 0)
      return false;
  }
  const policies::GpuSpace now = space(gpu);
  if (bytes > now.total_bytes) return false;
  const uint64_t missing = bytes - std::min(bytes, now.free_bytes);
  return leave(gpu, std::max(std::min(bytes, kUnexplained), missing), 0, "memory was short");
}

// The store's own limit is no reason to refuse: it moves what it can.
void Store::keep_within(int gpu, uint64_t bytes) {
  if (options_.gpu_bytes == 0) return;
  reap();
  uint64_t beyond = 0;
  {
    std::lock_guard lock(mutex_);
    const uint64_t wanted = gpu_bytes_[static_cast<size_t>(gpu)] + bytes;
    beyond = wanted - std::min(wanted, options_.gpu_bytes);
  }
  if (beyond == 0) return;
  (void)leave(gpu, beyond, 0, kLimit);
  away_.store(true, std::memory_order_relaxed);
  mover_.poke();  // what could not go now may later
}

// ---- a maker that was killed --------------------------------------------------------------------

std::vector<Store::Unseen> Store::unseen(uint64_t session) {
  std::vector<Unseen> found;
  std::lock_guard lock(mutex_);
  for (uint32_t slot = 0; slot < objects_.size(); ++slot) {
    const Object& object = objects_[slot];
    const bool its = object.maker != nullptr && object.maker->session == session;
    if (object.state == abi::StoreState::kSealed && its && !object.ready &&
        object.written != nullptr)
      found.push_back({slot, object.generation, object.written});
  }
  return found;
}

// The bytes stay as long as somebody has them.
void Store::lose(const std::vector<Unseen>& objects) {
  std::lock_guard lock(mutex_);
  for (const Unseen& one : objects) {
    const Object* object = live(one.slot, one.generation);
    if (object == nullptr || object->state != abi::StoreState::kSealed) continue;
    ++counts_.aborted;
    doom(one.slot);
  }
}

uint32_t Store::unwritten(uint64_t session, bool lose_them) {
  std::vector<Unseen> found = unseen(session);
  if (found.empty()) return 0;
  const CurrentContext current(driver_, map_.context(0));
  std::erase_if(found, [this](const Unseen& one) {
    return driver_.cuEventQuery(one.written) != CUDA_ERROR_NOT_READY;
  });
  if (lose_them) lose(found);
  return static_cast<uint32_t>(found.size());
}

// ---- the mover ---------------------------------------------------------------------------------

void Store::stop_moving() {
  if (exchange_ != nullptr) exchange_->stop();
  if (verifier_ != nullptr) verifier_->stop();
  mover_.stop();
  std::lock_guard moving(moving_);
  transfer_.use(nullptr);
}

void Store::queue(const std::vector<std::string>& names) {
  {
    std::lock_guard lock(mutex_);
    turns_.clear();
    uint32_t turn = 0;
    for (const std::string& name : names) turns_.emplace(name, turn++);
  }
  if (away_.load(std::memory_order_relaxed)) mover_.poke();
}

// Those whose turn comes next, into what is free beyond the reserve. Whether some stay away.
bool Store::bring_back(int gpu, uint64_t room) {
  std::vector<Candidate> away = candidates(gpu, true);
  const std::vector<policies::StoredObject> seen = as_seen(away);
  for (const size_t index : policies::choose_returning(options_.order, seen, room, now_ns())) {
    if (is_short(gpu)) break;  // whoever asked has it first
    std::lock_guard moving(moving_);
    const Candidate& one = away[index];
    if (!settle(one) || !copy_to(one, gpu)) continue;
    std::lock_guard lock(mutex_);
    ++counts_.returned;
    counts_.returned_bytes += one.seen.bytes;
    if (Object* object = live(one.slot, one.generation)) object->why = "its turn comes";
  }
  return !away.empty();
}

bool Store::tend(int gpu) {
  map_.enter_context(static_cast<uint32_t>(gpu));
  const auto index = static_cast<size_t>(gpu);
  uint64_t held_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    held_bytes = gpu_bytes_[index];
  }
  const policies::GpuSpace now = space(gpu);
  growth_[index].note(now_ns(), now.total_bytes - std::min(now.total_bytes, now.free_bytes));
  const uint64_t reserve = policies::store_reserve(now.total_bytes, growth_[index].expected());
  if (now.free_bytes < reserve) {
    if (held_bytes != 0)
      (void)leave(gpu, reserve - now.free_bytes, policies::kTurnWindowNs,
                  "memory was about to be short");
    return held_bytes != 0;
  }
  uint64_t room = now.free_bytes - reserve;
  if (options_.gpu_bytes != 0 && held_bytes > options_.gpu_bytes) {
    (void)leave(gpu, held_bytes - options_.gpu_bytes, 0, kLimit);
    return true;
  }
  if (options_.gpu_bytes != 0)
    room = std::min(room, options_.gpu_bytes - std::min(options_.gpu_bytes, held_bytes));
  return bring_back(gpu, room);
}

bool Store::tend_all() {
  bool soon = false;
  away_.store(false, std::memory_order_relaxed);
  for (uint32_t gpu = 0; gpu < map_.gpus(); ++gpu) soon = tend(static_cast<int>(gpu)) || soon;
  if (soon) away_.store(true, std::memory_order_relaxed);
  return soon;
}

}  // namespace tube::proxy
