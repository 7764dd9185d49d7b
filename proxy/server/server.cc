#include "proxy/server/server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "base/cache_dir.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory_room.h"
#include "base/runtime_dir.h"
#include "base/scope_guard.h"
#include "policies/memory/address_windows.h"
#include "protocol/device_info.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/version.h"
#include "proxy/gpu/driver_log.h"
#include "sharedmem/greeting.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kSourceShift = 56;  // in epoll's 64 bits: above, what it is, below, which one
constexpr int kStateMs = 1;            // between looks whether functions have said what they do
constexpr int kDoubtMs = 2;
constexpr int kPlaceMs = 100;  // between looks whether who waits for a place can have one, or
                               // should be turned away after all
constexpr int kGateMs = 250;   // between looks who stands at the context gate
constexpr uint64_t kRestNs = 1'000'000'000;  // without functions: then what they left is given back
// In waits of its teardown: for a session's end four, and as long again as one of them for calls
// that wait for the context.
constexpr uint64_t kStopWaits = 5;
constexpr uint32_t kCloseMs = 10'000;  // for what all of them left
constexpr uint32_t kRoomMs = 15'000;   // more than the janitor's patience

}  // namespace

Server::Server(const Driver& driver, Gpus& gpus, ServerOptions options)
    : driver_(driver),
      gpus_(gpus),
      options_(std::move(options)),
      host_(options_.host, available_memory_bytes),
      arena_(driver, options_.evict.host_bytes, &host_, &gpus.registrations()),
      memory_(driver, gpus),
      blocks_(memory_, gpus, options_.pool_bytes, options_.pool_policy),
      evictor_(driver, memory_, blocks_, arena_, options_.evict),
      posted_(options_.evict.wait_ns),
      store_(driver, memory_, [this](uint32_t gpu) { return blocks_.budget_bytes(gpu); }),
      kernels_(kernel_record_path(options_.workflow)),
      modules_(driver, gpus, options_.share_modules,
               [this](uint32_t wait_ms) {
                 janitor_.wake(Janitor::Need::kNow);
                 return wait_ms != 0 && janitor_.finish(wait_ms);
               }),
      spares_(driver, gpus, options_.spares,
              [this](bool too_many) {
                janitor_.wake(too_many ? Janitor::Need::kNow : Janitor::Need::kAnyTime);
              }),
      pinned_(driver, gpus, options_.pinned, [this](bool now) { return give_back_pinned(now); }),
      copies_(driver, gpus, options_.copies, &memory_),
      turns_(driver, gpus, options_.launches),
      slices_(driver, gpus),
      shared_{driver,
              gpus,
              memory_,
              images_,
              modules_,
              options_.spin_us,
              uint64_t{options_.coalesce_us} * 1000,
              [this](uint32_t gpu, CUresult error, uint64_t session) {
                gpu_failed(gpu, error, session);
              },
              [this](uint64_t session) {
                {
                  std::lock_guard lock(mutex_);
                  done_.push_back(session);
                }
                ring();
              },
              {},
              &spares_,
              &janitor_,
              options_.output},
      stopped_(uint64_t{options_.stopped_s} * 1'000'000'000),
      silent_(uint64_t{options_.hang_s} * 1'000'000'000),
      started_ns_(now_ns()),
      slots_(limits::kClients, Place::kFree),
      watchdog_(uint64_t{options_.stall_s} * 1'000'000'000,
                [this](std::vector<Watchdog::Subject>& subjects) { return gather(subjects); }),
      janitor_(driver, gpus,
               {[this] { (void)contained("the janitor", [this] { collect_remains(); }); },
                [this] { clean_up(); },
                [this] { (void)contained("the janitor", [this] { cleaned_up(); }); },
                [this] { return copies_in_flight(); }}) {
  mind_the_gate();
  share_the_rest();
}

// What sessions share that is there only now.
void Server::share_the_rest() {
  shared_.cores = options_.cores_to_share;
  shared_.rhythm = options_.rhythm;
  // What tells of an end must find room when memory has run out.
  done_.reserve(limits::kClients);
  doubtful_.reserve(size_t{4} * limits::kClients);
  dying_.reserve(size_t{2} * limits::kClients);
  modules_.note_to(&memory_.budgets().events());
  if (options_.keeps_record) {
    kernels_.read();
    modules_.use_record(&kernels_);
  }
  shared_.host = &host_;
  images_.count_in(&host_);
  spares_.count_in(&host_);
  pinned_.count_in(&host_);
  store_.count_in(&host_);
  shared_.pinned = &pinned_;
  gpus_.registrations().look_at([this](uint64_t owner) { return company(owner); });
  shared_.blocks = &blocks_;
  shared_.store = &store_;
  if (options_.copies.use != policies::LaneUse::kNever) shared_.copies = &copies_;
  store_.set_up(options_.store, shared_.copies);
  shared_.launches = &turns_;
  gpus_.gate().set_quiet_moments(&turns_);
  turns_.meet(copies_.machine());
  if (evictor_.on()) shared_.evictor = &evictor_;
  shared_.posted = &posted_;
  evictor_.on_functions([this] { ahead_.look(); });
  shared_.lazy_backing = options_.lazy_backing;
  shared_.known = {.profile = options_.profile,
                   .pool = options_.pool_policy == policies::PoolPolicy::kDemand};
  if (!options_.profile.empty()) shared_.known.log = &DriverLog::listen(driver_);
  shared_.slices = &slices_;
  shared_.keep_slices_ns = options_.keep_slices_ns;
  shared_.wait_room = options_.wait_room;
  if (options_.slices_at_start) slices_.make_all();
  shared_.teardown_ms = options_.teardown_ms;
  memory_.budgets().set_limits(options_.memory);
  memory_.budgets().set_function_limit(options_.function_memory);
}

bool Server::copies_in_flight() const {
  return shared_.copies != nullptr && shared_.copies->any_lane_busy();
}

// Registrations' look_at(). Any thread.
policies::Company Server::company(uint64_t owner) const {
  if (shared_.activity.alone(owner, now_ns())) return policies::Company::kNone;
  return copies_in_flight() || shared_.activity.awake.load(std::memory_order_relaxed) != 0
             ? policies::Company::kAtWork
             : policies::Company::kBetween;
}

// PinnedPools' `surplus`.
bool Server::give_back_pinned(bool now) {
  janitor_.wake(now ? Janitor::Need::kNow : Janitor::Need::kAnyTime);
  return now && janitor_.finish(kRoomMs, Janitor::Refused::kWaitOn);
}

Server::~Server() {
  (void)close();
  gpus_.gate().set_quiet_moments(nullptr);
  gpus_.registrations().look_at({});
  gpus_.gate().on_standing({});
}

// From sessions' threads and the janitor's: the server has something to look at in reap().
void Server::ring() {
  const uint64_t one = 1;
  (void)!write(ended_fd_.get(), &one, sizeof(one));
}

Status Server::watch(int fd, Source source, uint64_t id, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << kSourceShift | id;
  if (epoll_ctl(epoll_fd_.get(), operation, fd, &event) != 0)
    return errno_error(errno, "epoll_ctl");
  return {};
}

Status Server::listen() {
  Result<UniqueFd> info = gpus_.make_info_file(options_.workflow, options_.is_sim);
  if (!info.ok()) return info.error();
  info_ = info.take();
  info_bytes_ =
      info::info_bytes(gpus_.count() < info::kMaxDevices ? gpus_.count() : info::kMaxDevices);
  epoll_fd_.reset(epoll_create1(EPOLL_CLOEXEC));
  ended_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  signal_fd_.reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!epoll_fd_.valid() || !ended_fd_.valid() || !signal_fd_.valid())
    return errno_error(errno, "epoll, eventfd or signalfd");
  socket_path_ = data_socket_path(options_.runtime_dir, options_.workflow);
  control_path_ = control_socket_path(options_.runtime_dir, options_.workflow);
  Inheritance& old = options_.inherited;
  names_are_ours_ = !old.valid();
  Result<UniqueFd> data = old.valid() ? Result<UniqueFd>(UniqueFd(old.data))
                                      : shared::listen_unix(socket_path_, SOCK_SEQPACKET);
  if (!data.ok()) return data.error();
  listen_fd_ = data.take();
  Result<UniqueFd> control = old.valid() ? Result<UniqueFd>(UniqueFd(old.control))
                                         : shared::listen_unix(control_path_, SOCK_STREAM);
  if (!control.ok()) return control.error();
  control_fd_ = control.take();
  socket_file_ = shared::socket_file(socket_path_);
  control_file_ = shared::socket_file(control_path_);
  if (Status s = listen_for_proxies(); !s.ok()) return s;
  if (Status s = watch(listen_fd_.get(), Source::kListen, 0, EPOLLIN); !s.ok()) return s;
  if (Status s = watch(control_fd_.get(), Source::kControlListen, 0, EPOLLIN); !s.ok()) return s;
  if (Status s = watch(signal_fd_.get(), Source::kSignal, 0, EPOLLIN); !s.ok()) return s;
  open_door(Source::kListen, listen_fd_.get());
  open_door(Source::kControlListen, control_fd_.get());
  open_doors();
  for (int fd : old.greeting) {
    const Result<shared::PeerCredentials> peer = shared::peer_credentials(fd);
    expect_greeting(UniqueFd(fd), peer.ok() ? peer->pid : 0);
  }
  return watch(ended_fd_.get(), Source::kEnded, 0, EPOLLIN);
}

// Until something is due that nobody tells.
int Server::timeout_ms() const {
  if (any_state_asked()) return kStateMs;
  if (!doubtful_.empty()) return kDoubtMs;
  if (!dying_.empty()) return kDyingMs;
  if (reap_again_) return kDyingMs;
  if (!waiting_.empty() || control_waits_ || !greeting_.empty() || any_door_shut() ||
      any_answer_owed() || any_question_due())
    return kPlaceMs;
  if (gate_stands_) return kGateMs;
  if (alone_since_ns_ == 0) return -1;
  const uint64_t passed_ns = now_ns() - alone_since_ns_;
  return passed_ns < kRestNs ? static_cast<int>((kRestNs - passed_ns) / 1'000'000 + 1) : 0;
}

// Without functions for a while: nobody stands still now while what they left is given back.
void Server::rest() {
  if (alone_since_ns_ == 0 || now_ns() - alone_since_ns_ < kRestNs) return;
  alone_since_ns_ = 0;
  {
    std::lock_guard lock(mutex_);
    resting_ = true;
  }
  janitor_.wake();
}

// What clients owe the server's thread.
void Server::keep_deadlines() {
  if (reap_again_) reap();
  reap_again_ = false;
  drop_silent();
  drop_late_greetings();
  drop_late_questions();
  open_doors();
}

Status Server::run() {
  names_are_ours_ = true;
  spares_.start();
  pinned_.start();
  blocks_.start();
  ahead_.start();
  idle_.start();
  log_within(&log_budgets().server);
  while (!stopping_ && !restarting_) {
    epoll_event events[32];
    watchdog_.round_ends();
    const int count = epoll_wait(epoll_fd_.get(), events, 32, timeout_ms());
    watchdog_.round_begins(now_ns());
    if (count < 0 && errno != EINTR) return errno_error(errno, "epoll_wait");
    rest();
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (!contained("an event of the server", [&] { on_event(tag, events[i].events); }))
        drop_event(tag);
    }
    (void)contained("the server's round", [this] {
      settle_doubts();
      help_the_dying();
      watch_gate();
      end_faulted();
      greet_waiting();
      answer_waiting();
      keep_deadlines();
    });
  }
  watchdog_.round_ends();
  log_within(nullptr);
  if (restarting_ && !stopping_) return {};
  restarting_ = false;
  all_ended_ = stop_sessions();
  return {};
}

void Server::on_event(uint64_t tag, uint32_t events) {
  const uint64_t id = tag & ((uint64_t{1} << kSourceShift) - 1);
  switch (static_cast<Source>(tag >> kSourceShift)) {
    case Source::kListen: accept_function(); break;
    case Source::kControlListen: accept_control(); break;
    case Source::kSignal: told_to_stop(); break;
    case Source::kEnded: reap(); break;
    case Source::kGreeting: greet(id); break;
    case Source::kFunction: function_hung_up(id); break;
    case Source::kProcess: process_ended(id); break;
    case Source::kControl: control_ready(id, events); break;
    case Source::kBrokerListen: accept_proxy(); break;
    case Source::kBroker: proxy_ready(id); break;
  }
}

void Server::drop_event(uint64_t tag) {
  const uint64_t id = tag & ((uint64_t{1} << kSourceShift) - 1);
  switch (static_cast<Source>(tag >> kSourceShift)) {
    case Source::kGreeting: greeting_.erase(id); break;
    case Source::kControl: end_control(id); break;
    case Source::kBroker: brokered_.erase(id); break;
    case Source::kEnded: reap_again_ = true; break;
    case Source::kListen:
    case Source::kControlListen:
    case Source::kSignal:
    case Source::kFunction:
    case Source::kProcess:
    case Source::kBrokerListen: break;
  }
}

Result<uint32_t> Server::choose_window(uint32_t free_windows) {
  std::optional<uint32_t> least;
  uint64_t least_used = 0;
  for (uint32_t candidate = 0; candidate < windows::kCandidates; ++candidate) {
    if ((free_windows & 1u << candidate) == 0 || !memory_.take_window(candidate)) continue;
    const uint64_t used = memory_.used_addresses(candidate);
    if (policies::window_stays_first(used, windows::kDeviceBytes)) return candidate;
    if (least.has_value() && used >= least_used) continue;
    least = candidate;
    least_used = used;
  }
  if (least.has_value()) return *least;
  return errorf(
      "no address window is free in both the proxy and the function (the function offers mask "
      "0x%x); "
      "see the proxy's log for the mapping in the way, or unset the address-space limit (ulimit "
      "-v)",
      free_windows);
}

Status Server::admit(UniqueFd socket, const handshake::Hello& hello, handshake::Refusal* refusal) {
  std::string why;
  Result<shared::PeerCredentials> peer = shared::peer_credentials(socket.get());
  *refusal = handshake::Refusal::kUid;
  if (!peer.ok()) return peer.error();
  if (peer->uid != geteuid())
    return errorf("it runs as user %u, this proxy as %u", peer->uid, geteuid());
  *refusal = shared::check_versions(hello, wire::kProtocolHash, kVersion, &why);
  if (*refusal != handshake::Refusal::kNone) return errorf("%s", why.c_str());
  *refusal = handshake::Refusal::kStopping;
  if (stopping_) return errorf("the proxy is stopping");
  *refusal = handshake::Refusal::kGpu;
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    const uint32_t failed = gpus_[gpu].failed.load();
    if (failed != 0)
      return errorf(
          "GPU %u is in an error state (%s); the proxy starts anew when its last function has left",
          gpu, result_text(driver_, static_cast<CUresult>(failed)).c_str());
  }
  Client client;
  *refusal = handshake::Refusal::kNoWindow;
  Result<uint32_t> window = choose_window(hello.free_windows);
  if (!window.ok()) return window.error();
  client.window = *window;
  client.slot = free_slot();
  std::shared_ptr<PinnedPool> ready = take_ready(client.window, &client.slot);
  *refusal = handshake::Refusal::kTooManyClients;
  if (client.slot >= limits::kClients) return errorf("%s", no_place().c_str());
  client.id = next_id_++;
  client.pid = peer->pid;
  client.name = hello.function_name;
  client.needs = {.slo_ns = std::min(hello.slo_ms, limits::kSloMs) * 1'000'000,
                  .infer_ns = std::min(hello.infer_ms, limits::kSloMs) * 1'000'000};
  client.sm_percent = std::min(hello.sm_percent, 100u);
  client.priority = static_cast<policies::LaunchPriority>(std::clamp(hello.priority, -1, 1));
  if (hello.memory_bytes != 0) client.memory_bytes = hello.memory_bytes;
  client.lazy_memory = hello.lazy_memory != 0;
  *refusal = handshake::Refusal::kOutOfMemory;
  return welcome(client, std::move(socket), std::move(ready));
}

Status Server::welcome(const Client& client, UniqueFd socket, std::shared_ptr<PinnedPool> ready) {
  const int fd = socket.get();
  auto session = std::make_unique<Session>(shared_, client, std::move(socket));
  bool started = false;
  ScopeGuard end_it([&] {  // on every way out that does not keep it
    if (started) session->request_stop(abi::ProxyState::kStopping);
    put_back(*session, std::move(ready));
  });
  if (Status status = session->open(ready); !status.ok()) return status;
  handshake::Welcome answer = shared::make_welcome(wire::kProtocolHash, kVersion);
  answer.session_id = client.id;
  answer.window = client.window;
  answer.client_slot = client.slot;
  answer.device_count = gpus_.count();
  answer.spin_us = options_.spin_us;
  answer.info_bytes = info_bytes_;
  const uint64_t most = session->account().starting_limit();
  answer.memory_bytes = most == policies::kNoMemoryLimit ? 0 : most;
  const int segment_fd = session->segment().fd();
  const int pinned_fd = session->pinned_fd();  // from here on the session's thread may close it
  // Running before the client hears of it, so that it never sees a segment in state kStarting.
  if (Status status = session->start(); !status.ok()) return status;
  started = true;
  Status sent = shared::send_welcome(fd, answer, segment_fd, pinned_fd, info_.get());
  if (sent.ok()) sent = watch(fd, Source::kFunction, client.id, EPOLLRDHUP);
  if (!sent.ok()) return sent;
  watch_process(client.id, client.pid);
  ++sessions_started_;
  log_info("function '%s' (pid %d) joined as session %lu", client.name.c_str(), client.pid,
           client.id);
  alone_since_ns_ = 0;
  watchdog_.wake();
  std::lock_guard lock(mutex_);
  resting_ = false;
  auto& place = sessions_[client.id];
  place = std::move(session);
  end_it.dismiss();
  slots_[client.slot] = Place::kFunction;
  return {};
}

// False: one does not end.
bool Server::stop_sessions() {
  std::map<uint64_t, std::unique_ptr<Session>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(sessions_);
  }
  for (auto& [id, session] : all) session->request_stop(abi::ProxyState::kStopping);
  // Nobody new may come while the old ones leave. Who asks or comes now hears a hang-up, or finds
  // no socket, instead of waiting for an answer that nobody gives: the next proxy waits for this
  // one's end (workflow_owner.h). After the words above, which say why the control socket is gone.
  unlink_sockets();
  control_.clear();
  const uint64_t begin_ns = now_ns();
  const uint64_t stop_ns = kStopWaits * options_.teardown_ms * 1'000'000;
  bool ended = true;
  for (auto& [id, session] : all) {
    const uint64_t gone_ns = std::min(now_ns() - begin_ns, stop_ns);
    ended = session->ends_within(stop_ns - gone_ns) && ended;
  }
  if (!ended) {
    for (auto& [id, session] : all) (void)session.release();  // its thread goes on in the driver
    return false;
  }
  sessions_ended_ += all.size();
  std::lock_guard lock(mutex_);
  for (auto& [id, session] : all) {
    if (auto remains = session->take_pinned_remains())
      retired_pinned_.push_back({session->client().slot, std::move(remains)});
  }
  return true;
}

bool Server::close() {
  const bool ended = stop_sessions() && all_ended_;
  store_.stop_moving();
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  const bool closed = ended && janitor_.finish(kCloseMs);
  unlink_sockets();
  if (closed) {
    memory_.enter_context(0);
    store_.close();
  }
  return closed;
}

void Server::unlink_sockets() {
  if (listen_fd_.valid() && names_are_ours_) shared::unlink_socket(socket_path_, socket_file_);
  if (control_fd_.valid() && names_are_ours_) shared::unlink_socket(control_path_, control_file_);
  listen_fd_.reset();
  control_fd_.reset();
}

}  // namespace tube::proxy
