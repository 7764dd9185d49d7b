// Who finds no staging chunk free.
//
// Chunks come back when the GPU gets to their copies. All of them can stand behind streams that
// wait for what another thread of the program does next, and that thread may be the one which needs
// a chunk now. So after a while it waits for nothing but its own stream, as natively. When that is
// through, it takes the reserve: a copy there has nothing in front of it, so the next thread that
// waits for the reserve gets it, too.
//
// Costs nothing while chunks come free; then an event's record and two waits for each piece. Any
// thread.
#include <vector>

#include "base/clock.h"
#include "hook/memory/copy.h"
#include "hook/objects/event.h"
#include "hook/objects/support.h"
#include "policies/copy_threads.h"

namespace tube::hook {
namespace {

struct Counts {
  uint64_t own, legacy;
};

// What a copy on the stream would come behind; producer held.
Counts counts_of(const Stream* stream) {
  const Context* context = stream->context;
  if (stream->legacy()) return {context->blocking_posted, 0};
  return {stream->posted, stream->blocking() ? context->legacy.posted : 0};
}

// Events for mark_all_in_front(), made when first needed. They are used again and never destroyed:
// to make one and to end it are two records more.
struct FrontEvent {
  CUevent handle;
  const Context* context;
  Mark last;
};
struct FrontEvents {
  Lock lock;  // rank 3
  std::vector<FrontEvent> idle;
};
FrontEvents& front_events() {
  static FrontEvents* e = new FrontEvents;  // leaked: calls arrive until the very end
  return *e;
}

Event* take_event(Context* context) {
  {
    FrontEvents& all = front_events();
    Locked locked(all.lock);
    for (size_t i = all.idle.size(); i-- != 0;) {
      const FrontEvent known = all.idle[i];
      if (known.context != context || !mark_reached(known.last)) continue;
      all.idle.erase(all.idle.begin() + static_cast<std::ptrdiff_t>(i));
      if (Event* event = find_event(known.handle)) return event;  // else it went with its context
    }
  }
  Event* made = nullptr;
  return create_event(context, CU_EVENT_DISABLE_TIMING, &made) == CUDA_SUCCESS ? made : nullptr;
}

// A mark behind everything that a copy on the stream would come behind now: unlike the stream's own
// mark also behind what the legacy stream has. An event's record is that.
CUresult mark_all_in_front(Stream* stream, Mark* mark, StagingChunk* claimed) {
  Event* event = take_event(stream->context);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto handle = static_cast<CUevent>(objects().handle_of(event->slot));
  {
    Locked locked(connection().producer);
    const Counts before = counts_of(stream);
    claimed->posted = before.own + 1, claimed->legacy_posted = before.legacy;  // with the record
  }
  const CUresult recorded = record_event(event, stream, 0);
  *mark = event->mark;
  Locked locked(front_events().lock);
  front_events().idle.push_back({handle, stream->context, *mark});
  return recorded;
}

}  // namespace

bool may_post(const Stream* stream, const StagingChunk& claimed) {
  if (!claimed.reserve) return true;
  const Counts now = counts_of(stream);
  return now.own == claimed.posted && now.legacy == claimed.legacy_posted;
}

CUresult claim_chunk(Stream* stream, uint64_t bytes, StagingChunk* claimed) {
  shared::ChunkPool& pool = connection().chunks;
  claimed->reserve = false;
  if (pool.try_claim(&claimed->chunk, bytes)) return CUDA_SUCCESS;
  const shared::Probe probe{probe_stream, stream};
  const auto wait = [&](auto enough) { return pool.claim(&claimed->chunk, probe, bytes, enough); };
  const auto got = [&] { return claimed->chunk != shared::ChunkPool::kNoChunk; };
  const uint64_t until_ns = now_ns() + policies::kChunkPatienceNs;
  shared::WaitResult result = wait([&] { return now_ns() >= until_ns; });
  if (result != shared::WaitResult::kDone || got()) return chunk_wait_code(result);
  Mark in_front;
  if (const CUresult r = mark_all_in_front(stream, &in_front, claimed); r != CUDA_SUCCESS) return r;
  result = wait([&] { return mark_reached(in_front); });
  if (result != shared::WaitResult::kDone || got()) return chunk_wait_code(result);
  uint32_t reserve = 0;
  result = wait([&] { return pool.try_claim_reserve(&reserve); });
  if (result != shared::WaitResult::kDone || got()) return chunk_wait_code(result);
  claimed->chunk = reserve;
  claimed->reserve = true;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook
