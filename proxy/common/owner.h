// Whom an object belongs to, as one number, where objects of two kinds may own others of the same
// kind: each kind counts its ids by itself, so a library and a module may have the same one. A bit
// tells them apart. (Without it the kernels of a library went with a module of the same number:
// XLA, which uses both, then launched kernels that were gone.)
#pragma once

#include <cstdint>

#include "protocol/handle_id.h"

namespace tube::proxy {

constexpr uint64_t owner_key(wire::Kind kind, uint64_t id) {
  const bool second = kind == wire::Kind::kMipmappedArray || kind == wire::Kind::kModule;
  return second ? id | uint64_t{1} << 63 : id;
}
// Of a kernel: what it was looked up in.
constexpr wire::Kind owner_kind(uint64_t key) {
  return (key >> 63) != 0 ? wire::Kind::kModule : wire::Kind::kLibrary;
}
constexpr uint64_t owner_id(uint64_t key) { return key & ~(uint64_t{1} << 63); }

}  // namespace tube::proxy
