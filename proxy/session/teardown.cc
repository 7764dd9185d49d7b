// Giving back what a client owned: at its end, when it destroys a context, and object by object.
//
// Order at the end: let every wait of the client's streams pass (host functions and values that
// never come), wait for its streams for a bounded time, then free graphs before events, events
// before streams, streams before modules, and memory last. If the GPU does not come idle in time,
// whatever it may still use stays allocated on purpose and is logged: freeing memory under a
// running kernel would break other functions. Its streams are handed to the janitor, which waits
// for them (janitor.h).
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope_guard.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/image_store.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/owner.h"
#include "proxy/copy/copy_engine.h"
#include "proxy/gpu/capture.h"
#include "proxy/gpu/device_output.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/janitor.h"
#include "proxy/memory/spare_segments.h"
#include "proxy/session/module_state.h"
#include "proxy/session/record_trace.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"
#include "sharedmem/ring.h"

namespace tube::proxy {

namespace {

// Dependents first.
constexpr wire::Kind kTeardownOrder[] = {
    wire::Kind::kGraphExec,    wire::Kind::kGraph,      wire::Kind::kGraphNode,
    wire::Kind::kUserObject,   wire::Kind::kEvent,      wire::Kind::kExternalSemaphore,
    wire::Kind::kStream,       wire::Kind::kTexRef,     wire::Kind::kKernel,
    wire::Kind::kLibrary,      wire::Kind::kModule,     wire::Kind::kLink,
    wire::Kind::kTexObject,    wire::Kind::kSurfObject, wire::Kind::kMipmappedArray,
    wire::Kind::kArray,        wire::Kind::kMemPool,    wire::Kind::kExternalMemory,
    wire::Kind::kGreenContext,
};

// Belongs to no context natively, and is destroyed whatever is current. What its nodes name
// (memory, code, events) ends with the context, and goes to other programs here: so the driver's
// object ends with it, and the client's id stays until the client destroys it.
// A user object names nothing of the GPU's, and stays whole.
bool keeps_id(wire::Kind kind, const Object& object) {
  return kind == wire::Kind::kGraphExec || (kind == wire::Kind::kGraph && object.owner == 0);
}

// What work that may never end may use, or what the driver destroys only behind all work of the
// context. The streams are the janitor's then.
bool stays_behind_work(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kGraphExec:
    case wire::Kind::kStream:
    case wire::Kind::kLibrary:
    case wire::Kind::kModule:
    case wire::Kind::kTexObject:
    case wire::Kind::kSurfObject:
    case wire::Kind::kArray:
    case wire::Kind::kMipmappedArray:
    case wire::Kind::kMemPool:
    case wire::Kind::kExternalMemory:
    case wire::Kind::kGreenContext: return true;
    case wire::Kind::kEvent:
    case wire::Kind::kGraph:
    case wire::Kind::kGraphNode:
    case wire::Kind::kUserObject:
    case wire::Kind::kTexRef:
    case wire::Kind::kKernel:
    case wire::Kind::kLink:
    case wire::Kind::kMemHandle:
    case wire::Kind::kExternalSemaphore:
    case wire::Kind::kContext:
    case wire::Kind::kCount: break;
  }
  return false;
}

// With the driver. Kinds that die with their owner (kernels, nodes) need nothing.
CUresult destroy_raw(const Driver& driver, wire::Kind kind, const Object& object) {
  switch (kind) {
    case wire::Kind::kStream: return driver.cuStreamDestroy_v2(object.handle<CUstream>());
    case wire::Kind::kEvent: return driver.cuEventDestroy_v2(object.handle<CUevent>());
    // A child graph, or the graph of a capture in progress, belongs to another object.
    case wire::Kind::kGraph:
      return object.owner == 0 ? driver.cuGraphDestroy(object.handle<CUgraph>()) : CUDA_SUCCESS;
    case wire::Kind::kGraphExec: return driver.cuGraphExecDestroy(object.handle<CUgraphExec>());
    case wire::Kind::kMemPool: return driver.cuMemPoolDestroy(object.handle<CUmemoryPool>());
    case wire::Kind::kLink: return driver.cuLinkDestroy(object.handle<CUlinkState>());
    case wire::Kind::kArray: return driver.cuArrayDestroy(object.handle<CUarray>());
    case wire::Kind::kMipmappedArray:
      return driver.cuMipmappedArrayDestroy(object.handle<CUmipmappedArray>());
    case wire::Kind::kUserObject: {
      const uint64_t own = static_cast<const UserObjectState&>(*object.state).own;
      return own == 0 ? CUDA_SUCCESS
                      : driver.cuUserObjectRelease(object.handle<CUuserObject>(),
                                                   static_cast<unsigned>(own));
    }
    case wire::Kind::kGreenContext: return driver.cuGreenCtxDestroy(object.handle<CUgreenCtx>());
    case wire::Kind::kTexRef: return driver.cuTexRefDestroy(object.handle<CUtexref>());
    case wire::Kind::kExternalMemory:
      return driver.cuDestroyExternalMemory(object.handle<CUexternalMemory>());
    case wire::Kind::kExternalSemaphore:
      return driver.cuDestroyExternalSemaphore(object.handle<CUexternalSemaphore>());
    case wire::Kind::kTexObject: return driver.cuTexObjectDestroy(object.handle<CUtexObject>());
    case wire::Kind::kSurfObject: return driver.cuSurfObjectDestroy(object.handle<CUsurfObject>());
    case wire::Kind::kLibrary:  // given back, see destroy_object
    case wire::Kind::kModule:
    case wire::Kind::kMemHandle:
    case wire::Kind::kKernel:
    case wire::Kind::kGraphNode:
    case wire::Kind::kContext:
    case wire::Kind::kCount: break;
  }
  return CUDA_SUCCESS;
}

// The GPU may still write to it. Without a request for memory, which may be what ended the session;
// each of these has taken one of the places for good.
void leave_for_good(shared::Segment segment) {
  alignas(shared::Segment) static std::byte kept[limits::kClients][sizeof(shared::Segment)];
  static std::atomic<uint32_t> count{0};
  new (kept[count++ % limits::kClients]) shared::Segment(std::move(segment));
}

}  // namespace

void Session::leave_stream(StreamState& stream) {
  contexts_.retire(stream);
  if (stream.capture != 0) {  // which ends with it
    forget_capture(*this, stream.capture, stream.captured);
    contexts_.capture_ended();
    stream.capture = 0;
  }
  runs_.drop(stream);
  copies_.forget(stream);
  for (CUevent* event : {&stream.join, &stream.printed}) {
    if (*event != nullptr) driver().cuEventDestroy_v2(std::exchange(*event, nullptr));
  }
}

// Each GPU numbers its texture and surface objects for itself: with another one current the same
// handle is somebody else's.
CUresult Session::enter_context_of(wire::Kind kind, const Object& object) {
  if (kind != wire::Kind::kTexObject && kind != wire::Kind::kSurfObject) return CUDA_SUCCESS;
  const ContextShare* share = context(object.context);
  return share != nullptr ? contexts_.make_current(*share) : contexts_.make_current(object.gpu);
}

CUresult Session::end_with_driver(wire::Kind kind, Object& object) {
  if (CUresult error = enter_context_of(kind, object); error != CUDA_SUCCESS) return error;
  if (std::exchange(object.ended, true)) return CUDA_SUCCESS;
  const bool shared_event =
      kind == wire::Kind::kEvent && !shared_.events.let_go(object.handle<CUevent>());
  const CUresult error = shared_event ? CUDA_SUCCESS : destroy_raw(driver(), kind, object);
  if (kind == wire::Kind::kMemHandle) shared_.memory.release(object.handle<BlockId>());
  return error;
}

void Session::forget_graph(wire::Kind kind, uint64_t id) {
  if (kind == wire::Kind::kGraph) forget_nodes(*this, id);
  if (kind != wire::Kind::kGraphExec) return;
  launches_.forget_graph(id);
  graph_memory_.drop_owner(*this, {kind, id});
}

// For want of memory it may stop in the middle; the next time, at the client's end, it goes on from
// there.
CUresult Session::destroy_object(wire::Kind kind, uint64_t untrusted_id) {
  Object* object = objects_.find_to_end(kind, untrusted_id);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A level or a plane ends with the array it is a part of.
  if (kind == wire::Kind::kArray && object->owner != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (kind == wire::Kind::kStream && !object->ended)
    leave_stream(static_cast<StreamState&>(*object->state));
  if (kind == wire::Kind::kLibrary || kind == wire::Kind::kModule) runs_.forget();
  const CUresult error = end_with_driver(kind, *object);
  if (kind == wire::Kind::kArray || kind == wire::Kind::kMipmappedArray)
    objects_.erase_owned(wire::Kind::kArray, owner_key(kind, untrusted_id));
  forget_graph(kind, untrusted_id);
  if (kind == wire::Kind::kLibrary || kind == wire::Kind::kModule) {
    objects_.erase_owned(wire::Kind::kKernel, owner_key(kind, untrusted_id));
    auto& state = static_cast<ModuleState&>(*object->state);
    for (uint64_t base : state.globals) ranges_.erase(base);
    leave_variables(std::exchange(state.managed.storage, 0));
    for (std::shared_ptr<LoadedModule>* module : {&state.module, &state.before}) {
      if (*module != nullptr) shared_.modules.give_back(client_.id, std::move(*module));
    }
  }
  objects_.erase(kind, untrusted_id);
  return error;
}

// Host functions that nobody will run any more: every wait of a stream on a word of this client is
// satisfied. The value is the largest that a cyclic comparison still counts as reached.
void Session::release_waiters() {
  for (uint32_t word = 0; word < abi::kWordCount; ++word)
    shared::store_word(segment_.word(word), abi::kWordReleased);
}

void Session::let_waits_pass() {
  std::lock_guard lock(passing_);
  if (tearing_down_ || !executing_.load(std::memory_order_relaxed)) return;
  if (shared_.store != nullptr && !lost_seals_.step(*shared_.store, client_.id)) return;
  release_waiters();
  waits_.pass();
}

void Session::remember_wait(PendingWait wait) {
  const Range* range = ranges_.find(wait.address);
  wait.host = range != nullptr && range->kind == RangeKind::kPinned;
  waits_.add(wait, [this] { return wait_idle(0); });
}

// The next value of each external semaphore that a stream waits for. Does not wait for the GPU.
void Session::release_external_waits() {
  if (external_waits_.count() == 0) return;
  const ContextShares::Current before = contexts_.current();
  std::map<uint32_t, CUstream> streams;
  external_waits_.signal_next(driver(), [&](uint32_t number, uint64_t id, uint64_t value) {
    const Object* semaphore = objects_.find(wire::Kind::kExternalSemaphore, id);
    ContextShare* share = context(number);
    if (semaphore == nullptr || share == nullptr || contexts_.make_current(*share) != CUDA_SUCCESS)
      return;
    CUstream& stream = streams[number];
    if (stream == nullptr &&
        driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
      return;
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params{};
    params.params.fence.value = value;
    const auto handle = semaphore->handle<CUexternalSemaphore>();
    (void)driver().cuSignalExternalSemaphoresAsync(&handle, &params, 1, stream);
  });
  for (const auto& [number, stream] : streams) driver().cuStreamDestroy_v2(stream);
  if (before.gpu != ContextShares::Current{}.gpu) (void)contexts_.make_current(before);
}

// As the driver would answer, but a capture is not broken by it.
CUresult Session::query(const StreamState& state, uint32_t gpu) {
  if (captures() && is_capturing(driver(), state.stream))
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const CUresult answer = driver().cuStreamQuery(state.stream);
  report_if_sticky(gpu, answer);
  return answer;
}

bool Session::wait_idle(uint32_t timeout_ms, bool release) {
  if (parked_.holds()) return false;  // some stream has work that the driver does not know
  const uint64_t deadline = now_ns() + uint64_t{timeout_ms} * 1'000'000u;
  const auto idle = [&](const StreamState& state, uint32_t gpu) {
    uint32_t pause_ms = 0;
    while (true) {
      if (release) release_waiters();  // again: a graph writes its step's word anew at every launch
      if (query(state, gpu) != CUDA_ERROR_NOT_READY) return true;  // done, dead, or not to be asked
      if (now_ns() > deadline) return false;
      poll(nullptr, 0, static_cast<int>(pause_ms));  // nobody can wake us
      if (pause_ms < 16) pause_ms = pause_ms == 0 ? 1 : pause_ms * 2;
    }
  };
  return contexts_.all_streams(idle);
}

void Session::sweep_kind(wire::Kind kind, uint32_t context) {
  for (uint64_t id : objects_.ids_to_end(kind)) {
    Object* object = objects_.find_to_end(kind, id);
    if (object == nullptr) continue;  // went with its owner
    if (context == DeviceMemory::kAllContexts) {
      (void)destroy_object(kind, id);
    } else if (object->context == context && keeps_id(kind, *object)) {
      (void)end_with_driver(kind, *object);
      forget_graph(kind, id);
      object->state.reset();
    } else if (object->context == context && kind != wire::Kind::kUserObject) {
      (void)destroy_object(kind, id);
    }
  }
}

void Session::sweep_context(uint32_t number, bool forget) {
  ContextShare* share = context(number);
  if (share == nullptr) return;
  const uint32_t before = contexts_.current().gpu;
  (void)contexts_.make_current(*share);
  deferred_.collect();
  external_waits_.forget(driver(), number);
  if (!wait_idle(shared_.teardown_ms)) {
    log_warn("function '%s': context %u is freed while the GPU still works", client_.name.c_str(),
             number);
    work_is_lost_ = true;
  }
  free_external_buffers(number);
  for (wire::Kind kind : kTeardownOrder) sweep_kind(kind, number);
  drop_own_streams(*share);
  imports_.close_all(number);
  memory_.free_all(number);
  pinned_.free_all(number);
  host_pages_.free_all(number);
  contexts_.drop_green(*share);
  contexts_.forget_limits(*share);
  contexts_.erase(number, !forget);
  if (before != ContextShares::Current{}.gpu) (void)contexts_.make_current(before);
}

void Session::teardown_objects(bool idle) {
  for (wire::Kind kind : kTeardownOrder) {
    if (!idle && stays_behind_work(kind)) continue;
    sweep_kind(kind, DeviceMemory::kAllContexts);
  }
  if (idle) {
    for (auto& [number, share] : contexts_.all()) {
      drop_own_streams(share);
      contexts_.drop_green(share);
      if (share.limits.empty() || contexts_.make_current(share.gpu) != CUDA_SUCCESS) continue;
      contexts_.forget_limits(share);
    }
  }
  if (idle) copies_.far().end();
  runs_.forget();  // the graphs that streams have left: none of them runs
}

void Session::drop_own_streams(ContextShare& share) {
  for (StreamState* own : {share.legacy.get(), share.ended.get()}) {
    if (own == nullptr) continue;
    runs_.drop(*own);
    copies_.forget(*own);
  }
  contexts_.drop_own(share);
}

// Nobody can say when this work ends, but a stream whether it has: while one has not, no call that
// waits for the context must begin without need.
void Session::leave_streams() {
  std::vector<CUstream> left;
  contexts_.all_streams([&](StreamState& stream, uint32_t) {
    runs_.abandon(stream);
    left.push_back(stream.stream);
    return true;
  });
  if (shared_.janitor != nullptr) shared_.janitor->stand_behind(left);
}

// Unregistering would wait for the whole context: the spares' own business, and the janitor's.
void Session::give_segment_back() {
  if (!segment_registered_) return;
  segment_registered_ = false;
  if (shared_.spares == nullptr) {
    driver().cuMemHostUnregister(segment_.registered());
    if (copies_.more_chunks().are_there()) unregister_more_chunks(driver(), segment_);
    return;
  }
  segment_goes_back_ = true;  // by the destructor, when nobody looks at it any more
  segment_used_again_ = !poisoned() && life_.surely_gone(segment_.fd());
}

// Whether memory of the client is other programs' as well. What its streams wait for there is
// theirs to write, and nothing else may.
bool Session::others_see(const Range& range) {
  switch (range.kind) {
    case RangeKind::kOpened:
    case RangeKind::kExternal:
    case RangeKind::kStored:
    case RangeKind::kStoredHost: return true;
    case RangeKind::kRegistered: return host_pages_.shared(range.base);
    case RangeKind::kMapped: return shared_.memory.mapping_is_shared(range.base);
    case RangeKind::kDevice: return shared_.memory.shares().shared(range.base);
    case RangeKind::kPinned:
    case RangeKind::kGlobal:
    case RangeKind::kGraph:
    case RangeKind::kRetired: break;
  }
  return false;
}

// Nobody answers any more what the client's streams wait for. False: some work does not end.
bool Session::come_idle() {
  const auto reach = [this](const PendingWait& wait) {
    if (check_target_range(wait.address, wait.bytes) != CUDA_SUCCESS ||
        others_see(*ranges_.find(wait.address)))
      return PendingWaits::Reach::kNone;
    // Only our own sealed memory file is safe to touch from here.
    const bool pinned = ranges_.find(wait.address)->kind == RangeKind::kPinned;
    return pinned ? PendingWaits::Reach::kHost : PendingWaits::Reach::kGpu;
  };
  // Semaphores at once, too: natively such a wait is gone with its program, and others may be about
  // to enter the driver behind it.
  const auto idle = [this] {
    release_external_waits();
    return wait_idle(0, true);
  };
  const uint64_t deadline = now_ns() + uint64_t{shared_.teardown_ms} * 1'000'000;
  waits_.release(driver(), shared_.teardown_ms, idle, reach);
  if (waits_.count() != 0) {
    // Others may stand in the driver behind these waits for as long as they last, and on a machine
    // without a free core the streams see a value late: longer than for work that the GPU is at.
    log_warn(
        "function '%s' (pid %d) is gone and its GPU work does not end yet: streams wait for values",
        client_.name.c_str(), client_.pid);
    waits_.release(driver(), 2 * shared_.teardown_ms, idle, reach);
  }
  while (external_waits_.count() != 0 && !idle() && now_ns() < deadline) poll(nullptr, 0, 1);
  external_waits_.forget_all(driver());
  const uint64_t now = now_ns();
  return wait_idle(now < deadline ? static_cast<uint32_t>((deadline - now) / 1'000'000) : 0, true);
}

// Each step goes on where it stopped for want of memory, which may be there a moment later: until
// then this thread waits, the session's own.
bool Session::gives_everything_back() {
  const uint64_t deadline = now_ns() + uint64_t{shared_.teardown_ms} * 1'000'000;
  int pause_ms = 1;
  while (!contained("the end of a function", [this] {
    give_everything_back();
    if (store_ != nullptr) store_->leave(!abandoned());
  })) {
    if (!started_ || now_ns() > deadline) return false;
    poll(nullptr, 0, pause_ms);
    pause_ms *= 2;
  }
  return true;
}

void Session::teardown() {
  if (torn_down_) return;
  torn_down_ = true;
  const ScopeGuard left([this] {
    if (shared_.posted != nullptr) shared_.posted->leave(client_.id);
  });
  if (gives_everything_back()) return;
  // What is left stays taken until the proxy starts anew.
  (void)contained("the end of its streams", [this] { leave_streams(); });
  account_->abandon();
  abandoned_.store(true, std::memory_order_relaxed);
  (void)contained("the end of its offers", [this] {
    if (offers_ != nullptr) offers_->close(false);
  });
  pinned_.abandon();
  host_pages_.abandon();
  if (started_) shutdown(socket_.get(), SHUT_RDWR);
}

// Nothing of the client waits in the proxy or its lanes any more.
void Session::take_copies_back() {
  residency_.close();
  parked_.clear();
  copies_.mark();
  lanes_.take_all_back();
  launches_.take_all_back();
  parked_waits_.clear();
  own_waits_.clear();
  contexts_.placement().leave();
  if (shared_.copies == nullptr) return;
  shared_.copies->forget(client_.id);
  shared_.copies->forget(BlockMoves::share_of(client_.id));
}

// Mappings of the client's own, and the addresses that it reserved for them.
void Session::free_mappings() {
  std::vector<Range> mapped;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kMapped) mapped.push_back(range);
  }
  for (const Range& range : mapped) {
    shared_.memory.drop_mapping(range.base);
    ranges_.erase(range.base);
  }
  while (!reservations_.empty()) {
    const auto [base, bytes] = reservations_.first();
    reservations_.remove(base);
    shared_.memory.unreserve(client_.window, base, bytes);
  }
}

void Session::give_everything_back() {
  {
    std::lock_guard lock(passing_);
    tearing_down_ = true;
  }
  if (const auto trace = std::move(trace_)) trace->write(client_.pid);
  waiting_fds_.clear();
  if (!segment_.valid()) return;
  record_ = nullptr;
  runs_.end();
  const bool kept_back = parked_.any();
  take_copies_back();
  const uint32_t gpu = contexts_.current().gpu;
  (void)contexts_.make_current(gpu == ContextShares::Current{}.gpu ? 0 : gpu);
  if (kept_back || (reader_ != nullptr && reader_->has_record()) || !wait_idle(0))
    unfinished_.store(true, std::memory_order_relaxed);
  if (store_ != nullptr) store_->lose_unwritten();
  release_waiters();
  contexts_.end_captures();
  const bool idle = come_idle();
  // Not before the streams are let go: the driver may be full of calls that wait for them.
  copies_.more_chunks().finish();
  work_is_over_.store(idle, std::memory_order_release);
  output_.forget();
  end_known(idle);
  if (offers_ != nullptr) offers_->close(idle);
  deferred_.drop();
  if (idle) {
    graph_memory_.free_all(*this);
    free_external_buffers(DeviceMemory::kAllContexts);
  } else {
    account_->abandon();
    leave_streams();
  }
  teardown_objects(idle);
  if (idle) {
    free_mappings();
    sweep_kind(wire::Kind::kMemHandle, DeviceMemory::kAllContexts);
    imports_.close_all(DeviceMemory::kAllContexts);
    memory_.free_all(DeviceMemory::kAllContexts);
    if (shared_.ended) pinned_remains_ = pinned_.retire(!poisoned() && !work_is_lost_);
    else pinned_.close();
    host_pages_.close();
    give_segment_back();
  } else {
    log_error(
        "function '%s' (pid %d) is gone but its GPU work does not end: %lu bytes of device memory "
        "and %lu of pinned memory stay taken",
        client_.name.c_str(), client_.pid, memory_.bytes(), pinned_.bytes());
    abandoned_.store(true, std::memory_order_relaxed);
    pinned_.abandon();
    host_pages_.abandon();
  }
  if (started_) shutdown(socket_.get(), SHUT_RDWR);
}

// By the destructor, when give_segment_back() has said so.
void Session::pass_segment_on() {
  if (abandoned()) leave_for_good(std::move(segment_));
  if (!segment_goes_back_) return;
  // Nobody asks this session anything any more: now the segment may go to the next one.
  PreparedSegment segment{std::move(segment_), registered_, copies_.more_chunks().are_there()};
  (void)contained("the return of shared memory", [&] {
    if (segment_used_again_) shared_.spares->give_back(std::move(segment));
    else shared_.spares->retire(std::move(segment));
  });
  // Nothing unregisters it any more, so nobody may have its address.
  if (segment.segment.valid()) leave_for_good(std::move(segment.segment));
}

}  // namespace tube::proxy
