// The workflow's store, as this process sees it: what libtube.so calls through the table
// (protocol/store_table.h).
//
// A get looks the name up in the shared index, pins the object and posts a claim: no round trip.
// The process counts its own gets of an object, so a second one costs no record either, unless the
// bytes are still on their way. `StoreState::lock` (rank 2) orders the records of one object.
#pragma once

#include <cstdint>
#include <vector>

#include "hook/objects/progress.h"
#include "hook/objects/support.h"
#include "hook/process/lock.h"
#include "protocol/store_table.h"
#include "sharedmem/store_index.h"

namespace tube::hook {

// A copy of an object in another place.
struct StoreCopy {
  uint64_t address = 0;
  int32_t device = -1;  // as the proxy counts; -1: host memory
};

struct StoreHeld {
  uint64_t generation = 0;
  uint32_t gets = 0;
  uint64_t making = 0;            // the generation that this process has reserved and not sealed
  uint64_t sealing = 0;           // the generation that this process has sealed here last
  uint64_t known = 0;             // the generation that this process has reserved or got here last,
  Context* context = nullptr;     // and what was current then; nullptr: nothing
  std::vector<StoreCopy> copies;  // those that the claim covers
};

// A release that comes behind what the program has left to do.
struct StoreLeaving {
  StoreObject object;
  std::vector<Mark> behind;
};

struct Store {
  Lock opening;  // rank 0
  std::atomic<bool> open{false};
  shared::StoreIndex index;
  bool host = false;  // its pinned memory is mapped
  Lock lock;          // rank 2: `held`, and the order of claims and releases
  std::vector<StoreHeld> held;
  std::vector<StoreLeaving> leaving;  // every later call looks at them
  std::atomic<bool> some_leave{false};
  // Seals and releases that the proxy may not have seen, and those behind a stream: the program's
  // end waits for them.
  std::atomic<bool> told{false}, told_behind{false};
};
// Made on first use and leaked.
Store& store();

const void* store_table();

// Connects and maps. 0 or kStoreCuda + a CUresult.
int open_store();
// kStoreCuda + the code; 0 for CUDA_SUCCESS.
inline int store_error(CUresult result) {
  return result == CUDA_SUCCESS ? 0 : kStoreCuda + static_cast<int>(result);
}
void describe(const shared::StoreSight& sight, StoreObject* object);
// The GPU as the program counts; -1: it does not see it.
int32_t visible_device(int32_t device);
// The object's memory as the program's copies and pointer queries know it.
void show_memory(const StoreObject& object);
void hide_memory(const StoreObject& object);

int get_object(const char* name, uint32_t place, int32_t device, void* stream, uint64_t timeout_ns,
               StoreObject* object);
// What the index says of the name, as this thread may expect it: an object that the process has
// sealed is sealed, though the record may still be on its way; with `any` that is waited for.
// `timeout_ns`: for others' objects that are not there. 0: *sight is a sealed object, or one that
// the process has sealed; reserved ones count with `any`.
int look_up(const char* name, bool any, uint64_t timeout_ns, shared::StoreSight* sight);
int release_object(const StoreObject* object, void* stream, int behind);
// Releases those of Store::leaving whose time has come. Does not wait.
void let_leaving_go();
// The stream behind which the object is sealed, `ends` false, or released. A default one of the
// program is, of a release, that of the context in which this object was reserved or got, whatever
// is current now; of a seal, that of the current one, or else that one: another thread of the
// program has used it there. Breaks no capture. *stream nullptr: there is nothing to come behind.
// 0, or an error.
int stream_behind(const StoreObject& object, void* handle, bool ends, Stream** stream);
// Remembers for that what is current now. The store's lock is held.
void know(uint32_t slot, uint64_t generation);
// Whether the process made the object and still did; from now on it does no more, for its record is
// about to be posted. The proxy ends whoever posts one of an object that is not its own. The
// store's lock is held.
bool stop_making(const StoreObject& object);

}  // namespace tube::hook
