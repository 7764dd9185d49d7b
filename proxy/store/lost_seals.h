// Objects that a client has sealed behind work of its streams, and that it did not live to write:
// nobody is to get them. For a client that is gone while its session stands in a call. What its
// streams do once their waits are let pass is not what the program asked for, so this comes before
// that.
//
// Only the driver knows which seals are over by now, and it may keep every call of the process
// behind the one in which the session stands. So a thread of its own asks. When that stands as
// well, what nobody has seen written is lost unasked: an object too few, never wrong bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tube::proxy {

class Store;

class LostSeals {
 public:
  LostSeals() = default;
  ~LostSeals();  // waits for its thread: the session has left the driver
  LostSeals(const LostSeals&) = delete;
  LostSeals& operator=(const LostSeals&) = delete;

  // One step, which never blocks; one thread at a time. True: nobody gets any more what the session
  // has not written. False: call it again, a tenth of a second later or two.
  bool step(Store& store, uint64_t session);

 private:
  bool start(Store& store, uint64_t session);

  uint64_t since_ns_ = 0;
  std::atomic<bool> lost_{false};
  std::thread asker_;
};

}  // namespace tube::proxy
