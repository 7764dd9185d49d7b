// Both ends of the exchange between proxies; the Server's part of it too (server.h).
#include "proxy/memory/broker.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/server/server.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

namespace {

std::string broker_name(uint64_t proxy_id) {
  char name[32];
  std::snprintf(name, sizeof(name), "tube-broker-%016lx", proxy_id);
  return name;
}

// What an owner says about its memory must fit together before anything is mapped by it.
bool sound(const BrokerAnswer& untrusted) {
  return untrusted.block_bytes != 0 && untrusted.block_bytes % kBlockBytes == 0 &&
         untrusted.block_bytes <= limits::kDeviceBytes && untrusted.bytes != 0 &&
         untrusted.offset < untrusted.block_bytes &&
         untrusted.bytes <= untrusted.block_bytes - untrusted.offset;
}

}  // namespace

bool same_user(int socket_fd) {
  Result<shared::PeerCredentials> peer = shared::peer_credentials(socket_fd);
  return peer.ok() && peer->uid == geteuid();
}

Result<UniqueFd> listen_broker(uint64_t proxy_id) {
  return shared::listen_abstract(broker_name(proxy_id), SOCK_SEQPACKET);
}

Result<BrokeredMemory> ask_broker(const MemoryHandle& untrusted_handle) {
  Result<UniqueFd> socket = shared::connect_abstract(broker_name(untrusted_handle.proxy),
                                                     SOCK_SEQPACKET, limits::kBrokerMs);
  if (!socket.ok()) return socket.error();
  if (!same_user(socket->get())) return errorf("its owner is another user's process");
  const BrokerQuestion question{kBrokerMagic, untrusted_handle.token};
  if (Status sent = shared::send_message(socket->get(), &question, sizeof(question)); !sent.ok())
    return sent.error();
  BrokerAnswer answer{};
  Result<shared::Received> received =
      shared::receive_message(socket->get(), &answer, sizeof(answer), 1, limits::kBrokerMs);
  if (!received.ok()) return received.error();
  if (received->size_bytes != sizeof(answer) || answer.magic != kBrokerMagic)
    return errorf("its owner's answer makes no sense");
  if (answer.error != CUDA_SUCCESS) return errorf("its owner answers CUDA error %d", answer.error);
  if (received->fds.size() != 1 || !sound(answer))
    return errorf("its owner's answer makes no sense");
  BrokeredMemory memory;
  memory.fd = std::move(received->fds[0]);
  memory.lease = socket.take();
  memory.block_bytes = answer.block_bytes;
  memory.offset = answer.offset;
  memory.bytes = answer.bytes;
  std::memcpy(memory.uuid, answer.uuid, sizeof(memory.uuid));
  return memory;
}

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
  int raw = -1;
  CUresult error = driver_.cuMemExportToShareableHandle(
      &raw, memory.block.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (error != CUDA_SUCCESS) return error;
  fd->reset(raw);
  answer->block_bytes = memory.block.bytes;
  answer->offset = memory.base - memory.block.address;
  answer->bytes = memory.bytes;
  std::memcpy(answer->uuid, &gpus_[static_cast<uint32_t>(memory.block.device)].uuid,
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
