// Host functions and stream callbacks that the GPU has not got to.
//
// The driver tells that a context has failed only to who asks, and a function that sleeps until its
// callback comes asks nothing. So its session asks now and then while one is outstanding; all
// functions of the context hear of the answer, as of any.
//
// Session thread.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace tube::proxy {

class HostCalls {
 public:
  static constexpr uint64_t kLookNs = 50'000'000;

  // The GPU writes `value` to `word` when the call's turn comes. Values of a word grow; it outlives
  // this.
  void posted(uint64_t& word, uint64_t value) { newest_[&word] = value; }
  bool any() const { return !newest_.empty(); }
  // Whether to ask the driver: every kLookNs, while there are some. Forgets those whose turn came.
  bool due(uint64_t now_ns);
  // Nobody asks for them any more.
  void clear() { newest_.clear(); }

 private:
  std::unordered_map<uint64_t*, uint64_t> newest_;  // at most one for each word of a client
  uint64_t looked_ns_ = 0;
};

}  // namespace tube::proxy
