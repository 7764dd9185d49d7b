#include "hook/objects/device_output.h"

#include <cstdio>
#include <span>
#include <vector>

#include "hook/objects/support.h"
#include "hook/process/lock.h"
#include "protocol/handle_id.h"

namespace tube::hook {

constinit std::atomic<uint32_t> g_output_state{0};

namespace {

constexpr uint32_t kExpected = 1;  // a printing kernel was launched since the last collecting
constexpr uint32_t kAlways = 2;    // a graph of this program prints: every launch of a graph may
constexpr uint32_t kCollecting =
    4;  // a thread is at it; others wait, so that their text is out when they return

constinit Lock g_collecting;  // rank 2

// The contexts that have printed, by life. The last one is looked at without the lock.
struct Life {
  const Context* context;
  uint64_t epoch;
};
constinit Lock g_printed_lock;  // rank 5
std::vector<Life>& printed() {
  static auto* all = new std::vector<Life>;
  return *all;
}
constinit std::atomic<uint64_t> g_last_printed{0};  // the context's address and epoch, mixed

uint64_t mixed(const Context* context, uint64_t epoch) {
  return (reinterpret_cast<uint64_t>(context) + epoch) | 1;
}

void note_printing(const Context* context) {
  if (context == nullptr) return;
  const uint64_t epoch = context->epoch.load(std::memory_order_acquire);
  const uint64_t last = mixed(context, epoch);
  if (g_last_printed.load(std::memory_order_relaxed) == last || has_printed(context)) return;
  Locked locked(g_printed_lock);
  std::erase_if(printed(), [context](const Life& life) { return life.context == context; });
  printed().push_back({context, epoch});
  g_last_printed.store(last, std::memory_order_relaxed);
}

constinit std::atomic<bool> g_asserts{false};

void write_to(FILE* stream, std::span<const std::byte> text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

// Collects one piece. False when there is no more, or the proxy is gone.
bool collect_piece(bool* outstanding) {
  wire::tubeCollectOutput_reply reply{};
  ReplyBlobs blobs;
  {
    Request<wire::tubeCollectOutput> r;
    if (r.call(&reply, &blobs) != CUDA_SUCCESS) return false;
  }
  write_to(stderr, blobs.get(reply.err));
  write_to(stdout, blobs.get(reply.out));
  *outstanding = reply.outstanding != 0;
  return reply.more != 0;
}

}  // namespace

void expect_output(uint32_t writes, bool captured, const Context* context) {
  if ((writes & wire::kKernelAsserts) != 0) g_asserts.store(true, std::memory_order_relaxed);
  if ((writes & wire::kKernelPrints) == 0) return;
  note_printing(context);
  const uint32_t wanted = captured ? kAlways : kExpected;
  if ((g_output_state.load(std::memory_order_relaxed) & wanted) == 0)
    g_output_state.fetch_or(wanted, std::memory_order_acq_rel);
}

bool has_printed(const Context* context) {
  Locked locked(g_printed_lock);
  for (const Life& life : printed()) {
    if (life.context == context)
      return life.epoch == context->epoch.load(std::memory_order_acquire);
  }
  return false;
}

void collect_output_now() {
  Locked locked(g_collecting);
  const uint32_t state = g_output_state.load(std::memory_order_acquire);
  if ((state & (kExpected | kAlways)) == 0) return;  // another thread was at it meanwhile
  g_output_state.fetch_or(kCollecting, std::memory_order_acq_rel);
  g_output_state.fetch_and(~kExpected, std::memory_order_acq_rel);
  bool outstanding = false;
  while (collect_piece(&outstanding)) {
  }
  if (outstanding) g_output_state.fetch_or(kExpected, std::memory_order_acq_rel);
  g_output_state.fetch_and(~kCollecting, std::memory_order_acq_rel);
}

void collect_assertion() {
  if (!g_asserts.exchange(false, std::memory_order_acq_rel) || process().state() != State::kReady)
    return;
  Locked locked(g_collecting);
  bool outstanding = false;
  while (collect_piece(&outstanding)) {
  }
}

}  // namespace tube::hook
