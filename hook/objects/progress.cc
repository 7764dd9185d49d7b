// Waiting for the GPU without asking the proxy: a stream's progress word (sharedmem/words.h).
//
// To wait for a stream the hook posts "write value v to word w behind everything so far" (once per
// batch of operations) and waits until the word has the value. The proxy is only asked when a wait
// lasts long (probe), because a faulted context never writes the word. Errors of posted calls are
// reported by the next waiting call, as CUDA allows.
#include "hook/objects/progress.h"

#include <ctime>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "hook/objects/capture.h"
#include "hook/objects/device_output.h"
#include "hook/objects/listeners.h"
#include "hook/objects/request.h"
#include "hook/objects/thread.h"
#include "sharedmem/accessors.h"

namespace tube::hook {

void probe_stream(void* stream) {
  const auto* s = static_cast<Stream*>(stream);
  Request<wire::tubeStreamProbe> r;
  r.in_context(s->context);
  r->stream = s->id;
  (void)r.call();
}

namespace {

shared::Probe probe_of(Stream* stream) {
  return stream == nullptr ? shared::Probe{} : shared::Probe{probe_stream, stream};
}

// What has been posted that this stream's completion covers; producer held. The legacy stream waits
// for all blocking ones.
uint64_t posted_so_far(const Stream* stream) {
  return stream->legacy() ? stream->context->blocking_posted : stream->posted;
}

void tell_synchronised() {
  for (const Listener& listener : listeners())
    if (listener.synchronised != nullptr) listener.synchronised();
}

// While values of streams that have ended are on their way to all the others, waits for these: a
// program may make and end streams faster than the proxy comes after it.
uint32_t take_word(shared::Words& words) {
  constexpr int64_t kPauseNs = 50'000, kLongestNs = 10'000'000'000;
  uint32_t word = words.allocate();
  for (int64_t waited = 0; word == shared::kNoWord && waited < kLongestNs && !words.all_owned();
       waited += kPauseNs) {
    const timespec pause{0, kPauseNs};
    nanosleep(&pause, nullptr);
    word = words.allocate();
  }
  return word;
}

}  // namespace

bool is_marked(const Stream* stream, Mark* mark) {
  Locked locked(connection().producer);
  *mark = Mark{stream->word, stream->value};
  // A signal on a capturing stream would become a part of its graph. What was posted before the
  // capture has been signalled when it began.
  return posted_so_far(stream) == stream->signalled || capturing(stream);
}

CUresult ensure_word(Stream* stream) {
  Connection& c = connection();
  {
    Locked locked(c.producer);
    if (stream->word != 0) return CUDA_SUCCESS;
  }
  const uint32_t word = take_word(c.words);
  if (word == shared::kNoWord) return CUDA_ERROR_OUT_OF_MEMORY;
  Locked locked(c.producer);
  if (stream->word == 0) {
    stream->word = word;
    stream->value = c.words.last_value(word);
  } else {
    c.words.release(word);
  }
  return CUDA_SUCCESS;
}

CUresult mark_stream(Stream* stream, Mark* mark) {
  Connection& c = connection();
  for (;;) {
    if (is_marked(stream, mark)) return CUDA_SUCCESS;
    if (mark->word == 0) {
      if (const CUresult r = ensure_word(stream); r != CUDA_SUCCESS) return r;
    }
    Request<wire::tubeSignal> r;      // the producer lock is held from here to post()
    if (capturing(stream)) continue;  // by now
    r.in_context(stream->context);
    const uint64_t covered = posted_so_far(stream);
    if (covered != stream->signalled || stream->value == 0)
      stream->value = c.words.next_value(stream->word);
    stream->signalled = covered;
    stream->own_signalled = stream->posted;
    *mark = Mark{stream->word, stream->value};
    r->stream = stream->id;
    r->word = stream->word;
    r->value = stream->value;
    return r.post();
  }
}

CUresult ask_unmarked(Stream* stream) {
  Connection& c = connection();
  uint64_t covered, own;
  {
    Locked locked(c.producer);
    covered = posted_so_far(stream);
    own = stream->posted;
    if (covered == stream->signalled || capturing(stream)) return CUDA_SUCCESS;
  }
  Request<wire::tubeStreamProbe> r;
  r.in_context(stream->context);
  r->stream = stream->id;
  const CUresult result = r.call();
  if (result != CUDA_SUCCESS) return result;
  Locked locked(c.producer);
  if (stream->signalled < covered) stream->signalled = covered;
  if (stream->own_signalled < own) stream->own_signalled = own;
  return CUDA_SUCCESS;
}

bool mark_reached(const Mark& mark) {
  return mark.word == 0 || connection().words.reached(mark.word, mark.value);
}

WorkPoint work_so_far(const Stream* stream) {
  Locked locked(connection().producer);
  const bool behind_legacy = stream->blocking() && !stream->legacy();
  return {posted_so_far(stream), behind_legacy ? stream->context->legacy.posted : 0};
}

bool work_ended(const Stream* stream, const WorkPoint& point) {
  Locked locked(connection().producer);
  if (stream->signalled < point.posted || !mark_reached(Mark{stream->word, stream->value}))
    return false;
  // A signal on a blocking stream says nothing of the legacy one, which its work was behind.
  const Stream& legacy = stream->context->legacy;
  return point.legacy == 0 ||
         (legacy.own_signalled >= point.legacy && mark_reached(Mark{legacy.word, legacy.value}));
}

bool uploads_ended() {
  Locked locked(connection().producer);
  const Context* context = last_made_context.load(std::memory_order_acquire);
  for (; context != nullptr; context = context->made_before) {
    const Stream& legacy = context->legacy;
    if (!context->alive.load(std::memory_order_acquire) || legacy.uploads_until == 0) continue;
    if (legacy.signalled < legacy.uploads_until || !mark_reached(Mark{legacy.word, legacy.value}))
      return false;
  }
  return true;
}

CUresult take_error() {
  Connection& c = connection();
  const shared::AsyncError posted = shared::client_takes_async_error(c.header());
  if (posted.error != 0) {
    log_warn("%s (record %llu) failed with error %u; reported by the next synchronising call",
             wire::call_name(posted.call), static_cast<unsigned long long>(posted.sequence),
             posted.error);
    for (const Listener& listener : listeners())
      if (listener.posted_call_failed != nullptr) listener.posted_call_failed();
  }
  if (const CUresult sticky = sticky_error(); sticky != CUDA_SUCCESS) return sticky;
  return static_cast<CUresult>(posted.error);
}

CUresult alive_while_polling(Stream* stream) {
  // A poll is a few nanoseconds of a loop: look at the clock rarely, at the peer every 20 ms.
  constexpr uint64_t kEveryNs = 20'000'000;
  static std::atomic<uint64_t> next_look_ns{0};
  const uint64_t now = now_ns();
  uint64_t due = next_look_ns.load(std::memory_order_relaxed);
  if (now < due ||
      !next_look_ns.compare_exchange_strong(due, now + kEveryNs, std::memory_order_relaxed))
    return CUDA_SUCCESS;
  if (due == 0) return CUDA_SUCCESS;  // the first query of the program
  const shared::WaitResult alive = shared::check_peer(connection().peer, true);
  if (alive != shared::WaitResult::kDone) return transport_failed(alive);
  probe_stream(stream);
  return sticky_error();
}

namespace {

CUresult reach_mark(const Mark& mark, Stream* stream) {
  if (mark_reached(mark)) return CUDA_SUCCESS;
  const shared::WaitResult result =
      connection().words.wait(mark.word, mark.value, probe_of(stream));
  if (result != shared::WaitResult::kDone) return transport_failed(result);
  // A program that has waited goes on soon, and the session has fallen asleep meanwhile.
  if (connection().waiter.spin_us() != 0) shared::rouse_reader(connection().header());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult wait_mark(const Mark& mark, Stream* stream) {
  const CUresult code = reach_mark(mark, stream);
  const CUresult last = take_error();  // logs which call it was, if the proxy knew
  return code != CUDA_SUCCESS ? code : last;
}

bool reach_mark_by(const Mark& mark, Stream* stream, uint64_t deadline_ns) {
  if (mark_reached(mark)) return true;
  Connection& c = connection();
  (void)c.waiter.until_polled(shared::WaitReason::kWord, c.peer, probe_of(stream),
                              [&] { return mark_reached(mark) || now_ns() >= deadline_ns; });
  return mark_reached(mark);
}

CUresult settle_stream(Stream* stream) {
  Mark mark;
  if (const CUresult r = mark_stream(stream, &mark); r != CUDA_SUCCESS) return r;
  return wait_mark(mark, stream);
}

CUresult sync_stream(Stream* stream) {
  const CUresult result = settle_stream(stream);
  tell_synchronised();
  collect_output();
  return result;
}

namespace {

struct Waited {
  Stream* stream;
  Mark mark;
};

// What the context's streams have left to do. `streams_lock` is held, so that the proxy still knows
// them.
void add_marks(Context* context, std::vector<Waited>* all) {
  const auto add = [all](Stream* stream) {
    Mark mark;
    if (mark_stream(stream, &mark) == CUDA_SUCCESS && !mark_reached(mark))
      all->push_back({stream, mark});
  };
  add(&context->legacy);
  add(&context->ended);
  for (Stream* s = context->streams; s != nullptr; s = s->next) add(s);
}

}  // namespace

void settle_uploads(uint64_t deadline_ns) {
  if (uploads_ended()) return;
  std::vector<Waited> all;
  for_each_context([&](Context* context) {
    Stream* legacy = &context->legacy;
    Mark mark;
    {
      Locked locked(connection().producer);
      if (legacy->uploads_until == 0) return;
    }
    if (mark_stream(legacy, &mark) == CUDA_SUCCESS) all.push_back({legacy, mark});
  });
  for (const Waited& waited : all) (void)reach_mark_by(waited.mark, waited.stream, deadline_ns);
}

CUresult sync_context(Context* context) {
  // Marks first, then waits: the streams drain side by side. Streams made meanwhile are not ours to
  // wait for.
  std::vector<Waited> all;
  const auto add = [&all](Stream* stream) {
    Mark mark;
    const CUresult r = mark_stream(stream, &mark);
    if (r == CUDA_SUCCESS && !mark_reached(mark)) all.push_back({stream, mark});
    return r;
  };
  Waited legacy{&context->legacy, {}};
  CUresult result = mark_stream(legacy.stream, &legacy.mark);
  {
    Locked locked(context->streams_lock);
    for (Stream* s = context->streams; s != nullptr && result == CUDA_SUCCESS; s = s->next)
      result = add(s);
  }
  // Behind the list: a stream that has left it meanwhile is among these.
  if (result == CUDA_SUCCESS) result = add(&context->ended);
  if (result != CUDA_SUCCESS) return result;
  const auto wait_for = [&](const Waited& waited) {
    const CUresult r = waited.mark.word == 0 ? CUDA_SUCCESS : wait_mark(waited.mark, waited.stream);
    if (result == CUDA_SUCCESS) result = r;
  };
  wait_for(legacy);
  for (const Waited& waited : all) wait_for(waited);
  tell_synchronised();
  collect_output();
  const CUresult last = take_error();
  return result != CUDA_SUCCESS ? result : last;
}

CUresult sync_all_contexts() {
  // Only the primary ones and the current.
  Process& p = process();
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < p.device_count; ++i) {
    const CUresult r = sync_context(p.primaries[i]);
    if (result == CUDA_SUCCESS) result = r;
  }
  Context* current = current_context();
  if (current != nullptr && !current->primary) {
    const CUresult r = sync_context(current);
    if (result == CUDA_SUCCESS) result = r;
  }
  return result;
}

CUresult sync_owner(Context* owner) {
  if (owner == nullptr || !owner->alive.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  Context* base = base_context(owner);
  const CUresult result = sync_context(base);
  std::vector<Waited> of_greens;
  for_each_context([&](Context* context) {
    if (context != base && base_context(context) == base) add_marks(context, &of_greens);
  });
  for (const Waited& waited : of_greens) (void)wait_mark(waited.mark, waited.stream);
  return result;
}

namespace {

CUresult left_on(int32_t visible_device, std::vector<Waited>* all) {
  const auto is_on = [=](const Context* context) {
    return visible_device < 0 || context->visible_device == static_cast<uint32_t>(visible_device);
  };
  // Before the marks, and not with `streams_lock` held: the captures' lock is of the same rank.
  Context* context = last_made_context.load(std::memory_order_acquire);
  for (; context != nullptr; context = context->made_before) {
    if (is_on(context) && context->alive.load(std::memory_order_acquire) &&
        legacy_would_wait(&context->legacy, false))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  for_each_context([&](Context* each) {
    if (is_on(each)) add_marks(each, all);
  });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult marks_on(int32_t visible_device, std::vector<Mark>* marks) {
  std::vector<Waited> all;
  const CUresult result = left_on(visible_device, &all);
  for (const Waited& w : all) marks->push_back(w.mark);
  return result;
}

CUresult sync_device(int32_t visible_device) {
  std::vector<Waited> all;
  CUresult result = left_on(visible_device, &all);
  for (const Waited& w : all) {
    if (result == CUDA_SUCCESS) result = reach_mark(w.mark, w.stream);
  }
  return result;
}

std::vector<Mark> marks_beside(const Context* owner) {
  const Context* base = base_context(owner);
  std::vector<Waited> waited;
  for_each_context([&](Context* context) {
    if (base_context(context) != base) add_marks(context, &waited);
  });
  std::vector<Mark> marks;
  marks.reserve(waited.size());
  for (const Waited& w : waited) marks.push_back(w.mark);
  return marks;
}

}  // namespace tube::hook
