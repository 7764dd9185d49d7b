// Tube's version, as said in the handshake and on the control socket.
#pragma once

namespace tube::proxy {

inline constexpr char kVersion[] = TUBE_VERSION;

}  // namespace tube::proxy
