// Object ids as they travel: a client-chosen index and a generation that makes a stale id
// recognisable.
//
// The proxy keeps one table per kind, indexed by `index`, and compares the generation. Index 0 is
// never an object.
#pragma once

#include <cstdint>

namespace tube::wire {

enum class Kind : uint32_t {
  kStream = 1,
  kEvent,
  kLibrary,
  kModule,
  kKernel,
  kGraph,
  kGraphNode,
  kGraphExec,
  kContext,
  kMemHandle,
  kMemPool,
  kLink,
  kArray,
  kMipmappedArray,
  kUserObject,
  kGreenContext,
  kTexRef,
  kExternalMemory,
  kExternalSemaphore,
  kTexObject,
  kSurfObject,
  kCount
};

// The driver calls a wrong handle of these an invalid value, not an invalid handle.
constexpr bool part_of_graphs(Kind kind) {
  return kind == Kind::kGraph || kind == Kind::kGraphNode || kind == Kind::kGraphExec ||
         kind == Kind::kUserObject;
}

// How many of a kind a client has alive at most. Who creates one is not answered, so the hook keeps
// within it; the proxy allows twice as many, for ends that it keeps back behind a stream.
constexpr uint32_t most_alive(Kind kind) {
  switch (kind) {
    case Kind::kStream: return 4096;
    case Kind::kEvent: return 1u << 18;
    default: return ~uint32_t{0};  // whose creation has an answer
  }
}

inline constexpr uint32_t kProxyMade = 0x8000'0000u;  // index bit of ids that the proxy chose
inline constexpr uint32_t kFirstCreatedContext =
    0x100;                                    // context numbers below: device ordinal + 1
inline constexpr uint64_t kLegacyStream = 0;  // the record's context's legacy default stream
// What the non-blocking streams of the record's context that have ended have left to do, for
// records that mark a point behind it.
inline constexpr uint64_t kEndedStreams = uint64_t{1} << 32;

// tubeGetKernel's `writes`: the kernel may come to the device runtime's printf, or to its assert
// (image/kernel_calls.h).
inline constexpr uint32_t kKernelPrints = 1;
inline constexpr uint32_t kKernelAsserts = 2;

constexpr uint64_t make_id(uint32_t index, uint32_t generation) {
  return uint64_t{generation} << 32 | index;
}
constexpr uint32_t id_index(uint64_t id) { return static_cast<uint32_t>(id); }
constexpr uint32_t id_generation(uint64_t id) { return static_cast<uint32_t>(id >> 32); }

}  // namespace tube::wire
