// What is known of one function's way with memory: its certificate, compared with what it does; or,
// in a proxy that `tubectl profile` has started, what it does, written down (docs/memory.md, "By
// address").
//
// Certified: memory is backed by address as long as the function loads only images that the
// certificate knows, and allocates what it says. From the first difference on everything is backed,
// as for any other function.
//
// Profiled: memory is backed by address from the start, and nothing else uses the proxy, so what an
// address was missed for faults this function alone. When it ends, a file in the profile's folder
// says what it has loaded and allocated; when its context died, which kernel reached what.
//
// The session's thread. begin() and end() may wait for the disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/memory/certificate.h"

namespace tube::proxy {

class DriverLog;
class Residency;

// What functions of a proxy may have of it.
struct KnownFunctions {
  std::string profile;       // a folder; empty: the proxy profiles nobody
  DriverLog* log = nullptr;  // what the driver said; nullptr: it is not listened to
  bool pool = false;         // what the pool learns of them is kept (pool_profiles.h)
};

class KnownFunction {
 public:
  explicit KnownFunction(Residency& residency) : residency_(residency) {}

  struct Who {
    uint64_t session = 0;
    int pid = 0;
    std::string name;
    bool lazy = false;  // it asks for memory by address
    std::string gpu;    // the name of the first one
  };
  // Before its first record.
  void begin(const KnownFunctions& options, Who who);
  void loads(uint64_t low, uint64_t high);
  void allocates(uint64_t bytes);
  // Its context is dead; `kernels`: those that may have ended it. Once.
  void faulted(const std::string& error, const std::vector<std::string>& kernels);
  // It ends, and its memory is still there. `whole`: by itself, and its work is done.
  void end(bool whole);

 private:
  enum class Mode : uint8_t { kNone, kCertified, kProfiled };
  void load_certificate();
  void departs(const std::string& why);
  void write(const std::string& file, const std::string& content) const;

  Residency& residency_;
  KnownFunctions options_;
  Who who_;
  Mode mode_ = Mode::kNone;
  policies::Behaviour behaviour_;
  bool watched_ = false;  // its memory was backed by address from the start
  bool faulted_ = false;
};

}  // namespace tube::proxy
