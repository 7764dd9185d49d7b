#include "proxy/session/stream_state.h"

#include "proxy/launch/coalescer.h"

namespace tube::proxy {

StreamState::StreamState() = default;
StreamState::~StreamState() = default;

}  // namespace tube::proxy
