// Who makes no progress: of those that are busy, the ones whose count has stood still at every look
// for as long as a limit.
//
// A session's thread counts records, the server's its rounds, a GPU the values that it writes for
// a function. Looks come now and then from a thread of their own and cost the observed nothing but
// the count that they keep anyway; a stall is told at the first look behind the limit and once when
// it is over.
//
// Plain values in, decisions out; proxy/server/watchdog.h looks and tells.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tube::policies {

struct Progress {
  uint64_t id = 0;
  bool busy = false;
  uint64_t count = 0;
};

struct Stall {
  uint64_t id = 0;
  uint64_t since_ns = 0;  // of the first look at which it was so
  enum class News : uint8_t { kBegins, kGoesOn, kOver } news = News::kBegins;
};

class ProgressWatch {
 public:
  // 0: nothing is a stall.
  explicit ProgressWatch(uint64_t limit_ns) : limit_ns_(limit_ns) {}

  // What stalls now, and what no longer does. An id that is not among `subjects` is forgotten.
  std::vector<Stall> look(std::span<const Progress> subjects, uint64_t now_ns);

 private:
  struct Seen {
    uint64_t count = 0;
    uint64_t since_ns = 0;
    bool told = false;
  };
  const uint64_t limit_ns_;
  std::map<uint64_t, Seen> seen_;
};

}  // namespace tube::policies
