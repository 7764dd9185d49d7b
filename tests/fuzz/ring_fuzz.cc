// Random bytes as ring contents and tail into RingReader: whatever a client writes, the reader
// stays inside the ring, hands out only records that are what they claim, and makes progress. One
// process, bare memory, no proxy.
//
// The first 8 bytes of an input are the tail, the next 8 choose where in the ring the reader stands
// (the border is the interesting place), the rest are the bytes from there on, repeated to two
// records if short.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sharedmem/accessors.h"
#include "sharedmem/ring.h"

namespace {

using tube::abi::kRingBytes;
using tube::shared::RingReader;

void require(bool holds) {
  if (!holds) std::abort();
}

struct Memory {
  alignas(128) tube::abi::SegmentHeader header{};
  std::vector<std::byte> ring =
      std::vector<std::byte>(2 * kRingBytes);  // not double-mapped: mirrored by put()

  void put(uint64_t position, std::byte value) {
    ring[position % kRingBytes] = value;
    ring[position % kRingBytes + kRingBytes] = value;
  }
};

// Honest records that bring the reader to the wanted place. Returns the position reached.
uint64_t advance(Memory& memory, RingReader& reader, uint64_t wanted, uint64_t* sequence) {
  uint64_t at = 0;
  while (at < wanted) {
    const uint64_t left = wanted - at;
    const uint32_t size = static_cast<uint32_t>(
        left < tube::abi::kMaxRecordBytes ? left : tube::abi::kMaxRecordBytes);
    if (size < sizeof(tube::abi::RecordHeader)) break;
    tube::abi::RecordHeader record{};
    record.size_bytes = size;
    record.call = 1;
    record.sequence = ++*sequence;
    record.reply_slot = tube::abi::kNoReply;
    record.payload_bytes = size - static_cast<uint32_t>(sizeof(record));
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(record)>>(record);
    for (size_t i = 0; i < bytes.size(); ++i) memory.put(at + i, bytes[i]);
    at += size;
    tube::shared::client_store_tail(memory.header, at);
    require(reader.next() == RingReader::Next::kRecord);
    reader.consume();
  }
  require(reader.head() == at);
  return at;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 16) return 0;
  static Memory memory;
  memory.header = {};
  uint64_t tail, place;
  std::memcpy(&tail, data, 8);
  std::memcpy(&place, data + 8, 8);
  data += 16;
  size -= 16;
  RingReader reader(&memory.header, memory.ring.data());
  uint64_t sequence = 0;
  // Mostly near the border, sometimes at the start; never far, so that a run stays fast.
  const uint64_t start =
      (place & 1) == 0 ? 0
                       : advance(memory, reader, kRingBytes - (place / 2 % 256) * 16, &sequence);
  for (size_t i = 0; i < size; ++i) memory.put(start + i, static_cast<std::byte>(data[i]));
  // The sequence number is the one field that no mutation guesses: help it along where a record
  // could start.
  if (size >= sizeof(tube::abi::RecordHeader) && (place & 2) == 0) {
    const uint64_t next = sequence + 1;
    for (size_t i = 0; i < 8; ++i)
      memory.put(start + 8 + i, reinterpret_cast<const std::byte*>(&next)[i]);
  }
  // Either any value, or one that is near.
  tube::shared::client_store_tail(memory.header,
                                  (place & 4) != 0 ? tail : start + tail % (size + 64));
  uint64_t before = reader.head();
  for (int i = 0; i < 64; ++i) {
    const RingReader::Next next = reader.next();
    if (next != RingReader::Next::kRecord) {
      require(next == RingReader::Next::kEmpty || reader.bad_reason()[0] != '\0');
      break;
    }
    const tube::abi::RecordHeader& header = reader.header();
    require(header.call != 0 && header.size_bytes % 16 == 0 &&
            header.size_bytes <= tube::abi::kMaxRecordBytes);
    require(reader.payload().size() + sizeof(header) <= header.size_bytes);
    require(header.reply_slot == tube::abi::kNoReply || header.reply_slot < tube::abi::kReplySlots);
    uint8_t sum = 0;
    for (std::byte b : reader.payload())
      sum = static_cast<uint8_t>(sum + std::to_integer<uint8_t>(b));
    asm volatile("" : : "r"(sum));  // every byte handed out is readable
    reader.consume();
    require(reader.head() == before + header.size_bytes);
    before = reader.head();
  }
  return 0;
}
