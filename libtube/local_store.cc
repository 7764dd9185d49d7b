#include "libtube/local_store.h"

#include <chrono>
#include <cstring>
#include <new>

#include "base/clock.h"

namespace tube::library {

LocalStore::Named::iterator LocalStore::find(const std::string& name) {
  const auto found = named_.find(name);
  if (found == named_.end() || found->second->expires_ns == 0 ||
      found->second->expires_ns > now_ns())
    return found;
  named_.erase(found);
  return named_.end();
}

tube_object LocalStore::show(const Object& object) const {
  tube_object shown = object.shown;
  shown.age_ns = now_ns() - object.made_ns;
  return shown;
}

int LocalStore::reserve(const tube_spec& spec, tube_object* object) {
  constexpr uint64_t kAlignment = 64;
  auto made = std::make_shared<Object>();
  made->memory.reset(new (std::nothrow) char[spec.bytes + kAlignment]);
  if (made->memory == nullptr) return TUBE_NO_MEMORY;
  auto address = reinterpret_cast<uintptr_t>(made->memory.get());
  address = (address + kAlignment - 1) / kAlignment * kAlignment;
  tube_object& shown = made->shown;
  shown.data = reinterpret_cast<void*>(address);
  shown.bytes = spec.bytes;
  shown.place = TUBE_HOST;
  shown.device = -1;
  shown.dtype = spec.dtype;
  shown.ndim = spec.ndim;
  std::memcpy(shown.shape, spec.shape, sizeof shown.shape);
  std::memcpy(shown.strides, spec.strides, sizeof shown.strides);
  std::strncpy(shown.name, spec.name, sizeof shown.name - 1);
  if (spec.group != nullptr) std::strncpy(shown.group, spec.group, sizeof shown.group - 1);
  made->made_ns = now_ns();
  made->expires_ns = spec.ttl_ms == 0 ? 0 : made->made_ns + spec.ttl_ms * 1'000'000;
  made->consumers = spec.consumers;
  made->holders = 1;
  std::lock_guard lock(mutex_);
  if (find(spec.name) != named_.end()) return TUBE_EXISTS;
  shown.id[0] = ++last_id_;
  named_[spec.name] = made;
  held_[shown.id[0]] = made;
  *object = shown;
  return TUBE_OK;
}

int LocalStore::seal(const tube_object& object) {
  std::lock_guard lock(mutex_);
  const auto found = held_.find(object.id[0]);
  if (found == held_.end() || found->second->shown.sealed != 0) return TUBE_INVALID;
  found->second->shown.sealed = 1;
  if (--found->second->holders == 0) held_.erase(found);
  news_.notify_all();
  return TUBE_OK;
}

int LocalStore::get(const char* name, uint64_t timeout_ns, tube_object* object) {
  const uint64_t start = now_ns();
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = find(name);
    if (found != named_.end() && found->second->shown.sealed != 0) {
      ++found->second->holders;
      held_[found->second->shown.id[0]] = found->second;
      *object = show(*found->second);
      return TUBE_OK;
    }
    const uint64_t waited = now_ns() - start;
    if (waited >= timeout_ns) return TUBE_NOT_FOUND;
    // In pieces: no clock counts to the end of time.
    const uint64_t left = std::min<uint64_t>(timeout_ns - waited, 1'000'000'000);
    news_.wait_for(lock, std::chrono::nanoseconds(left));
  }
}

int LocalStore::peek(const char* name, tube_object* object) {
  std::lock_guard lock(mutex_);
  const auto found = find(name);
  if (found == named_.end()) return TUBE_NOT_FOUND;
  *object = show(*found->second);
  return TUBE_OK;
}

int LocalStore::release(const tube_object& object) {
  std::lock_guard lock(mutex_);
  const auto found = held_.find(object.id[0]);
  if (found == held_.end()) return TUBE_INVALID;
  const std::shared_ptr<Object> kept = found->second;
  if (--kept->holders == 0) held_.erase(found);
  const auto named = named_.find(kept->shown.name);
  const bool its_own = named != named_.end() && named->second == kept;
  const bool given_up = kept->shown.sealed == 0;
  const bool consumed = !given_up && kept->consumers != 0 && ++kept->consumed >= kept->consumers;
  if (its_own && (given_up || consumed)) named_.erase(named);
  return TUBE_OK;
}

int LocalStore::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  return named_.erase(name) != 0 ? TUBE_OK : TUBE_NOT_FOUND;
}

uint32_t LocalStore::remove_group(const std::string& group) {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(
      std::erase_if(named_, [&](const auto& named) { return named.second->shown.group == group; }));
}

void LocalStore::list(int (*visit)(void* data, const tube_object* object), void* data) {
  std::map<std::string, tube_object> seen;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, object] : named_) seen[name] = show(*object);
  }
  for (const auto& [name, object] : seen) {
    if (visit(data, &object) == 0) return;
  }
}

}  // namespace tube::library
