// Which part of a GPU's time each function had lately.
//
// What functions used is counted since they began; a share is the difference between two looks.
// Whoever asks looks, and the last look that is at least half a second old is what a new one is
// compared with. Under the server's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace tube::proxy {

class UseMeter {
 public:
  // Before share(): it is so late.
  void look(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (now_ns - newer_.at_ns < kLeastNs) return;
    older_ = std::exchange(newer_, Look{now_ns, {}});
  }
  // The function, which began then, has used so much by now. 0 to 1, more on several GPUs.
  double share(uint64_t function, uint64_t began_ns, uint64_t used_ns) {
    newer_.used.try_emplace(function, used_ns);
    const auto before = older_.used.find(function);
    const bool known = before != older_.used.end();
    const uint64_t since_ns = known ? older_.at_ns : began_ns;
    const uint64_t from_ns = known ? before->second : 0;
    return now_ns_ <= since_ns ? 0
                               : static_cast<double>(used_ns - std::min(used_ns, from_ns)) /
                                     static_cast<double>(now_ns_ - since_ns);
  }

 private:
  static constexpr uint64_t kLeastNs = 500'000'000;
  struct Look {
    uint64_t at_ns = 0;
    std::map<uint64_t, uint64_t> used;  // by function; few
  };
  uint64_t now_ns_ = 0;
  Look older_, newer_;
};

}  // namespace tube::proxy
