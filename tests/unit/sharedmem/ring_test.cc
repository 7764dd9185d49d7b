// The command ring: whole records in order across the border, waiting when full, and no trust in
// what a client wrote.
#include <cstring>
#include <thread>

#include "sharedmem/accessors.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

using Next = RingReader::Next;
class Ring : public Pair {};

TEST_F(Ring, RecordArrivesWholeAndNumbered) {
  RingReader reader(proxy);
  EXPECT_EQ(reader.next(), Next::kEmpty);
  abi::RecordHeader* record = reserve(5);
  record->call = 7;
  record->reply_slot = 3;
  record->context = 2;
  std::memcpy(record + 1, "hello", 5);
  EXPECT_EQ(reader.next(), Next::kEmpty);  // not before publish
  writer.publish();
  ASSERT_EQ(reader.next(), Next::kRecord);
  EXPECT_EQ(reader.header().call, 7u);
  EXPECT_EQ(reader.header().sequence, 1u);
  EXPECT_EQ(reader.header().reply_slot, 3u);
  EXPECT_EQ(reader.header().context, 2u);
  ASSERT_EQ(reader.payload().size(), 5u);
  EXPECT_EQ(std::memcmp(reader.payload().data(), "hello", 5), 0);
  reader.consume();
  EXPECT_EQ(reader.next(), Next::kEmpty);
  EXPECT_EQ(reader.head(), record_bytes(5));
}

TEST_F(Ring, AbandonedReservationLeavesNoTrace) {
  RingReader reader(proxy);
  reserve(1000);
  post(9, 16);
  ASSERT_EQ(reader.next(), Next::kRecord);
  EXPECT_EQ(reader.header().call, 9u);
  EXPECT_EQ(reader.header().sequence, 1u);
  EXPECT_EQ(writer.sequence(), 1u);
}

TEST_F(Ring, RecordsOfEverySizeCrossTheBorderUnbroken) {
  RingReader reader(proxy);
  uint32_t size = 0;
  for (uint64_t written = 0; written < 3 * abi::kRingBytes; written += record_bytes(size)) {
    size = (size * 7 + 4099) % (kMaxPayloadBytes + 1);
    post(1, size, std::byte(size & 0xff));
    ASSERT_EQ(reader.next(), Next::kRecord) << reader.bad_reason();
    ASSERT_EQ(reader.payload().size(), size);
    for (std::byte b : reader.payload()) ASSERT_EQ(b, std::byte(size & 0xff));
    reader.consume();
  }
}

TEST_F(Ring, TheCopyDoesNotChangeWhenTheClientRewritesTheRecord) {
  RingReader reader(proxy);
  abi::RecordHeader* record = reserve(64);
  record->call = 5;
  std::memset(static_cast<void*>(record + 1), 1, 64);
  writer.publish();
  ASSERT_EQ(reader.next(), Next::kRecord);
  std::memset(static_cast<void*>(record), 0xff, sizeof(*record) + 64);
  EXPECT_EQ(reader.header().call, 5u);
  EXPECT_EQ(reader.payload()[63], std::byte{1});
  reader.consume();
  EXPECT_EQ(reader.head(), record_bytes(64));  // our own size, not the rewritten one
}

TEST_F(Ring, FullRingMakesTheWriterWaitUntilTheReaderMadeRoom) {
  RingReader reader(proxy);
  const uint32_t count = 4 * abi::kRingBytes / abi::kMaxRecordBytes;
  std::thread session([&] {
    uint32_t seen = 0;
    while (seen < count) {
      switch (reader.next()) {
        case Next::kRecord:
          ++seen;
          EXPECT_EQ(reader.header().sequence, seen);
          reader.consume();
          break;
        case Next::kEmpty:
          EXPECT_EQ(reader.wait(session_waiter, session_peer), WaitResult::kDone);
          break;
        case Next::kBad: ADD_FAILURE() << reader.bad_reason(); return;
      }
    }
  });
  for (uint32_t i = 0; i < count; ++i) post(1, kMaxPayloadBytes);
  session.join();
}

TEST_F(Ring, WriterThatWaitsForSpaceLearnsOfTheReadersDeath) {
  // Nobody reads: fill it.
  while (atomic(client.header().tail).load() + abi::kMaxRecordBytes <= abi::kRingBytes)
    post(1, kMaxPayloadBytes);
  proxy_socket.reset();
  abi::RecordHeader* record = nullptr;
  EXPECT_EQ(writer.reserve(kMaxPayloadBytes, &record), WaitResult::kPeerDead);
  EXPECT_EQ(record, nullptr);
}

TEST_F(Ring, TooLargeAPayloadIsOurBugAndNotPosted) {
  abi::RecordHeader* record = nullptr;
  EXPECT_NE(writer.reserve(kMaxPayloadBytes + 1, &record), WaitResult::kDone);
  EXPECT_EQ(record, nullptr);
}

TEST_F(Ring, SessionWakesForARecordAndForStop) {
  Waiter sleepy(0);
  RingReader reader(proxy);
  std::thread session([&] {
    EXPECT_EQ(reader.wait(sleepy, session_peer), WaitResult::kDone);
    EXPECT_EQ(reader.next(), Next::kRecord);
    reader.consume();
    EXPECT_EQ(reader.next(), Next::kEmpty);
    EXPECT_EQ(reader.wait(sleepy, session_peer), WaitResult::kPeerDead);
  });
  post(1, 0);
  while (client_load_head(client.header()) == 0) std::this_thread::yield();
  stop.store(true);
  wake_reader(proxy.header());
  session.join();
}

TEST_F(Ring, TwoProcessesPingPong) {
  constexpr uint32_t kRounds = 4000;
  const pid_t child = in_child([&] {
    RingReader reader(proxy);
    for (uint32_t i = 1; i <= kRounds; ++i) {
      while (reader.next() == Next::kEmpty) {
        if (reader.wait(session_waiter, session_peer) != WaitResult::kDone) return 1;
      }
      if (reader.header().sequence != i) return 2;
      const uint32_t answer = i * 3;
      complete_reply(proxy, reader.header().reply_slot, i, i % 5,
                     std::as_bytes(std::span(&answer, 1)));
      reader.consume();
    }
    return 0;
  });
  ReplySlots replies;
  replies.attach(client, waiter, peer);
  for (uint32_t i = 1; i <= kRounds; ++i) {
    const uint32_t slot = replies.claim();
    abi::RecordHeader* record = reserve(8);
    record->call = 1;
    record->reply_slot = slot;
    writer.publish();
    ASSERT_EQ(replies.wait(slot), WaitResult::kDone);
    ASSERT_EQ(replies.result(slot), i % 5);
    ASSERT_EQ(replies.sequence(slot), i);
    ASSERT_EQ(replies.payload(slot).size(), 4u);
    uint32_t answer;
    std::memcpy(&answer, replies.payload(slot).data(), 4);
    ASSERT_EQ(answer, i * 3);
    replies.release(slot);
  }
  EXPECT_EQ(exit_code(child), 0);
}

// ---- hostile clients ----

class HostileRing : public Ring {
 protected:
  // Publishes a record that `spoil` has changed, and says what the reader makes of it.
  const char* verdict(const std::function<void(abi::RecordHeader*)>& spoil) {
    RingReader reader(proxy);
    abi::RecordHeader* record = reserve(64);
    record->call = 1;
    spoil(record);
    writer.publish();
    return reader.next() == Next::kBad ? reader.bad_reason() : "accepted";
  }
  const char* verdict_of_tail(uint64_t tail) {
    RingReader reader(proxy);
    client_store_tail(client.header(), tail);
    const Next next = reader.next();
    EXPECT_EQ(reader.head(), 0u);
    return next == Next::kBad ? reader.bad_reason() : "accepted";
  }
};

TEST_F(HostileRing, TailOutsideTheRingIsBad) {
  EXPECT_STREQ(verdict_of_tail(abi::kRingBytes + 16), "tail is outside the ring");
}
TEST_F(HostileRing, TailBehindTheHeadIsBad) {
  EXPECT_STREQ(verdict_of_tail(~uint64_t{15}), "tail is outside the ring");
}
TEST_F(HostileRing, TailBetweenUnitsIsBad) {
  EXPECT_STREQ(verdict_of_tail(33), "tail is not a multiple of 16");
}
TEST_F(HostileRing, TailInsideAHeaderIsBad) {
  EXPECT_STREQ(verdict_of_tail(16), "tail ends inside a record's header");
}
TEST_F(HostileRing, FullRingOfZerosIsBad) {
  EXPECT_STREQ(verdict_of_tail(abi::kRingBytes), "record size out of range");
}

TEST_F(HostileRing, SizeThatDoesNotMatchIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->size_bytes = 16; }), "record size out of range");
}
TEST_F(HostileRing, HugeSizeIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->size_bytes = 0xfffffff0u; }), "record size out of range");
}
TEST_F(HostileRing, SizeBehindTheTailIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->size_bytes += 16; }), "record reaches behind tail");
}
TEST_F(HostileRing, PayloadLargerThanTheRecordIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->payload_bytes = 65; }),
               "payload size does not match record size");
}
TEST_F(HostileRing, PayloadNearTheIntegersEndIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->payload_bytes = 0xfffffff0u; }),
               "payload size does not match record size");
}
TEST_F(HostileRing, CallZeroIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->call = 0; }), "call number 0");
}
TEST_F(HostileRing, RepeatedSequenceIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->sequence = 0; }), "sequence number out of order");
}
TEST_F(HostileRing, ReplySlotOutsideTheTableIsBad) {
  EXPECT_STREQ(verdict([](auto* r) { r->reply_slot = abi::kReplySlots; }),
               "reply slot out of range");
}

TEST_F(HostileRing, HeadWrittenByTheClientDoesNotMoveTheReader) {
  RingReader reader(proxy);
  post(1, 16);
  post(2, 16);
  ASSERT_EQ(reader.next(), Next::kRecord);
  reader.consume();
  atomic(client.header().head).store(0x123450);
  ASSERT_EQ(reader.next(), Next::kRecord);
  EXPECT_EQ(reader.header().call, 2u);
}

TEST_F(HostileRing, StopIsSeenAlthoughTheClientKeepsTheSleepFlagUp) {
  Waiter sleepy(0);
  RingReader reader(proxy);
  std::atomic<bool> over{false};
  std::thread client_thread([&] {
    while (!over.load()) atomic(client.header().proxy_asleep).store(1);
  });
  std::thread session([&] { EXPECT_EQ(reader.wait(sleepy, session_peer), WaitResult::kPeerDead); });
  stop.store(true);
  wake_reader(proxy.header());
  session.join();  // within the session's own nap, whatever the flag says
  over.store(true);
  client_thread.join();
}

}  // namespace
}  // namespace tube::shared
