// A proxy whose GPU context died of a fault, or has work that does not end, replaces itself by a
// fresh one, when the last function has left it.
//
// Nothing of such a context can be repaired inside the process that has it, so tubed executes
// itself again: same process id, same arguments, same log. What the new one inherits are the
// listening sockets and the connections that have not been greeted yet, so a function that comes
// meanwhile waits for some tenths of a second instead of being refused (docs/decisions/0006).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "proxy/common/client_limits.h"

namespace tube::proxy {

// Descriptors of the predecessor. The holder of the struct owns them.
struct Inheritance {
  int data = -1;  // listening sockets
  int control = -1;
  int owner = -1;             // the lock that makes this process the workflow's proxy
  uint32_t restarts = 0;      // how often this proxy has started anew
  std::vector<int> greeting;  // accepted connections, nothing read from them yet
  bool valid() const { return data >= 0 && control >= 0 && owner >= 0; }
};

// As the hidden flag --inherit carries it: "data,control,owner,restarts[,connection...]".
std::string to_text(const Inheritance& inheritance);
// False for anything that is not such a list of open files.
bool parse_inheritance(const std::string& text, Inheritance* inheritance);

// Replaces this process; returns only when that fails. All other descriptors are closed.
// `arguments` begin with the program's name.
Error restart(const Inheritance& inheritance, std::vector<std::string> arguments);

// A proxy that replaces another one and finds no memory for its start begins once more: copies of
// the descriptors that it inherited are kept until it has started, so that functions at the door
// wait on. They are made before the constructors of static objects, which may be what finds no
// memory: then, and where else an exception ends the process, it begins once more, too. Allocates
// nothing.
class SecondStart {
 public:
  // Keeps what --inherit among the arguments names; nothing without it. Before main().
  void keep(int argc, char* const* argv);
  // It has started: the copies are closed.
  void started();
  // Executes itself again, as it was. Returns when nothing is kept, or the system refuses.
  void begin();

 private:
  static constexpr uint32_t kMost = limits::kGreetings + 3;
  struct Kept {
    int number = -1, copy = -1;
  };
  std::array<Kept, kMost> kept_{};
  uint32_t count_ = 0;
  bool whole_ = true;
  char* const* argv_ = nullptr;
};

SecondStart& second_start();

}  // namespace tube::proxy
