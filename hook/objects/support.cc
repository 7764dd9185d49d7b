#include "hook/objects/support.h"

#include "protocol/hook_decls.gen.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "hook/objects/device_output.h"
#include "hook/process/error_log.h"
#include "hook/process/start_trace.h"

namespace tube::hook {

void log_failed(const char* name, CUresult result) {
  if (result != CUDA_ERROR_NOT_READY) error_log().add(name, result);
  if (result == CUDA_ERROR_ASSERT) collect_assertion();
  const LogLevel level = result == CUDA_ERROR_NOT_READY ? LogLevel::kTrace : LogLevel::kDebug;
  if (!log_enabled(level)) return;
  const char* text = nullptr;
  (void)hook::cuGetErrorName(result, &text);
  log_debug("%s -> %s (%d)", name, text != nullptr ? text : "?", static_cast<int>(result));
}

CUresult unsupported(const char* name, const char* why) {
  // Rare path: a set behind a lock, leaked.
  static Lock* lock = new Lock;
  static auto* said = new std::unordered_set<const char*>;
  bool first;
  {
    Locked locked(*lock);
    first = said->insert(name).second;
  }
  if (first) {
    log_warn("%s is not supported%s%s; it answers CUDA_ERROR_NOT_SUPPORTED", name,
             why != nullptr && *why ? ": " : "", why == nullptr ? "" : why);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

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
  if (error_ != CUDA_SUCCESS) {
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
    if (error_ == CUDA_SUCCESS) {
      error_ = CUDA_ERROR_NOT_SUPPORTED;
      log_error("internal: a blob of %u bytes does not fit its record (call %u)", size_bytes,
                record_->call);
    }
    return connection().scratch;  // somewhere harmless; the record is never published
  }
  // What the last eight bytes have beyond the blob; it is written over this.
  if (((offset + size_bytes) & 7) != 0) std::memset(payload_ + ((offset + size_bytes) & ~7u), 0, 8);
  ref->offset = offset;
  ref->size = size_bytes;
  used_bytes_ = offset + size_bytes;
  return payload_ + offset;
}

void RawRequest::put(wire::BlobRef* ref, const void* data, uint32_t size_bytes) {
  const CUresult before = error_;
  void* room = reserve_blob(ref, size_bytes);
  if (error_ == before && size_bytes != 0) std::memcpy(room, data, size_bytes);
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
    if (signals_)
      stream_->signalled = stream_->legacy() ? context->blocking_posted : stream_->posted;
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
  CUresult result = publish();
  c.producer.unlock();
  locked_ = false;
  if (result != CUDA_SUCCESS) {
    if (slot != abi::kNoReply) c.replies.release(slot);
    return result;
  }
  tally(Tally::kRoundTrips);
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

// ---- handles
// ----------------------------------------------------------------------------------------------------------
namespace {

// Proxy-made ids by kind and index, so that the same object gets the same handle again
// (cuGraphGetNodes twice). The proxy uses an index again when its object is gone (nodes go with
// their graph): then the newer generation takes the older one's place.
struct Adopted {
  Lock lock;  // rank 2
  std::unordered_map<uint32_t, Slot*> by_index[static_cast<size_t>(Kind::kCount)];
};
Adopted& adopted() {
  static Adopted* a = new Adopted;
  return *a;
}

}  // namespace

CUresult id_of(wire::Kind kind, const void* handle, uint64_t* id) {
  if (kind == Kind::kStream) {
    CUresult error = CUDA_SUCCESS;
    Stream* stream = find_stream(static_cast<CUstream>(const_cast<void*>(handle)), &error);
    if (stream == nullptr) return error;
    *id = stream->id;
    this_thread().operation_stream = stream;
    return CUDA_SUCCESS;
  }
  if (kind == Kind::kContext) {
    Context* context = handle == nullptr
                           ? current_context()
                           : find_context(static_cast<CUcontext>(const_cast<void*>(handle)));
    if (context == nullptr)
      return handle == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_CONTEXT;
    *id = context->number;
    return CUDA_SUCCESS;
  }
  Slot* slot = objects().find(kind, handle);
  if (slot == nullptr)
    return wire::part_of_graphs(kind) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
  *id = slot->id;
  return CUDA_SUCCESS;
}

CUresult device_number(CUdevice device, int32_t* number) {
  const Process& p = process();
  if (device < 0 || static_cast<uint32_t>(device) >= p.device_count)
    return CUDA_ERROR_INVALID_DEVICE;
  *number = static_cast<int32_t>(p.devices[device]);
  return CUDA_SUCCESS;
}

uint64_t new_id(wire::Kind kind, void** handle) {
  Slot* slot = objects().allocate(kind);
  if (slot == nullptr) return 0;
  objects().publish(slot);
  *handle = objects().handle_of(slot);
  return slot->id;
}

void* adopt(wire::Kind kind, uint64_t proxy_made_id) {
  if (proxy_made_id == 0) return nullptr;
  if ((wire::id_index(proxy_made_id) & wire::kProxyMade) == 0) {  // one of ours coming back
    Slot* slot = objects().at(kind, wire::id_index(proxy_made_id));
    return slot != nullptr && slot->id == proxy_made_id ? objects().handle_of(slot) : nullptr;
  }
  Adopted& a = adopted();
  Locked locked(a.lock);
  Slot*& slot = a.by_index[static_cast<size_t>(kind)][wire::id_index(proxy_made_id)];
  if (slot != nullptr && slot->id != proxy_made_id) {
    if (static_cast<int32_t>(wire::id_generation(proxy_made_id) - wire::id_generation(slot->id)) <
        0)
      return nullptr;  // gone meanwhile
    objects().remove(slot);
    slot = nullptr;
  }
  if (slot == nullptr) {
    slot = objects().allocate(kind);
    if (slot == nullptr) return nullptr;
    slot->id = proxy_made_id;
    objects().publish(slot);
  }
  return objects().handle_of(slot);
}

void drop(wire::Kind kind, uint64_t id, Retired* gone) {
  if ((wire::id_index(id) & wire::kProxyMade) == 0) {
    Slot* slot = objects().at(kind, wire::id_index(id));
    if (slot == nullptr || slot->id != id) return;
    if (gone != nullptr) gone->add(slot);
    else objects().remove(slot);
    return;
  }
  Adopted& a = adopted();
  Locked locked(a.lock);
  auto& map = a.by_index[static_cast<size_t>(kind)];
  const auto found = map.find(wire::id_index(id));
  if (found == map.end() || found->second->id != id) return;
  objects().remove(found->second);
  map.erase(found);
}

}  // namespace tube::hook
