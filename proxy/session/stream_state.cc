#include "proxy/session/stream_state.h"

#include "proxy/launch/coalescer.h"
#include "proxy/launch/launch_notes.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/parked_records.h"

namespace tube::proxy {
namespace {

// No index of a stream (protocol/handle_id.h): clients' lie far below.
constexpr uint64_t kLegacyKey = 1u << 31;

}  // namespace

StreamState::StreamState() = default;
StreamState::~StreamState() = default;

void StreamState::add_legacy_keys(ParkKeys& keys, uint32_t context, bool works) {
  keys.add(ParkKeys::object(wire::NamedKind::kStream, kLegacyKey | context), true);
  const uint64_t order = ParkKeys::order(ParkKeys::Order::kLegacy, context);
  if (works) keys.add(order, true);
  else keys.add_look(order);
  keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), false);
}

void StreamState::add_ended_keys(ParkKeys& keys, uint32_t context) {
  keys.add(ParkKeys::order(ParkKeys::Order::kEnded, context), true);
}

void StreamState::add_keys(ParkKeys& keys, bool works, bool ends) const {
  if (legacy) return add_legacy_keys(keys, context, works);
  keys.add(ParkKeys::object(wire::NamedKind::kStream, id), true);
  if (blocking() && (works || ends))
    keys.add(ParkKeys::order(ParkKeys::Order::kLegacy, context), false);
  if (ends && !blocking()) keys.add(ParkKeys::order(ParkKeys::Order::kEnded, context), false);
  keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), false);
}

// Of what kind it will be is not known here: as if it were a blocking one.
void StreamState::add_keys_unmade(ParkKeys& keys, uint64_t id, const ContextShare* share,
                                  bool made) {
  keys.add(ParkKeys::object(wire::NamedKind::kStream, id), true);
  if (made) return;
  if (share != nullptr) keys.add(ParkKeys::order(ParkKeys::Order::kLegacy, share->number), false);
  keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), false);
}

}  // namespace tube::proxy
