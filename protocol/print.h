// A record as text, for traces, logs and failing tests: `cuGraphAddEmptyNode {hGraph: id 1.7,
// dependencies: 16 bytes, ...}`.
//
// The payload is untrusted: one that does not validate is printed as far as its size goes and
// marked. Allocates; not for the launch path. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "protocol/wire.gen.h"

namespace tube::wire {

// Appends to `out`. An unknown call prints as `call 4711 (24 bytes)`.
void print(std::string& out, Call call, std::span<const std::byte> untrusted_payload);

}  // namespace tube::wire
