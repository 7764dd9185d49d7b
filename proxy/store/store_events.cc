// The store's events: one behind each seal, one for each stream that an object was released behind.
#include <algorithm>
#include <utility>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/store/store.h"

namespace tube::proxy {

// Of the current context, in which it is recorded.
CUevent Store::new_event() {
  CUcontext context = nullptr;
  if (driver_.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
  {
    std::lock_guard lock(mutex_);
    std::vector<CUevent>& spare = spare_events_[context];
    if (!spare.empty()) {
      const CUevent event = spare.back();
      spare.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  if (driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  std::lock_guard lock(mutex_);
  event_contexts_[event] = context;
  return event;
}

void Store::give(CUevent event) {
  if (event != nullptr) spare_events_[event_contexts_.at(event)].push_back(event);
}

// The event that the stream has on the object; nullptr: none. mutex_ is held.
CUevent Store::use_of(Object& object, const StoreStream& stream) {
  ++object.touched;
  const auto found = std::find_if(object.uses.begin(), object.uses.end(),
                                  [&](const Use& use) { return use.stream == stream; });
  if (found == object.uses.end()) return nullptr;
  found->touched = object.touched;
  found->recording = true;
  return found->event;
}

// Uses that are over make room for others. One whose event is about to be recorded, or has been
// since the driver was asked, stays.
void Store::forget_uses(uint32_t slot, uint64_t generation) {
  std::vector<Use> asked;
  {
    std::lock_guard lock(mutex_);
    const Object* object = live(slot, generation);
    if (object == nullptr) return;
    std::copy_if(object->uses.begin(), object->uses.end(), std::back_inserter(asked),
                 [](const Use& use) { return !use.recording; });
  }
  std::erase_if(asked, [this](const Use& use) {
    return driver_.cuEventQuery(use.event) == CUDA_ERROR_NOT_READY;
  });
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  if (object == nullptr) return;
  std::erase_if(object->uses, [&](const Use& use) {
    const bool over = std::any_of(asked.begin(), asked.end(), [&](const Use& each) {
      return each.event == use.event && each.touched == use.touched && !use.recording;
    });
    if (over) give(use.event);
    return over;
  });
}

CUevent Store::event_for(uint32_t slot, uint64_t generation, const StoreStream& stream) {
  if (stream.session == 0) return new_event();
  bool full = false;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr) return nullptr;
    if (const CUevent event = use_of(*object, stream); event != nullptr) return event;
    full = object->uses.size() >= limits::kStoreUses;
  }
  if (full) forget_uses(slot, generation);
  const CUevent event = new_event();
  if (event == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  Object* object = live(slot, generation);
  if (object != nullptr && object->uses.size() < limits::kStoreUses) {
    object->uses.push_back({stream, event, ++object->touched});
    return event;
  }
  give(event);
  return nullptr;
}

}  // namespace tube::proxy
