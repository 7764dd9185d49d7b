// For how long others stand back for something that passes: until it has gone, a bounded time, and
// no more than half of all time. What they stand back for may come again and again, or stay.
//
// Plain values in, decisions out: no clock, no lock.
#pragma once

#include <cstdint>

namespace tube::policies {

class StandBack {
 public:
  // Whether they stand back now. `there`: it is; `most_ns`: at once.
  bool now(bool there, uint64_t now_ns, uint64_t most_ns) {
    if (since_ns_ != 0) {
      if (there && now_ns - since_ns_ < most_ns) return true;
      rest_until_ns_ = now_ns + (now_ns - since_ns_);
      since_ns_ = 0;
      return false;
    }
    if (!there || now_ns < rest_until_ns_) return false;
    since_ns_ = now_ns;
    return true;
  }

 private:
  uint64_t since_ns_ = 0;  // 0: they do not
  uint64_t rest_until_ns_ = 0;
};

}  // namespace tube::policies
