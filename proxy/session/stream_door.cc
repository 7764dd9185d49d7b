#include "proxy/session/stream_door.h"

#include <array>
#include <cstring>
#include <iterator>

#include "protocol/properties.gen.h"

namespace tube::proxy {

StreamDoor::Answer StreamDoor::ask(const abi::RecordHeader& header,
                                   std::span<const std::byte> untrusted_payload) {
  std::array<uint64_t, std::size(wire::CallProperties{}.streams)> ids{};
  size_t count = 0;
  for (const uint16_t at : wire::stream_fields(header.call)) {
    if (untrusted_payload.size() < at + sizeof(uint64_t)) break;
    std::memcpy(&ids[count++], untrusted_payload.data() + at, sizeof(uint64_t));
  }
  return guard_({header, std::span(ids.data(), count)});
}

}  // namespace tube::proxy
