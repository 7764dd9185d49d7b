// The store in C++: tube.h with owners and exceptions. Header only; C++17.
//
//     tube::Reserved out = tube::reserve(tube::Spec("frames/17").bytes(n).place(TUBE_GPU));
//     ... kernels on `stream` write out.data() ...
//     out.seal(stream);
//
//     tube::Object in = tube::wait("frames/17", std::chrono::seconds(1), TUBE_GPU, stream);
//     ... kernels on `stream` read in.data() ...
//                                     // released behind `stream` at the end of the scope
//
// Any thread; one object is used by one thread at a time. Every function throws tube::Error, whose
// what() says what happened and what to do; destructors do not throw.
#ifndef TUBE_HPP_
#define TUBE_HPP_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "libtube/tube.h"

namespace tube {

class Error : public std::runtime_error {
 public:
  explicit Error(int result) : std::runtime_error(tube_error()), result_(result) {}
  tube_result result() const { return static_cast<tube_result>(result_); }

 private:
  int result_;
};

inline void must(int result) {
  if (result != TUBE_OK) throw Error(result);
}

// What is to be made. The names stay the caller's until the call that takes it returns.
class Spec {
 public:
  explicit Spec(std::string name) : name_(std::move(name)) { spec_.place = TUBE_ANY; }
  Spec& bytes(uint64_t bytes) { return spec_.bytes = bytes, *this; }
  Spec& place(tube_place place) { return spec_.place = place, *this; }
  Spec& device(int ordinal) { return spec_.device = ordinal + 1, *this; }
  Spec& consumers(uint32_t count) { return spec_.consumers = count, *this; }
  Spec& group(std::string group) { return group_ = std::move(group), *this; }
  Spec& time_to_live(std::chrono::milliseconds time) {
    return spec_.ttl_ms = static_cast<uint64_t>(time.count()), *this;
  }
  // DLPack's type, and a shape without gaps: bytes() follows.
  Spec& array(uint8_t code, uint8_t bits, std::initializer_list<int64_t> shape) {
    if (shape.size() > TUBE_DIMS) throw std::length_error("a shape has at most 8 dimensions");
    spec_.dtype = code | uint32_t{bits} << 8 | 1u << 16;
    spec_.ndim = static_cast<uint32_t>(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      spec_.shape[i] = shape.begin()[i];
      spec_.strides[i] = step;
      step *= spec_.shape[i];
    }
    return bytes(static_cast<uint64_t>(step) * bits / 8);
  }
  tube_spec get() const {
    tube_spec spec = spec_;
    spec.name = name_.c_str();
    spec.group = group_.c_str();
    return spec;
  }

 private:
  std::string name_, group_;
  tube_spec spec_{};
};

// Something that this process holds; it is given back once.
class Held {
 public:
  Held(Held&& other) noexcept : object_(other.object_), stream_(other.stream_) { other.forget(); }
  Held& operator=(Held&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    object_ = other.object_;
    stream_ = other.stream_;
    other.forget();
    return *this;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { give_back(); }

  explicit operator bool() const { return object_.data != nullptr; }
  void* data() const { return object_.data; }
  template <class T>
  T* as() const {
    return static_cast<T*>(object_.data);
  }
  uint64_t bytes() const { return object_.bytes; }
  tube_place place() const { return object_.place; }
  const tube_object& get() const { return object_; }

 protected:
  Held(const tube_object& object, tube_stream stream) : object_(object), stream_(stream) {}
  void forget() { object_.data = nullptr; }
  void give_back() {
    if (object_.data != nullptr) tube_drop(&object_, stream_);
    forget();
  }
  tube_object object_;
  tube_stream stream_;
};

// An object of the store: read it, never write to it.
class Object : public Held {
 public:
  Object(const tube_object& object, tube_stream stream) : Held(object, stream) {}
  // Behind the work on that stream; without it behind the stream of the get. It is held on when this
  // throws.
  void release(tube_stream stream) {
    if (object_.data != nullptr) must(tube_release(&object_, stream));
    forget();
  }
  void release() { release(stream_); }
};

// The memory behind an object, for a program that knows nothing of Tube (tube_export_fd). The
// descriptor is the caller's.
struct Exported {
  int fd = -1;
  uint64_t size = 0, offset = 0;
};
inline Exported export_fd(const Object& object) {
  Exported made;
  must(tube_export_fd(&object.get(), &made.fd, &made.size, &made.offset));
  return made;
}

// A new object's memory: fill it, then seal. It is given up if that does not happen, or throws, and
// waits for what the program has given the GPU to do: that may write to it.
class Reserved : public Held {
 public:
  explicit Reserved(const tube_object& object) : Held(object, TUBE_NOW) {}
  void seal(tube_stream stream) {
    must(tube_seal(&object_, stream));
    forget();
  }
};

inline bool connected() { return tube_connected() != 0; }

inline std::string unique_id() {
  char name[TUBE_NAME_BYTES];
  must(tube_unique_id(name, sizeof name));
  return name;
}

inline Reserved reserve(const Spec& what) {
  const tube_spec spec = what.get();
  tube_object object;
  must(tube_reserve(&spec, &object));
  return Reserved(object);
}

inline void put(const Spec& what, const void* data, tube_stream stream) {
  const tube_spec spec = what.get();
  must(tube_put(&spec, data, stream));
}

// At once or not at all: throws with TUBE_NOT_FOUND.
inline Object get(const std::string& name, tube_place place, tube_stream stream) {
  tube_object object;
  must(tube_get(name.c_str(), place, stream, &object));
  return {object, stream};
}

inline Object wait(const std::string& name, std::chrono::milliseconds timeout, tube_place place,
                   tube_stream stream) {
  tube_object object;
  const auto count = std::max<std::chrono::milliseconds::rep>(timeout.count(), 0);
  must(tube_wait(name.c_str(), place, stream, static_cast<uint64_t>(count), &object));
  return {object, stream};
}

inline void remove(const std::string& name) { must(tube_delete(name.c_str())); }

inline uint32_t remove_group(const std::string& group) {
  uint32_t count = 0;
  must(tube_delete_group(group.c_str(), &count));
  return count;
}

// The order in which objects will be taken (tube_queue).
inline void queue(const std::vector<std::string>& names) {
  std::vector<const char*> turns;
  for (const std::string& name : names) turns.push_back(name.c_str());
  must(tube_queue(turns.data(), turns.size()));
}

// FaaSTube's names.
inline void store(const std::string& name, const void* data, uint64_t bytes, tube_stream stream) {
  must(tube_store(name.c_str(), data, bytes, stream));
}
inline Object fetch(const std::string& name, tube_stream stream) {
  tube_object object;
  must(tube_fetch(name.c_str(), stream, &object));
  return {object, stream};
}

}  // namespace tube

#endif
