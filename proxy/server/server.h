// The proxy's one Server: accepts functions and control clients, starts and ends sessions, stops in
// order.
//
// One thread, one epoll: the two listening sockets, every function's socket (only for its hang-up;
// a session reads its own fd messages), the control clients, a signalfd (SIGTERM, SIGINT) and an
// eventfd that sessions ring when they are done. Sessions run on threads of their own and never
// call back except through Shared's two functions. This thread makes no driver call that may wait
// for the whole context: what functions leave behind is given back by the janitor (janitor.h),
// whose work is clean_up().
//
// Locks: `mutex_` (rank 10) guards the session table and the places; it may be held while the
// memory map's (rank 20) is taken.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policies/gate_admission.h"
#include "proxy/code/image_store.h"
#include "proxy/code/module_cache.h"
#include "proxy/common/restart.h"
#include "proxy/copy/copy_engine.h"
#include "proxy/evict/evictor.h"
#include "proxy/evict/host_ahead.h"
#include "proxy/evict/idle_functions.h"
#include "proxy/gpu/gpu_slices.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/janitor.h"
#include "proxy/launch/launch_turns.h"
#include "proxy/memory/broker.h"
#include "proxy/memory/host_arena.h"
#include "proxy/memory/host_budget.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/pinned_pools.h"
#include "proxy/memory/spare_segments.h"
#include "proxy/server/fault_report.h"
#include "proxy/server/use_meter.h"
#include "proxy/server/watchdog.h"
#include "proxy/session/session.h"
#include "proxy/store/store.h"
#include "sharedmem/handshake.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

struct ServerOptions {
  std::string workflow;
  std::string runtime_dir;
  bool is_sim = false;
  uint32_t spin_us = 0;
  uint32_t cores_to_share = 0;  // Shared::cores
  bool rhythm = false;  // functions that work in a rhythm are watched for (policies/rhythm.h)
  uint32_t coalesce_us = 0;
  uint32_t spares = 0;        // segments kept ready (spare_segments.h)
  bool share_modules = true;  // module_cache.h
  bool keeps_record = false;  // kernel_record.h
  Inheritance inherited;      // of the proxy that this one replaces
  int owner = -1;             // own_workflow()'s lock, for a successor; the caller's
  DeviceOutput* output = nullptr;
  // A function that is stopped for so long, and whose stream keeps others from a context-wide call,
  // is ended; 0: none is.
  uint32_t stopped_s = 60;
  uint32_t hang_s = 0;    // the same for one that runs and sends nothing
  uint32_t stall_s = 10;  // after which what makes no progress is told; 0: never
  std::string gpus;       // as asked for, empty: all
  uint32_t teardown_ms = limits::kTeardownMs;  // Shared::teardown_ms
  CopyEngine::Options copies;
  LaunchTurns::Options launches;
  bool slices_at_start = false;    // all parts of GPUs are made before the first function comes
  uint64_t keep_slices_ns = 0;     // Shared::keep_slices_ns
  policies::WaitRoom wait_room{};  // Shared::wait_room
  policies::PinnedBudget pinned;
  uint64_t pool_bytes = 0;       // idle GPU memory to hold, of each GPU (block_pool.h)
  std::vector<uint64_t> memory;  // limits of the workflow: one for all GPUs, or one for each
  uint64_t function_memory = policies::kNoMemoryLimit;  // what each function may take of each GPU
  Evictor::Options evict;
  policies::HostBudget host;
  StoreOptions store;
  bool lazy_backing = true;
  std::string profile{};      // KnownFunctions::profile
  bool end_on_fault = false;  // functions on a dead context are ended, not waited for
  policies::PoolPolicy pool_policy = policies::PoolPolicy::kKeep;
};

class Server {
 public:
  Server(const Driver& driver, Gpus& gpus, ServerOptions options);
  ~Server();

  // Binds both sockets. The error names what is in the way.
  Status listen();
  const std::string& socket_path() const { return socket_path_; }
  // Until SIGTERM, SIGINT or the control verb `stop`, then ends all sessions; or until a GPU's
  // context is dead and no function is left (restart_wanted).
  Status run();
  bool restart_wanted() const { return restarting_; }
  // Ends all sessions and gives everything back to the driver. False: something does not end (a
  // kernel, a wait, a call in the driver); then no destructor may run that needs the driver, this
  // one's included: the process has to end at once.
  bool close();
  // The limits that hold now, `tubectl limit` included: the next proxy's.
  std::vector<uint64_t> memory_limits();
  uint64_t function_memory_limit() { return memory_.budgets().function_limit(); }
  // What the next proxy of this process takes over. The sockets then are no longer the server's.
  Inheritance hand_over();

 private:
  struct StateLook {  // what functions do, as far as they have said (function_states.cc)
    std::map<uint64_t, uint32_t> asked;  // by session, who has not answered: the question's number
    std::set<uint64_t> idle;
    uint64_t until_ns = 0;
  };
  struct ControlClient {
    UniqueFd fd;
    std::string input;
    std::string output;             // of its last answer, what it has not taken
    std::optional<StateLook> look;  // for its next answer
    uint64_t heard_ns = 0;          // of its last request; of its coming when there was none
    uint64_t owed_ns = 0;           // since when there is output
    uint32_t watched = 0;           // epoll's events
    bool ends = false;              // it sends no more
    pid_t pid = 0;
  };
  struct Greeting {  // accepted, Hello not yet here, or not yet read
    UniqueFd fd;
    pid_t pid = 0;
    uint64_t came_ns = 0;
    bool waits = false;  // for a place, or for the next proxy
  };
  struct Brokered {  // another proxy's connection: about one allocation (broker.h)
    UniqueFd fd;
    ShareToken token;
    bool lent = false;
    pid_t pid = 0;
    uint64_t came_ns = 0;
  };
  enum class Source : uint32_t {
    kListen,  // the three listening ones first: they index doors_
    kControlListen,
    kBrokerListen,
    kSignal,
    kEnded,
    kGreeting,
    kFunction,
    kProcess,
    kControl,
    kBroker
  };
  // A listening socket, and until when it is not asked (greetings.cc).
  struct Door {
    int fd = -1;
    uint64_t shut_until_ns = 0;  // 0: it is open
  };

  Status watch(int fd, Source source, uint64_t id, uint32_t events, int operation = EPOLL_CTL_ADD);
  void on_event(uint64_t tag, uint32_t events);
  // What on_event() could not go through with is dropped, or it would be asked for for ever.
  void drop_event(uint64_t tag);

  // greetings.cc
  void open_door(Source source, int fd);
  void shut_door(Source source, bool until_told);
  void open_doors();
  bool any_door_shut() const;
  Result<UniqueFd> accept(Source source);
  void turn_away(Source source, int fd);
  bool has_enough(pid_t pid) const;
  bool place_to_greet();
  void accept_function();
  void expect_greeting(UniqueFd socket, pid_t pid);
  void drop_late_greetings();
  void greet(uint64_t id);

  Status admit(UniqueFd socket, const handshake::Hello& hello, handshake::Refusal* refusal);
  // The rest of admit(): a session for a client that has been checked.
  Status welcome(const Client& client, UniqueFd socket, std::shared_ptr<PinnedPool> ready);
  std::shared_ptr<PinnedPool> take_ready(uint32_t window, uint32_t* slot);
  void put_back(Session& session, std::shared_ptr<PinnedPool> ready);
  Result<uint32_t> choose_window(uint32_t free_windows);
  enum class Place : uint8_t {
    kFree,
    kFunction,
    kPinned,
    kLost
  };  // kPinned: memory of a function that left; kLost: its work does not end
  uint32_t free_slot() const;
  size_t places(Place what) const;
  bool any_ready() const;
  std::string no_place() const;
  bool place_to_come(uint64_t greeting);
  void greet_waiting();
  void function_hung_up(uint64_t id);
  void watch_process(uint64_t id, pid_t pid);
  void process_ended(uint64_t id);
  void settle_doubts();
  void tell_to_end(Session& session, abi::ProxyState state);
  void help_the_dying();
  void look_for_stuck();
  void reap();
  void gpu_failed(uint32_t gpu, CUresult error, uint64_t session);
  void end_faulted();
  nlohmann::json faults();
  void told_to_stop();
  int timeout_ms() const;
  void keep_deadlines();
  void rest();
  void ring();
  bool stop_sessions();
  void unlink_sockets();
  bool has_failed_gpu() const;
  bool give_back_pinned(bool now);
  bool copies_in_flight() const;
  policies::Company company(uint64_t owner) const;
  void share_the_rest();
  void retire_pinned(uint64_t above_bytes, size_t free_slots);
  void collect_remains();
  void clean_up();
  bool nobody_lives();
  void cleaned_up();
  bool about_to_restart();
  bool only_unfinished();

  // gate_watch.cc
  void mind_the_gate();
  void watch_gate();
  void end_function(uint64_t session, const char* why, uint32_t seconds);
  nlohmann::json gate_status();
  bool gather(std::vector<Watchdog::Subject>& subjects);
  nlohmann::json stalls_status();

  // budgets.cc
  nlohmann::json limit(const nlohmann::json& request);
  nlohmann::json limit_workflow(const nlohmann::json& request);
  nlohmann::json limit_function(const nlohmann::json& request);
  nlohmann::json memory_of(const Session& session);
  nlohmann::json memory_status();

  // seen.cc
  nlohmann::json seen(const nlohmann::json& request, pid_t pid);
  nlohmann::json held(const nlohmann::json& request);

  // evicted_status.cc
  nlohmann::json evicted_status();
  nlohmann::json mem_functions(const std::vector<ModuleCache::Use>& code);
  nlohmann::json mem();

  // shares.cc
  Status listen_for_proxies();
  void accept_proxy();
  void proxy_ready(uint64_t id);
  bool place_to_ask(pid_t pid) const;
  void drop_late_questions();
  bool any_question_due() const;
  CUresult lend(Brokered& client, const ShareToken& untrusted_token, BrokerAnswer* answer,
                UniqueFd* fd);

  // control_clients.cc
  void accept_control();
  bool send_answers(ControlClient& client);
  bool answer_next(ControlClient& client);
  bool read_requests(ControlClient& client);
  void control_ready(uint64_t id, uint32_t events);
  void end_control(uint64_t id);
  void drop_silent();
  uint64_t session_cpu_ms() const;
  bool any_answer_owed() const;

  // control.cc
  static bool tells_states(const nlohmann::json& request);
  std::string answer(const nlohmann::json& request, const ControlClient& client);
  nlohmann::json ping();
  nlohmann::json status(const std::set<uint64_t>& idle);
  nlohmann::json gpu_status();
  nlohmann::json place_status();
  nlohmann::json functions(const std::set<uint64_t>& idle);

  // function_states.cc
  StateLook ask_for_states();
  bool states_known(ControlClient& client);
  bool any_state_asked() const;
  void answer_waiting();
  const char* state_of(const Session& session, bool idle) const;

  nlohmann::json copies();
  nlohmann::json registration_status();
  nlohmann::json topo();
  nlohmann::json store_status();
  nlohmann::json budget_status();  // budget_table.cc
  nlohmann::json copies_of(const Session& session);

  // gpu_time.cc
  nlohmann::json gpu_time();
  nlohmann::json time_of(const Session& session);
  nlohmann::json uuids();

  const Driver& driver_;
  Gpus& gpus_;
  ServerOptions options_;
  HostBudget host_;
  HostArena arena_;  // outlives the blocks whose bytes it holds
  MemoryMap memory_;
  BlockPool blocks_;
  Evictor evictor_;
  PostedRecords posted_;
  HostAhead ahead_{driver_, gpus_, evictor_, host_};
  IdleFunctions idle_{gpus_, evictor_};
  Store store_;
  ImageStore images_;
  KernelRecord kernels_;
  ModuleCache modules_;
  SpareSegments spares_;
  PinnedPools pinned_;
  CopyEngine copies_;
  LaunchTurns turns_;
  GpuSlices slices_;
  Shared shared_;
  UniqueFd info_;
  uint64_t info_bytes_ = 0;
  UniqueFd listen_fd_;
  UniqueFd control_fd_;
  UniqueFd broker_fd_;
  UniqueFd signal_fd_;
  UniqueFd ended_fd_;
  UniqueFd epoll_fd_;
  std::string socket_path_;
  std::string control_path_;
  // Somebody may have taken the names away, and a successor have them now.
  shared::SocketFile socket_file_, control_file_;
  std::array<Door, 3> doors_;
  UniqueFd spare_fd_;  // gives way to a connection that is turned away
  std::map<uint64_t, Greeting> greeting_;
  std::map<uint64_t, ControlClient> control_;
  bool control_waits_ = false;  // all places of control_ are taken: who connects now waits
  struct Doubt {
    uint64_t session;
    int looks;
  };
  static constexpr int kDyingMs = 20;  // between two steps of Session::let_waits_pass
  struct Dying {
    uint64_t session;
    uint64_t since_ns;
  };
  std::map<uint64_t, UniqueFd>
      processes_;             // by session: readable once its client process has ended
  std::vector<Dying> dying_;  // told to stop; until they end
  uint64_t next_help_ns_ = 0;
  std::atomic<bool> gate_told_{false};  // somebody stands at the context gate
  bool gate_stands_ = false;            // and still did at the last look
  uint64_t next_gate_look_ns_ = 0;
  policies::StoppedLimit stopped_, silent_;
  std::map<uint64_t, uint64_t> records_seen_;  // of those in others' way, at the last look
  std::vector<Doubt> doubtful_;                // hung up or ended, not yet known to be dead
  std::vector<uint64_t> waiting_;  // of greeting_, for a place that the janitor is about to free
  std::map<uint64_t, uint64_t> waiting_since_ns_;  // by greeting
  std::map<uint64_t, Brokered> brokered_;
  UseMeter meter_;  // under mutex_
  uint64_t next_id_ = 1;
  bool names_are_ours_ = false;  // the sockets': a start that failed leaves the inherited ones
  bool stopping_ = false;
  bool reap_again_ = false;  // it could not go through with it
  bool restarting_ = false;
  uint64_t ending_since_ns_ = 0;  // all functions, because of a fault; 0: they are not
  bool work_is_left_ =
      false;  // of a function that is gone: for all we know the context never comes idle again
  bool all_ended_ = true;  // no session's thread is left in the driver
  uint64_t alone_since_ns_ =
      0;  // when the last function left; 0 once that has had its consequences
  uint64_t started_ns_ = 0;
  uint64_t sessions_started_ = 0;
  uint64_t sessions_ended_ = 0;
  uint64_t sessions_killed_ = 0;  // hung up without their work being over, or cut off

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<Fault> faults_;   // contexts that died, in their order
  std::vector<uint64_t> done_;  // sessions whose thread is at its end; never grows
  std::vector<Place> slots_;    // of pinned memory, one for each function
  struct RetiredPinned {
    uint32_t slot;
    std::shared_ptr<PinnedPool> remains;
  };
  std::deque<RetiredPinned>::iterator leave_to_janitor(
      const std::deque<RetiredPinned>::iterator& retired);
  std::deque<RetiredPinned> retired_pinned_;  // of functions that left, the longest ago first
  std::deque<RetiredPinned> old_pinned_;      // the janitor's to give back
  size_t leaving_ = 0;    // places that it is about to free: old_pinned_, and what it has in hand
  bool resting_ = false;  // no function has been there for a while: all that functions left may go
  bool closing_ = false;  // and everything else

  // The janitor's thread's own: what it has collected and not yet given back.
  struct Remains {
    bool all = false, closing = false;
    std::deque<RetiredPinned> pinned;
  } remains_;

  Watchdog watchdog_;
  Janitor janitor_;  // last, because its work needs everything above
};

}  // namespace tube::proxy
