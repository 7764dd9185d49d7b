// The connection to the proxy: socket, segment, ring, reply slots, words, chunks, device
// information.
//
// Made once by initialise() (process.cc). `producer` orders everything that enters the ring; its
// holder may not wait for the GPU. The members are the transport's own types (sharedmem/); what
// they promise holds here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "hook/process/lock.h"
#include "hook/process/proxy_life.h"
#include "policies/memory/memory_budget.h"
#include "protocol/device_info.h"
#include "sharedmem/chunks.h"
#include "sharedmem/handshake.h"
#include "sharedmem/offers.h"
#include "sharedmem/replies.h"
#include "sharedmem/ring.h"
#include "sharedmem/segment.h"
#include "sharedmem/socket.h"
#include "sharedmem/window_reservation.h"
#include "sharedmem/windows.h"
#include "sharedmem/words.h"

namespace tube::hook {

struct Connection {
  UniqueFd socket;  // use through socket_is_ours(): the program may have closed it and got its
                    // number for something else
  uint64_t socket_inode = 0;
  ProxyPlace place;
  Mapping life;  // sharedmem/life_lock.h
  shared::Segment segment;
  shared::Waiter waiter;
  shared::Peer peer;
  std::atomic<bool> stop{false};
  shared::RingWriter ring;
  shared::ReplySlots replies;
  shared::Words words;
  shared::ChunkPool chunks;
  shared::Offers offers;
  shared::WindowReservation windows;
  handshake::Welcome welcome{};
  Mapping info_memory;
  const info::InfoHeader* info = nullptr;
  const info::DeviceInfo* device_infos = nullptr;

  Lock producer;                     // rank 4, leaf: the ring, every stream's progress counters
  uint64_t next_token = 1;           // of files sent; under producer
  Lock fd_lock;                      // rank 4: files that the proxy sends
  std::atomic<uint32_t> failure{0};  // CUresult once the transport failed
  alignas(16) std::byte
      scratch[abi::kMaxRecordBytes];  // where a record goes that cannot be sent; under producer

  // What a GPU of `bytes` has for this program (policies::visible_total).
  uint64_t visible_total(uint64_t bytes) const {
    const uint64_t most = welcome.memory_bytes;
    return policies::visible_total(most != 0 ? most : policies::kNoMemoryLimit, bytes);
  }
  bool socket_is_ours() const { return shared::is_socket(socket.get(), socket_inode); }
  abi::SegmentHeader& header() const { return segment.header(); }
  uint64_t device_window() const { return windows::device_base(welcome.window); }
  uint64_t pinned_window() const {
    return windows::pinned_base(welcome.window, welcome.client_slot);
  }
  bool in_device_window(uint64_t a) const { return a - device_window() < windows::kDeviceBytes; }
  bool in_pinned_window(uint64_t a) const {
    return a - pinned_window() < windows::kPinnedSlotBytes;
  }
};

// Connects and shakes hands. Says in words what is wrong and what to do. Blocks for at most some
// seconds.
Result<Connection*> connect_to_proxy();

// Sends one fd beside the ring, for the record that is being written and names `*token`: the
// producer lock is held, so files arrive in the order of their records, however many threads send
// some. Fails when the socket is full (some hundred files on their way).
Status send_file(int fd, uint64_t* token);
// The fd that the proxy sent before the reply that named `token`.
Result<UniqueFd> take_file(uint64_t token);
// The same for a call whose result is a descriptor: from now on it is the program's, its number at
// `handle` (an int). `what`: for the log.
CUresult hand_over_file(uint64_t token, const char* what, void* handle);

}  // namespace tube::hook
