// Which promised blocks a record may reach, for a function whose memory is backed by address
// (lazy_blocks.h, docs/memory.md).
//
// Every word of the record is looked at, so that no call has to be understood: parameters of
// kernels and nodes, structs in them, resource descriptions, tensor maps' addresses, values that
// streams write. Records that bring host memory to the GPU have their bytes looked at as well, in
// the staging chunk or in pinned memory. What is not in the lists below may reach everything.
//
// What the GPU does later with host memory that changes until then cannot be looked at: copies in
// graphs and captures, and every copy out of pinned memory once the function uses host functions or
// waits for values. Then launches of graphs, and those copies, reach everything.
//
// The session's thread. Copies out of nothing: it reads host memory of the client in place, which
// may change meanwhile; that a client does so faults it like any wild pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "policies/memory/address_scan.h"
#include "protocol/wire.gen.h"

namespace tube::proxy {

// Whether the record can be executed while memory of the client is away.
bool works_away(wire::Call call);
// Whether it can be while memory is promised: it begins nothing on the GPU that reaches any, and
// tells nobody else of it.
bool works_promised(wire::Call call);

// Its streams cannot be asked any more whether their work has ended.
bool begins_capture(wire::Call call);

enum class Reach : uint8_t {
  kNamed,       // the blocks that the scan has named
  kEverything,  // all that is promised
  kUnknown,     // that, and what comes later can no longer be told: others reach the memory, too
};

class RecordReach {
 public:
  // Of its session: bytes that go to the GPU; empty: there are none there, or not of that kind.
  struct Host {
    std::function<std::span<const std::byte>(uint64_t address, uint64_t bytes)> pinned;
    std::function<std::span<const std::byte>(uint32_t chunk, uint64_t offset, uint64_t bytes)>
        chunk;
    std::function<bool()> captures;
  };
  explicit RecordReach(Host host) : host_(std::move(host)) {}

  // Names in `spans` what the record names.
  Reach of(wire::Call call, std::span<const std::byte> payload, policies::AddressSpans& spans);
  // Instead, for a record that comes while nothing is promised: remembers what matters later.
  // kNamed or kUnknown.
  Reach note(wire::Call call, std::span<const std::byte> payload);

 private:
  Reach copy(std::span<const std::byte> payload, policies::AddressSpans& spans);
  Reach region(std::span<const std::byte> payload, policies::AddressSpans& spans);
  Reach chunk(std::span<const std::byte> payload, policies::AddressSpans& spans);
  bool from_host(uint64_t address) const { return !host_.pinned(address, 1).empty(); }

  const Host host_;
  bool later_ = false;  // the host may write what is copied after its record was looked at
};

}  // namespace tube::proxy
