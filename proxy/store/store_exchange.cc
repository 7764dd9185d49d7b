#include "proxy/store/store_exchange.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "base/scope_guard.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/descriptors.h"
#include "proxy/memory/broker.h"
#include "proxy/memory/memory_map.h"
#include "proxy/store/store.h"
#include "sharedmem/socket.h"

namespace tube::proxy {
namespace {

constexpr int kPendingMs = 1;  // between looks whether bytes are written that somebody waits for
constexpr int kPauseMs = 100;  // after an exception

// What an owner says about its memory must fit together before anything is mapped by it.
bool sound(const StoreOffer& untrusted) {
  const uint64_t bytes = untrusted.body.bytes;
  const bool gpu = untrusted.place == static_cast<uint32_t>(wire::StorePlace::kGpu);
  if (!gpu && untrusted.place != static_cast<uint32_t>(wire::StorePlace::kHost)) return false;
  if (bytes == 0 || bytes > windows::kDeviceBytes || untrusted.body.ndim > abi::kStoreDims)
    return false;
  if (!gpu) return untrusted.offset <= windows::kPinnedSlotBytes;
  return untrusted.block_bytes != 0 && untrusted.block_bytes % kBlockBytes == 0 &&
         untrusted.block_bytes <= limits::kDeviceBytes &&
         untrusted.offset < untrusted.block_bytes &&
         bytes <= untrusted.block_bytes - untrusted.offset;
}

}  // namespace

bool split_foreign_name(const std::string& full, std::string* workflow, std::string* name) {
  if (!full.starts_with("//")) return false;
  const size_t slash = full.find('/', 2);
  if (slash == std::string::npos || slash + 1 == full.size()) return false;
  *workflow = full.substr(2, slash - 2);
  *name = full.substr(slash + 1);
  return valid_workflow_name(*workflow);
}

Result<OfferedObject> ask_for_object(const std::string& socket_path, const std::string& name) {
  Result<UniqueFd> socket = shared::connect_unix(socket_path, SOCK_SEQPACKET, limits::kBrokerMs);
  if (!socket.ok()) return socket.error();
  if (is_scarce(socket->get())) return errorf("this proxy has no descriptor left for it");
  if (!same_user(socket->get())) return errorf("its owner is another user's process");
  StoreQuestion question{kExchangeMagic, {}};
  std::memcpy(question.name, name.data(), std::min(name.size(), sizeof question.name - 1));
  if (Status sent = shared::send_message(socket->get(), &question, sizeof question); !sent.ok())
    return sent.error();
  OfferedObject object;
  Result<shared::Received> received = shared::receive_message(
      socket->get(), &object.offer, sizeof object.offer, 1, limits::kBrokerMs);
  if (!received.ok()) return received.error();
  const bool whole =
      received->size_bytes == sizeof object.offer && object.offer.magic == kExchangeMagic;
  const bool given = whole && object.offer.answer == 0;
  if (!whole || (given && (received->fds.size() != 1 || !sound(object.offer))))
    return errorf("its owner's answer makes no sense");
  if (!given) return object;
  object.memory = std::move(received->fds[0]);
  object.lease = socket.take();
  return object;
}

// ---- both sides --------------------------------------------------------------------------------

bool StoreExchange::start() {
  if (stopped_) return false;
  if (thread_.joinable()) return true;
  bell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.valid()) return false;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warn("no thread for objects of other workflows: %s", error.what());
    return false;
  }
  return true;
}

void StoreExchange::poke() {
  poked_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  if (bell_.valid()) (void)!write(bell_.get(), &one, sizeof one);
}

void StoreExchange::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  heard_.notify_all();
  poke();
  if (thread_.joinable()) thread_.join();
  while (!askers_.empty()) drop(askers_.begin());
  if (listening_.valid()) (void)unlink(socket_path_.c_str());
  listening_.reset();
}

void StoreExchange::run() {
  store_.enter_thread();
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
    }
    if (!contained("the exchange with other workflows", [this] { turn(); }))
      poll(nullptr, 0, kPauseMs);
  }
}

int StoreExchange::patience_ms() const {
  int patience = -1;
  for (const auto& [id, asker] : askers_) {
    if (asker.asked && !asker.lent) return kPendingMs;
    if (!asker.asked) patience = limits::kBrokerMs;
  }
  return patience;
}

void StoreExchange::turn() {
  std::vector<pollfd> files;
  std::vector<uint64_t> whose;  // of those behind the first two
  files.push_back({bell_.get(), POLLIN, 0});
  // One that has too many askers lets the next ones wait. (poll passes over -1.)
  const bool room = askers_.size() < limits::kStoreLeases;
  files.push_back({room && listening_.valid() ? listening_.get() : -1, POLLIN, 0});
  for (const auto& [id, asker] : askers_) {
    files.push_back({asker.socket.get(), POLLIN, 0});
    whose.push_back(id);
  }
  const size_t leases_at = files.size();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (!lease.named || lease.over) continue;
      files.push_back({lease.socket.get(), POLLIN, 0});
      whose.push_back(id);
    }
  }
  if (poll(files.data(), files.size(), patience_ms()) < 0) return;
  uint64_t rings = 0;
  if (files[0].revents != 0) (void)!read(bell_.get(), &rings, sizeof rings);
  const uint64_t late_ns = now_ns() - uint64_t{limits::kBrokerMs} * 1'000'000;
  for (size_t i = 2; i < leases_at; ++i) {
    const auto found = askers_.find(whose[i - 2]);
    Asker& asker = found->second;
    bool stays = files[i].revents == 0 || hear(found->first, asker);
    if (stays && asker.asked && !asker.lent) stays = lend(asker);
    if (!stays || (!asker.lent && asker.came_ns < late_ns)) drop(found);
  }
  if (files[1].revents != 0) accept_asker();
  if (poked_.exchange(false, std::memory_order_acquire)) tell_over();
  std::vector<uint64_t> heard;
  for (size_t i = leases_at; i < files.size(); ++i)
    if (files[i].revents != 0) heard.push_back(whose[i - 2]);
  look_at_leases(heard);
}

// ---- the owner ---------------------------------------------------------------------------------

Status StoreExchange::listen(const std::string& socket_path) {
  Result<UniqueFd> socket = shared::listen_unix(socket_path, SOCK_SEQPACKET);
  if (!socket.ok()) return socket.error();
  std::lock_guard lock(mutex_);
  listening_ = socket.take();
  socket_path_ = socket_path;
  return start() ? Status{} : Status(errorf("there is no thread for it"));
}

void StoreExchange::accept_asker() {
  Result<UniqueFd> socket = shared::accept_unix(listening_.get());
  if (!socket.ok() || is_scarce(socket->get())) return;
  const Result<shared::PeerCredentials> peer = shared::peer_credentials(socket->get());
  if (!peer.ok() || peer->uid != geteuid()) return;
  const auto asks = [&](const auto& one) {
    return one.second.pid == peer->pid && !one.second.lent;
  };
  if (std::count_if(askers_.begin(), askers_.end(), asks) >= int{limits::kClients}) return;
  Asker& asker = askers_[next_++];
  asker.socket = socket.take();
  asker.pid = peer->pid;
  asker.came_ns = now_ns();
}

bool StoreExchange::hear(uint64_t id, Asker& asker) {
  StoreQuestion question{};
  Result<shared::Received> received =
      shared::receive_message(asker.socket.get(), &question, sizeof question, 0, 0);
  if (!received.ok()) return received.error().code == EAGAIN;
  if (asker.asked) {
    char word = 0;
    std::memcpy(&word, &question, 1);
    if (received->size_bytes != 1) return false;
    if (word == kHeard && asker.told) {
      heard(id);
      return true;
    }
    asker.consumed = word == kConsumed;
    return false;
  }
  if (received->size_bytes != sizeof question || question.magic != kExchangeMagic) return false;
  question.name[sizeof question.name - 1] = 0;
  const wire::StoreAnswer found = store_.lend(question.name, &asker.slot, &asker.generation);
  asker.asked = found == wire::StoreAnswer::kOk;
  if (asker.asked) return true;
  StoreOffer offer{};
  offer.answer = static_cast<uint32_t>(found);
  return answer(asker, offer, -1) && false;
}

// The object is claimed. The answer goes out when its bytes are there; if it loses its name behind
// the look here, tell_over() comes later on this thread.
bool StoreExchange::lend(Asker& asker) {
  StoreOffer offer{};
  UniqueFd memory;
  wire::StoreAnswer state = store_.describe_loan(asker.slot, asker.generation, &offer, &memory);
  if (!store_.is_sealed(asker.slot, asker.generation)) state = wire::StoreAnswer::kNotFound;
  if (state == wire::StoreAnswer::kBusy) return true;
  offer.answer = static_cast<uint32_t>(state);
  asker.lent = state == wire::StoreAnswer::kOk;
  return answer(asker, offer, memory.get()) && asker.lent;
}

bool StoreExchange::answer(Asker& asker, const StoreOffer& offer, int fd) {
  StoreOffer said = offer;
  said.magic = kExchangeMagic;
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  return shared::send_message(asker.socket.get(), &said, sizeof said, fds,
                              shared::SendMode::kNeverBlock)
      .ok();
}

void StoreExchange::tell_over() {
  const char word = kOver;
  uint64_t round = 0;
  {
    std::lock_guard lock(mutex_);
    round = asked_;
  }
  for (auto& [id, asker] : askers_) {
    if (!asker.lent || asker.told || store_.is_sealed(asker.slot, asker.generation)) continue;
    asker.told = true;
    {
      std::lock_guard lock(mutex_);
      const uint64_t proxy = asker.pid != 0 ? static_cast<uint64_t>(asker.pid) : ~id;
      unheard_[id] = {asker.slot, asker.generation, proxy};
    }
    (void)shared::send_message(asker.socket.get(), &word, 1, {}, shared::SendMode::kNeverBlock);
  }
  {
    std::lock_guard lock(mutex_);
    told_ = round;
  }
  heard_.notify_all();
}

// By its word, or because it is gone.
void StoreExchange::heard(uint64_t asker) {
  {
    std::lock_guard lock(mutex_);
    const auto found = unheard_.find(asker);
    if (found == unheard_.end()) return;
    deaf_.erase(found->second.proxy);
    unheard_.erase(found);
  }
  heard_.notify_all();
}

void StoreExchange::until_heard(const std::vector<Lent>& objects) {
  std::unique_lock lock(mutex_);
  if (stopped_ || !thread_.joinable()) return;
  const uint64_t round = ++asked_;
  poke();
  const auto meant = [&](const auto& one) {
    return std::any_of(objects.begin(), objects.end(), [&](const Lent& object) {
      return object.slot == one.second.slot && object.generation == one.second.generation;
    });
  };
  const auto waits = [&](const auto& one) {
    return meant(one) && !deaf_.contains(one.second.proxy);
  };
  const bool all = heard_.wait_for(lock, std::chrono::milliseconds(limits::kBrokerMs), [&] {
    return stopped_ || (told_ >= round && std::none_of(unheard_.begin(), unheard_.end(), waits));
  });
  if (all) return;
  for (const auto& one : unheard_) {
    if (waits(one)) deaf_.insert(one.second.proxy);
  }
}

void StoreExchange::drop(std::map<uint64_t, Asker>::iterator asker) {
  heard(asker->first);
  const Asker gone = std::move(asker->second);
  askers_.erase(asker);
  if (gone.asked) store_.end_loan(gone.slot, gone.generation, gone.consumed);
}

// ---- the importer ------------------------------------------------------------------------------

uint64_t StoreExchange::keep(UniqueFd lease) {
  std::lock_guard lock(mutex_);
  if (!start()) return 0;
  const uint64_t id = next_lease_++;
  leases_[id].socket = std::move(lease);
  return id;
}

void StoreExchange::name(uint64_t lease, uint32_t slot, uint64_t generation) {
  {
    std::lock_guard lock(mutex_);
    Lease& named = leases_.at(lease);
    named.slot = slot;
    named.generation = generation;
    named.named = true;
  }
  poke();
}

void StoreExchange::end(uint64_t lease, bool consumed) {
  UniqueFd gone;
  {
    std::lock_guard lock(mutex_);
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return;
    gone = std::move(found->second.socket);
    leases_.erase(found);
  }
  // The thread may be in poll(2) with it, which keeps a connection that is only closed.
  const ScopeGuard over([&] { (void)::shutdown(gone.get(), SHUT_RDWR); });
  const char word = kConsumed;
  if (consumed) (void)shared::send_message(gone.get(), &word, 1, {}, shared::SendMode::kNeverBlock);
}

// An owner has only one thing to say.
void StoreExchange::look_at_leases(const std::vector<uint64_t>& heard) {
  for (const uint64_t id : heard) {
    uint32_t slot = 0;
    uint64_t generation = 0;
    {
      std::lock_guard lock(mutex_);
      const auto found = leases_.find(id);
      if (found == leases_.end()) continue;
      slot = found->second.slot;
      generation = found->second.generation;
    }
    store_.end_import(slot, generation);
    const char word = kHeard;
    std::lock_guard lock(mutex_);
    const auto found = leases_.find(id);
    if (found == leases_.end()) continue;
    found->second.over = true;
    (void)shared::send_message(found->second.socket.get(), &word, 1, {},
                               shared::SendMode::kNeverBlock);
  }
}

}  // namespace tube::proxy
