// What the transport alone costs: posting a record, and a round trip through ring and reply slot,
// without any call behind it. The reader is a second thread (same code as a session). Compare with
// facts about bare shared memory: a shared line bounces in about 120 ns, a post costs 40 to 140 ns
// of fence, a futex wake 36 to 48 us.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>

#include "sharedmem/replies.h"
#include "sharedmem/ring.h"
#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace {

using namespace tube::shared;
namespace abi = tube::abi;

// A connection whose session answers what names a reply slot and drops the rest.
class Loop {
 public:
  explicit Loop(uint32_t spin_us) : client_waiter_(spin_us), session_waiter_(spin_us) {
    segment_ = Segment::create(1).take();
    writer.attach(segment_, client_waiter_, {});
    replies.attach(segment_, client_waiter_, {});
    session_ = std::thread([this] { serve(); });
  }
  ~Loop() {
    stop_.store(true);
    wake_reader(segment_.header());
    session_.join();
  }

  void post(uint32_t payload_bytes, uint32_t slot) {
    abi::RecordHeader* record = nullptr;
    if (writer.reserve(payload_bytes, &record) != WaitResult::kDone) std::abort();
    record->call = 1;
    record->reply_slot = slot;
    writer.publish();
  }
  void round_trip(uint32_t payload_bytes) {
    const uint32_t slot = replies.claim();
    post(payload_bytes, slot);
    if (replies.wait(slot) != WaitResult::kDone) std::abort();
    replies.release(slot);
  }

  RingWriter writer;
  ReplySlots replies;

 private:
  void serve() {
    RingReader reader(segment_);
    const Peer peer{-1, nullptr, &stop_};
    while (true) {
      switch (reader.next()) {
        case RingReader::Next::kRecord:
          if (reader.header().reply_slot != abi::kNoReply) {
            complete_reply(segment_, reader.header().reply_slot, reader.header().sequence, 0, {});
          }
          reader.consume();
          break;
        case RingReader::Next::kEmpty:
          if (reader.wait(session_waiter_, peer) != WaitResult::kDone) return;
          break;
        case RingReader::Next::kBad: std::abort();
      }
    }
  }

  Segment segment_;
  Waiter client_waiter_, session_waiter_;
  std::atomic<bool> stop_{false};
  std::thread session_;
};

// Argument 0: payload bytes; 1: spin_us of both sides.
void post(benchmark::State& state) {
  Loop loop(static_cast<uint32_t>(state.range(1)));
  for ([[maybe_unused]] auto _ : state)
    loop.post(static_cast<uint32_t>(state.range(0)), abi::kNoReply);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(post)
    ->ArgNames({"bytes", "spin_us"})
    ->Args({64, 100})
    ->Args({256, 100})
    ->Args({4096, 100})
    ->Args({64, 0});

void round_trip(benchmark::State& state) {
  Loop loop(static_cast<uint32_t>(state.range(1)));
  for ([[maybe_unused]] auto _ : state) loop.round_trip(static_cast<uint32_t>(state.range(0)));
}
BENCHMARK(round_trip)
    ->ArgNames({"bytes", "spin_us"})
    ->Args({64, 100})
    ->Args({4096, 100})
    ->Args({64, 0})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
