#include "hook/objects/request.h"

#include <cstdlib>

#include "base/check.h"
#include "base/log.h"
#include "hook/process/start_trace.h"

namespace tube::hook {

ReplyBlobs::~ReplyBlobs() { std::free(data_); }

bool ReplyBlobs::take(std::span<const std::byte> payload) {
  data_ = static_cast<std::byte*>(std::malloc(payload.size() + 1));
  if (data_ == nullptr) return false;
  std::memcpy(data_, payload.data(), payload.size());
  size_bytes_ = static_cast<uint32_t>(payload.size());
  return true;
}

std::span<const std::byte> ReplyBlobs::get(const wire::BlobRef& ref) const {
  if (data_ == nullptr || ref.offset > size_bytes_ || ref.size > size_bytes_ - ref.offset)
    return {};
  return {data_ + ref.offset, ref.size};
}

RawRequest::RawRequest(uint32_t call, uint32_t fixed_bytes, uint32_t blob_bytes) {
  Connection& c = connection();
  payload_bytes_ = (fixed_bytes + blob_bytes + 7) & ~7u;
  used_bytes_ = fixed_bytes;
  Thread& thread = this_thread();
  stream_ = thread.operation_stream;
  thread.operation_stream = nullptr;
  c.producer.lock();
  locked_ = true;
  if (payload_bytes_ > shared::kMaxPayloadBytes || blob_bytes > shared::kMaxPayloadBytes) {
    error_ = CUDA_ERROR_NOT_SUPPORTED;  // more than a record holds: callers with large data use
                                        // chunks or fds
  } else if (const shared::WaitResult result = c.ring.reserve(payload_bytes_, &record_);
             result != shared::WaitResult::kDone) {
    error_ = transport_failed(result);
  }
  if (error_ != CUDA_SUCCESS || record_ == nullptr) {
    record_ = reinterpret_cast<abi::RecordHeader*>(c.scratch);
    payload_bytes_ = shared::kMaxPayloadBytes;
  }
  record_->call = call;
  record_->thread = thread.number;
  payload_ = reinterpret_cast<std::byte*>(record_ + 1);
}

RawRequest::~RawRequest() {
  if (locked_) connection().producer.unlock();
}

void* RawRequest::reserve_blob(wire::BlobRef* ref, uint32_t size_bytes) {
  const uint32_t offset = (used_bytes_ + 7) & ~7u;
  if (offset > payload_bytes_ || size_bytes > payload_bytes_ - offset) {
    if (!TUBE_EXPECT(error_ != CUDA_SUCCESS)) error_ = CUDA_ERROR_UNKNOWN;
    return nullptr;  // the record is never published
  }
  // What the last eight bytes have beyond the blob; it is written over this.
  if (((offset + size_bytes) & 7) != 0) std::memset(payload_ + ((offset + size_bytes) & ~7u), 0, 8);
  ref->offset = offset;
  ref->size = size_bytes;
  used_bytes_ = offset + size_bytes;
  return payload_ + offset;
}

void RawRequest::put(wire::BlobRef* ref, const void* data, uint32_t size_bytes) {
  void* room = reserve_blob(ref, size_bytes);
  if (room != nullptr && size_bytes != 0) std::memcpy(room, data, size_bytes);
}

void RawRequest::send_file(int fd, uint64_t* token, CUresult otherwise) {
  if (error_ != CUDA_SUCCESS) return;
  if (Status sent = hook::send_file(fd, token); !sent) {
    log_error("a file could not be passed to the proxy (call %u): %s", record_->call,
              sent.error().message.c_str());
    error_ = otherwise;
  }
}

void RawRequest::mark_operation() {
  Context* context = context_;
  if (stream_ != nullptr) {
    context = stream_->context;
    ++stream_->posted;
    if (stream_->blocking()) ++context->blocking_posted;
    if (signals_) {
      stream_->signalled = stream_->legacy() ? context->blocking_posted : stream_->posted;
      stream_->own_signalled = stream_->posted;
    }
  } else if (context == nullptr) {
    context = current_context();
  }
  record_->context = context == nullptr ? 0 : context->number;
}

CUresult RawRequest::publish() {
  if (error_ != CUDA_SUCCESS) return error_;
  for (uint32_t at = (used_bytes_ + 7) & ~7u; at < payload_bytes_; at += 8)
    std::memset(payload_ + at, 0, 8);
  mark_operation();
  connection().ring.publish();
  return CUDA_SUCCESS;
}

CUresult RawRequest::post() {
  const CUresult result = publish();
  connection().producer.unlock();
  locked_ = false;
  return result;
}

CUresult RawRequest::call(void* reply, uint32_t reply_bytes, ReplyBlobs* blobs) {
  Connection& c = connection();
  // Slots come free without the producer lock, so waiting for one here cannot block for ever.
  const uint32_t slot = error_ == CUDA_SUCCESS ? c.replies.claim() : abi::kNoReply;
  if (error_ == CUDA_SUCCESS) record_->reply_slot = slot;
  // A probe of who waits long says how busy the machine is, not what the program costs.
  const bool counts = record_->call != static_cast<uint32_t>(wire::Call::tubeStreamProbe);
  CUresult result = publish();
  c.producer.unlock();
  locked_ = false;
  if (result != CUDA_SUCCESS) {
    if (slot != abi::kNoReply) c.replies.release(slot);
    return result;
  }
  if (counts) tally(Tally::kRoundTrips);
  const shared::WaitResult waited = c.replies.wait(slot);
  if (waited != shared::WaitResult::kDone) {
    c.replies.release(slot);
    return transport_failed(waited);
  }
  result = static_cast<CUresult>(c.replies.result(slot));
  const std::span<const std::byte> payload = c.replies.payload(slot);
  if (reply != nullptr) {
    std::memset(reply, 0, reply_bytes);
    std::memcpy(reply, payload.data(), payload.size() < reply_bytes ? payload.size() : reply_bytes);
  }
  if (blobs != nullptr && !blobs->take(payload)) result = CUDA_ERROR_OUT_OF_MEMORY;
  c.replies.release(slot);
  return result;
}

}  // namespace tube::hook
