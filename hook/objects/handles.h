// Handles of the program and ids on the wire.
#pragma once

#include "base/cuda_api.h"
#include "hook/process/process.h"
#include "protocol/handle_id.h"

namespace tube::hook {

// The wire id of a handle. CUDA_ERROR_INVALID_HANDLE when it names nothing (of graphs:
// INVALID_VALUE). For streams NULL, 1, 2 and the per-thread rules are handled, and the calling
// thread's next request counts as an operation of that stream.
CUresult id_of(wire::Kind kind, const void* handle, uint64_t* id);
// What a stream, an event or an array is told that is no more, or never was: it ended with its
// context, as far as anybody can tell (H200, 13.0; the driver crashes on most that did not).
CUresult ended_error(wire::Kind kind, const void* handle);
// A client-made handle for an object that the next request creates; 0 when the table is full.
uint64_t new_id(wire::Kind kind, void** handle);
// The handle for an object that the proxy named; the same id gives the same handle until dropped.
void* adopt(wire::Kind kind, uint64_t proxy_made_id);
// The object is gone: its handle becomes invalid. `gone`: for objects whose end the proxy has yet
// to hear of.
void drop(wire::Kind kind, uint64_t id, Retired* gone = nullptr);

// The proxy's ordinal of a device that the program sees. CUDA_ERROR_INVALID_DEVICE.
CUresult device_number(CUdevice device, int32_t* number);

}  // namespace tube::hook
