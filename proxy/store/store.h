// The store of a workflow: named, immutable objects that all functions of the proxy share
// (docs/store.md, docs/decisions/0022-store.md).
//
// An object is reserved, filled by its maker, sealed, taken by whoever knows its name, and deleted:
// by a call, when as many takers as were expected have released it, when its time is over, or, as
// long as it is not sealed, when its maker ends. A deleted object has no name any more and is
// *doomed*; its bytes stay until nobody has it:
//
//   claims   clients said that they hold it (store_client.h); a client's end takes its claims
//   pins     a client has it and has not said so yet (sharedmem/store_abi.h)
//   uses     GPU work behind which it was sealed or released has not ended
//
// Whoever finds all three gone gives the bytes back: the caller that dooms it, the one that drops
// the last claim, and each later request that makes an object, which is also when objects whose
// time is over are found.
//
// An object is in one place, and may have copies in others, which live as long as it does or until
// its memory is wanted. It moves (store_moves.cc) by getting a copy and losing its own place; both
// happen only to what is sealed, written, and in nobody's hands: claims, pins and uses are gone.
// Which object and where to says policies/memory/migration.h; who asks is a session that found no
// GPU memory, or the mover (store_mover.h), which also brings objects back.
//
// Events are the store's own, one for each stream that an object was released behind.
//
// Any thread. `mutex_` (rank 19) guards everything, and is not held across driver calls: what the
// driver has to be asked about is taken out of the lists before. The memory's lock (rank 19) is
// never taken together with it. `moving_` (rank 18) is held while bytes move, `giving_` behind it
// while memory goes back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/cuda_api.h"
#include "base/mapping.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policies/memory/migration.h"
#include "protocol/device_info.h"
#include "protocol/wire.gen.h"
#include "proxy/store/store_exchange.h"
#include "proxy/store/store_index.h"
#include "proxy/store/store_memory.h"
#include "proxy/store/store_mover.h"
#include "proxy/store/store_streams.h"
#include "proxy/store/store_transfer.h"

namespace tube::proxy {

class CopyEngine;
class HostBudget;
class StoreVerifier;
struct Driver;

struct StoreOptions {
  policies::MigrationOrder order = policies::MigrationOrder::kQueue;
  bool moves = true;       // objects leave a GPU whose memory is short
  uint64_t gpu_bytes = 0;  // of each GPU, that it takes without moving objects; 0: all there is
  // Objects whose names begin with one of these may be had by the user's other workflows.
  std::vector<std::string> shared;
  bool verify = false;           // who writes to a sealed object is looked for (store_verifier.h)
  std::string workflow, folder;  // of this proxy, and where the sockets of all are
};

// One client that has opened the store. The pins are the client's to write at any time.
struct StoreMember {
  uint64_t session = 0;
  std::string function;
  UniqueFd fd;
  Mapping pins;  // pin() is one of them
  uint32_t& pin(uint32_t slot) const { return reinterpret_cast<uint32_t*>(pins.data())[slot]; }
  // The store's lock:
  uint32_t made = 0;                                     // by it, and alive
  std::array<uint64_t, info::kMaxDevices> made_bytes{};  // GPU memory of these
  policies::WaitTime waits;                              // of these for their consumers
};

struct StoreRequest {
  wire::StorePlace place = wire::StorePlace::kGpu;
  uint32_t gpu = 0;
  uint32_t window = 0;
  uint64_t bytes = 0;
  uint64_t ttl_ms = 0;
  uint32_t consumers = 0;
  uint64_t most_bytes = ~uint64_t{0};  // of the GPU's memory that this client's objects may take
  // Name, group, dtype, ndim, shape, strides: checked. expires_ns: unless ttl_ms is given.
  abi::StoreBody body{};
};

struct StoreGrant {
  wire::StoreAnswer answer = wire::StoreAnswer::kOk;
  bool own_limit = false;  // kNoMemory for the client's own limit: others' memory is of no use
  uint32_t slot = 0;
  uint64_t generation = 0;
  StorePiece piece;
};

// Where an object is, for a client that claims it.
struct StorePlaceOf {
  uint64_t address = 0, bytes = 0;
  int device = -1;
  uint32_t window = 0;
  struct Copy {
    uint64_t address = 0;
    int device = -1;
  };
  std::array<Copy, abi::kStoreOthers> copies;  // those that are there
  uint32_t copies_count = 0;
};

class Store {
 public:
  Store(const Driver& driver, MemoryMap& map, std::function<uint64_t(uint32_t gpu)> idle_bytes);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Before any session: counts the host memory of objects.
  void count_in(HostBudget* host) { memory_.count_in(host); }
  // Before any session. Bytes that move go through the engine's lanes, until stop_moving();
  // nullptr: there are none.
  void set_up(const StoreOptions& options, CopyEngine* engine);
  // Nothing moves any more when it returns, and other workflows get nothing.
  void stop_moving();
  // Gives all memory back. No session uses the store any more.
  void close();

  // ---- clients (store_client.h); the session's thread, a context is current
  Result<std::shared_ptr<StoreMember>> join(uint64_t session, const std::string& function = {});
  void leave(const std::shared_ptr<StoreMember>& member);
  int index_fd() const { return index_.fd(); }
  int host_fd(uint32_t window) { return memory_.host_fd(window); }
  // The member then holds one claim. Within its own limit objects that it made make room.
  StoreGrant reserve(StoreMember& member, const StoreRequest& request);
  // Its maker has filled it, behind `written` on that stream of its own (nullptr: it has). The
  // maker's claim goes. False: it is none of the member's, or sealed.
  bool seal(StoreMember& member, uint32_t slot, uint64_t generation, CUevent written,
            const StoreStream& on = {});
  // False: the object is gone, which a client that pinned it does not see. Its maker may have it
  // before the seal has come by here.
  bool claim(const StoreMember& member, uint32_t slot, uint64_t generation, StorePlaceOf* place);
  // What a stream has to wait for before it uses the object; nullptr: nothing. The caller's claim
  // keeps it.
  CUevent written(uint32_t slot, uint64_t generation);
  void set_ready(uint32_t slot, uint64_t generation);
  // The object on `device` (-1: host memory). kBusy: a copy is being made there. kNotFound: there
  // is none, and the caller makes it: copied() has to follow.
  struct Copy {
    wire::StoreAnswer answer = wire::StoreAnswer::kOk;
    StorePiece piece;  // of the copy; where the caller makes it to
    StorePiece from;   // the object's own
    uint64_t bytes = 0;
    CUevent written = nullptr;  // nullptr: the copy is there
    SealedOn sealed;            // the object
  };
  // `most_bytes`: of GPU memory, that the caller's copies may have each.
  Copy copy_in(uint32_t slot, uint64_t generation, int device, uint64_t most_bytes);
  // It is on its way, complete when `written` is. False: the object is gone, and the piece with it.
  bool copied(uint32_t slot, uint64_t generation, const StorePiece& piece, CUevent written);
  // It could not be made.
  void not_copied(uint32_t slot, uint64_t generation, const StorePiece& piece);
  // On which the caller makes it.
  StoreStreams& streams() { return streams_; }
  // The copy is there: every client finds it in the index.
  void copy_is_ready(uint32_t slot, uint64_t generation, int device);
  // The event to record behind the work of that stream on an object that the caller has claimed.
  // nullptr: there is none to be had, and the claim has to stay. For nobody's stream (session 0): a
  // new one, for seal().
  CUevent event_for(uint32_t slot, uint64_t generation, const StoreStream& stream);
  // `claims` of the caller's go; `consumed`: so many of its gets are over. An object that its maker
  // gives up unsealed (`consumed` 0) is doomed.
  void release(StoreMember& member, uint32_t slot, uint64_t generation, uint32_t claims,
               uint32_t consumed);
  // A pin went.
  void look(uint32_t untrusted_slot);
  // Wait until other workflows that have them know, at most limits::kBrokerMs.
  wire::StoreAnswer remove(const std::string& name);
  uint32_t remove_group(const std::string& group);
  // What the client has sealed behind work that has not ended. `lose`: then nobody gets it any
  // more. How many there are. Any thread, whatever context is current.
  uint32_t unwritten(uint64_t session, bool lose);
  // Whether the client has sealed something that nobody has seen written yet, and: nobody gets that
  // any more. Without the driver, so it may be written by now. Any thread.
  bool has_unseen(uint64_t session) { return !unseen(session).empty(); }
  void lose_unseen(uint64_t session) { lose(unseen(session)); }
  // Clients that sleep for news: a change then wakes them.
  void waiting(int change) { waiting_.fetch_add(static_cast<uint32_t>(change)); }

  // ---- moving (store_moves.cc); the GPU's context is current
  bool moves() const { return options_.moves; }
  // Memory is short, `take` found none. What the store holds without need goes back to the driver,
  // then objects move elsewhere, until about `bytes` are free, and it is asked again; at last once
  // when nothing here can go. Waits for bytes that move and for memory that others give back.
  // Returns what `take` said last.
  CUresult make_room(int gpu, uint64_t bytes, const std::function<CUresult()>& take);
  // The order in which objects are taken next; those that are not there yet count, too.
  void queue(const std::vector<std::string>& names);

  // ---- objects of other workflows (store_sharing.cc, store_exchange.h)
  // The object "//WORKFLOW/NAME" of another proxy, under that name. The member then holds one
  // claim. Waits for the owner, at most limits::kBrokerMs. kBusy: it is there already.
  StoreGrant import(StoreMember& member, uint32_t window, const std::string& full_name,
                    StorePlaceOf* place);
  // The owner has ended, or the object there. Nobody gets it any more.
  void end_import(uint32_t slot, uint64_t generation);
  // Whether others may have it; then it is claimed until end_loan().
  wire::StoreAnswer lend(const std::string& name, uint32_t* slot, uint64_t* generation);
  // kBusy: its bytes are not written yet.
  wire::StoreAnswer describe_loan(uint32_t slot, uint64_t generation, StoreOffer* offer,
                                  UniqueFd* memory);
  bool is_sealed(uint32_t slot, uint64_t generation);
  void end_loan(uint32_t slot, uint64_t generation, bool consumed);
  // What a thread of the store's does first.
  void enter_thread();

  // The memory behind an object that the caller has claimed, or behind its copy at that address (0:
  // the object's own place), as a descriptor of its own: `bytes` of it, the object at `offset`.
  CUresult export_memory(uint32_t slot, uint64_t generation, uint64_t untrusted_address,
                         UniqueFd* fd, uint64_t* bytes, uint64_t* offset);

  // ---- who writes to sealed objects (store_verifying.cc, store_verifier.h)
  // nullptr: nobody looks.
  StoreVerifier* verifier() { return verifier_.get(); }
  struct Checked {
    StorePiece piece;
    uint64_t bytes = 0;
    bool rests = false;  // the work behind which it was released so far is over
  };
  // Where a sealed object is, which is claimed until end_check(). kBusy: its bytes are on their
  // way; kNotFound: it has ended.
  wire::StoreAnswer begin_check(uint32_t slot, uint64_t generation, Checked* checked);
  void end_check(uint32_t slot, uint64_t generation);
  // The functions that have it, or may, and have not said so yet. Who wrote what the caller has
  // read is among them, or is known by its claim.
  std::vector<std::string> pinning(uint32_t slot);
  // Its bytes changed while `functions` had it.
  void note_changed(uint32_t slot, uint64_t generation, const std::string& functions);

  // ---- statistics; any thread
  struct Seen {
    abi::StoreBody body{};
    abi::StoreState state = abi::StoreState::kFree;
    uint64_t maker = 0;
    uint32_t claims = 0, consumers = 0, consumed = 0;
    uint32_t loans = 0;  // of the claims: other workflows'
    uint32_t turn = policies::kNoTurn;
    uint32_t moves = 0;
    const char* why = "";     // of the last move
    std::vector<int> copies;  // devices
    std::string changed_by;   // behind its seal
  };
  std::vector<Seen> objects();
  struct Counts {
    uint64_t reserved = 0, sealed = 0, claimed = 0, deleted = 0, aborted = 0, expired = 0,
             consumed = 0;
    uint32_t objects = 0, doomed = 0, members = 0, events = 0;
    uint64_t gpu_bytes = 0, host_bytes = 0, idle_bytes = 0, host_held_bytes = 0;
    uint64_t left = 0, left_bytes = 0;          // a GPU, for want of memory
    uint64_t returned = 0, returned_bytes = 0;  // before their turn
    uint64_t fetched = 0, fetched_bytes = 0;    // to where a consumer was that waited for it
    uint64_t imported = 0;                      // from other workflows
    uint64_t lent = 0;                          // to them
    uint64_t changed = 0;                       // behind their seals
  };
  Counts counts();

 private:
  struct Use {
    StoreStream stream;
    CUevent event;
    uint64_t touched = 0;   // the object's, when the event was last handed out
    bool recording = true;  // by its session, which then releases the object
  };
  struct Unseen {  // sealed, and nobody has seen it written
    uint32_t slot;
    uint64_t generation;
    CUevent written;
  };
  struct Held {  // a copy
    StorePiece piece;
    CUevent written = nullptr;
    bool making = false;  // nothing of it is there yet
    bool ready = false;   // the index says so
    bool empty() const { return piece.address == 0 && !making; }
  };
  struct Object {
    abi::StoreState state = abi::StoreState::kFree;
    uint64_t generation = 0;
    StorePiece piece;
    abi::StoreBody body{};
    StoreMember* maker = nullptr;  // nullptr: has left
    uint64_t maker_session = 0;
    uint32_t claims = 0;
    uint32_t loans = 0;  // of these: other workflows'
    uint32_t consumers = 0, consumed = 0;
    CUevent written = nullptr;
    SealedOn sealed;
    bool ready = false;
    std::array<Held, abi::kStoreOthers> copies;
    bool reaping = false;  // somebody asks the driver about it
    bool moving = false;   // somebody moves it
    bool hidden = false;   // sealed, and the index says so when its sum is known
    std::string changed_by;
    std::vector<Use> uses;
    int home = -1;         // where it was put
    uint64_t charged = 0;  // to its maker
    uint64_t used_ns = 0, left_ns = 0;
    uint64_t touched = 0;  // grows with every claim and use
    uint32_t moves = 0;
    bool taken = false;
    const char* why = "";
  };

  static constexpr uint64_t kUnexplained = 32ull << 20;  // the driver refuses what seems to fit

  // The lock is held.
  Object* live(uint32_t untrusted_slot, uint64_t untrusted_generation);
  void count(const StorePiece& piece, bool more);
  static Held* copy_on(Object& object, int device);
  static Held* begin_copy(Object& object, int device);
  void publish(uint32_t slot, Held& copy);
  std::vector<Unseen> unseen(uint64_t session);
  void lose(const std::vector<Unseen>& objects);
  uint64_t host_room() const;
  static uint64_t beyond_own(const StoreMember& member, const StoreRequest& request);
  wire::StoreAnswer admit(const StoreMember& member, const StoreRequest& request) const;
  void admit_again(const StoreMember& member, const StoreRequest& request, StoreGrant* grant);
  void enter(StoreMember& member, const StoreRequest& request, StoreGrant* grant);
  void doom(uint32_t slot);
  void doom_if_consumed(uint32_t slot);
  void doom_for_all(uint32_t slot, std::vector<StoreExchange::Lent>* lent);
  bool held(uint32_t slot) const;
  void find_expired(uint64_t now_ns);
  void tell();
  void give_back(const StorePiece& piece);

  // store_sharing.cc
  bool may_be_shared(const std::string& name) const;
  CUresult map_offer(uint32_t window, const OfferedObject& object, StorePiece* piece);
  CUresult copy_offer(uint32_t window, const OfferedObject& object, StorePiece* piece);
  wire::StoreAnswer enter_import(StoreMember& member, const StoreRequest& request,
                                 StoreGrant* grant);

  // store_moves.cc
  struct Candidate {
    uint32_t slot;
    uint64_t generation;
    policies::StoredObject seen;
  };
  bool in_nobodys_hands(uint32_t slot) const;
  void keep_within(int gpu, uint64_t bytes);
  CUresult take(uint32_t window, int device, uint64_t bytes, StorePiece* piece);
  policies::StoredObject seen(uint32_t slot, int gpu) const;
  std::vector<Candidate> candidates(int gpu, bool returning, const StoreMember* of = nullptr);
  static std::vector<policies::StoredObject> as_seen(const std::vector<Candidate>& candidates);
  bool leave(int gpu, uint64_t bytes, uint64_t least_age_ns, const char* why,
             const StoreMember* of = nullptr);
  bool bring_back(int gpu, uint64_t room);
  StorePiece lose_place(uint32_t slot, int gpu);
  uint64_t leave_one(const Candidate& one, int gpu, const char* why);
  uint64_t drop(const Candidate& one, int gpu, const char* why);
  bool settle(const Candidate& one);
  bool copy_to(const Candidate& one, int device);
  // One step of make_room(). False: nothing can go; then what others were giving back is there.
  bool make_some_room(int gpu, uint64_t bytes);
  // Whether somebody found no memory a moment ago.
  bool is_short(int gpu) const;
  int place_for(int from, uint64_t bytes) const;
  // The mover's: what there is to do now. True: something may be left for later.
  bool tend(int gpu);
  bool tend_all();
  policies::GpuSpace space(int gpu) const;

  void reap();
  bool work_is_over(const Object& object) const;
  // store_events.cc
  CUevent new_event();
  void give(CUevent event);
  CUevent use_of(Object& object, const StoreStream& stream);
  void forget_uses(uint32_t slot, uint64_t generation);
  void end_object(uint32_t slot, std::vector<StorePiece>* gone);

  const Driver& driver_;
  MemoryMap& map_;
  StoreOptions options_;
  StoreMemory memory_;
  std::mutex moving_;  // the next two, and leave()
  // Shared by who gives memory back, from when the store does not count it any more until it is
  // idle or the driver's. Rank 18, after moving_ and before mutex_.
  std::shared_mutex giving_;
  StoreTransfer transfer_;
  StoreStreams streams_;
  std::array<policies::MemoryGrowth, info::kMaxDevices> growth_;
  std::atomic<uint32_t> waiting_{0};
  mutable std::mutex mutex_;
  StoreIndexWriter index_;
  std::deque<Object> objects_;  // by slot
  std::vector<uint32_t> free_slots_;
  std::unordered_map<std::string, uint32_t> by_name_;
  std::vector<uint32_t> doomed_;
  std::vector<std::shared_ptr<StoreMember>> members_;
  std::unordered_map<CUevent, CUcontext> event_contexts_;  // of all of them
  std::unordered_map<CUcontext, std::vector<CUevent>> spare_events_;
  uint64_t next_expiry_ns_ = ~uint64_t{0};
  std::array<uint64_t, info::kMaxDevices> gpu_bytes_{};
  std::array<uint32_t, info::kMaxDevices> arriving_{};  // copies that are being made there
  std::array<std::atomic<uint64_t>, info::kMaxDevices> short_ns_{};  // when make_room() was asked
  std::atomic<bool> away_{false};                                    // some may have to come back
  std::unordered_map<std::string, uint32_t> turns_;                  // as they were told
  Counts counts_;
  StoreMover mover_;
  StoreMember lender_;  // whose claims are other workflows'
  std::unique_ptr<StoreExchange> exchange_;
  std::unique_ptr<StoreVerifier> verifier_;
};

}  // namespace tube::proxy
