// The store's part in finding who writes to sealed objects (store_verifier.h).
#include <algorithm>
#include <atomic>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/store/store.h"
#include "proxy/store/store_verifier.h"
#include "sharedmem/store_accessors.h"

namespace tube::proxy {

wire::StoreAnswer Store::begin_check(uint32_t slot, uint64_t generation, Checked* checked) {
  std::vector<CUevent> uses;
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object == nullptr || object->state == abi::StoreState::kReserved || object->reaping)
      return wire::StoreAnswer::kNotFound;
    if (object->moving) return wire::StoreAnswer::kBusy;
    checked->piece = object->piece;
    checked->bytes = object->body.bytes;
    for (const Use& use : object->uses) uses.push_back(use.event);
    ++object->claims;
    ++object->touched;
  }
  wire::StoreAnswer answer = wire::StoreAnswer::kOk;
  if (const CUevent event = written(slot, generation); event != nullptr) {
    const CUresult state = driver_.cuEventQuery(event);
    if (state == CUDA_ERROR_NOT_READY) answer = wire::StoreAnswer::kBusy;
    else if (state != CUDA_SUCCESS) answer = wire::StoreAnswer::kNotFound;
    else set_ready(slot, generation);
  }
  checked->rests = std::all_of(uses.begin(), uses.end(), [this](CUevent event) {
    return driver_.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
  });
  if (answer != wire::StoreAnswer::kOk) end_check(slot, generation);
  return answer;
}

std::vector<std::string> Store::pinning(uint32_t slot) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's reads come first
  std::lock_guard lock(mutex_);
  std::vector<std::string> functions;
  for (const auto& member : members_) {
    if (shared::proxy_reads_pin(member->pin(slot))) functions.push_back(member->function);
  }
  return functions;
}

// Behind the first sum every client may have the object.
void Store::end_check(uint32_t slot, uint64_t generation) {
  {
    std::lock_guard lock(mutex_);
    Object* object = live(slot, generation);
    if (object != nullptr && object->ready && std::exchange(object->hidden, false) &&
        object->state == abi::StoreState::kSealed) {
      index_.seal(slot, generation, true);
      tell();
    }
  }
  release(lender_, slot, generation, 1, 0);
}

void Store::note_changed(uint32_t slot, uint64_t generation, const std::string& functions) {
  std::lock_guard lock(mutex_);
  ++counts_.changed;
  if (Object* object = live(slot, generation)) object->changed_by = functions;
}

}  // namespace tube::proxy
