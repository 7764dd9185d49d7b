// One function process: its ring, its objects, its memory, on one thread.
//
// The thread copies a record out of the ring, checks it, executes it on the GPU's shared context
// and answers if somebody waits. It never waits for the GPU except where a handler says so. The
// server makes a session after the handshake, asks it to stop (request_stop: the client hung up, or
// the proxy ends) and joins it; before the thread ends it gives back everything the client owned
// (teardown.cc).
//
// What handlers and generated code use is marked HANDLER below; all of it is for the session
// thread. What the server and the control socket use is marked SERVER; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policies/rhythm.h"
#include "protocol/handle_id.h"
#include "proxy/common/activity.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/cpu_watch.h"
#include "proxy/common/dev_resources.h"
#include "proxy/common/log_budgets.h"
#include "proxy/common/reservations.h"
#include "proxy/common/stats.h"
#include "proxy/common/support.h"
#include "proxy/evict/known_function.h"
#include "proxy/evict/residency.h"
#include "proxy/launch/launch_notes.h"
#include "proxy/memory/block_pool.h"
#include "proxy/memory/deferred_frees.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/host_pages.h"
#include "proxy/memory/imports.h"
#include "proxy/memory/pinned.h"
#include "proxy/memory/ranges.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/copies.h"
#include "proxy/session/deadline_watch.h"
#include "proxy/session/event_shares.h"
#include "proxy/session/graph_objects.h"
#include "proxy/session/lane_copies.h"
#include "proxy/session/long_launches.h"
#include "proxy/session/objects.h"
#include "proxy/session/output.h"
#include "proxy/session/parked_records.h"
#include "proxy/session/parked_waits.h"
#include "proxy/session/runs.h"
#include "proxy/session/stream_state.h"
#include "proxy/session/user_objects.h"
#include "proxy/session/work_look.h"
#include "proxy/store/lost_seals.h"
#include "proxy/store/store_client.h"
#include "proxy/waits/external_waits.h"
#include "proxy/waits/host_calls.h"
#include "proxy/waits/own_waits.h"
#include "proxy/waits/pending_waits.h"
#include "proxy/waits/posted_records.h"
#include "sharedmem/life_lock.h"
#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace tube::shared {
class RingReader;
}

namespace tube::proxy {

struct Driver;
class CopyEngine;
class DeviceOutput;
class GpuSlices;
class Gpus;
class HostBudget;
class ImageStore;
class ModuleCache;
class Janitor;
class LaunchTurns;
class PinnedPools;
class RecordTrace;
class SpareSegments;

// What every session of a proxy shares.
struct Shared {
  const Driver& driver;
  Gpus& gpus;
  MemoryMap& memory;
  ImageStore& images;
  ModuleCache& modules;
  uint32_t spin_us = 0;
  uint64_t coalesce_ns =
      0;  // how long launches that may become a graph are held (coalescer.h); 0: never
  // A driver call of a session found the GPU's context dead. Any thread.
  std::function<void(uint32_t gpu, CUresult error, uint64_t session)> gpu_failed;
  // The session's thread is at its end; the server joins it. Any thread.
  std::function<void(uint64_t session)> ended;
  EventShares events = {};
  SpareSegments* spares = nullptr;  // nullptr: each session makes its segment itself (unit tests)
  Janitor* janitor =
      nullptr;  // nullptr: nobody waits for streams whose work does not end (unit tests)
  DeviceOutput* output =
      nullptr;  // nullptr: what kernels print is not sorted by client (unit tests)
  uint32_t cores =
      0;  // among which spinning is shared out (policies/spin.h); 0: spin_us for everybody
  bool rhythm = false;                         // steps that come in a rhythm are watched for
  Activity activity{};                         // among which spinning is shared out, too
  uint32_t teardown_ms = limits::kTeardownMs;  // how long a dead client's work may still run
  CopyEngine* copies = nullptr;                // nullptr: every copy goes on its client's stream
  BlockPool* blocks = nullptr;                 // nullptr: no GPU memory is held ready (unit tests)
  LaunchTurns* launches = nullptr;             // nullptr: launches are not measured or held
  GpuSlices* slices = nullptr;                 // nullptr: every kernel may run on all of its GPU
  Store* store = nullptr;                      // nullptr: there is none (unit tests)
  PinnedPools* pinned = nullptr;    // nullptr: no pinned memory is made ahead (unit tests)
  Evictor* evictor = nullptr;       // nullptr: no memory leaves a GPU (unit tests)
  HostBudget* host = nullptr;       // nullptr: host memory is not counted (unit tests)
  PostedRecords* posted = nullptr;  // nullptr: who finds no memory asks once (unit tests)
  bool lazy_backing = false;        // allocations begin as promises (lazy_blocks.h)
  KnownFunctions known{};           // whose memory is backed by address
  uint64_t keep_slices_ns = 0;      // DeadlineWatch::Client::keep_ns
  policies::WaitRoom wait_room{};   // for waits of programs (parked_waits.h)
};

template <class T>
struct Resolved {
  CUresult error = CUDA_SUCCESS;
  T handle{};
};

struct Client {
  uint64_t id = 0;
  int pid = 0;
  uint32_t slot = 0;  // pinned slot
  uint32_t window = 0;
  std::string name;                                  // the function's
  policies::FunctionNeeds needs{};                   // as it said
  uint64_t memory_bytes = policies::kNoMemoryLimit;  // the limit that its program wishes for
  uint32_t sm_percent = 0;                           // of a GPU, as a slice of its own; 0: none
  policies::LaunchPriority priority = policies::LaunchPriority::kNormal;
  bool lazy_memory = false;  // it wishes its memory to be backed by address
};

class Session {
 public:
  Session(Shared& shared, Client client, UniqueFd socket);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // ---- SERVER ----
  // Makes the shared files and registers them with the driver. `ready`: pinned memory that another
  // client left in this one's slot. Error: worded for the client's Welcome.
  Status open(std::shared_ptr<PinnedPool> ready = nullptr);
  const shared::Segment& segment() const { return segment_; }
  int pinned_fd() const { return pinned_.fd(); }
  int socket_fd() const { return socket_.get(); }
  // Starts the thread; an error, worded for the client's Welcome, when there is none to be had.
  // `socket` and the files stay the session's.
  Status start();
  // The thread ends after the record in hand. `state` is what the client reads in its segment.
  void request_stop(abi::ProxyState state);
  // A sleeping session looks again whether its client lives.
  void look_again();
  // The client is gone or the proxy ends: nobody writes any more what the client's streams wait
  // for. If the session is in a driver call that waits for these streams, this lets them go on, as
  // far as plain stores can: a step each time. Objects that the client has sealed behind work which
  // does not end by itself are lost before that, so the first steps may only wait for their moment.
  // Does nothing while it executes no record, nor once the session tears down, which does the same
  // more thoroughly.
  void let_waits_pass();
  void join();
  // The same for a session whose client never came: what it has is given back.
  void end();
  // Whether the thread comes to its end in that time; only then join() does not wait.
  bool ends_within(uint64_t timeout_ns);
  // Runs the loop on the caller's thread until the ring is empty, without sleeping. Tests and
  // fuzzing.
  void drain_for_test();
  void teardown_for_test() { teardown(); }
  // Whether the client still lives, whatever its socket says (sharedmem/life_lock.h).
  bool client_alive(bool socket_says) { return life_.alive(segment_.fd(), socket_says); }
  // The GPU's context is dead: the client reads why, and the error; its calls fail.
  void store_sticky(CUresult error, const std::string& why);
  bool has_used(uint32_t gpu) const { return contexts_.has_used(gpu); }

  const Client& client() const { return client_; }
  const Stats& stats() const { return stats_; }
  // How waits ended: the client's own word for it, and the session's.
  abi::WaitCounters& client_waits() const { return segment_.wait_counters(); }
  abi::WaitCounters& session_waits() { return stats_.waits; }
  Stats& stats() { return stats_; }
  uint64_t device_bytes() const { return memory_.bytes(); }
  // To which all GPU memory of the client is charged.
  MemoryAccount& account() const { return *account_; }
  // nullptr: there is no pool.
  const BlockOffers* offers() const { return offers_.get(); }
  uint32_t allocation_count() const { return memory_.count(); }
  uint64_t pinned_bytes() const { return pinned_.bytes() + host_pages_.bytes(); }
  uint32_t object_count(wire::Kind kind) const { return objects_.count(kind); }
  uint64_t started_ns() const { return started_ns_; }
  // Asks a session that sleeps whether work of its client is outstanding (work_look.h): the
  // question's number. Another thread than its own.
  uint32_t ask_for_work() {
    const uint32_t question = look_.ask();
    lanes_.nudge();
    return question;
  }
  const WorkLook& look() const { return look_; }
  // What its thread uses of a core.
  const CpuWatch& cpu() const { return cpu_; }
  // Asleep for want of records.
  bool idle() const { return idle_.load(std::memory_order_relaxed); }
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }
  bool poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
  // The client is gone and none of its work runs any more: what is left of the teardown waits for
  // others only.
  bool work_is_over() const { return work_is_over_.load(std::memory_order_acquire); }
  // True after the end when the client left before its work was done (killed, or it did not wait).
  bool unfinished() const { return unfinished_.load(std::memory_order_relaxed); }
  // True after the end when GPU work is left: the pinned slot must not be given out again.
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }
  uint32_t current_gpu() const { return contexts_.gpu(); }
  // After the end: pinned memory that is still registered; the slot is taken as long as it lives.
  std::shared_ptr<PinnedPool> take_pinned_remains();
  // Names of the kernels that may not be over. Any thread.
  std::vector<std::string> in_flight() const { return notes_.in_flight(); }
  LaunchNotes& notes() { return notes_; }
  // What its thread does, as of a moment ago (server/watchdog.h).
  struct Doing {
    bool executing = false;  // a record, which may stand in a driver call
    uint32_t call = 0;       // of the last record
    uint64_t records = 0;    // that it has begun
  };
  Doing doing() const {
    return {executing_.load(std::memory_order_relaxed), call_.load(std::memory_order_relaxed),
            stats_.records.load(std::memory_order_relaxed)};
  }

  // ---- HANDLER ----
  const Driver& driver() const { return shared_.driver; }
  Shared& shared() { return shared_; }
  Objects& objects() { return objects_; }
  Ranges& ranges() { return ranges_; }
  DeviceMemory& memory() { return memory_; }
  DeferredFrees& deferred_frees() { return deferred_; }
  PinnedSlot& pinned() { return pinned_; }
  Imports& imports() { return imports_; }
  HostPages& host_pages() { return host_pages_; }
  // nullptr: the client never asked for the store.
  StoreClient* store() { return store_.get(); }
  // nullptr: this proxy has none.
  StoreClient* open_store() {
    if (store_ == nullptr && shared_.store != nullptr)
      store_ = std::make_unique<StoreClient>(
          *shared_.store, ranges_, client_.id, client_.window,
          client_.name + " (pid " + std::to_string(client_.pid) + ")");
    return store_.get();
  }
  // Streams that are held until the client's own seal of an object, which is kept back, has come
  // by: their keys, by the object's slot.
  std::multimap<uint32_t, ParkKeys>& behind_seals() { return behind_seals_; }
  GraphMemory& graph_memory() { return graph_memory_; }
  UserObjectEnds& user_object_ends() { return user_object_ends_; }
  Reservations& reservations() { return reservations_; }
  const abi::RecordHeader& record() const { return *record_; }
  // What the record does next waits for its turn, and its stream is held: it is executed again when
  // that is let go. Its handler knows how far it is, and returns CUDA_SUCCESS.
  void come_again() { again_ = true; }
  // For records that are tried first (wire::Behind::kTried). True: something is kept back that may
  // rely on what the record changes; it comes again behind that, and its handler returns
  // CUDA_SUCCESS.
  bool stay_behind_all();
  // The same, and the client is told CUDA_SUCCESS at once.
  bool end_behind_all();
  // For a record that changes the objects which it names, although they are not marked so. True:
  // something that is kept back names them; it comes again behind that.
  bool change_named();
  // The record was kept back before: nothing that it stays behind is there any more.
  bool was_kept() const { return going_on_; }

  // What the session is made of.
  ContextShares& contexts() { return contexts_; }
  Runs& runs() { return runs_; }
  Copies& copies() { return copies_; }
  const Copies& copies() const { return copies_; }
  Output& output() { return output_; }
  ParkedRecords& parked() { return parked_; }
  ParkedWaits& parked_waits() { return parked_waits_; }
  HostCalls& host_calls() { return host_calls_; }
  // Whether the current record, which waits for all work of its GPU, is to come again.
  bool waits_for_own();
  // The same for one that changes the objects which it names, although they are not marked so.
  bool waits_for_own_changing() { return changes_named_ = waits_for_own(); }
  LongLaunches& long_launches() { return launches_; }
  const LongLaunches& long_launches() const { return launches_; }
  const DeadlineWatch& deadlines() const { return deadlines_; }
  Residency& residency() { return residency_; }
  const Residency& residency() const { return residency_; }
  KnownFunction& known() { return known_; }

  // The driver's handle behind a client's id; the driver's own code when there is none.
  template <class T>
  Resolved<T> resolve(wire::Kind kind, uint64_t untrusted_id) {
    Object* object = objects_.find(kind, untrusted_id);
    if (object == nullptr)
      return {wire::part_of_graphs(kind) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE,
              T{}};
    return {CUDA_SUCCESS, object->handle<T>()};
  }
  // The stream an operation goes to, with the legacy ordering in place (stream_order.h). Ask right
  // before the operation.
  StreamOp stream_op(uint64_t untrusted_id, StreamUse use = StreamUse::kWork);
  // The same for a record that marks a point in a stream: it may name wire::kEndedStreams.
  StreamOp point_op(uint64_t untrusted_id, StreamUse use);
  // CUDA_ERROR_INVALID_VALUE unless the client owns every byte: device or pinned memory, a mapping,
  // a module's variable.
  CUresult check_device_range(uint64_t untrusted_address, uint64_t untrusted_bytes);
  // The same for memory that is about to be written, and CUDA_ERROR_NOT_PERMITTED where the GPU
  // may only read: there a write would end this process, or the shared context. *range: the first
  // that the bytes lie in.
  CUresult check_target_range(uint64_t untrusted_address, uint64_t untrusted_bytes,
                              const Range** range = nullptr);

  // The context share of the record. nullptr: no such context.
  ContextShare* context() { return contexts_.of_record(record_->context); }
  ContextShare* context(uint32_t untrusted_number) { return contexts_.find(untrusted_number); }
  // Resources and descriptions of SMs, as the driver gave them; ids count from 1.
  DevResources& dev_resources() { return dev_resources_; }
  // Frees everything made in the context; the created ones are then unknown, the primary ones start
  // anew.
  void sweep_context(uint32_t number, bool forget);
  bool captures() const { return contexts_.captures(); }

  // Asks the driver for GPU memory with `take`; when there is none, or a limit is in the way, again
  // without objects of the store that can be elsewhere, without what the client's session keeps of
  // it, and then without what the pool holds.
  template <class Take>
  CUresult take_memory(uint32_t gpu, Take take) {
    return take_memory_at_last(gpu, kBlockBytes, take);
  }
  // Asks again behind what others have posted (posted_records.h).
  template <class Take>
  CUresult take_memory_at_last(uint32_t gpu, uint64_t bytes, Take take) {
    CUresult error = take_memory_once(gpu, bytes, take);
    if (error == CUDA_ERROR_OUT_OF_MEMORY && settle_posted(gpu, bytes))
      error = take_memory_once(gpu, bytes, take);
    return error;
  }
  template <class Take>
  CUresult take_memory_once(uint32_t gpu, uint64_t bytes, Take take) {
    deferred_.collect();
    return or_without_pool(gpu, [&] {
      CUresult error = take();
      if (error == CUDA_ERROR_OUT_OF_MEMORY && shared_.store != nullptr &&
          account_->own_fits(gpu, bytes))
        error = shared_.store->make_room(static_cast<int>(gpu), bytes, take);
      if (error == CUDA_ERROR_OUT_OF_MEMORY && memory_.free_empty_slabs()) error = take();
      return error;
    });
  }
  // The same, and then waits for others' memory to move to the host. The caller knows how much it
  // asks for.
  template <class Take>
  CUresult take_memory(uint32_t gpu, uint64_t bytes, Take take) {
    const auto once = [&] { return take_memory_once(gpu, bytes, take); };
    const CUresult error = take_memory_at_last(gpu, bytes, take);
    if (error != CUDA_ERROR_OUT_OF_MEMORY || !residency_.on()) return error;
    return make_room(gpu, bytes, once);
  }
  CUresult make_room(uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take);
  // Before so much memory is refused. False: asking again is of no use.
  bool settle_posted(uint32_t gpu, uint64_t bytes);
  // A driver call that may need GPU memory; when there is none, once more without what the pool
  // holds. A limit has had that given back by itself.
  template <class Call>
  CUresult or_without_pool(uint32_t gpu, Call call) {
    const uint64_t seen = shared_.memory.budgets().times_given_back();
    const uint64_t refusals = account_->refusals();
    CUresult error = call();
    if (error == CUDA_ERROR_OUT_OF_MEMORY && shared_.blocks != nullptr &&
        account_->refusals() == refusals) {
      (void)shared_.blocks->make_room(gpu, nullptr, seen, [&] {
        error = call();
        return error != CUDA_ERROR_OUT_OF_MEMORY;
      });
    }
    return error;
  }

  // A progress word, and its address as the GPU sees it. The index is checked by the caller.
  CUdeviceptr word_address(uint32_t word) const { return registered_ + shared::word_offset(word); }
  uint64_t& word(uint32_t word) { return segment_.word(word); }
  // The fd the client announced under `token` (handshake.h). Invalid when there is none.
  UniqueFd take_fd(uint64_t token);
  Status give_fd(uint64_t token, int fd);
  uint64_t next_fd_token() { return ++fd_token_; }

  // Ends the session: the client broke the protocol. `text` goes to the log.
  void poison(abi::PoisonReason reason, const char* text);
  // stream_op() for a launch. `plain`: it may be held; then `in_run` says that it goes through
  // runs().launch().
  StreamOp launch_op(uint64_t untrusted_stream, bool plain);
  // A kernel goes to the stream; `kernel` names it and outlives the session.
  void launched(StreamState& stream, const std::string* kernel);
  // The GPU writes `value` to the word behind all work of the stream so far.
  void marked(StreamState& stream, uint32_t word, uint64_t value);
  // What the kernels of the client's graphs need of a GPU: an instance brings them there
  // (calls/modules.h).
  struct GraphNeeds {
    uint32_t runtime = 0;      // of kernels that came since the last instance was made or changed
    uint32_t local_bytes = 0;  // the most of any that ever came
  };
  GraphNeeds& graph_needs() { return graph_needs_; }
  // Whether there are nodes of graphs, in a graph, an instance or a capture.
  bool has_graphs() const {
    return captures() || objects_.count(wire::Kind::kGraph) != 0 ||
           objects_.count(wire::Kind::kGraphExec) != 0;
  }
  // Storage of unloaded modules' managed variables, in the pinned slot. It goes to nobody before
  // the client's streams are idle: an unload waits for nothing here, and a kernel that still runs
  // would write into the next module's variables. 0: there is none.
  void leave_variables(uint64_t storage) {
    if (storage != 0) left_variables_.push_back(storage);
  }
  std::vector<uint64_t>& left_variables() { return left_variables_; }
  // Frees an object of `kind` with the driver and forgets it (teardown.cc).
  // CUDA_ERROR_INVALID_HANDLE when unknown.
  CUresult destroy_object(wire::Kind kind, uint64_t untrusted_id);
  // Waits until the client's streams are idle: false when they are not within `timeout_ms`.
  // `release`: nobody answers their waits any more, so they are let pass until the end.
  bool wait_idle(uint32_t timeout_ms, bool release = false);
  // Unmaps the buffers of external memory that were mapped in the context
  // (calls/external_objects.cc).
  void free_external_buffers(uint32_t context);
  // A stream was told to wait for a value in the client's memory.
  void remember_wait(PendingWait wait);
  // It was told to wait for semaphores of another API.
  void remember_external_wait(const StreamOp& op, std::span<const uint64_t> semaphores,
                              std::span<const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> params) {
    external_waits_.add(driver(), op.stream, op.state->context, semaphores, params);
  }

 private:
  void begin_thread();
  void run();
  void lose_promises(uint32_t gpu, CUresult error);
  PostedRecords::Poster poster();
  Residency::Hooks residency_hooks();
  std::vector<std::string> settle();
  void begin_known();
  void end_known(bool idle);
  void share_spinning();
  void expect_a_record(shared::Peer& peer);
  bool soon_a_record(uint64_t within_ns);
  bool step();
  void execute(const abi::RecordHeader& header, std::span<const std::byte> payload);
  bool keep_back();
  void mark_ahead(const abi::RecordHeader& header, std::span<const std::byte> payload);
  bool waits_for_memory(const abi::RecordHeader& header) const;
  void keep_executed();
  void take_fds_back();
  bool at_rest();
  bool has_work();
  bool go_on_parked();
  bool may_watch() const;
  bool watches_lane();
  bool sleep_beside_holds(shared::Peer& peer);
  void ask_for_host_calls(uint64_t now_ns);
  void woke(const shared::Peer& peer);
  void rest_for_others();
  void rest_if_due() {
    if (cpu_.due(stats_.records.load(std::memory_order_relaxed))) rest_for_others();
  }
  bool wait_for_room();
  ParkKeys keys_of(const abi::RecordHeader& header, std::span<const std::byte> payload);
  void report_if_sticky(uint32_t gpu, CUresult error);
  CUresult query(const StreamState& state, uint32_t gpu);
  void settle(const abi::RecordHeader& header, std::span<const std::byte> payload);
  bool held_go_on();
  StreamOp enter(StreamOp op, StreamUse use);
  void late_error(uint32_t gpu, CUresult error, uint32_t call, uint64_t sequence);
  void teardown();
  void pass_segment_on();
  void take_copies_back();
  bool gives_everything_back();
  void give_everything_back();
  void free_mappings();
  void leave_streams();
  void give_segment_back();
  void release_waiters();
  void release_external_waits();
  bool others_see(const Range& range);
  bool come_idle();
  void drop_own_streams(ContextShare& share);
  void leave_stream(StreamState& stream);
  CUresult enter_context_of(wire::Kind kind, const Object& object);
  CUresult end_with_driver(wire::Kind kind, Object& object);
  void teardown_objects(bool idle);
  void sweep_kind(wire::Kind kind, uint32_t context);
  void forget_graph(wire::Kind kind, uint64_t id);  // what hangs on a graph or an instance

  Shared& shared_;
  Client client_;
  const std::shared_ptr<MemoryAccount> account_;
  UniqueFd socket_;
  shared::Segment segment_;
  bool segment_registered_ = false;
  bool segment_goes_back_ = false;   // to the spares, registered as it is
  bool segment_used_again_ = false;  // and from there to another function
  CUdeviceptr registered_ = 0;       // of segment_.registered()
  std::unique_ptr<shared::RingReader> reader_;
  shared::Waiter waiter_;
  policies::Rhythm rhythm_;        // of its records, seen by this thread
  uint64_t watched_ns_ = 0;        // when it woke by itself to watch for the next; 0: it did not
  bool resting_ = false;           // since its last record
  uint64_t watches_since_ns_ = 0;  // for what lanes say; 0: not since a record woke it
  shared::LifeWatch life_;
  struct Thread;
  std::unique_ptr<Thread> thread_;
  bool started_ = false;  // before that, the server may still answer the client on the socket

  Runs runs_;  // outlives the streams
  Objects objects_;
  ContextShares contexts_;
  Copies copies_;
  Output output_;
  ParkedRecords parked_{{limits::kParkedRecords, limits::kParkedBytes}};
  LaneCopies lanes_;
  ParkedWaits parked_waits_;
  OwnWaits own_waits_;
  HostCalls host_calls_;
  StepTimes steps_;
  DeadlineWatch deadlines_;
  LongLaunches launches_;
  Residency residency_;
  KnownFunction known_;
  PendingWaits waits_;  // outlives the ranges: hears of their ends
  Ranges ranges_;
  std::shared_ptr<BlockOffers> offers_;
  DeviceMemory memory_;
  DeferredFrees deferred_;
  PinnedSlot pinned_;
  std::shared_ptr<PinnedPool> pinned_remains_;
  bool work_is_lost_ = false;  // of a context that was freed: its streams no longer tell of its end
  Imports imports_;
  HostPages host_pages_;
  std::unique_ptr<StoreClient> store_;
  GraphMemory graph_memory_;
  UserObjectEnds user_object_ends_;
  Stats stats_;
  std::unique_ptr<RecordTrace> trace_;
  GraphNeeds graph_needs_;
  std::multimap<uint32_t, ParkKeys> behind_seals_;
  Reservations reservations_;
  ExternalWaits external_waits_;
  std::vector<uint64_t> left_variables_;
  std::vector<std::pair<uint64_t, UniqueFd>> waiting_fds_;
  std::vector<std::pair<uint64_t, UniqueFd>> lent_fds_;  // copies for a record that may come again
  uint64_t fd_token_ = 0;

  ReplyBuffer reply_;
  const abi::RecordHeader* record_ = nullptr;
  bool again_ = false;  // it is not done (come_again())
  bool stays_behind_all_ = false;
  bool changes_named_ = false;
  bool ends_later_ = false;  // the same, and its client was answered
  bool going_on_ = false;    // was_kept()
  DevResources dev_resources_;

  uint32_t over_ = 0;  // futex; 1 when the thread is at its end
  std::atomic<bool> stop_{false};
  std::atomic<bool> idle_{false};
  std::atomic<bool> executing_{false};  // may stand in a driver call for a record
  std::atomic<uint32_t> call_{0};       // the record's
  std::atomic<bool> poisoned_{false};
  std::atomic<bool> work_is_over_{false};
  std::atomic<bool> unfinished_{false};
  std::atomic<bool> abandoned_{
      false};  // GPU work did not end: memory, slot and segment stay for good
  LogBudget log_{kClientLogBurst, kClientLogPerSecond, &log_budgets().clients};
  LaunchNotes notes_;
  WorkLook look_;
  CpuWatch cpu_;
  uint64_t started_ns_ = 0;
  bool torn_down_ = false;
  std::mutex passing_;  // before the store's: let_waits_pass() and the members below
  bool tearing_down_ = false;
  LostSeals lost_seals_;
};

}  // namespace tube::proxy
