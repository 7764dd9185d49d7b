// What functions have posted counts as done before anybody is refused GPU memory.
//
// A call that frees memory is posted: it returns before its record is executed, and natively the
// memory is then there for every process. So whoever finds none waits first until the other
// sessions have executed what their clients had posted by then: what is in the ring, frees that are
// kept back (parked_records.h), and the end of a client that is gone. Nobody waits for a session
// that itself waits for memory (of what its client posted behind that request, nobody is told that
// it is done), and nobody for longer than `wait_ns`: a client writes into its ring what it likes.
//
// Other proxies' functions are not known here (docs/limits.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace tube::proxy {

class PostedRecords {
 public:
  // How far a client was.
  struct Mark {
    uint64_t ring = 0;    // shared::RingReader::posted()
    uint64_t frees = 0;   // ParkedRecords::ends_kept(), once the ring is executed
    bool in_ring = true;  // not that far yet
    bool gone = false;    // the client: its end gives back everything
  };
  // A session, seen from the others' threads, until leave().
  struct Poster {
    std::function<Mark()> mark;          // now
    std::function<bool(Mark&)> is_past;  // it has executed what was posted, or waits for memory
  };
  // Of the caller's session.
  struct Caller {
    std::function<void()> serve;  // what others ask of it meanwhile
    std::function<bool()> stop;   // nobody waits for the answer any more
  };

  explicit PostedRecords(uint64_t wait_ns) : wait_ns_(wait_ns) {}
  PostedRecords(const PostedRecords&) = delete;
  PostedRecords& operator=(const PostedRecords&) = delete;

  void join(uint64_t session, Poster poster);
  // Everything that the session had is given back, or stays for good. Any thread.
  void leave(uint64_t session);

  // The session's thread: waits as above. False: there is no other session.
  bool settle(uint64_t session, const Caller& caller);
  // How often somebody had to wait. Any thread.
  uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }

 private:
  struct Member {
    Poster poster;
    bool settles = false;
  };
  std::map<uint64_t, Mark> marks(uint64_t session);
  void drop_past(std::map<uint64_t, Mark>& marks);

  const uint64_t wait_ns_;
  std::atomic<uint64_t> waits_{0};
  std::mutex mutex_;  // leaf, but for what posters take
  std::map<uint64_t, Member> members_;
};

}  // namespace tube::proxy
