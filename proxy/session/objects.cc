#include "proxy/session/objects.h"

#include "proxy/common/client_limits.h"

namespace tube::proxy {

namespace {
constexpr uint32_t plain_index(uint32_t index) { return index & ~wire::kProxyMade; }
constexpr bool proxy_made(uint64_t id) { return (wire::id_index(id) & wire::kProxyMade) != 0; }
}  // namespace

Object* Objects::Range::at(uint32_t index) const {
  const uint32_t page = index / kPage;
  if (page >= pages.size() || pages[page] == nullptr) return nullptr;
  return &(*pages[page])[index % kPage];
}

Object& Objects::Range::grow(uint32_t index) {
  const uint32_t page = index / kPage;
  if (page >= pages.size()) pages.resize(page + 1);
  if (pages[page] == nullptr) pages[page] = std::make_unique<Page>();
  return (*pages[page])[index % kPage];
}

// The live object of that id, also what has ended with the driver.
const Object* Objects::peek(wire::Kind kind, uint64_t untrusted_id) const {
  const uint32_t index = plain_index(wire::id_index(untrusted_id));
  if (index == 0 || index >= limits::kObjectIndex) return nullptr;
  const Table& t = table(kind);
  const Object* object = (proxy_made(untrusted_id) ? t.proxy : t.client).at(index);
  if (object != nullptr && object->live && object->generation == wire::id_generation(untrusted_id))
    return object;
  if (t.aside.empty()) return nullptr;
  const auto found = t.aside.find(untrusted_id);
  return found != t.aside.end() ? &found->second : nullptr;
}

CUresult Objects::admit(wire::Kind kind, uint64_t untrusted_id) const {
  const uint32_t index = wire::id_index(untrusted_id);
  if (index == 0 || index >= limits::kObjectIndex) return CUDA_ERROR_INVALID_VALUE;
  if (count(kind) >= limits::objects(kind)) return CUDA_ERROR_OUT_OF_MEMORY;
  return peek(kind, untrusted_id) != nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Objects::insert(wire::Kind kind, uint64_t untrusted_id, uint64_t raw, uint32_t context,
                         std::unique_ptr<ObjectState> state) {
  if (CUresult error = admit(kind, untrusted_id); error != CUDA_SUCCESS) return error;
  Table& t = table(kind);
  const uint32_t index = wire::id_index(untrusted_id);
  Object& object = t.client.grow(index);
  if (object.live) {
    t.aside.reserve(t.aside.size() + 1);  // what throws comes before the move
    t.aside.emplace(id_of(object, index), std::move(object));
  }
  object = Object{
      raw, wire::id_generation(untrusted_id), context, 0, true, false, 0, 0, std::move(state)};
  t.count.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

uint64_t Objects::adopt(wire::Kind kind, uint64_t raw, uint32_t context, uint64_t owner,
                        uint32_t gpu) {
  Table& t = table(kind);
  if (auto known = t.by_raw.find({raw, gpu}); known != t.by_raw.end()) return known->second;
  if (count(kind) >= limits::objects(kind)) return 0;
  uint32_t index = 0;
  if (!t.free_indices.empty()) {
    index = t.free_indices.back();
    t.free_indices.pop_back();
  } else if (t.next_index < limits::kObjectIndex) {
    index = t.next_index++;
  } else {
    return 0;
  }
  Object& object = t.proxy.grow(index);
  object = Object{raw, object.generation + 1, context, owner, true, false, gpu, 0, nullptr};
  const uint64_t id = wire::make_id(index | wire::kProxyMade, object.generation);
  t.by_raw.emplace(Raw{raw, gpu}, id);
  t.count.fetch_add(1, std::memory_order_relaxed);
  return id;
}

Object* Objects::find(wire::Kind kind, uint64_t untrusted_id) {
  Object* object = find_to_end(kind, untrusted_id);
  return object != nullptr && !object->ended ? object : nullptr;
}

Object* Objects::find_to_end(wire::Kind kind, uint64_t untrusted_id) {
  return const_cast<Object*>(peek(kind, untrusted_id));
}

bool Objects::erase(wire::Kind kind, uint64_t untrusted_id) {
  Object* object = find_to_end(kind, untrusted_id);
  if (object == nullptr) return false;
  Table& t = table(kind);
  if (proxy_made(untrusted_id)) {
    t.free_indices.push_back(plain_index(wire::id_index(untrusted_id)));
    t.by_raw.erase({object->raw, object->gpu});
  }
  t.count.fetch_sub(1, std::memory_order_relaxed);
  t.weight -= object->weight;
  object->weight = 0;
  if (t.aside.erase(untrusted_id) != 0) return true;
  object->live = false;
  object->raw = 0;
  object->state.reset();
  return true;
}

void Objects::clear() {
  for (Table& one : tables_) {
    one.client.pages.clear();
    one.proxy.pages.clear();
    one.by_raw.clear();
    one.aside.clear();
    one.weight = 0;
    one.count.store(0, std::memory_order_relaxed);
  }
}

void Objects::erase_owned(wire::Kind kind, uint64_t owner) {
  for (uint64_t id : ids_to_end(kind)) {
    if (Object* object = find_to_end(kind, id); object != nullptr && object->owner == owner)
      erase(kind, id);
  }
}

void Objects::change_owner(wire::Kind kind, uint64_t owner, uint64_t heir) {
  for (uint64_t id : ids(kind)) {
    if (Object* object = find(kind, id); object != nullptr && object->owner == owner)
      object->owner = heir;
  }
}

void Objects::rebind(wire::Kind kind, uint64_t id, uint64_t raw) {
  Object* object = find(kind, id);
  if (object == nullptr || !proxy_made(id)) return;
  Table& t = table(kind);
  t.by_raw.erase({object->raw, object->gpu});
  t.by_raw[{raw, object->gpu}] = id;
  object->raw = raw;
}

void Objects::weigh(wire::Kind kind, uint64_t id, uint64_t weight) {
  Object* object = find(kind, id);
  if (object == nullptr) return;
  Table& t = table(kind);
  t.weight += weight - object->weight;
  object->weight = weight;
}

uint64_t Objects::adopted(wire::Kind kind, uint64_t raw, uint32_t gpu) const {
  auto known = table(kind).by_raw.find({raw, gpu});
  return known != table(kind).by_raw.end() ? known->second : 0;
}

std::vector<uint64_t> Objects::ids(wire::Kind kind, bool ended) const {
  std::vector<uint64_t> found;
  const Table& t = table(kind);
  found.reserve(count(kind));
  auto collect = [&](const Range& range, uint32_t bit) {
    for (uint32_t page = 0; page < range.pages.size(); ++page) {
      if (range.pages[page] == nullptr) continue;
      for (uint32_t slot = 0; slot < kPage; ++slot) {
        const Object& object = (*range.pages[page])[slot];
        if (object.live && (ended || !object.ended))
          found.push_back(id_of(object, (page * kPage + slot) | bit));
      }
    }
  };
  collect(t.client, 0);
  collect(t.proxy, wire::kProxyMade);
  for (const auto& [id, object] : t.aside) {
    if (ended || !object.ended) found.push_back(id);
  }
  return found;
}

}  // namespace tube::proxy
