// The asking end of the exchange between proxies. The owner's end is server/shares.cc.
#include "proxy/memory/broker.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "proxy/common/client_limits.h"
#include "proxy/memory/memory_map.h"
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

}  // namespace tube::proxy
