#include "proxy/store/store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/memory/memory_shares.h"
#include "proxy/store/store_exchange.h"
#include "proxy/store/store_verifier.h"
#include "sharedmem/segment.h"
#include "sharedmem/store_accessors.h"

namespace tube::proxy {
namespace {

std::string name_of(const abi::StoreBody& body) { return {body.name, body.name_bytes}; }

}  // namespace

Store::Store(const Driver& driver, MemoryMap& map, std::function<uint64_t(uint32_t gpu)> idle_bytes)
    : driver_(driver),
      map_(map),
      memory_(driver, map, std::move(idle_bytes)),
      transfer_(driver, map),
      streams_(driver),
      mover_([this] { return tend_all(); }) {}

Store::~Store() { close(); }

void Store::set_up(const StoreOptions& options, CopyEngine* engine) {
  options_ = options;
  transfer_.use(engine);
  exchange_ = std::make_unique<StoreExchange>(*this);
  if (options.verify) verifier_ = std::make_unique<StoreVerifier>(*this, driver_, map_);
  if (options.shared.empty()) return;
  if (Status shared = exchange_->listen(store_socket_path(options.folder, options.workflow));
      !shared.ok())
    log_warn("other workflows get nothing of this store: %s", shared.error().message.c_str());
}

void Store::close() {
  stop_moving();
  std::vector<StorePiece> gone;
  std::unordered_map<CUevent, CUcontext> events;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t slot = 0; slot < objects_.size(); ++slot) {
      if (objects_[slot].state != abi::StoreState::kFree) end_object(slot, &gone);
    }
    by_name_.clear();
    doomed_.clear();
    spare_events_.clear();
    events.swap(event_contexts_);
  }
  streams_.close();
  for (const auto& [event, context] : events) driver_.cuEventDestroy_v2(event);
  for (const StorePiece& piece : gone) give_back(piece);
  (void)memory_.give_idle_back(StoreMemory::kAllGpus);
}

// ---- clients -----------------------------------------------------------------------------------

Result<std::shared_ptr<StoreMember>> Store::join(uint64_t session, const std::string& function) {
  auto member = std::make_shared<StoreMember>();
  member->session = session;
  member->function = function;
  Result<UniqueFd> file =
      shared::create_memory_file("tube-store-pins", abi::kStorePinsBytes, shared::Fill::kAllocated);
  if (!file.ok()) return file.error();
  member->fd = file.take();
  Result<Mapping> pins =
      Mapping::map(member->fd.get(), 0, abi::kStorePinsBytes, PROT_READ | PROT_WRITE);
  if (!pins.ok()) return pins.error();
  member->pins = pins.take();
  std::lock_guard lock(mutex_);
  if (!index_.is_open()) {
    if (Status opened = index_.open(random_bits()); !opened.ok()) return opened.error();
  }
  members_.push_back(member);
  return member;
}

void Store::leave(const std::shared_ptr<StoreMember>& member) {
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    std::erase(members_, member);
    for (Object& object : objects_) {
      if (object.maker == member.get()) object.maker = nullptr;
    }
    last = members_.empty();
  }
  reap();
  if (!last) return;
  const std::shared_lock giving(giving_);
  (void)memory_.give_idle_back(StoreMemory::kAllGpus);
}

// What the member's objects on the GPU would have beyond its own limit.
uint64_t Store::beyond_own(const StoreMember& member, const StoreRequest& request) {
  if (request.place != wire::StorePlace::kGpu) return 0;
  const uint64_t wanted = member.made_bytes[request.gpu] + request.bytes;
  return wanted - std::min(wanted, request.most_bytes);
}

wire::StoreAnswer Store::admit(const StoreMember& member, const StoreRequest& request) const {
  if (by_name_.contains(name_of(request.body))) return wire::StoreAnswer::kExists;
  if (member.made >= limits::kStoreObjects) return wire::StoreAnswer::kTooMany;
  if (free_slots_.empty() && objects_.size() >= abi::kStoreSlots)
    return wire::StoreAnswer::kTooMany;
  if (beyond_own(member, request) != 0) return wire::StoreAnswer::kNoMemory;
  if (request.place != wire::StorePlace::kGpu && request.bytes > host_room())
    return wire::StoreAnswer::kNoMemory;
  return wire::StoreAnswer::kOk;
}

// With what has ended gone. The member's own limit is no reason for others' memory to move.
void Store::admit_again(const StoreMember& member, const StoreRequest& request, StoreGrant* grant) {
  uint64_t beyond = 0;
  const auto look = [&] {
    std::lock_guard lock(mutex_);
    grant->answer = admit(member, request);
    beyond = grant->answer == wire::StoreAnswer::kNoMemory ? beyond_own(member, request) : 0;
    grant->own_limit = beyond != 0;
  };
  look();
  if (beyond == 0 || request.bytes > request.most_bytes) return;
  (void)leave(static_cast<int>(request.gpu), beyond, 0, "its maker's limit", &member);
  look();
}

// Copies that come at once may together have passed the limit.
uint64_t Store::host_room() const {
  return limits::kStoreHostBytes - std::min(limits::kStoreHostBytes, counts_.host_bytes);
}

// The piece is the object's.
void Store::enter(StoreMember& member, const StoreRequest& request, StoreGrant* grant) {
  if (free_slots_.empty()) {
    grant->slot = static_cast<uint32_t>(objects_.size());
    objects_.emplace_back();
  } else {
    grant->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Object& object = objects_[grant->slot];
  grant->generation = object.generation + 1;
  object = Object{};
  object.generation = grant->generation;
  object.state = abi::StoreState::kReserved;
  object.piece = grant->piece;
  object.maker = &member;
  object.maker_session = member.session;
  object.claims = 1;
  object.consumers = request.consumers;
  object.body = request.body;
  object.used_ns = now_ns();
  abi::StoreBody& body = object.body;
  body.hash = abi::store_hash(body.name, body.name_bytes);
  body.bytes = request.bytes;
  body.address = grant->piece.address;
  body.place = static_cast<uint32_t>(request.place);
  body.device = grant->piece.device;
  body.window = request.window;
  body.created_ns = object.used_ns;
  if (request.ttl_ms != 0) body.expires_ns = body.created_ns + request.ttl_ms * 1'000'000;
  if (body.expires_ns != 0) next_expiry_ns_ = std::min(next_expiry_ns_, body.expires_ns);
  by_name_.emplace(name_of(body), grant->slot);
  index_.enter(grant->slot, grant->generation, body);
  ++member.made;
  count(object.piece, true);
  object.home = object.piece.lease != 0 ? -1 : object.piece.device;
  object.charged = object.home < 0 ? 0 : object.piece.bytes;
  if (object.home >= 0) member.made_bytes[static_cast<size_t>(object.home)] += object.charged;
  ++counts_.reserved;
  ++counts_.objects;
}

// What has ended waits for the seal, which nobody waits for, unless its bytes may be wanted now: a
// large object then needs no new block. (Each object that has ended is one or two questions to the
// driver.)
StoreGrant Store::reserve(StoreMember& member, const StoreRequest& request) {
  StoreGrant grant;
  if (request.bytes > abi::kLargestInSlab) reap();
  {
    std::lock_guard lock(mutex_);
    if (next_expiry_ns_ != ~uint64_t{0}) find_expired(now_ns());
    grant.answer = admit(member, request);
  }
  if (grant.answer == wire::StoreAnswer::kTooMany || grant.answer == wire::StoreAnswer::kNoMemory) {
    reap();
    admit_again(member, request, &grant);
  }
  if (grant.answer != wire::StoreAnswer::kOk) return grant;
  const bool gpu = request.place == wire::StorePlace::kGpu;
  const CUresult taken =
      take(request.window, gpu ? static_cast<int>(request.gpu) : -1, request.bytes, &grant.piece);
  if (taken != CUDA_SUCCESS) {
    grant.answer = wire::StoreAnswer::kNoMemory;
    return grant;
  }
  {
    std::lock_guard lock(mutex_);
    grant.answer = admit(member, request);  // another client may have come first
    if (grant.answer == wire::StoreAnswer::kOk) {
      enter(member, request, &grant);
      return grant;
    }
  }
  memory_.give(grant.piece);
  return grant;
}

Store::Object* Store::live(uint32_t untrusted_slot, uint64_t untrusted_generation) {
  if (untrusted_slot >= objects_.size()) return nullptr;
  Object& object = objects_[untrusted_slot];
  return object.state != abi::StoreState::kFree && object.generation == untrusted_generation
             ? &object
             : nullptr;
}

void Store::tell() {
  if (waiting_.load() != 0) index_.wake();
}

bool Store::seal(StoreMember& member, uint32_t slot, uint64_t generation, CUevent written,
                 const StoreStream& on) {
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr || object->maker != &member) return false;
    if (object->state == abi::StoreState::kReserved) {
      object->state = abi::StoreState::kSealed;
      object->ready = written == nullptr;
      object->used_ns = now_ns();
      ++object->touched;
      // find_expired() may have passed it by while it was being filled.
      if (object->body.expires_ns != 0)
        next_expiry_ns_ = std::min(next_expiry_ns_, object->body.expires_ns);
      object->hidden = verifier_ != nullptr;
      if (!object->hidden) index_.seal(slot, generation, object->ready);
      object->sealed = {on, ++counts_.sealed};
      tell();
    } else if (object->state != abi::StoreState::kDoomed) {
      return false;
    }
    // Also where it was deleted meanwhile: its maker's work is still to be waited for.
    object->written = written;
    if (object->state == abi::StoreState::kSealed) doom_if_consumed(slot);  // by its maker
    if (verifier_ != nullptr)
      verifier_->sealed(slot, generation, name_of(object->body), member.function);
  }
  reap();  // for those that made room for it
  return true;
}

bool Store::claim(const StoreMember& member, uint32_t slot, uint64_t generation,
                  StorePlaceOf* place) {
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  if (object == nullptr || object->reaping ||
      (object->state == abi::StoreState::kReserved && object->maker != &member))
    return false;
  ++object->claims;
  ++object->touched;
  ++counts_.claimed;
  object->used_ns = now_ns();
  if (!std::exchange(object->taken, true) && object->maker != nullptr)
    object->maker->waits.note(object->used_ns - object->body.created_ns);
  *place = {
      object->piece.address, object->body.bytes, object->piece.device, object->piece.window, {}, 0};
  for (const Held& copy : object->copies) {
    if (copy.ready) place->copies[place->copies_count++] = {copy.piece.address, copy.piece.device};
  }
  return true;
}

CUevent Store::written(uint32_t slot, uint64_t generation) {
  std::lock_guard lock(mutex_);
  const Object* object = live(slot, generation);
  return object == nullptr || object->ready ? nullptr : object->written;
}

void Store::set_ready(uint32_t slot, uint64_t generation) {
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  if (object == nullptr || object->ready) return;
  object->ready = true;
  index_.set_ready(slot);
}

void Store::release(StoreMember& member, uint32_t slot, uint64_t generation, uint32_t claims,
                    uint32_t consumed) {
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr) return;
    object->claims -= std::min(object->claims, claims);
    object->used_ns = now_ns();
    for (Use& use : object->uses) {
      if (use.stream.session == member.session) use.recording = false;
    }
    if (object->state == abi::StoreState::kReserved && object->maker == &member) {
      object->consumed += consumed;
      if (consumed == 0) {
        ++counts_.aborted;
        doom(slot);
      }
    } else if (object->state == abi::StoreState::kSealed && object->consumers != 0) {
      object->consumed += consumed;
      doom_if_consumed(slot);
    } else if (object->state == abi::StoreState::kSealed && object->piece.lease != 0) {
      object->consumed += consumed;
      if (object->claims == 0) doom(slot);
    }
    over = object->state == abi::StoreState::kDoomed && object->claims == 0;
  }
  if (over) reap();
}

void Store::doom_if_consumed(uint32_t slot) {
  const Object& object = objects_[slot];
  if (object.consumers == 0 || object.consumed < object.consumers) return;
  ++counts_.consumed;
  doom(slot);
}

void Store::look(uint32_t untrusted_slot) {
  {
    std::lock_guard lock(mutex_);
    if (untrusted_slot >= objects_.size() ||
        objects_[untrusted_slot].state != abi::StoreState::kDoomed)
      return;
  }
  reap();
}

void Store::doom_for_all(uint32_t slot, std::vector<StoreExchange::Lent>* lent) {
  if (objects_[slot].loans != 0) lent->push_back({slot, objects_[slot].generation});
  doom(slot);
}

wire::StoreAnswer Store::remove(const std::string& name) {
  std::vector<StoreExchange::Lent> lent;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return wire::StoreAnswer::kNotFound;
    if (objects_[found->second].piece.lease != 0) return wire::StoreAnswer::kInvalid;
    ++counts_.deleted;
    doom_for_all(found->second, &lent);
  }
  reap();
  if (!lent.empty()) exchange_->until_heard(lent);
  return wire::StoreAnswer::kOk;
}

uint32_t Store::remove_group(const std::string& group) {
  uint32_t count = 0;
  std::vector<StoreExchange::Lent> lent;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t slot = 0; slot < objects_.size(); ++slot) {
      const Object& object = objects_[slot];
      if (object.state != abi::StoreState::kReserved && object.state != abi::StoreState::kSealed)
        continue;
      if (group != object.body.group || object.piece.lease != 0) continue;
      doom_for_all(slot, &lent);
      ++count;
    }
    counts_.deleted += count;
  }
  if (count != 0) reap();
  if (!lent.empty()) exchange_->until_heard(lent);
  return count;
}

// ---- the end of objects ------------------------------------------------------------------------

void Store::doom(uint32_t slot) {
  Object& object = objects_[slot];
  object.state = abi::StoreState::kDoomed;
  by_name_.erase(name_of(object.body));
  index_.doom(slot, object.generation, object.body.hash);
  doomed_.push_back(slot);
  ++counts_.doomed;
  if (object.loans != 0) exchange_->poke();
  tell();
}

// Somebody has it, or may have: the reads of pins stand behind the fence of index_.doom().
bool Store::held(uint32_t slot) const {
  if (objects_[slot].claims != 0) return true;
  return std::any_of(members_.begin(), members_.end(), [slot](const auto& member) {
    return shared::proxy_reads_pin(member->pin(slot));
  });
}

void Store::find_expired(uint64_t now) {
  if (now < next_expiry_ns_) return;
  next_expiry_ns_ = ~uint64_t{0};
  for (uint32_t slot = 0; slot < objects_.size(); ++slot) {
    const Object& object = objects_[slot];
    if (object.state != abi::StoreState::kSealed || object.body.expires_ns == 0) continue;
    if (object.body.expires_ns <= now) {
      ++counts_.expired;
      doom(slot);
    } else {
      next_expiry_ns_ = std::min(next_expiry_ns_, object.body.expires_ns);
    }
  }
}

// A context that died answers an error: its work is over.
bool Store::work_is_over(const Object& object) const {
  const auto over = [this](CUevent event) {
    return driver_.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
  };
  if (!object.ready && object.written != nullptr && !over(object.written)) return false;
  for (const Held& copy : object.copies) {
    if (copy.making || (copy.written != nullptr && !over(copy.written))) return false;
  }
  return std::all_of(object.uses.begin(), object.uses.end(),
                     [&](const Use& use) { return over(use.event); });
}

void Store::end_object(uint32_t slot, std::vector<StorePiece>* gone) {
  Object& object = objects_[slot];
  if (object.maker != nullptr) {
    --object.maker->made;
    if (object.charged != 0)
      object.maker->made_bytes[static_cast<size_t>(object.home)] -= object.charged;
  }
  const auto lose = [&](const StorePiece& piece) {
    if (piece.address == 0) return;
    count(piece, false);
    gone->push_back(piece);
  };
  object.piece.consumed = object.consumed != 0;
  lose(object.piece);
  for (Held& copy : object.copies) {
    lose(copy.piece);
    give(copy.written);
    copy = {};
  }
  --counts_.objects;
  give(object.written);
  for (const Use& use : object.uses) give(use.event);
  object.uses.clear();
  object.written = nullptr;
  object.piece = {};
  object.state = abi::StoreState::kFree;
  object.reaping = false;
  index_.free(slot, object.generation);
  free_slots_.push_back(slot);
}

// Doomed objects that nobody has. The driver is asked without the lock: an object that is asked
// about can get no new claim, because it has no name and no pin.
void Store::reap() {
  struct Asked {
    uint32_t slot;
    Object* object;
    bool over = false;
  };
  std::vector<Asked> asked;
  {
    std::lock_guard lock(mutex_);
    if (next_expiry_ns_ != ~uint64_t{0}) find_expired(now_ns());
    for (const uint32_t slot : doomed_) {
      if (objects_[slot].reaping || objects_[slot].moving || held(slot)) continue;
      objects_[slot].reaping = true;
      asked.push_back({slot, &objects_[slot]});
    }
  }
  if (asked.empty()) return;
  const std::shared_lock giving(giving_);
  for (Asked& one : asked) one.over = work_is_over(*one.object);
  std::vector<StorePiece> gone;
  bool alone = false;
  {
    std::lock_guard lock(mutex_);
    alone = members_.empty();
    for (const Asked& one : asked) {
      one.object->reaping = false;
      if (!one.over) continue;
      std::erase(doomed_, one.slot);
      --counts_.doomed;
      end_object(one.slot, &gone);
    }
  }
  for (const StorePiece& piece : gone) give_back(piece);
  // A loan may outlast the last client here.
  if (alone && !gone.empty()) (void)memory_.give_idle_back(StoreMemory::kAllGpus);
  if (!gone.empty() && away_.load(std::memory_order_relaxed)) mover_.poke();
}

void Store::give_back(const StorePiece& piece) {
  memory_.give(piece);
  if (piece.lease != 0) exchange_->end(piece.lease, piece.consumed);
}

// ---- statistics --------------------------------------------------------------------------------

void Store::count(const StorePiece& piece, bool more) {
  if (piece.lease != 0 && piece.device >= 0) return;  // its owner counts it
  uint64_t& bytes = piece.device < 0 ? counts_.host_bytes : counts_.gpu_bytes;
  bytes += more ? piece.bytes : 0 - piece.bytes;
  if (piece.device < 0) return;
  uint64_t& of_gpu = gpu_bytes_[static_cast<size_t>(piece.device)];
  of_gpu += more ? piece.bytes : 0 - piece.bytes;
}

std::vector<Store::Seen> Store::objects() {
  std::lock_guard lock(mutex_);
  std::vector<Seen> list;
  for (const Object& object : objects_) {
    if (object.state == abi::StoreState::kFree) continue;
    Seen& seen = list.emplace_back(Seen{object.body,
                                        object.state,
                                        object.maker_session,
                                        object.claims,
                                        object.consumers,
                                        object.consumed,
                                        object.loans,
                                        policies::kNoTurn,
                                        object.moves,
                                        object.why,
                                        {},
                                        object.changed_by});
    if (const auto turn = turns_.find(name_of(object.body)); turn != turns_.end())
      seen.turn = turn->second;
    for (const Held& copy : object.copies) {
      if (copy.ready) seen.copies.push_back(copy.piece.device);
    }
  }
  return list;
}

Store::Counts Store::counts() {
  Counts counts;
  {
    std::lock_guard lock(mutex_);
    counts = counts_;
    counts.members = static_cast<uint32_t>(members_.size());
    counts.events = 0;
    for (const auto& [context, spare] : spare_events_)
      counts.events += static_cast<uint32_t>(spare.size());
  }
  counts.idle_bytes = memory_.idle_bytes();
  counts.host_held_bytes = memory_.host_held_bytes();
  return counts;
}

}  // namespace tube::proxy
