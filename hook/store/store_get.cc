// Taking and releasing objects of the store, and waiting for them.
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
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
    if (sealed_by_us(*sight)) return kBusy;
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

// The same object as it is in the other place.
StoreObject in_other_place(const StoreObject& object, uint64_t address) {
  StoreObject other = object;
  const bool host = object.place == static_cast<uint32_t>(wire::StorePlace::kHost);
  other.address = address;
  other.place = static_cast<uint32_t>(host ? wire::StorePlace::kGpu : wire::StorePlace::kHost);
  other.device = host ? 0 : -1;
  if (host && current_context() != nullptr)
    other.device = static_cast<int32_t>(current_context()->visible_device);
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
    return 0;
  }
  bool look_again = false;
  if (!s.index.pin(sight, &look_again)) {
    if (look_again) ask_to_look(sight.slot);
    return kBusy;
  }
  uint64_t device = 0;
  held.generation = sight.generation();
  held.gets = 1;
  held.copy = shared::client_reads_other(s.index.entry(sight.slot), &device);
  show_memory(object);
  if (held.copy != 0) show_memory(in_other_place(object, held.copy));
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

// The object's bytes in the other place: found in the index, else the proxy has them copied there,
// once for all. On a stream they come in its order; without one this waits for them.
int fetch(const StoreObject& object, Stream* stream, uint64_t* address) {
  Store& s = store();
  for (uint32_t asks = 0;; ++asks) {
    uint64_t device = 0;
    const bool there = shared::client_reads_other(s.index.entry(object.slot), &device) != 0;
    {
      Locked locked(s.lock);
      *address = s.held[object.slot].copy;
    }
    if (there && *address != 0) return 0;
    wire::tubeStoreFetch_reply reply{};
    CUresult result;
    {
      Request<wire::tubeStoreFetch> r(stream);
      r->stream = stream == nullptr ? 0 : stream->id;
      r->device = stream == nullptr ? ~0u : stream->context->device;
      r->slot = object.slot;
      r->generation = object.generation;
      result = r.call(&reply);
    }
    if (result != CUDA_SUCCESS) return store_error(result);
    const bool busy = reply.answer == static_cast<uint32_t>(wire::StoreAnswer::kBusy);
    if (!busy && reply.answer != 0) return static_cast<int>(reply.answer);
    if (!busy) {
      *address = reply.address;
      Locked locked(s.lock);
      if (std::exchange(s.held[object.slot].copy, reply.address) == 0)
        show_memory(in_other_place(object, reply.address));
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
void hide_both(const StoreObject& object, uint64_t copy) {
  hide_memory(object);
  if (copy == 0) return;
  shared::StoreSight sight;
  StoreObject own;
  if (!store().index.look(object.slot, &sight)) return;
  describe(sight, &own);
  hide_memory(own);
  hide_memory(in_other_place(own, copy));
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

int get_object(const char* name, uint32_t place, int32_t, void* handle, uint64_t timeout_ns,
               StoreObject* object) {
  if (const int error = open_store(); error != 0) return error;
  Stream* stream = nullptr;
  int answer = kBusy;
  while (answer == kBusy) {
    shared::StoreSight sight;
    answer = look_up(name, false, timeout_ns, &sight);
    if (answer != 0) return answer;
    describe(sight, object);
    if (sight.body.window != connection().welcome.window)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
    const uint32_t wanted = place == kAnyPlace ? object->place : place;
    if (const int error = stream_for(wanted, handle, &stream); error != 0) return error;
    answer = take(sight, *object);
  }
  if (answer != 0) return answer;
  const bool as_it_is = place == kAnyPlace || object->place == place;
  object->ready = shared::client_sees_ready(store().index.entry(object->slot)) ? 1 : 0;
  if (as_it_is && object->ready != 0) return 0;
  if (as_it_is) return stream != nullptr ? order(*object, stream) : wait_ready(*object);
  uint64_t address = 0;
  if (const int error = fetch(*object, stream, &address); error != 0) {
    (void)release_object(object, nullptr, 0);
    return error;
  }
  *object = in_other_place(*object, address);
  object->ready = 0;
  return 0;
}

int release_object(const StoreObject* object, void* handle, int behind) {
  if (const int error = open_store(); error != 0) return error;
  Store& s = store();
  CUresult error = CUDA_SUCCESS;
  Stream* stream = behind != 0 ? find_stream(static_cast<CUstream>(handle), &error) : nullptr;
  if (error != CUDA_SUCCESS) return store_error(error);
  if (object->slot >= abi::kStoreSlots) return static_cast<int>(wire::StoreAnswer::kInvalid);
  s.told.store(true, std::memory_order_relaxed);
  if (stream != nullptr) s.told_behind.store(true, std::memory_order_relaxed);
  Locked locked(s.lock);
  bool last = true;
  uint64_t copy = 0;
  if (object->sealed != 0) {
    StoreHeld& held = s.held[object->slot];
    if (held.gets == 0 || held.generation != object->generation)
      return static_cast<int>(wire::StoreAnswer::kInvalid);
    last = --held.gets == 0;
    copy = held.copy;
  }
  if (last) hide_both(*object, copy);
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

}  // namespace tube::hook
