// What a program's libtube.so asks of the libcuda.so.1 in the same process: is that Tube's, and
// where is the store. The library asks cuGetExportTable for kStoreTableId, which the driver does
// not have. Both are of one version of Tube, or the table's version says so.
//
// No function of the table throws or keeps what it was given; all may be called from any thread.
// The results are StoreAnswer's values, or kStoreCuda + a CUresult.
#pragma once

#include <cstdint>

namespace tube {

inline constexpr unsigned char kStoreTableId[16] = {0x54, 0x55, 0x42, 0x45, 0x53, 0x54, 0x4f, 0x52,
                                                    0x45, 0x2d, 0x74, 0x61, 0x62, 0x6c, 0x65, 0x31};
inline constexpr uint32_t kStoreTableVersion = 6;
inline constexpr int kStoreCuda = 1000;
inline constexpr int kStoreBehindAll = 2, kStoreBehindAllLater = 3;

struct StoreObject {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  uint32_t slot = 0;
  uint32_t place = 0;   // wire::StorePlace; of `address`
  int32_t device = -1;  // as the program counts; -1: host memory
  uint32_t dtype = 0;
  uint32_t ndim = 0;
  uint32_t sealed = 0;
  uint32_t ready = 0;  // of a get: no stream has to be waited for
  uint32_t home = 0;   // wire::StorePlace; where it was put
  int64_t shape[8] = {};
  int64_t strides[8] = {};
  uint64_t created_ns = 0, expires_ns = 0;
  uint64_t context = 0;  // current at this get or reserve, as the hook knows it; 0: none
  char name[96] = {};
  char group[64] = {};
};

struct StoreSpec {
  const char* name;
  const char* group;  // may be empty
  uint64_t bytes;
  uint32_t place;
  int32_t device;  // -1: the current one, or the first
  uint32_t dtype, ndim;
  uint32_t consumers;
  uint64_t ttl_ms;
  const int64_t* shape;
  const int64_t* strides;
};

struct StoreTable {
  uint64_t size_bytes;  // of the table, as in those of the driver
  uint32_t version;
  uint32_t reserved;
  // Connects when the program has not. 0, or why there is no store.
  int (*open)();
  uint64_t (*store_id)();
  uint64_t (*session_id)();
  int (*reserve)(const StoreSpec* spec, StoreObject* object);
  // stream: a CUstream, taken when `behind` is 1. Of a release: kStoreBehindAll waits for all work
  // of the program on the object's GPU, of host memory on all; kStoreBehindAllLater does not wait,
  // a later call of the table releases it behind that.
  int (*seal)(const StoreObject* object, void* stream, int behind);
  // Takes the object; what comes later on the stream waits for its bytes. In host memory, or
  // without a context: returns when the bytes are there. `timeout_ns`: how long for an object that
  // is not there; ~0: for ever.
  int (*get)(const char* name, uint32_t place, int32_t device, void* stream, uint64_t timeout_ns,
             StoreObject* object);
  int (*release)(const StoreObject* object, void* stream, int behind);
  int (*peek)(const char* name, StoreObject* object);
  // group 1: all objects of the group `name`. count may be null.
  int (*remove)(const char* name, int group, uint32_t* count);
  // Calls visit with each object until it answers 0.
  int (*list)(int (*visit)(void* data, const StoreObject* object), void* data);
  // The names of objects in the order in which they will be taken.
  int (*queue)(const char* const* names, uint64_t count);
  // The memory behind an object that the process holds, as a descriptor, the caller's: `bytes` of
  // it, the object at `offset`.
  int (*export_memory)(const StoreObject* object, int* fd, uint64_t* bytes, uint64_t* offset);
};

}  // namespace tube
