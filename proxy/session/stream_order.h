// The legacy default stream's implicit ordering, rebuilt among the streams of one client and one
// context.
//
// CUDA: work on the legacy stream waits for all earlier work on the context's blocking streams, and
// later work on a blocking stream waits for it. In the shared context every stream is non-blocking,
// so functions never wait for each other; the rule is put back with events here, lazily:
//
//   - An operation on a blocking stream marks it dirty: it has work that the legacy stream has not
//     waited for.
//   - An operation on the legacy stream waits for each dirty stream, then starts a new epoch.
//   - An operation on a blocking stream that has not seen the present epoch waits for the legacy
//     stream once.
//
// A marker, and a blocking stream that goes away, add waits to the legacy stream that are nobody
// else's: before the first of them the position behind the legacy stream's own work is recorded,
// and blocking streams wait for that. While a marker is kept back, nothing may be put in front of
// it that came after it: what a later marker covers, and what a stream leaves that goes away, is
// then noted as an event, which the next operation takes that comes behind that work.
//
// A client that uses one kind only pays two compares and no driver call. Streams that are being
// captured are exempt, as CUDA demands. Session thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {

struct Driver;

class StreamOrder {
 public:
  explicit StreamOrder(const Driver& driver) : driver_(driver) {}

  // Puts the waits in front of an operation on `stream`. `legacy` is the context's stand-in,
  // nullptr when it was never used. `captures`: some stream of the client may be capturing, so ask
  // the driver before touching one. `sequence`: of the operation's record, which may have been kept
  // back, and then waits for nothing that came to a blocking stream after it.
  CUresult before(StreamState& stream, StreamState* legacy, StreamUse use, bool captures,
                  uint64_t sequence);
  // Does some stream have work that the legacy stream has not waited for?
  bool dirty() const { return !dirty_.empty(); }
  // A marker on the legacy stream, of the record `sequence`, is kept back since some stream is
  // held. Where the others' work ends is noted now, since more may come there before the marker is
  // put in. `held(stream)`. The streams' context is current.
  template <class Held>
  void mark_ahead(uint64_t sequence, bool captures, Held&& held) {
    kept_mark_ = sequence;
    size_t kept = 0;
    for (StreamState* stream : dirty_) {
      if (held(*stream) || capturing(*stream, captures) || !leave_event(*stream, true))
        dirty_[kept++] = stream;
      else stream->dirty = false;
    }
    dirty_.resize(kept);
  }
  // Gives the noted events back: the legacy stream ends.
  void forget_left();
  // Will before() ask the driver about other streams than `stream`?
  bool concerns_others(const StreamState& stream, const StreamState* legacy) const {
    if (stream.legacy) return !dirty_.empty() || !left_.empty();
    return stream.blocking() && stream.seen_epoch != epoch_ && legacy != nullptr;
  }
  // The stream is about to take part in a capture, and then takes no event: remembers where its
  // work ends.
  CUresult enter_capture(StreamState& stream);
  // The stream goes away: `heir`, if any, waits for its work from then on. It is the legacy stream
  // for a blocking one, and otherwise one that only those ask who wait for the whole context.
  CUresult retire(StreamState& stream, StreamState* heir, bool captures);
  // Does the stream, which is in a capture, have work from before it that goes on?
  bool works_behind_capture(const StreamState& stream) const;

 private:
  CUresult record_join(StreamState& stream);
  CUresult join(StreamState& waiter, StreamState& waited);
  bool capturing(const StreamState& stream, bool captures) const;
  // The legacy stream waits for the dirty streams, but not for those that `stays` answers true for.
  template <class Stays>
  CUresult join_dirty(StreamState& legacy, bool captures, Stays&& stays) {
    CUresult first = CUDA_SUCCESS;
    size_t kept = 0;
    for (StreamState* stream : dirty_) {
      if (stays(*stream) || capturing(*stream, captures)) {
        dirty_[kept++] = stream;
        continue;
      }
      stream->dirty = false;
      if (CUresult error = join(legacy, *stream); error != CUDA_SUCCESS && first == CUDA_SUCCESS)
        first = error;
    }
    dirty_.resize(kept);
    return first;
  }
  // Notes where the stream's work ends, or, without `records`, its event as it is. False: there is
  // none to be had, or there are too many.
  bool leave_event(StreamState& stream, bool records);
  // The legacy stream waits for what was noted of work that began before the record.
  CUresult take_left(StreamState& legacy, uint64_t sequence);
  CUresult before_blocking(StreamState& stream, StreamState& legacy);
  // Remembers in legacy.join where its own work ends, before something is put behind it that only
  // the legacy stream waits for.
  CUresult hold_position(StreamState& legacy);

  const Driver& driver_;
  uint64_t epoch_ =
      0;  // grows with the legacy stream's first operation after somebody saw the last epoch
  bool epoch_seen_ = true;  // some blocking stream waited for the present epoch: the next legacy
                            // work starts another
  bool position_held_ = false;  // legacy.join stands behind its last own work
  std::vector<StreamState*> dirty_;

  // Work of blocking streams that no stream's `join` stands for any more.
  struct Left {
    uint64_t since;  // the sequence of its first record
    CUevent event;
  };
  std::vector<Left> left_;
  uint64_t kept_mark_ = 0;  // the sequence of the last marker that is kept back; 0: none is
};

}  // namespace tube::proxy
