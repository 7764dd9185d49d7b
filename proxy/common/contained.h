// Where an exception stops: at one client's call, at one session, at one turn of a thread.
//
// The standard library throws when memory, mappings or threads run out, and its containers are used
// everywhere here. Uncaught, one client's request would end the proxy and with it every function.
// So the places where a request enters run their work through contained(): the loop of a session,
// the server's events, and the loops of the other threads. Destructors clean up on the way; the
// caller says what the client is answered. Costs nothing when nothing is thrown, and reporting
// allocates nothing. Any thread.
#pragma once

#include <exception>

#include "base/log.h"

namespace tube::proxy {

// Runs `work`; false when it threw, which has then been logged. `what` completes "... failed".
template <class Work>
[[nodiscard]] bool contained(const char* what, Work&& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    log_error("%s failed: the proxy lacks memory, mappings or threads (%s)", what, error.what());
    return false;
  } catch (...) {
    log_error("%s failed with an unknown exception", what);
    return false;
  }
}

}  // namespace tube::proxy
