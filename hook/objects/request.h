// What the generated entry points and the hand-written calls use to talk to the proxy.
//
//   Request<wire::X> r(blob_bytes);      takes the producer lock and ring space; keep it short,
//   never wait while it lives r->field = ...;  r.put(&wire::X::blob, data, size); return r.post();
//   or r.call(&reply, &blobs), which waits for the answer (the lock is given back first)
//
// A transport failure gives a request that writes into a scratch record and answers its code at the
// end, so callers have no error path. Any thread, after guard().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/cuda_api.h"
#include "hook/objects/thread.h"
#include "protocol/wire.gen.h"

namespace tube::hook {

// A reply's payload, copied out of its slot: the fixed struct and what its blobs refer to.
class ReplyBlobs {
 public:
  ReplyBlobs() = default;
  ReplyBlobs(const ReplyBlobs&) = delete;
  ReplyBlobs& operator=(const ReplyBlobs&) = delete;
  ~ReplyBlobs();
  // Empty when the reference does not lie inside the payload.
  std::span<const std::byte> get(const wire::BlobRef& ref) const;
  std::span<const std::byte> bytes(const wire::BlobRef& ref) const { return get(ref); }

 private:
  friend class RawRequest;
  bool take(std::span<const std::byte> payload);
  std::byte* data_ = nullptr;
  uint32_t size_bytes_ = 0;
};

class RawRequest {
 public:
  RawRequest(const RawRequest&) = delete;
  RawRequest& operator=(const RawRequest&) = delete;

 protected:
  // fixed_bytes + blob_bytes of payload; the fixed part is the caller's to zero.
  RawRequest(uint32_t call, uint32_t fixed_bytes, uint32_t blob_bytes);
  ~RawRequest();
  bool sendable() const { return error_ == CUDA_SUCCESS; }
  void put(wire::BlobRef* ref, const void* data, uint32_t size_bytes);
  // nullptr: it does not fit, and the record will not be sent.
  void* reserve_blob(wire::BlobRef* ref, uint32_t size_bytes);
  void send_file(int fd, uint64_t* token, CUresult otherwise);
  CUresult post();
  CUresult call(void* reply, uint32_t reply_bytes, ReplyBlobs* blobs);

  std::byte* payload_ = nullptr;

 private:
  CUresult publish();
  void mark_operation();

  abi::RecordHeader* record_ = nullptr;
  uint32_t payload_bytes_ = 0;
  uint32_t used_bytes_ = 0;
  CUresult error_ = CUDA_SUCCESS;
  bool locked_ = false;

 protected:
  // The stream this record belongs to: counts for its progress and names its context. nullptr: the
  // thread's context.
  Stream* stream_ = nullptr;
  Context* context_ = nullptr;
  bool signals_ = false;
  bool locked() const { return locked_; }
};

template <class X>
class Request : public RawRequest {
 public:
  explicit Request(uint32_t blob_bytes = 0)
      : RawRequest(static_cast<uint32_t>(X::kCall), X::kFixedBytes, blob_bytes) {
    std::memset(payload_, 0,
                (X::kFixedBytes + 7) & ~7u);  // here, where the compiler knows how much it is
  }
  // An operation of `stream`; its id is for the caller to fill in.
  explicit Request(Stream* stream, uint32_t blob_bytes = 0) : Request(blob_bytes) {
    stream_ = stream;
  }

  X* operator->() { return reinterpret_cast<X*>(payload_); }
  // No stream: the record belongs to this context.
  void in_context(Context* context) {
    context_ = context;
    stream_ = nullptr;
  }
  void put(wire::BlobRef X::*field, const void* data, uint32_t size_bytes) {
    RawRequest::put(&(reinterpret_cast<X*>(payload_)->*field), data, size_bytes);
  }
  // Room for a blob that the caller writes itself; nullptr when it does not fit, and then the
  // record is not sent.
  void* room(wire::BlobRef X::*field, uint32_t size_bytes) {
    return RawRequest::reserve_blob(&(reinterpret_cast<X*>(payload_)->*field), size_bytes);
  }
  // Hands a file over with this record, which names it by the token. When that fails, the record is
  // not sent, and the answer is `otherwise`.
  void send_file(int fd, uint64_t* token, CUresult otherwise) {
    RawRequest::send_file(fd, token, otherwise);
  }
  // The record itself makes the GPU write the stream's progress value: nothing is left to signal.
  void signals() { signals_ = true; }
  // False: the transport has failed, and post() will say so.
  bool sendable() const { return RawRequest::sendable(); }
  CUresult post() { return RawRequest::post(); }
  template <class R>
  CUresult call(R* reply, ReplyBlobs* blobs = nullptr) {
    if constexpr (R::kEmpty) {
      return RawRequest::call(nullptr, 0, blobs);
    } else {
      return RawRequest::call(reply, sizeof(R), blobs);
    }
  }
  CUresult call() { return RawRequest::call(nullptr, 0, nullptr); }
};

// Blobs start 8-aligned: what `size_bytes` of blob take at most in a record.
constexpr uint32_t blob_room(uint64_t size_bytes) {
  return static_cast<uint32_t>((size_bytes + 15) & ~uint64_t{7});
}
inline constexpr uint32_t kMaxBlobBytes = abi::kMaxRecordBytes - 1024;

}  // namespace tube::hook
