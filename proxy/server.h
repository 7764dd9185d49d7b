// The proxy's one Server: accepts functions and control clients, starts and ends sessions, stops in order.
//
// One thread, one epoll: the two listening sockets, every function's socket (only for its hang-up; a session reads its own
// fd messages), the control clients, a signalfd (SIGTERM, SIGINT) and an eventfd that sessions ring when they are done.
// Sessions run on threads of their own and never call back except through Shared's two functions.
//
// Locks: `mutex_` (rank 10) guards the session table; it may be held while the memory map's (rank 20) is taken.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "proxy/broker.h"
#include "proxy/gpus.h"
#include "proxy/image_store.h"
#include "proxy/memory_map.h"
#include "proxy/restart.h"
#include "proxy/session.h"
#include "sharedmem/handshake.h"

namespace tube::proxy {

struct ServerOptions {
  std::string workflow;
  std::string runtime_dir;
  bool is_sim = false;
  uint32_t spin_us = 0;
  uint32_t coalesce_us = 0;
  Inheritance inherited;   // of the proxy that this one replaces
  DeviceOutput* output = nullptr;
};

class Server {
 public:
  Server(const Driver& driver, Gpus& gpus, ServerOptions options);
  ~Server();

  // Binds both sockets. The error says who is in the way.
  Status listen();
  const std::string& socket_path() const { return socket_path_; }
  // Until SIGTERM, SIGINT or the control verb `stop`, then ends all sessions; or until a GPU's context is dead and no function is
  // left (restart_wanted).
  Status run();
  bool restart_wanted() const { return restarting_; }
  // What the next proxy of this process takes over. The sockets then are no longer the server's.
  Inheritance hand_over();

 private:
  struct ControlClient {
    UniqueFd fd;
    std::string input;
    std::string output;
  };
  struct Brokered {  // another proxy's connection: about one allocation (broker.h)
    UniqueFd fd;
    ShareToken token;
    bool lent = false;
  };
  enum class Source : uint32_t { kListen, kControlListen, kSignal, kEnded, kGreeting, kFunction, kControl, kBrokerListen, kBroker };

  Status watch(int fd, Source source, uint64_t id, uint32_t events);
  void on_event(uint64_t tag, uint32_t events);
  void accept_function();
  void expect_greeting(UniqueFd socket);
  void greet(uint64_t id);
  Status admit(UniqueFd socket, const handshake::Hello& hello, handshake::Refusal* refusal);
  Result<uint32_t> choose_window(uint32_t free_windows);
  uint32_t free_slot() const;
  void function_hung_up(uint64_t id);
  void settle_doubts();
  void reap();
  void gpu_failed(uint32_t gpu, CUresult error, uint64_t session);
  void stop_sessions();
  bool has_failed_gpu() const;
  bool about_to_restart();

  // broker.cc
  Status listen_for_proxies();
  void accept_proxy();
  void proxy_ready(uint64_t id);
  CUresult lend(Brokered& client, const ShareToken& untrusted_token, BrokerAnswer* answer, UniqueFd* fd);

  // control.cc
  void accept_control();
  void control_ready(uint64_t id, uint32_t events);
  std::string answer(const std::string& line);
  nlohmann::json status();
  nlohmann::json functions();

  const Driver& driver_;
  Gpus& gpus_;
  ServerOptions options_;
  MemoryMap memory_;
  ImageStore images_;
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
  std::map<uint64_t, UniqueFd> greeting_;         // accepted, Hello not yet here
  std::map<uint64_t, ControlClient> control_;
  struct Doubt {
    uint64_t session;
    int looks;
  };
  std::vector<Doubt> doubtful_;                   // hung up, not yet known to be dead
  std::map<uint64_t, Brokered> brokered_;
  uint64_t next_id_ = 1;
  bool stopping_ = false;
  bool restarting_ = false;
  uint64_t started_ns_ = 0;
  uint64_t sessions_started_ = 0;
  uint64_t sessions_ended_ = 0;
  uint64_t sessions_killed_ = 0;                  // hung up without their work being over, or cut off

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<uint64_t> done_;                    // sessions whose thread is at its end
  std::vector<bool> slots_;                       // pinned slots in use
};

}  // namespace tube::proxy
