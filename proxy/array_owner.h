// Whom a level of a mipmapped array or a plane belongs to, as one number: ids of arrays and of mipmapped arrays are counted
// apart, so one bit tells them from each other.
#pragma once

#include <cstdint>

#include "protocol/handle_id.h"

namespace tube::proxy {

constexpr uint64_t array_owner(wire::Kind kind, uint64_t id) {
  return kind == wire::Kind::kMipmappedArray ? id | uint64_t{1} << 63 : id;
}

}  // namespace tube::proxy
