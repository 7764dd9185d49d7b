// The owner's end of the exchange between proxies (memory/broker.h): the Server takes the other
// proxies' connections and hands out the fd of a block to a proxy that has its token.
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/server/server.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

Status Server::listen_for_proxies() {
  Result<UniqueFd> broker = listen_broker(memory_.shares().proxy_id());
  if (!broker.ok()) return broker.error();
  broker_fd_ = broker.take();
  return watch(broker_fd_.get(), Source::kBrokerListen, 0, EPOLLIN);
}

void Server::accept_proxy() {
  while (true) {
    Result<UniqueFd> fd = shared::accept_unix(broker_fd_.get());
    if (!fd.ok()) return;
    if (!same_user(fd->get()) || brokered_.size() >= limits::kBrokerClients) continue;
    const uint64_t id = next_id_++;
    if (watch(fd->get(), Source::kBroker, id, EPOLLIN | EPOLLRDHUP).ok())
      brokered_[id].fd = fd.take();
  }
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
