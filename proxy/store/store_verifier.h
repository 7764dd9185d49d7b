// Finds who writes to a sealed object of the store (`tubed --verify-shared`, docs/store.md).
//
// Between functions of one context immutability is an agreement. With this on, an object is got
// only when the sum of its bytes is known (store_sums.h); the thread here takes it again after
// every release, every quarter of a second as long as somebody has the object or the work behind
// which it was released goes on, and now and then else. A sum that differs is told, once, with the
// functions that had the object since it was last right, and with its maker; then the new bytes are
// what later sums are compared with. Who wrote without having the object is not found by that, but
// that it happened is.
//
// Off, there is no such object, and nobody asks for one but by a null pointer. Any thread may call;
// `mutex_` (rank 19) is taken behind the store's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proxy/store/store_sums.h"

namespace tube::proxy {

class Store;

class StoreVerifier {
 public:
  StoreVerifier(Store& store, const Driver& driver, MemoryMap& map)
      : store_(store), sums_(driver, map) {}
  ~StoreVerifier() { stop(); }
  StoreVerifier(const StoreVerifier&) = delete;
  StoreVerifier& operator=(const StoreVerifier&) = delete;

  // Its bytes stay as they are from now on. `maker`: the function's name.
  void sealed(uint32_t slot, uint64_t generation, const std::string& name,
              const std::string& maker);
  void taken(uint32_t slot, uint64_t generation, const std::string& function);
  void released(uint32_t slot, uint64_t generation, const std::string& function);
  void stop();

 private:
  struct Holder {
    uint32_t holds = 0;
    bool gone = false;  // it was, and so was its work, when the last sum was begun
  };
  struct Watched {
    uint64_t generation = 0;
    std::string name, maker;
    std::map<std::string, Holder> holders;  // since the sum was last right
    uint64_t sum = 0;
    bool summed = false;
    bool due = true;
  };

  void poke();
  void run();
  // False: nothing is watched.
  bool turn(bool all);
  void look(uint32_t slot, uint64_t generation);
  void still_used(uint32_t slot, uint64_t generation);
  // `pinning`: the functions that had it pinned once the sum was known.
  void compare(uint32_t slot, uint64_t generation, uint64_t sum,
               const std::vector<std::string>& pinning);
  Watched* watched(uint32_t slot, uint64_t generation);

  Store& store_;
  StoreSums sums_;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Watched> watched_;  // by slot
  bool poked_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tube::proxy
