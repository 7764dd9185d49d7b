#include "proxy/session/session.h"

#include <sys/socket.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "policies/spin.h"
#include "protocol/driver_table.gen.h"
#include "protocol/properties.gen.h"
#include "protocol/proxy_decls.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/descriptors.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/spare_segments.h"
#include "proxy/session/record_trace.h"
#include "sharedmem/accessors.h"
#include "sharedmem/chunks.h"
#include "sharedmem/greeting.h"
#include "sharedmem/replies.h"
#include "sharedmem/ring.h"
#include "sharedmem/words.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kNextCallNs = 2'000;  // within which a program goes on from one call to the next
}  // namespace

struct Session::Thread {
  std::thread thread;
};

Session::Session(Shared& shared, Client client, UniqueFd socket)
    : shared_(shared),
      client_(std::move(client)),
      account_(shared.memory.budgets().open(client_.name, client_.memory_bytes, client_.pid)),
      socket_(std::move(socket)),
      waiter_(shared.spin_us),
      runs_(
          shared.driver, contexts_, stats_, shared.coalesce_ns,
          [this](uint32_t gpu, CUresult error) {
            late_error(gpu, error, static_cast<uint32_t>(wire::Call::tubeLaunch), 0);
          },
          &shared.gpus.gate()),
      contexts_(shared.driver, shared.gpus, objects_, client_.id),
      copies_(shared.driver, shared.gpus, contexts_, segment_, stats_),
      output_(shared.driver, shared.gpus, contexts_, shared.output, segment_, client_.id),
      lanes_(shared.driver, contexts_, parked_, [this] { shared::wake_reader(segment_.header()); }),
      parked_waits_(shared.gpus.gate(), parked_, client_.id, shared.wait_room),
      own_waits_(shared.gpus.gate(), client_.id),
      steps_(copies_.asked()),
      deadlines_(contexts_, copies_.asked()),
      launches_(shared.driver, contexts_, parked_),
      residency_(shared.driver, shared.memory, residency_hooks()),
      known_(residency_),
      memory_(shared.memory, ranges_, client_.id, *account_),
      deferred_(shared.driver, memory_),
      pinned_(shared.driver, ranges_, shared.pinned, stats_),
      imports_(shared.driver, shared.gpus, shared.memory, ranges_, client_.id),
      host_pages_(shared.driver, ranges_, shared.host, &shared.gpus.registrations()),
      trace_(RecordTrace::from_environment()),
      started_ns_(now_ns()) {
  waiter_.count_into(&stats_.waits);
  shared_.gpus.gate().joined(client_.id, client_.name, client_.pid);
  memory_.set_window(client_.window);
  imports_.set_window(client_.window);
  ranges_.on_pinned_end([this](const Range& range) { waits_.forget(range.base, range.bytes); });
}

Session::~Session() {
  join();
  teardown();
  copies_.more_chunks().finish();  // had it thrown
  objects_.clear();                // what is left of them knows members that end before
  shared_.gpus.gate().left(client_.id);
  user_object_ends_.close();  // the driver tells of the last references whenever it likes
  pass_segment_on();
}

std::shared_ptr<PinnedPool> Session::take_pinned_remains() { return std::move(pinned_remains_); }

Status Session::open(std::shared_ptr<PinnedPool> ready) {
  if (shared_.spares == nullptr) (void)contexts_.make_current(0u);
  Result<PreparedSegment> prepared = shared_.spares != nullptr
                                         ? shared_.spares->take(client_.id)
                                         : SpareSegments::make(driver(), client_.id);
  if (!prepared.ok()) return prepared.error();
  segment_ = std::move(prepared->segment);
  registered_ = prepared->registered;
  segment_registered_ = true;
  copies_.more_chunks().count_in(shared_.host, client_.id);
  copies_.open(registered_, prepared->more_chunks);
  copies_.use_lanes(shared_.copies, &lanes_, client_.id, client_.needs, [this] {
    return [this, gpu = contexts_.gpu(), call = record_->call, sequence = record_->sequence](
               CUresult error) { late_error(gpu, error, call, sequence); };
  });
  launches_.use(shared_.launches,
                {client_.id, &stats_.records, &copies_.asked(), &steps_, client_.needs.slo_ns},
                [this] { lanes_.nudge(); });
  deadlines_.use(
      shared_.slices, shared_.launches,
      {client_.id, client_.needs.slo_ns, client_.sm_percent == 0, shared_.keep_slices_ns});
  contexts_.placement().use(shared_.slices, {client_.id, client_.sm_percent, client_.priority},
                            [this](uint32_t gpu, bool apart) { launches_.set_apart(gpu, apart); });
  if (Status status = pinned_.open(client_.id, client_.window, client_.slot, std::move(ready));
      !status.ok())
    return status;
  contexts_.open();
  if (shared_.blocks != nullptr)
    offers_ = shared_.blocks->join({client_.id, client_.window, account_}, segment_);
  memory_.set_offers(offers_.get());
  residency_.open(shared_.evictor, shared_.blocks, shared_.copies,
                  {client_.id, client_.pid, client_.name, account_, [this] { lanes_.nudge(); }},
                  offers_.get(), shared_.gpus.count());
  residency_.lazy().open(client_.id, shared_.lazy_backing);
  memory_.set_source(&residency_.lazy());
  reader_ = std::make_unique<shared::RingReader>(segment_);
  shared::proxy_store_spin(segment_.header(), shared_.spin_us);
  if (shared_.posted != nullptr) shared_.posted->join(client_.id, poster());
  return {};
}

Status Session::start() {
  shared::proxy_store_state(segment_.header(), abi::ProxyState::kRunning);
  thread_ = std::make_unique<Thread>();
  started_ = true;
  try {
    thread_->thread = std::thread([this] {
      char name[16];
      std::snprintf(name, sizeof(name), "tube-%lu", client_.id);
      pthread_setname_np(pthread_self(), name);
      run();
    });
  } catch (const std::system_error& error) {
    started_ = false;
    return errorf("no thread can be started for it: %s", error.what());
  }
  return {};
}

void Session::request_stop(abi::ProxyState state) {
  if (state != abi::ProxyState::kRunning) shared::proxy_store_state(segment_.header(), state);
  stop_.store(true, std::memory_order_release);
  shared::wake_reader(segment_.header());
}

void Session::look_again() { shared::wake_reader(segment_.header()); }

void Session::join() {
  (void)ends_within(UINT64_MAX);
  if (thread_ != nullptr && thread_->thread.joinable()) thread_->thread.join();
}

void Session::end() {
  join();
  teardown();
}

bool Session::ends_within(uint64_t timeout_ns) {
  if (thread_ == nullptr || !thread_->thread.joinable()) return true;
  // A hostile client may have put the thread to sleep again behind the stop's wake-up.
  constexpr uint64_t kAgainNs = 50'000'000;
  const uint64_t begin_ns = now_ns();
  while (shared::atomic(over_).load(std::memory_order_acquire) == 0) {
    if (now_ns() - begin_ns > timeout_ns) return false;
    futex_wait(&over_, 0, kAgainNs);
    if (!stopping()) continue;
    shared::wake_reader(segment_.header());
    let_waits_pass();
  }
  return true;
}

void Session::begin_thread() {
  log_within(&log_);
  cpu_.begin(client_.pid);
  contexts_.begin_thread();
  this_caller().owner = client_.id;
  (void)contexts_.make_current(0u);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
}

void Session::run() {
  begin_thread();
  const auto lives = [](void* session, bool socket_says) {
    return static_cast<Session*>(session)->client_alive(socket_says);
  };
  shared::Peer peer{.socket_fd = socket_.get(),
                    .header = &segment_.header(),
                    .stop = &stop_,
                    .second_opinion = lives,
                    .opinion_context = this,
                    .nudged = &lanes_.nudged()};
  begin_known();
  bool looked = false;
  shared_.activity.awake.fetch_add(1, std::memory_order_relaxed);
  while (!stop_.load(std::memory_order_relaxed)) {
    executing_.store(true, std::memory_order_relaxed);
    bool went_on = false;
    if (!contained("a record", [&] {
          went_on = (residency_.asked() && residency_.serve()) || go_on_parked() || step() ||
                    held_go_on();
          if (!went_on && copies_.unmarked() && !soon_a_record(kNextCallNs)) copies_.mark();
          if (went_on) rest_if_due();
        }))
      poison(abi::PoisonReason::kLimit, "the proxy could not go on with it");
    executing_.store(false, std::memory_order_relaxed);
    if (went_on) {
      // A client that sends records has taken its locks: from here on they decide whether it lives,
      // and whether anybody still maps its pinned memory.
      if (!looked) {
        (void)client_alive(true);
        pinned_.look();
      }
      looked = true;
      continue;
    }
    if (stop_.load(std::memory_order_relaxed)) break;
    share_spinning();
    if (!sleep_beside_holds(peer)) continue;
    idle_.store(true, std::memory_order_relaxed);
    expect_a_record(peer);
    if (residency_.on()) residency_.sleeps(now_ns());
    const shared::WaitResult waited = reader_->wait(waiter_, peer, &shared_.activity.awake);
    idle_.store(false, std::memory_order_relaxed);
    if (waited != shared::WaitResult::kDone) break;
    // Not work: who looks changes nothing about who was at work lately.
    if (look_.answer([this] { return has_work(); }) && !reader_->has_record()) continue;
    woke(peer);
  }
  stop_.store(true, std::memory_order_relaxed);
  shared_.activity.awake.fetch_sub(1, std::memory_order_relaxed);
  teardown();
  log_within(nullptr);
  if (shared_.ended) shared_.ended(client_.id);
  shared::atomic(over_).store(1, std::memory_order_release);
  futex_wake(&over_, 1);
}

void Session::drain_for_test() {
  this_caller().owner = client_.id;
  (void)contexts_.make_current(0u);
  while (!stopping() && (go_on_parked() || step() || lanes_.any() || launches_.holding())) {
  }
  runs_.end();
}

// One record; false when there is none.
bool Session::step() {
  switch (reader_->next()) {
    case shared::RingReader::Next::kEmpty: return false;
    case shared::RingReader::Next::kBad:
      poison(abi::PoisonReason::kBadRecord, reader_->bad_reason());
      return false;
    case shared::RingReader::Next::kRecord:
      if (parked_.any() && keep_back()) return true;
      execute(reader_->header(), reader_->payload());
      if (again_ || ends_later_) keep_executed();
      reader_->consume();
      return true;
  }
  return false;
}

void Session::execute(const abi::RecordHeader& header, std::span<const std::byte> payload) {
  record_ = &header;
  again_ = ends_later_ = stays_behind_all_ = changes_named_ = false;
  ranges_.at_record(header.sequence);
  const uint64_t seen_ns = trace_ != nullptr ? now_ns() : 0;
  call_.store(header.call, std::memory_order_relaxed);
  Stats::add(stats_.records);
  Stats::add(stats_.record_bytes, header.size_bytes);
  if (header.call < wire::kCallCount) Stats::add(stats_.calls[header.call]);
  CUresult result = CUDA_SUCCESS;
  reply_.start(0);
  if (runs_.on()) runs_.before(header);
  ContextShare* share = context();
  if (share == nullptr) {
    result = CUDA_ERROR_INVALID_CONTEXT;
  } else if (uint32_t failed = shared_.gpus[share->gpu].failed.load(std::memory_order_relaxed);
             failed != 0 && wire::properties_of(header.call).needs_gpu) {
    result = static_cast<CUresult>(failed);
    shared::proxy_store_sticky_error(
        segment_.header(), failed);  // this session may have come to the GPU after its death
  } else {
    if (contexts_.comes_home(header.context, *share))
      this_caller().works_on(shared_.gpus[share->gpu].device);
    result = contexts_.make_current(*share);
    if (residency_.lacks() && result == CUDA_SUCCESS) {
      result = residency_.before(wire::Call{header.call}, payload);
      if (result == CUDA_SUCCESS) result = contexts_.make_current(*share);
    }
    if (result == CUDA_SUCCESS && !contained(wire::call_name(header.call), [&] {
          result = dispatch(*this, header, payload, reply_);
        })) {
      reply_.start(0);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && waits_for_memory(header)) {
      again_ = true;
      result = CUDA_SUCCESS;
    }
    take_fds_back();
    if (result != CUDA_SUCCESS) report_if_sticky(share->gpu, result);
  }
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) Stats::add(stats_.errors);
  if (!poisoned() && !again_) {
    if (header.reply_slot != abi::kNoReply) {
      Stats::add(stats_.round_trips);
      Stats::add(stats_.reply_bytes, reply_.bytes().size());
      if (header.call < wire::kCallCount) Stats::add(stats_.waited_calls[header.call]);
      if (result != CUDA_SUCCESS)
        settle(header, payload);  // before the client can use the word or chunk for something else
      shared::complete_reply(segment_, header.reply_slot, header.sequence, result, reply_.bytes());
    } else if (result != CUDA_SUCCESS) {
      log_debug("%s (pid %d): posted %s failed: %s", client_.name.c_str(), client_.pid,
                wire::call_name(header.call), result_text(driver(), result).c_str());
      shared::proxy_store_async_error(
          segment_.header(), {static_cast<uint32_t>(result), header.call, header.sequence});
      settle(header, payload);
    }
  }
  if (trace_ != nullptr) trace_->add(header.call, seen_ns, now_ns());
}

// Every session of that GPU gets to see it. This session stores it before anything tells its
// client that the call is over, even if another one reported first.
void Session::report_if_sticky(uint32_t gpu, CUresult error) {
  if (!is_sticky(error) || !shared_.gpu_failed) return;
  shared_.gpu_failed(gpu, error, client_.id);
  known_.faulted(result_text(driver(), error), notes_.in_flight());
  if (const uint32_t failed = shared_.gpus[gpu].failed.load(std::memory_order_relaxed);
      failed != 0) {
    shared::proxy_store_sticky_error(segment_.header(), failed);
  }
}

// A record failed whose effect somebody waits for: the GPU will not write the word or hand the
// chunk back, so we do. An error of a posted call is stored by now: a client that sees the word
// looks for it.
void Session::settle(const abi::RecordHeader& header, std::span<const std::byte> payload) {
  const wire::Completion& completes = wire::properties_of(header.call).completes;
  const auto read = [&]<class T>(T value, uint32_t at) {
    if (at + sizeof(value) <= payload.size())
      std::memcpy(&value, payload.data() + at, sizeof(value));
    return value;
  };
  const uint32_t untrusted_index = read(uint32_t{UINT32_MAX}, completes.index_at);
  switch (completes.what) {
    case wire::Completes::kNothing: return;
    case wire::Completes::kWord: {
      const uint64_t untrusted_value = read(uint64_t{0}, completes.value_at);
      if (!shared::valid_word(untrusted_index) || untrusted_value >= limits::kWordValue) return;
      return shared::proxy_completes_word(segment_.word(untrusted_index), untrusted_value);
    }
    case wire::Completes::kChunk: {
      const auto untrusted_state =
          static_cast<wire::ChunkBecomes>(read(uint32_t{0}, completes.value_at));
      if (untrusted_index >= copies_.chunks() || !is_valid(untrusted_state)) return;
      return shared::store_word(segment_.chunk_state(untrusted_index),
                                static_cast<uint64_t>(untrusted_state));
    }
  }
}

// A launch that was held, or a copy in its lane, failed: its call returned long ago.
void Session::late_error(uint32_t gpu, CUresult error, uint32_t call, uint64_t sequence) {
  Stats::add(stats_.errors);
  report_if_sticky(gpu, error);
  shared::proxy_store_async_error(segment_.header(),
                                  {static_cast<uint32_t>(error), call, sequence});
}

// Launches are held and the ring is empty: looks a little longer for the next record. False when
// nothing was held.
bool Session::held_go_on() {
  if (!runs_.holding()) return false;
  const uint64_t end = now_ns() + runs_.patience_ns();
  while (now_ns() < end && !stop_.load(std::memory_order_relaxed)) {
    if (step()) return true;
  }
  runs_.give_up();
  return true;
}

StreamOp Session::stream_op(uint64_t untrusted_id, StreamUse use) {
  StreamOp op;
  op.state = contexts_.stream(untrusted_id, record_->context, &op.error);
  return enter(op, use);
}

StreamOp Session::point_op(uint64_t untrusted_id, StreamUse use) {
  if (untrusted_id != wire::kEndedStreams) return stream_op(untrusted_id, use);
  StreamOp op;
  op.state = contexts_.ended_streams(record_->context, &op.error);
  return enter(op, use);
}

// Everything that stands in front of an operation on the stream that was found.
StreamOp Session::enter(StreamOp op, StreamUse use) {
  if (op.state == nullptr) return op;
  ContextShare* share = context(op.state->context);
  if (share != nullptr) contexts_.keep_in_place(*op.state, *share, [&] { runs_.drop(*op.state); });
  op.stream = op.state->stream;
  if (share == nullptr) return op;
  // A stream of another GPU than the caller's: its events must come from its own context.
  if (runs_.on()) runs_.make_way(*op.state, *share);
  op.error = contexts_.make_current(*share);
  if (op.error == CUDA_SUCCESS)
    op.error = contexts_.put_in_order(*op.state, *share, use, record_->sequence);
  if (op.error == CUDA_SUCCESS && use == StreamUse::kWork && copies_.owes_wait(*op.state))
    op.error = copies_.wait_for_uploads(*op.state);
  return op;
}

StreamOp Session::launch_op(uint64_t untrusted_stream, bool plain) {
  if (!runs_.on()) return stream_op(untrusted_stream);
  StreamOp op;
  op.state = contexts_.stream(untrusted_stream, record_->context, &op.error);
  if (op.state == nullptr) return op;
  StreamState& stream = *op.state;
  ContextShare* share = context(stream.context);
  if (share != nullptr) contexts_.keep_in_place(stream, *share, [&] { runs_.drop(stream); });
  plain = plain && share != nullptr && runs_.may_hold(stream, *share);
  // What has to be put in front of the launch comes behind what is held.
  if (!plain || share->order.concerns_others(stream, share->legacy.get()) ||
      copies_.owes_wait(stream))
    op = stream_op(untrusted_stream);
  if (!plain || op.error != CUDA_SUCCESS) return op;
  op.stream = stream.stream;
  op.error = contexts_.make_current(*share);
  if (op.error == CUDA_SUCCESS)
    op.error = contexts_.put_in_order(stream, *share, StreamUse::kWork, record_->sequence);
  if (op.error != CUDA_SUCCESS) return op;
  runs_.begin(stream);
  op.in_run = true;
  return op;
}

CUresult Session::check_device_range(uint64_t untrusted_address, uint64_t untrusted_bytes) {
  if (untrusted_bytes == 0) return CUDA_SUCCESS;
  return ranges_.covers(untrusted_address, untrusted_bytes) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult Session::check_target_range(uint64_t untrusted_address, uint64_t untrusted_bytes,
                                     const Range** range) {
  if (untrusted_bytes == 0) return CUDA_SUCCESS;
  const Range* const found = ranges_.covering(untrusted_address, untrusted_bytes);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (range != nullptr) *range = found;
  return ranges_.read_only(untrusted_address, untrusted_bytes) ? CUDA_ERROR_NOT_PERMITTED
                                                               : CUDA_SUCCESS;
}

// A record that comes again finds the files again that it took.
void Session::take_fds_back() {
  if (again_) std::move(lent_fds_.begin(), lent_fds_.end(), std::back_inserter(waiting_fds_));
  lent_fds_.clear();
}

UniqueFd Session::take_fd(uint64_t token) {
  while (true) {
    for (auto it = waiting_fds_.begin(); it != waiting_fds_.end(); ++it) {
      if (it->first != token) continue;
      UniqueFd fd = std::move(it->second);
      waiting_fds_.erase(it);
      if (waits_for_memory(*record_))
        lent_fds_.emplace_back(token, UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)));
      return fd;
    }
    if (waiting_fds_.size() >= limits::kWaitingFds) return UniqueFd();
    Result<shared::TokenFd> next = shared::receive_fd(socket_.get(), 0);
    if (!next.ok()) return UniqueFd();
    if (is_scarce(next->fd.get())) {
      log_warn(
          "a file of function '%s' (pid %d) is refused: the proxy has no file descriptors left",
          client_.name.c_str(), client_.pid);
      continue;
    }
    waiting_fds_.emplace_back(next->token, std::move(next->fd));
  }
}

Status Session::give_fd(uint64_t token, int fd) {
  return shared::send_fd(socket_.get(), token, fd, shared::SendMode::kNeverBlock);
}

void Session::poison(abi::PoisonReason reason, const char* text) {
  if (poisoned_.exchange(true)) return;
  log_error("function '%s' (pid %d) is cut off: %s (record %lu, call %s)", client_.name.c_str(),
            client_.pid, text, record_ != nullptr ? record_->sequence : 0,
            record_ != nullptr ? wire::call_name(record_->call) : "none");
  shared::proxy_store_state(segment_.header(), abi::ProxyState::kPoisoned, reason);
  stop_.store(true, std::memory_order_release);
}

void Session::store_sticky(CUresult error, const std::string& why) {
  if (!segment_.valid()) return;
  shared::proxy_store_fault(segment_.fault_text(), why);
  shared::proxy_store_sticky_error(segment_.header(), static_cast<uint32_t>(error));
}

void Session::launched(StreamState& stream, const std::string* kernel) {
  if (stream.note == nullptr) stream.note = notes_.add();
  stream.note->launched(kernel);
}

void Session::marked(StreamState& stream, uint32_t word, uint64_t value) {
  stream.mark(record_->sequence, word, value);
  if (stream.note != nullptr) stream.note->marked(&segment_.word(word), value);
}

}  // namespace tube::proxy
