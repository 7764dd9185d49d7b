// What a client's ids stand for: one table per kind, id -> the driver's handle and how it was made.
//
// The client chooses index and generation of most ids (protocol/handle_id.h), so creating an object
// is a posted record; ids of objects that only the proxy can name (nodes of a captured graph) carry
// kProxyMade. A table is an array of pages of 256 entries made when first used: a look-up is two
// loads and a compare, and a hostile index costs one page.
//
// The client uses an index again once it has posted the end of the object there. Where that end is
// kept back (parked_records.h), the object moves aside for the new one, and is found by its id as
// before.
//
// Session thread only; counts may be read from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/cuda_api.h"
#include "protocol/handle_id.h"

namespace tube::proxy {

// What a kind keeps beyond its handle.
struct ObjectState {
  virtual ~ObjectState() = default;
};

struct Object {
  uint64_t raw = 0;  // the driver's handle; never handed to the client
  uint32_t generation = 0;
  uint32_t context = 0;  // context number it belongs to
  uint64_t owner = 0;    // id of the object it dies with (a node's graph), 0 = none
  bool live = false;
  bool ended = false;   // with the driver; what else there is of it may still be here
  uint32_t gpu = 0;     // of a kind whose handles each GPU numbers for itself; 0 for all others
  uint64_t weight = 0;  // what the driver holds with it that has no id (Objects::weigh)
  std::unique_ptr<ObjectState> state;

  template <class T>
  T handle() const {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(raw);
    } else {
      return static_cast<T>(raw);
    }
  }
};

class Objects {
 public:
  // Whether the client may create `id` now: CUDA_ERROR_INVALID_VALUE for an id that is there or out
  // of range, CUDA_ERROR_OUT_OF_MEMORY at the kind's limit. Ask before the driver call, insert
  // after it.
  CUresult admit(wire::Kind kind, uint64_t untrusted_id) const;
  CUresult insert(wire::Kind kind, uint64_t untrusted_id, uint64_t raw, uint32_t context,
                  std::unique_ptr<ObjectState> state = nullptr);
  template <class T>
  CUresult insert(wire::Kind kind, uint64_t untrusted_id, T* handle, uint32_t context,
                  std::unique_ptr<ObjectState> state = nullptr) {
    return insert(kind, untrusted_id, reinterpret_cast<uint64_t>(handle), context,
                  std::move(state));
  }
  // A proxy-made id for `raw`: the one it has, or a new one. 0 at the limit. `gpu`: Object::gpu.
  uint64_t adopt(wire::Kind kind, uint64_t raw, uint32_t context, uint64_t owner = 0,
                 uint32_t gpu = 0);
  template <class T>
  uint64_t adopt(wire::Kind kind, T* handle, uint32_t context, uint64_t owner = 0) {
    return adopt(kind, reinterpret_cast<uint64_t>(handle), context, owner);
  }

  // nullptr for an id that never was or is no more, or has ended with the driver. Valid until the
  // next insert or erase of the kind.
  Object* find(wire::Kind kind, uint64_t untrusted_id);
  // The same for the one that ends it: also what has ended with the driver.
  Object* find_to_end(wire::Kind kind, uint64_t untrusted_id);
  bool erase(wire::Kind kind, uint64_t untrusted_id);
  // Everything of `kind` whose owner is `owner`: nodes go with their graph.
  void erase_owned(wire::Kind kind, uint64_t owner);

  // Everything of `kind` that `owner` owns passes to `heir`.
  void change_owner(wire::Kind kind, uint64_t owner, uint64_t heir);
  // The object behind a proxy-made id is another one from now on.
  void rebind(wire::Kind kind, uint64_t id, uint64_t raw);
  // What the driver holds with the object that has no id of its own, until the object is erased;
  // and all of a kind.
  void weigh(wire::Kind kind, uint64_t id, uint64_t weight);
  uint64_t weight(wire::Kind kind) const { return table(kind).weight; }
  // Forgets everything, without the driver. Allocates nothing.
  void clear();
  // The proxy-made id of `raw`, or 0.
  uint64_t adopted(wire::Kind kind, uint64_t raw, uint32_t gpu = 0) const;

  // Live ids of a kind, in index order, of what has not ended with the driver: teardown walks them,
  // since erasing while walking is not allowed.
  std::vector<uint64_t> ids(wire::Kind kind) const { return ids(kind, false); }
  // All that find_to_end() knows.
  std::vector<uint64_t> ids_to_end(wire::Kind kind) const { return ids(kind, true); }
  uint32_t count(wire::Kind kind) const {
    return table(kind).count.load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kPage = 256;
  using Page = std::array<Object, kPage>;
  struct Range {  // ids of one maker
    std::vector<std::unique_ptr<Page>> pages;
    Object* at(uint32_t index) const;
    Object& grow(uint32_t index);
  };
  struct Raw {
    uint64_t handle;
    uint32_t gpu;
    bool operator==(const Raw&) const = default;
  };
  struct RawHash {
    size_t operator()(const Raw& raw) const {
      return std::hash<uint64_t>()(raw.handle ^ uint64_t{raw.gpu} << 56);
    }
  };
  struct Table {
    Range client;
    Range proxy;
    std::vector<uint32_t> free_indices;  // of `proxy`
    uint32_t next_index = 1;
    std::unordered_map<Raw, uint64_t, RawHash> by_raw;  // proxy-made only
    std::unordered_map<uint64_t, Object> aside;         // the client's whose index has a newer one
    uint64_t weight = 0;
    std::atomic<uint32_t> count{0};
  };
  Table& table(wire::Kind kind) { return tables_[static_cast<uint32_t>(kind)]; }
  const Table& table(wire::Kind kind) const { return tables_[static_cast<uint32_t>(kind)]; }
  const Object* peek(wire::Kind kind, uint64_t untrusted_id) const;
  static uint64_t id_of(const Object& object, uint32_t index) {
    return wire::make_id(index, object.generation);
  }
  std::vector<uint64_t> ids(wire::Kind kind, bool ended) const;

  std::array<Table, static_cast<uint32_t>(wire::Kind::kCount)> tables_;
};

}  // namespace tube::proxy
