// A session's records that are kept back: which stay, and what becomes of them
// (parked_records.h). Session thread.
#include <poll.h>

#include <cstring>

#include "base/scope_guard.h"
#include "protocol/properties.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/replies.h"
#include "sharedmem/ring.h"

namespace tube::proxy {

// True when the record at the ring's head was dealt with: it stays behind something that is kept
// back.
bool Session::keep_back() {
  const abi::RecordHeader& header = reader_->header();
  const ParkKeys keys = keys_of(header, reader_->payload());
  if (!parked_.must_stay(keys)) {
    // It may stay once it was executed.
    const bool tried = keys.behind == wire::Behind::kTried;
    const size_t bytes = reader_->payload().size();
    const bool room = tried ? parked_.has_room(bytes) : parked_.has_bytes(bytes);
    return !room && !wait_for_room();
  }
  if (header.reply_slot != abi::kNoReply && wire::properties_of(header.call).marks) {
    shared::complete_reply(segment_, header.reply_slot, header.sequence, CUDA_ERROR_NOT_READY, {});
  } else {
    if (!parked_.has_room(reader_->payload().size()) && !wait_for_room()) return true;
    if (!parked_.must_stay(keys)) return false;
    mark_ahead(header, reader_->payload());
    parked_.keep(header, reader_->payload(), keys);
  }
  reader_->consume();
  return true;
}

// A mark on the legacy stream is about to be kept. It covers what its context's blocking streams
// have by now, but not what comes to those that are not held before it is executed, which may wait
// for the program to see the mark.
void Session::mark_ahead(const abi::RecordHeader& header, std::span<const std::byte> payload) {
  wire::tubeSignal mark;
  if (header.call != static_cast<uint32_t>(wire::tubeSignal::kCall) ||
      payload.size() < sizeof(mark))
    return;
  std::memcpy(&mark, payload.data(), sizeof(mark));
  ContextShare* share = contexts_.of_record(header.context);
  if (mark.stream != wire::kLegacyStream || share == nullptr ||
      contexts_.make_current(*share) != CUDA_SUCCESS)
    return;
  if (runs_.on() && share->order.dirty()) runs_.end();
  const auto held = [this](const StreamState& stream) {
    ParkKeys keys;
    stream.add_keys(keys, true);
    return parked_.must_stay(keys);
  };
  share->order.mark_ahead(header.sequence, captures(), held);
}

// The record at the ring's head was executed and is not done.
void Session::keep_executed() {
  abi::RecordHeader header = reader_->header();
  ParkKeys keys = keys_of(header, reader_->payload());
  if (ends_later_) header.reply_slot = abi::kNoReply;
  if (stays_behind_all_) keys.behind = wire::Behind::kAll;
  if (changes_named_) keys.change_all();
  parked_.keep(header, reader_->payload(), keys);
}

bool Session::change_named() {
  if (going_on_ || !parked_.any()) return false;
  ParkKeys keys = keys_of(reader_->header(), reader_->payload());
  keys.change_all();
  changes_named_ = again_ = parked_.must_stay(keys);
  return again_;
}

bool Session::stay_behind_all() {
  if (going_on_ || !parked_.uses()) return false;
  stays_behind_all_ = true;
  again_ = true;
  return true;
}

bool Session::end_behind_all() {
  if (going_on_ || !parked_.uses()) return false;
  stays_behind_all_ = true;
  ends_later_ = true;
  return true;
}

// It found none, and some may come back from what is kept.
bool Session::waits_for_memory(const abi::RecordHeader& header) const {
  return !going_on_ && parked_.ends() &&
         wire::properties_of(header.call).behind == wire::Behind::kTried;
}

// False: the session ends. The ring waits meanwhile, as if it were full.
bool Session::wait_for_room() {
  constexpr int kLookMs = 1;
  while (!parked_.has_room(reader_->payload().size())) {
    if (stop_.load(std::memory_order_relaxed)) return false;
    parked_waits_.give_up();
    if (!go_on_parked()) poll(nullptr, 0, kLookMs);
  }
  return true;
}

// Something was submitted for which streams were held: what may go now goes.
bool Session::go_on_parked() {
  if (launches_.holding()) launches_.watch();
  if (parked_waits_.any() && parked_waits_.look()) lanes_.nudge();
  if (own_waits_.any() && own_waits_.look()) lanes_.nudge();
  if (!lanes_.nudged().load(std::memory_order_relaxed) || !lanes_.settle()) return false;
  launches_.settle();
  parked_waits_.settle();
  going_on_ = true;
  const ScopeGuard went_on([this] { going_on_ = false; });
  parked_.release([this](const abi::RecordHeader& header, std::span<const std::byte> payload) {
    again_ = false;
    if (!stop_.load(std::memory_order_relaxed)) execute(header, payload);
    if (!again_) own_waits_.forget(header.sequence);
    return !again_;
  });
  launches_.settled();
  parked_waits_.settled();
  record_ = &reader_->header();  // what was kept is gone
  return true;
}

bool Session::waits_for_own() {
  const CUdevice device = shared_.gpus[context()->gpu].device;
  if (!own_waits_.stays(record().sequence, device)) return false;
  come_again();
  return true;
}

ParkKeys Session::keys_of(const abi::RecordHeader& header, std::span<const std::byte> payload) {
  const wire::CallProperties& properties = wire::properties_of(header.call);
  ParkKeys keys;
  keys.behind = properties.behind;
  for (const wire::NamedField& field : properties.named_fields()) {
    uint64_t id = 0;
    if (payload.size() < field.at + sizeof(id)) break;  // too short for its call
    std::memcpy(&id, payload.data() + field.at, sizeof(id));
    if (field.kind == wire::NamedKind::kStream) {
      const Object* object = objects_.find(wire::Kind::kStream, id);
      const ContextShare* share = contexts_.of_record(header.context);
      if (id == wire::kLegacyStream && share != nullptr)
        StreamState::add_legacy_keys(keys, share->number, !properties.marks);
      else if (id == wire::kEndedStreams && share != nullptr)
        StreamState::add_ended_keys(keys, share->number);
      else if (object != nullptr)
        static_cast<const StreamState&>(*object->state)
            .add_keys(keys, !properties.marks, field.changes);
      else StreamState::add_keys_unmade(keys, id, share, field.changes);
    } else if (id != 0) {
      keys.add(ParkKeys::object(field.kind, id), field.changes);
    }
  }
  return keys;
}

}  // namespace tube::proxy
