// The owner's end of the exchange between proxies (memory/broker.h): the Server takes the other
// proxies' connections and hands out the fd of a block to a proxy that has its token.
#include <sys/epoll.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/descriptors.h"
#include "proxy/server/server.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

Status Server::listen_for_proxies() {
  Result<UniqueFd> broker = listen_broker(memory_.shares().proxy_id());
  if (!broker.ok()) return broker.error();
  broker_fd_ = broker.take();
  open_door(Source::kBrokerListen, broker_fd_.get());
  return watch(broker_fd_.get(), Source::kBrokerListen, 0, EPOLLIN);
}

void Server::accept_proxy() {
  while (true) {
    Result<UniqueFd> fd = accept(Source::kBrokerListen);
    if (!fd.ok()) return;
    const Result<shared::PeerCredentials> peer = shared::peer_credentials(fd->get());
    if (!peer.ok() || peer->uid != geteuid() || !place_to_ask(peer->pid)) continue;
    const uint64_t id = next_id_++;
    const int raw = fd->get();
    brokered_[id] = {fd.take(), {}, false, peer->pid, now_ns()};
    if (!watch(raw, Source::kBroker, id, EPOLLIN | EPOLLRDHUP).ok()) brokered_.erase(id);
  }
}

// A proxy asks right behind its connection, one question for each of its sessions at a time. All
// together may not take the descriptors that functions need, and that alone bounds those of other
// PID namespaces, which all have the number 0 here.
bool Server::place_to_ask(pid_t pid) const {
  const auto asks = [pid](const auto& entry) {
    return entry.second.pid == pid && !entry.second.lent;
  };
  return brokered_.size() < std::min(limits::kBrokerClients, descriptor_limit() / 2) &&
         (pid == 0 ||
          std::count_if(brokered_.begin(), brokered_.end(), asks) < int{limits::kClients});
}

void Server::drop_late_questions() {
  std::erase_if(brokered_, [now = now_ns()](const auto& entry) {
    return !entry.second.lent &&
           now - entry.second.came_ns >= uint64_t{limits::kBrokerMs} * 1'000'000;
  });
}

bool Server::any_question_due() const {
  return std::any_of(brokered_.begin(), brokered_.end(),
                     [](const auto& entry) { return !entry.second.lent; });
}

CUresult Server::lend(Brokered& client, const ShareToken& untrusted_token, BrokerAnswer* answer,
                      UniqueFd* fd) {
  SharedMemory memory;
  if (CUresult error = memory_.shares().open(untrusted_token, 0, &memory); error != CUDA_SUCCESS)
    return error;
  client.token = untrusted_token;
  client.lent = true;
  const std::optional<BlockPlace> place = memory_.find(memory.block);
  if (!place.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = memory_.export_fd(memory.block, fd); error != CUDA_SUCCESS) return error;
  answer->block_bytes = place->bytes;
  answer->offset = memory.base - place->address;
  answer->bytes = memory.bytes;
  std::memcpy(answer->uuid, &gpus_[static_cast<uint32_t>(place->device)].uuid,
              sizeof(answer->uuid));
  return CUDA_SUCCESS;
}

// The question, or the end of the connection; a second message is neither and ends it too.
void Server::proxy_ready(uint64_t id) {
  auto it = brokered_.find(id);
  if (it == brokered_.end()) return;
  Brokered& client = it->second;
  BrokerQuestion question{};
  Result<shared::Received> received =
      shared::receive_message(client.fd.get(), &question, sizeof(question), 0, 0);
  if (!received.ok() && received.error().code == EAGAIN) return;
  bool keep = false;
  if (received.ok() && received->size_bytes == sizeof(question) && question.magic == kBrokerMagic &&
      !client.lent) {
    BrokerAnswer answer{};
    UniqueFd fd;
    answer.magic = kBrokerMagic;
    answer.error = lend(client, question.token, &answer, &fd);
    const int raw = fd.get();
    const std::span<const int> fds(&raw, fd.valid() ? 1 : 0);
    keep = shared::send_message(client.fd.get(), &answer, sizeof(answer), fds,
                                shared::SendMode::kNeverBlock)
               .ok() &&
           answer.error == 0;
  }
  if (keep) return;
  if (client.lent) memory_.shares().close(client.token);
  brokered_.erase(it);
}

}  // namespace tube::proxy
