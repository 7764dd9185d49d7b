// What generated dispatch and the handlers share: a decoded call, and the reply being written.
//
// Both are views of buffers that the session owns; nothing here allocates. A reply is the fixed
// struct and then its blobs, 8-aligned, at most abi::kMaxReplyBytes: a blob that does not fit is
// left out and the reply says truncated().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/cuda_api.h"
#include "protocol/wire.gen.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

class Session;

// A call whose payload passed wire::validate(): every BlobRef lies inside `payload`.
template <class X>
struct Decoded {
  X fixed;
  std::span<const std::byte> payload;

  const X* operator->() const { return &fixed; }
  std::span<const std::byte> blob(wire::BlobRef ref) const {
    return payload.subspan(ref.offset, ref.size);
  }
  // Whole elements of a blob, in place: blobs are 8-aligned in a 16-aligned buffer.
  template <class T>
  std::span<const T> array(wire::BlobRef ref) const {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    const auto bytes = blob(ref);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// The session's reply buffer: kMaxReplyBytes, used by one record at a time.
class ReplyBuffer {
 public:
  void start(uint32_t fixed_bytes) {
    size_ = fixed_bytes;
    truncated_ = false;
    std::memset(data_, 0, fixed_bytes);
  }
  // Offset of `bytes` appended, or 0 when they do not fit.
  uint32_t append(std::span<const std::byte> bytes) {
    const uint32_t at = (size_ + 7u) & ~7u;
    if (at > sizeof(data_) || bytes.size() > sizeof(data_) - at) {
      truncated_ = true;
      return 0;
    }
    std::memset(data_ + size_, 0, at - size_);
    if (!bytes.empty()) std::memcpy(data_ + at, bytes.data(), bytes.size());
    size_ = at + static_cast<uint32_t>(bytes.size());
    return at;
  }
  std::byte* data() { return data_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  uint32_t room() const { return static_cast<uint32_t>(sizeof(data_)) - ((size_ + 7u) & ~7u); }
  bool truncated() const { return truncated_; }

 private:
  uint32_t size_ = 0;
  bool truncated_ = false;
  alignas(16) std::byte data_[abi::kMaxReplyBytes];
};

// The reply of call X.
template <class X>
class Reply {
 public:
  using Fixed = typename wire::ReplyOf<X>::type;

  explicit Reply(ReplyBuffer& buffer) : buffer_(buffer) {
    uint32_t fixed_bytes = sizeof(Fixed);
    if constexpr (std::is_empty_v<Fixed>) fixed_bytes = 0;
    buffer_.start(fixed_bytes);
  }
  Fixed* operator->() { return reinterpret_cast<Fixed*>(buffer_.data()); }
  // False when it does not fit; the field then stays empty.
  bool put(wire::BlobRef Fixed::*field, std::span<const std::byte> bytes) {
    const uint32_t offset = buffer_.append(bytes);
    if (offset == 0) return false;
    (*operator->()).*field = wire::BlobRef{offset, static_cast<uint32_t>(bytes.size())};
    return true;
  }
  template <class T>
  bool put_array(wire::BlobRef Fixed::*field, std::span<const T> values) {
    return put(field, std::as_bytes(values));
  }
  uint32_t room() const { return buffer_.room(); }

 private:
  ReplyBuffer& buffer_;
};

}  // namespace tube::proxy
