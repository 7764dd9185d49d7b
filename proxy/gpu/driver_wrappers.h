// Puts the context gate into the table of the driver's entry points, so that no caller of the
// driver can forget it.
//
// An entry of the table is a plain function without room for an object, and its signature has no
// room for who calls. So this file keeps two things that nothing else may: the gate of the one
// table that is wrapped, and a thread-local GateCaller. Everybody else gets the gate passed and
// says this_caller() where it makes a context-wide call itself.
#pragma once

#include "proxy/gpu/context_gate.h"

namespace tube::proxy {

struct Driver;

// Once for a process, right after the table was filled and before other threads read it. `gate`
// keeps the entries as they were. Tests wrap one table after another.
void wrap_driver(Driver& table, ContextGate& gate);

// The calling thread's. A session's thread sets the owner; all others are the proxy's.
GateCaller& this_caller();

// While it lives, waits that this thread submits are the proxy's own: for work that has been
// submitted (a copy that is on its way, a restore), which ends by itself.
class ProxyWaits {
 public:
  ProxyWaits();
  ~ProxyWaits();
  ProxyWaits(const ProxyWaits&) = delete;
  ProxyWaits& operator=(const ProxyWaits&) = delete;

 private:
  WaitOwner before_;
};

}  // namespace tube::proxy
