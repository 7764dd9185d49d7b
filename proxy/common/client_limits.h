// Everything that one client may hold at a time, in one table.
//
// A client is any program of the user; a bug in it must not take the proxy down. Reaching a limit
// answers CUDA_ERROR_OUT_OF_MEMORY for that call, nothing else. The numbers are far above what the
// known programs need (facts: PyTorch holds some hundred streams and events, a few thousand
// kernels) and small enough that a client which leaks everything costs the proxy below a gigabyte
// of host memory.
#pragma once

#include <cstdint>

#include "protocol/handle_id.h"

namespace tube::proxy::limits {

inline constexpr uint32_t kClients = 128;           // = windows::kMaxClients
inline constexpr uint32_t kObjectIndex = 1u << 20;  // a client-chosen index lies below this
inline constexpr uint32_t kContexts = 256;          // created contexts of a client, alive at once
inline constexpr uint32_t kAllocations = 1u << 20;  // device allocations
// A limit of memory (memory_budgets.h), or the GPU, says no much earlier.
inline constexpr uint64_t kDeviceBytes = 1ull << 42;
inline constexpr uint32_t kReservations = 1u << 16;  // cuMemAddressReserve, alive at once
inline constexpr uint32_t kPinnedRanges = 1u << 16;
inline constexpr uint64_t kPinnedBytes = 48ull << 30;  // of the slot's 64 GiB
inline constexpr uint64_t kPinnedReuseBytes =
    256ull << 20;  // of functions that left, which no other will use: kept until a good moment
inline constexpr uint64_t kPinnedOverdueBytes =
    1ull << 30;  // freed by one client, above its share, while it cannot be given back
inline constexpr uint32_t kRegistrations = 1u << 16;  // cuMemHostRegister, alive at once
inline constexpr uint64_t kRegisteredBytes = 1ull
                                             << 42;  // it is the client's memory, only mapped here
// Of the mappings that the system grants a process (vm.max_map_count), all registrations together
// may take this share, in percent, and those of one client half of that: the rest is for stacks,
// segments, the allocator and the driver.
inline constexpr uint32_t kHostMappingsPercent = 75;
inline constexpr uint32_t kWaitingFds =
    16;  // fds announced by a client and not yet named by a record
inline constexpr uint64_t kImageBytes = 2ull << 30;  // one module image
inline constexpr uint64_t kIdleModuleBytes =
    2ull << 30;  // images of modules that nobody uses, kept loaded for the next function
inline constexpr uint64_t kKeptImageBytes = 1ull
                                            << 30;  // images whose bytes are kept for the next load
inline constexpr uint64_t kKeptSegmentBytes =
    1ull << 30;  // segments of functions that left, kept registered for the next ones
inline constexpr uint64_t kOldSegmentBytes =
    10ull << 30;  // of those not to be used again: more than all clients at once leave
inline constexpr uint64_t kRetiredModuleBytes =
    256ull << 20;  // images of modules that wait for their unload
inline constexpr uint32_t kRetiredModules = 256;
inline constexpr uint32_t kParameters = 2000;       // of one kernel: its layout must fit a reply
inline constexpr uint32_t kParameterBytes = 32764;  // the driver's own limit (sm_70 and later)
// Nodes of child graphs, clones and instances, which the driver copies: without ids, and far more
// than a client needs to name. 2 KiB each on the simulated GPU.
inline constexpr uint64_t kCopiedNodes = 1ull << 21;
inline constexpr uint32_t kRunGraphs = 1024;  // graphs of repeated launches (run_graphs.h)
inline constexpr uint64_t kRunGraphBytes = 256ull
                                           << 20;  // of these, with what the driver keeps of them
inline constexpr uint32_t kLaunchAttributes = 32;
inline constexpr uint32_t kParkedRecords = 1u << 14;  // kept back (parked_records.h): then its ring
inline constexpr uint64_t kParkedBytes = 8ull << 20;  // waits, as a full one does
inline constexpr uint64_t kSloMs = 3'600'000;         // of a request, as a function may say
inline constexpr uint64_t kWordValue = 1ull
                                       << 62;  // stream waits compare cyclically: stay on one side
inline constexpr uint64_t kLogBytes = 16ull << 20;  // of the log file, and as much of the last one
inline constexpr uint32_t kGreetings = 128;         // connections that have not greeted, in all
inline constexpr uint32_t kGreetingsOfOne = 8;      // of one process
inline constexpr uint32_t kGreetingMs = 10'000;     // how long such a connection may stay
inline constexpr uint32_t kGreetingSoonMs = 250;    // when another one needs its place
inline constexpr uint32_t kControlClients = 16;
inline constexpr uint32_t kControlSilentMs =
    1000;  // after which a connection that asks nothing is dropped when another one needs its place
inline constexpr uint32_t kControlSlowMs = 5000;  // within which an answer must have been taken
inline constexpr uint32_t kControlLineBytes = 64u << 10;
inline constexpr uint32_t kImports = 1u << 16;    // allocations of other processes, open at once
inline constexpr uint32_t kBrokerClients = 4096;  // allocations that other proxies have open
inline constexpr int kBrokerMs = 5000;            // how long another proxy may take to answer
inline constexpr uint64_t kOutputBytes = 64ull << 20;  // of kernels' text that it has not collected
inline constexpr uint32_t kOutputMs =
    5000;  // how long another client's printing kernels are waited for
inline constexpr uint32_t kStoreObjects = 8192;  // made by one client, of abi::kStoreSlots in all
inline constexpr uint32_t kStoreQueue = 4096;    // turns that are told at a time
inline constexpr uint32_t kStoreUses = 256;      // streams that one object was released behind
inline constexpr uint32_t kStoreLeases = 4096;   // of objects that other workflows have or ask for
inline constexpr int kUnwrittenMs = 100;         // a dead client's objects may take to be written
inline constexpr uint64_t kStoreHostBytes = 32ull << 30;  // of objects in pinned memory, in all
inline constexpr uint64_t kStoreLifeMs = 1ull << 40;      // a time to live, as a client may say
inline constexpr uint32_t kDevResources = 4096;           // different partitions of SMs
inline constexpr uint32_t kMemoryWaitMs = 3'600'000;  // the most that TUBE_MEMORY_WAIT_MS may be
inline constexpr uint32_t kTeardownMs = 5000;         // how long a dead client's work may still run
inline constexpr uint32_t kSparePlaces =
    32;  // kept free of what functions left, while there is a choice

// Per kind of object (protocol/handle_id.h).
constexpr uint32_t objects(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kStream:
    case wire::Kind::kEvent: return 2 * wire::most_alive(kind);
    case wire::Kind::kLibrary: return 1u << 14;
    case wire::Kind::kModule: return 1u << 14;
    case wire::Kind::kKernel: return 1u << 18;
    case wire::Kind::kGraph: return 1u << 14;
    case wire::Kind::kGraphNode: return 1u << 19;
    case wire::Kind::kGraphExec: return 1u << 14;
    case wire::Kind::kContext: return kContexts;
    case wire::Kind::kMemHandle: return 1u << 18;
    case wire::Kind::kMemPool: return 256;
    case wire::Kind::kLink: return 256;
    case wire::Kind::kArray:
    case wire::Kind::kMipmappedArray: return 1u << 16;
    case wire::Kind::kUserObject: return 1u << 16;
    case wire::Kind::kGreenContext: return 64;
    case wire::Kind::kTexRef: return 4096;
    case wire::Kind::kExternalMemory:
    case wire::Kind::kExternalSemaphore: return 1024;
    case wire::Kind::kTexObject:
    case wire::Kind::kSurfObject: return 1u << 16;
    case wire::Kind::kCount: break;
  }
  return 0;
}

}  // namespace tube::proxy::limits
