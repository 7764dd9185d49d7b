// What one client has of the store: its claims, each a range that its later records may name, and
// the objects that it makes. Made when the client opens the store. Session thread only.
//
// Records come from the client and are believed as far as this table goes: sealing, releasing and
// waiting are for objects that the client holds. A record that says otherwise is a lie, the answer
// is false, and the session ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "proxy/memory/ranges.h"
#include "proxy/store/store.h"

namespace tube::proxy {

class StoreClient {
 public:
  StoreClient(Store& store, Ranges& ranges, uint64_t session, uint32_t window,
              std::string function = {});
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  Status open();
  bool is_open() const { return member_ != nullptr; }
  int pins_fd() const { return member_->fd.get(); }
  int index_fd() const { return store_.index_fd(); }
  int host_fd() const { return store_.host_fd(window_); }
  Store& store() { return store_; }

  // `request`: checked, but for what is this client's: session and window.
  StoreGrant reserve(StoreRequest request);
  // `written`: recorded behind the maker's work on that stream, the store's from now on; nullptr:
  // no need.
  [[nodiscard]] bool seal(uint32_t slot, uint64_t generation, CUevent written,
                          const StoreStream& on = {});
  // An object that the client makes, unsealed.
  void give_up(uint32_t slot, uint64_t generation);
  [[nodiscard]] bool claim(uint32_t slot, uint64_t generation);
  // Store::import(); the client holds it until drop_import().
  StoreGrant import(const std::string& full_name);
  [[nodiscard]] bool drop_import(uint32_t slot, uint64_t generation);
  [[nodiscard]] bool release(uint32_t slot, uint64_t generation, bool last);
  bool holds(uint32_t slot, uint64_t generation) const {
    const auto found = held_.find(slot);
    return found != held_.end() && found->second.generation == generation;
  }
  // A copy of an object that the client holds, in another place: it may name that, too.
  [[nodiscard]] bool show_copy(uint32_t slot, uint64_t address, uint64_t bytes, int device);
  void hide_copy(uint32_t slot, uint64_t address);
  // The client makes the copy (Store::copy_in): it is its own until one of the two calls.
  void making(uint32_t slot, uint64_t generation, const StorePiece& piece) {
    making_.push_back({slot, generation, piece});
  }
  // Complete when `written` is. nullptr: it could not be made, and nothing of it is in flight.
  void made(uint32_t slot, uint64_t generation, int device, CUevent written);
  bool makes(uint32_t slot, uint64_t generation) const {
    return holds(slot, generation) && held_.at(slot).makes;
  }
  // GPU work of the client on this object that nobody can wait for: as far as is known it ends with
  // the client.
  void keep(uint32_t slot) { held_.at(slot).kept = true; }
  uint32_t count() const { return static_cast<uint32_t>(held_.size()); }

  // A thread of the client begins or ends to sleep for news.
  void set_waiting(bool on);

  // What its maker's streams wait for is about to be let pass, though nobody did it: nobody gets an
  // object any more whose bytes come behind that. What ends by itself has a moment for it.
  void lose_unwritten();

  // The client is gone and its work over: all of it goes. Not `idle`: what it held stays taken.
  void leave(bool idle);

 private:
  struct Held {
    uint64_t generation = 0;
    uint64_t address = 0;
    std::vector<uint64_t> copies;  // their addresses
    uint32_t claims = 0;
    uint32_t imports = 0;  // of these: from import()
    bool makes = false;    // one of the claims is the maker's
    bool kept = false;
  };
  struct Making {
    uint32_t slot;
    uint64_t generation;
    StorePiece piece;
  };
  bool add_range(uint64_t address, uint64_t bytes, int device);
  bool enter(uint32_t slot, uint64_t generation, const StorePlaceOf& place);
  void drop(std::map<uint32_t, Held>::iterator held);

  Store& store_;
  Ranges& ranges_;
  const uint64_t session_;
  const uint32_t window_;
  const std::string function_;
  std::shared_ptr<StoreMember> member_;
  std::map<uint32_t, Held> held_;  // by slot
  std::vector<Making> making_;
  uint32_t waiting_ = 0;
};

}  // namespace tube::proxy
