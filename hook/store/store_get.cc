// Taking and releasing objects of the store, and waiting for them.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/scope_guard.h"
#include "hook/store/store.h"
#include "sharedmem/store_accessors.h"

namespace tube::hook {
namespace {

constexpr int kLooksBeforeSleep = 200;    // of a tenth of a microsecond, and a pause each
constexpr uint64_t kLookNs = 50'000'000;  // between looks whether the proxy lives
constexpr uint32_t kAnyPlace = 2;
constexpr int kNotFound = static_cast<int>(wire::StoreAnswer::kNotFound);
constexpr int kBusy = static_cast<int>(wire::StoreAnswer::kBusy);

bool over(const abi::StoreBody& body) {
  return body.expires_ns != 0 && body.expires_ns <= now_ns();
}

// Whether this process has sealed what still looks reserved.
bool sealed_by_us(const shared::StoreSight& sight) {
  Store& s = store();
  Locked locked(s.lock);
  return s.held[sight.slot].sealing == sight.generation();
}

// 0: it is there. kNotFound: not now. kBusy: it is about to be, or the table is in motion.
int look_for(const char* name, bool any, shared::StoreSight* sight) {
  switch (store().index.find(name, sight)) {
    case shared::StoreIndex::Found::kNo: return kNotFound;
    case shared::StoreIndex::Found::kUnsure: return kBusy;
    case shared::StoreIndex::Found::kYes: break;
  }
  if (sight->state() == abi::StoreState::kReserved) {
    // The seal may be kept back for as long as a stream of this process waits, which then must not
    // wait here: the proxy has the rest of the order. Who only looks sees what the index says.
    if (sealed_by_us(*sight)) return any ? kBusy : over(sight->body) ? kNotFound : 0;
    return any ? 0 : kNotFound;
  }
  return over(sight->body) ? kNotFound : 0;
}

// An answer comes behind everything that was posted.
CUresult say_waiting(bool on) {
  Request<wire::tubeStoreWaiting> r;
  r->on = on ? 1 : 0;
  return r.call();
}

// Sleeps until something changes, the time is over or the proxy has to be looked at.
int sleep_for_news(uint32_t changes, uint64_t most_ns) {
  auto* word = const_cast<uint32_t*>(&store().index.header().changes);
  futex_wait(word, changes, std::min(kLookNs, most_ns));
  const shared::WaitResult peer = shared::check_peer(connection().peer, false);
  return peer == shared::WaitResult::kDone ? 0 : store_error(transport_failed(peer));
}

// The same object as it is in the copy's place.
StoreObject at_copy(const StoreObject& object, const StoreCopy& copy) {
  StoreObject other = object;
  other.address = copy.address;
  other.place =
      static_cast<uint32_t>(copy.device < 0 ? wire::StorePlace::kHost : wire::StorePlace::kGpu);
  other.device = visible_device(copy.device);
  return other;
}

void ask_to_look(uint32_t slot) {
  Request<wire::tubeStoreLook> r;
  r->slot = slot;
  (void)r.post();
}

// From now on the object is this process's, too. kBusy: it was not there any more.
int take(const shared::StoreSight& sight, const StoreObject& object) {
  Store& s = store();
  Locked locked(s.lock);
  StoreHeld& held = s.held[sight.slot];
  if (held.gets != 0 && held.generation == sight.generation()) {
    ++held.gets;
    know(sight.slot, sight.generation());
    return 0;
  }
  bool look_again = false;
  if (!s.index.pin(sight, &look_again)) {
    if (look_again) ask_to_look(sight.slot);
    return kBusy;
  }
  held.generation = sight.generation();
  held.gets = 1;
  know(sight.slot, sight.generation());
  held.copies.clear();
  show_memory(object);
  for (const abi::StoreOther& other : s.index.entry(sight.slot).others) {
    StoreCopy copy;
    copy.address = shared::client_reads_other(other, &copy.device);
    if (copy.address == 0) continue;
    held.copies.push_back(copy);
    show_memory(at_copy(object, copy));
  }
  Request<wire::tubeStoreClaim> r;
  r->slot = sight.slot;
  r->generation = sight.generation();
  return store_error(r.post());
}

// The stream's later work comes behind the bytes.
int order(const StoreObject& object, Stream* stream) {
  Request<wire::tubeStoreOrder> r(stream);
  r->stream = stream->id;
  r->slot = object.slot;
  r->generation = object.generation;
  return store_error(r.post());
}

void nap(uint32_t times) {
  if (times < 50) return;
  const timespec pause{0, times < 500 ? 20'000 : 250'000};
  nanosleep(&pause, nullptr);
}

// The calling thread comes behind them.
int wait_ready(const StoreObject& object) {
  const abi::StoreEntry& entry = store().index.entry(object.slot);
  for (uint32_t asks = 0; !shared::client_sees_ready(entry); ++asks) {
    wire::tubeStoreReady_reply reply{};
    CUresult result;
    {
      Request<wire::tubeStoreReady> r;
      r->slot = object.slot;
      r->generation = object.generation;
      result = r.call(&reply);
    }
    if (result != CUDA_SUCCESS) return store_error(result);
    if (reply.ready != 0) return 0;
    nap(asks);
  }
  return 0;
}

bool is_there(const abi::StoreEntry& entry, int32_t device) {
  return std::any_of(std::begin(entry.others), std::end(entry.others), [&](const auto& other) {
    int32_t on = -1;
    return shared::client_reads_other(other, &on) != 0 && on == device;
  });
}

// The copy on that device that the claim covers; nullptr: there is none. The store's lock is held.
const StoreCopy* covered(const StoreHeld& held, int32_t device) {
  for (const StoreCopy& copy : held.copies) {
    if (copy.device == device) return &copy;
  }
  return nullptr;
}

// The object's bytes on that device: found in the index, else the proxy has them copied there, once
// for all. On a stream they come in its order; without one this waits for them.
int fetch(const StoreObject& object, Stream* stream, StoreCopy* copy) {
  Store& s = store();
  copy->device = stream == nullptr ? -1 : static_cast<int32_t>(stream->context->device);
  for (uint32_t asks = 0;; ++asks) {
    const bool there = is_there(s.index.entry(object.slot), copy->device);
    {
      Locked locked(s.lock);
      const StoreCopy* known = covered(s.held[object.slot], copy->device);
      if (known != nullptr) *copy = *known;
    }
    if (there && copy->address != 0) return 0;
    wire::tubeStoreFetch_reply reply{};
    CUresult result;
    {
      Request<wire::tubeStoreFetch> r(stream);
      r->stream = stream == nullptr ? 0 : stream->id;
      r->device = static_cast<uint32_t>(copy->device);
      r->slot = object.slot;
      r->generation = object.generation;
      result = r.call(&reply);
    }
    if (result != CUDA_SUCCESS) return store_error(result);
    const bool busy = reply.answer == static_cast<uint32_t>(wire::StoreAnswer::kBusy);
    if (!busy && reply.answer != 0) return static_cast<int>(reply.answer);
    if (!busy) {
      copy->address = reply.address;
      Locked locked(s.lock);
      if (covered(s.held[object.slot], copy->device) == nullptr) {
        s.held[object.slot].copies.push_back(*copy);
        show_memory(at_copy(object, *copy));
      }
      if (reply.ready != 0 || stream != nullptr) return 0;
    }
    nap(asks);
  }
}

// The stream that the object's bytes are for. Host memory has none: the thread itself waits.
int stream_for(uint32_t place, void* handle, Stream** stream) {
  *stream = nullptr;
  if (place != static_cast<uint32_t>(wire::StorePlace::kGpu)) return 0;
  CUresult error = CUDA_SUCCESS;
  *stream = find_stream(static_cast<CUstream>(handle), &error);
  if (*stream == nullptr) return store_error(error);
  return capturing(*stream) ? store_error(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : 0;
}

// What the program no longer may name; `object`: in whichever place it was got last.
void hide_all(const StoreObject& object, const std::vector<StoreCopy>& copies) {
  hide_memory(object);
  if (copies.empty()) return;
  shared::StoreSight sight;
  StoreObject own;
  if (!store().index.look(object.slot, &sight)) return;
  describe(sight, &own);
  hide_memory(own);
  for (const StoreCopy& copy : copies) hide_memory(at_copy(own, copy));
}

}  // namespace

// The proxy is told before the last look, so that it wakes this thread.
int look_up(const char* name, bool any, uint64_t timeout_ns, shared::StoreSight* sight) {
  const uint64_t start = now_ns();
  const bool spins = connection().waiter.spin_us() != 0;
  bool told = false;
  int answer = kNotFound, error = 0;
  for (int looks = 0; error == 0; ++looks) {
    const uint32_t changes = shared::client_reads_changes(store().index.header());
    answer = look_for(name, any, sight);
    if (answer == 0) break;
    const uint64_t waited = timeout_ns == 0 ? 0 : now_ns() - start;
    if (answer == kNotFound && waited >= timeout_ns) break;
    if (looks < kLooksBeforeSleep && spins) {
      __builtin_ia32_pause();
    } else if (!told) {
      error = store_error(say_waiting(true));
      told = true;
    } else {
      error = sleep_for_news(changes, answer == kBusy ? kLookNs : timeout_ns - waited);
    }
  }
  if (told && error == 0) error = store_error(say_waiting(false));
  return error != 0 ? error : answer;
}

namespace {

// An object that the proxy has imported for this process, until tubeStoreImported.
struct Imported {
  bool pending = false;
  uint32_t slot = 0;
  uint64_t generation = 0;
};

void settle(Imported* imported) {
  if (!std::exchange(imported->pending, false)) return;
  Request<wire::tubeStoreImported> r;
  r->slot = imported->slot;
  r->generation = imported->generation;
  (void)r.post();
}

constexpr bool of_another_workflow(const char* name) { return name[0] == '/' && name[1] == '/'; }

int import(const char* name, Imported* imported) {
  const size_t bytes = strnlen(name, abi::kStoreNameBytes);
  wire::tubeStoreImport_reply reply{};
  CUresult result;
  {
    Request<wire::tubeStoreImport> r(blob_room(bytes));
    r.put(&wire::tubeStoreImport::name, name, static_cast<uint32_t>(bytes));
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return store_error(result);
  if (reply.answer == 0) *imported = {true, reply.slot, reply.generation};
  return static_cast<int>(reply.answer);
}

// An object that the workflow has already is found like its own. For others the proxy asks their
// owner, and this thread asks again: nothing tells it when the owner seals.
int look_elsewhere(const char* name, uint64_t timeout_ns, shared::StoreSight* sight,
                   Imported* imported) {
  const uint64_t start = now_ns();
  for (uint32_t asks = 0;; ++asks) {
    if (const int answer = look_up(name, false, 0, sight); answer != kNotFound) return answer;
    const int answer = import(name, imported);
    if (answer != 0 && answer != kNotFound && answer != kBusy) return answer;
    if (answer == 0) return look_up(name, false, 0, sight);
    if (answer == kNotFound && now_ns() - start >= timeout_ns) return kNotFound;
    const timespec pause{0, std::min<long>(2'000'000, 50'000L << std::min(asks, 6u))};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

int get_object(const char* name, uint32_t place, int32_t, void* handle, uint64_t timeout_ns,
               StoreObject* object) {
  if (const int error = open_store(); error != 0) return error;
  Stream* stream = nullptr;
  bool as_it_is = true;
  int answer = kBusy;
  Imported imported;
  const ScopeGuard settled([&] { settle(&imported); });
  while (answer == kBusy) {
    shared::StoreSight sight;
    answer = of_another_workflow(name) ? look_elsewhere(name, timeout_ns, &sight, &imported)
                                       : look_up(name, false, timeout_ns, &sight);
    if (answer != 0) return answer;
    describe(sight, object);
    object->sealed = 1;
    if (const Context* current = current_context()) object->context = current->unique;
    if (sight.body.window != connection().welcome.window)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
    const uint32_t wanted = place == kAnyPlace ? object->home : place;
    if (const int error = stream_for(wanted, handle, &stream); error != 0) return error;
    const int32_t device = stream == nullptr ? -1 : static_cast<int32_t>(stream->context->device);
    as_it_is = sight.body.device == device;
    answer = take(sight, *object);
    settle(&imported);
  }
  if (answer != 0) return answer;
  object->ready = shared::client_sees_ready(store().index.entry(object->slot)) ? 1 : 0;
  if (as_it_is && object->ready != 0) return 0;
  if (as_it_is) return stream != nullptr ? order(*object, stream) : wait_ready(*object);
  StoreCopy copy;
  if (const int error = fetch(*object, stream, &copy); error != 0) {
    (void)release_object(object, nullptr, 0);
    return error;
  }
  *object = at_copy(*object, copy);
  object->ready = 0;
  return 0;
}

namespace {

// The record of a release, behind a stream or, nullptr, at once.
int end_hold(const StoreObject* object, Stream* stream) {
  Store& s = store();
  if (object->slot >= abi::kStoreSlots) return static_cast<int>(wire::StoreAnswer::kInvalid);
  Locked locked(s.lock);
  bool last = true;
  std::vector<StoreCopy> copies;
  if (object->sealed != 0) {
    StoreHeld& held = s.held[object->slot];
    if (held.gets == 0 || held.generation != object->generation)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
    last = --held.gets == 0;
    if (last) copies.swap(held.copies);
  } else if (!stop_making(*object)) {
    return static_cast<int>(wire::StoreAnswer::kInvalid);
  }
  s.told.store(true, std::memory_order_relaxed);
  if (stream != nullptr) s.told_behind.store(true, std::memory_order_relaxed);
  if (last) hide_all(*object, copies);
  if (stream != nullptr) {
    Request<wire::tubeStoreReleaseBehind> r(stream);
    r->stream = stream->id;
    r->slot = object->slot;
    r->generation = object->generation;
    r->last = last ? 1 : 0;
    return store_error(r.post());
  }
  Request<wire::tubeStoreRelease> r;
  r->slot = object->slot;
  r->generation = object->generation;
  r->last = last ? 1 : 0;
  return store_error(r.post());
}

int leave_behind(const StoreObject& object, std::vector<Mark> marks) {
  if (marks.empty()) return end_hold(&object, nullptr);
  Store& s = store();
  const Locked locked(s.lock);
  s.leaving.push_back({object, std::move(marks)});
  s.some_leave.store(true, std::memory_order_release);
  return 0;
}

// A default stream is the one of the get, though what is current now may have used the object, too.
void used_here(const Stream* behind, void* handle, std::vector<Mark>* marks) {
  Context* current = current_context();
  if (behind == nullptr || current == nullptr || behind->context == current ||
      reinterpret_cast<uintptr_t>(handle) > 2)
    return;
  CUresult error = CUDA_SUCCESS;
  Stream* here = find_stream_in(current, static_cast<CUstream>(handle), &error);
  if (here == nullptr || legacy_would_wait(here, false)) return;
  Mark mark;
  if (mark_stream(here, &mark) == CUDA_SUCCESS && !mark_reached(mark)) marks->push_back(mark);
}

}  // namespace

void let_leaving_go() {
  Store& s = store();
  std::vector<StoreLeaving> all;
  {
    const Locked locked(s.lock);
    all.swap(s.leaving);
    s.some_leave.store(false, std::memory_order_release);
  }
  std::erase_if(all, [](const StoreLeaving& one) {
    if (!std::all_of(one.behind.begin(), one.behind.end(), mark_reached)) return false;
    (void)end_hold(&one.object, nullptr);
    return true;
  });
  if (all.empty()) return;
  const Locked locked(s.lock);
  std::move(all.begin(), all.end(), std::back_inserter(s.leaving));
  s.some_leave.store(true, std::memory_order_release);
}

int release_object(const StoreObject* object, void* handle, int behind) {
  if (const int error = open_store(); error != 0) return error;
  const int32_t device =
      object->place == static_cast<uint32_t>(wire::StorePlace::kGpu) ? object->device : -1;
  Stream* stream = nullptr;
  std::vector<Mark> marks;
  if (behind == kStoreBehindAll) {
    if (const CUresult r = sync_device(device); r != CUDA_SUCCESS) return store_error(r);
  } else if (behind == kStoreBehindAllLater) {
    if (const CUresult r = marks_on(device, &marks); r != CUDA_SUCCESS) return store_error(r);
  } else if (behind == 1) {
    if (const int unfit = stream_behind(*object, handle, true, &stream); unfit != 0) return unfit;
    used_here(stream, handle, &marks);
    if (!marks.empty()) {
      Mark mark;
      if (const CUresult r = mark_stream(stream, &mark); r != CUDA_SUCCESS) return store_error(r);
      marks.push_back(mark);
    }
  }
  return marks.empty() ? end_hold(object, stream) : leave_behind(*object, std::move(marks));
}

}  // namespace tube::hook
