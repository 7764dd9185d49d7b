// The store of a program without a proxy: host memory of this process alone. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "libtube/tube.h"

namespace tube::library {

class LocalStore {
 public:
  int reserve(const tube_spec& spec, tube_object* object);
  int seal(const tube_object& object);
  int get(const char* name, uint64_t timeout_ns, tube_object* object);
  int peek(const char* name, tube_object* object);
  int release(const tube_object& object);
  int remove(const std::string& name);
  uint32_t remove_group(const std::string& group);
  void list(int (*visit)(void* data, const tube_object* object), void* data);
  uint64_t next_id() {
    std::lock_guard lock(mutex_);
    return ++last_id_;
  }

 private:
  struct Object {
    tube_object shown{};
    uint64_t made_ns = 0, expires_ns = 0;
    uint32_t holders = 0, consumers = 0, consumed = 0;
    std::unique_ptr<char[]> memory;  // the object begins at the next 64 bytes in it
  };
  using Named = std::map<std::string, std::shared_ptr<Object>>;

  Named::iterator find(const std::string& name);
  tube_object show(const Object& object) const;

  std::mutex mutex_;
  std::condition_variable news_;
  Named named_;
  std::map<uint64_t, std::shared_ptr<Object>> held_;  // by id, those that somebody has
  uint64_t last_id_ = 0;
};

}  // namespace tube::library
