// The specification of every byte that a function process and its proxy share.
//
// One connection has three memory files, all made by the proxy and sealed against shrinking and
// growing before they are sent:
//
//   segment   this file's layout; mapped wherever there is room
//   pinned    the client's pinned host memory, sparse, at ONE agreed address in both processes
//             (windows.h)
//   info      what the proxy's GPUs look like (protocol/device_info.h), sealed against writing too
//
//   segment:  +0        SegmentHeader         2 KiB   positions, sleep flags, error words
//             +2 KiB    WaitCounters          2 KiB   what the client's waits came to
//             +4 KiB    offers of memory      kOffers x sizeof(MemoryOffer)
//             +8 KiB    reply slots           kReplySlots x kReplySlotBytes
//             +...      command ring          kRingBytes, mapped TWICE in a row by both sides:
//                                             a record never wraps
//             +...      words                 kWordCount x u64, written by the GPU
//             +...      chunk states          kChunkCount x u64
//             +...      first bulk chunks     kFirstChunks x kChunkBytes
//             +...      later bulk chunks     kLaterChunks x kLaterChunkBytes; their pages come
//             when
//                                             the client asks for them (tubeMoreChunks)
//
// Words, chunk states and the first chunks are registered with the driver as one pinned range.
//
// The ring.  Byte positions only grow (u64); the byte at position p is ring[p % kRingBytes]. The
// client writes whole records (RecordHeader, payload, padding to 16 bytes) and then stores `tail`;
// the proxy copies a record out, executes it and then stores `head`. A record is at most
// kMaxRecordBytes. tail - head never exceeds kRingBytes.
//
// Sleeping.  The session drains the ring, stores proxy_asleep = 1, fences, reads `tail` again and
// only then waits on the futex `proxy_asleep`. The client stores `tail`, fences, reads
// `proxy_asleep`, and when it is 1 swaps it to 0 and wakes the futex. Both fences are sequentially
// consistent, so at least one side sees the other: no wake-up is lost and no timed wait is needed
// as a net.
//
// Replies.  A call that waits claims a reply slot (ReplyHeader::state idle -> waiting), names it in
// its record and waits for state == done: first spinning, then asleep on the futex `state` (waiting
// -> asleep). The proxy writes result and payload, then exchanges state to done and wakes when the
// old value was asleep. The client copies out and stores idle.
//
// Words.  A word counts a stream's progress: the client picks the next value, posts "write value v
// to word w behind everything in stream s" and knows that all of it is complete when word w >= v.
// Values of one word only grow, also when the word passes to another stream. Words are chosen by
// the client; the proxy only checks the index. A signal that fails is completed by the proxy itself
// (its error is stored first), so that nobody waits for ever. When a session ends, the proxy writes
// kWordReleased to all words, which lets the GPU's waits pass; the client must not take it for
// progress.
//
// Chunks.  Staging for pageable copies, each with a state word that the GPU writes too: see
// kChunkFree below.
//
// Offers.  Blocks of GPU memory that the client may take without asking: mapped, accessible, within
// its limits, and nobody else's. The word `state` of an offer decides who has it: the client takes
// the block (ready -> taken) and posts tubeMemTake, the proxy takes it back (ready -> empty). The
// client that frees the block posts tubeMemFree and then makes the offer ready again by itself, so
// that the next request need not wait until the proxy has seen the record: the ring keeps them in
// order. The generation in the word changes with the block, so that a client which has read the
// offer of one block never takes another one by it. It grows with each time that the client takes
// the block, too: the proxy, which counts the records that say so, never takes back an offer that
// was taken and made ready again while these records are still in the ring.
//
// Trust.  The client may write any byte of segment and pinned at any time. The proxy copies a
// record out once, checks every field of the copy, and uses its own `head`; what it reads back from
// here is never more than a hint.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube::abi {

inline constexpr uint64_t kSegmentMagic = 0x314745'5345425554ull;  // "TUBESEG1"
inline constexpr uint32_t kAbiVersion = 5;

inline constexpr uint32_t kCacheLine = 128;  // two lines: the prefetcher fetches pairs
inline constexpr uint64_t kRingBytes = 4u << 20;
inline constexpr uint32_t kMaxRecordBytes =
    96u << 10;  // a launch's parameters (32764) and inline copies fit
inline constexpr uint32_t kMaxInlineCopyBytes = 32u
                                                << 10;  // larger pageable copies go through chunks
inline constexpr uint32_t kReplySlots = 128;  // callers waiting at the same time; more take turns
inline constexpr uint32_t kReplySlotBytes = 16u << 10;
inline constexpr uint32_t kWordCount = 8192;
// There from the start; most functions never copy more at once.
inline constexpr uint32_t kFirstChunks = 8;
inline constexpr uint32_t kChunkBytes = 1u << 20;
// For large copies: pieces of 1 MiB leave 12% of an H200's link unused, pieces of 4 MiB 4%.
inline constexpr uint32_t kLaterChunks = 14;
inline constexpr uint32_t kLaterChunkBytes = 4u << 20;
inline constexpr uint32_t kChunkCount = kFirstChunks + kLaterChunks;
inline constexpr uint32_t kNoReply = 0xffffffffu;
inline constexpr uint64_t kWordReleased =
    0x7fff'ffff'ffff'ffffull;  // no issued value comes near it

enum class ProxyState : uint32_t {
  kStarting = 0,
  kRunning = 1,
  kStopping = 2,  // the proxy ends in order (SIGTERM): calls answer CUDA_ERROR_DEINITIALIZED
  kPoisoned =
      3,  // this session was ended by the proxy (protocol violation, limit): see poison_reason
};

enum class PoisonReason : uint32_t { kNone = 0, kBadRecord = 1, kLimit = 2 };

// Offset 0 of the segment. Each group that one side writes has a cache line pair of its own.
struct alignas(kCacheLine) SegmentHeader {
  // written once by the proxy before the client sees it
  uint64_t magic;
  uint32_t abi_version;
  uint32_t reserved0;
  uint64_t segment_bytes;
  uint64_t session_id;
  uint8_t pad0[kCacheLine - 32];

  // client -> proxy
  uint64_t tail;  // atomic; position behind the last published record
  uint8_t pad1[kCacheLine - 8];

  // proxy -> client
  uint64_t head;  // atomic; position behind the last executed record
  uint8_t pad2[kCacheLine - 8];

  // both: the session's sleep flag (futex)
  uint32_t proxy_asleep;        // atomic; 0 awake, 1 asleep
  uint32_t client_wants_space;  // atomic futex; 1 when the client sleeps for ring space, the proxy
                                // wakes it after a drain
  uint8_t pad3[kCacheLine - 8];

  // proxy -> client: errors of posted calls
  uint32_t proxy_state;    // atomic ProxyState
  uint32_t poison_reason;  // PoisonReason
  uint32_t async_error;    // atomic; CUresult of the first posted call that failed since the client
                           // last took it
  uint32_t async_error_call;  // its call number, for the log line
  uint32_t sticky_error;      // atomic; CUresult that ended the context (700 ...); never cleared
  uint32_t spin_us;  // atomic; how long the client's waits may spin, less when cores are scarce
                     // (policies/spin.h)
  uint64_t async_error_sequence;  // sequence of the record that failed
  uint32_t offers_used;           // atomic; offers behind this one were never made; only grows
  uint8_t pad4[kCacheLine - 36];
};
static_assert(sizeof(SegmentHeader) == 5 * kCacheLine);
static_assert(offsetof(SegmentHeader, tail) == 1 * kCacheLine);
static_assert(offsetof(SegmentHeader, head) == 2 * kCacheLine);
static_assert(offsetof(SegmentHeader, proxy_asleep) == 3 * kCacheLine);
static_assert(offsetof(SegmentHeader, proxy_state) == 4 * kCacheLine);

// How the client's waits ended, by shared::WaitReason: while spinning, or asleep. Written by the
// client, relaxed; read for `tubectl stat`. Nothing is decided by it. The session counts its own
// waits in an object that is not shared.
inline constexpr uint32_t kWaitReasons = 8;
struct WaitCounters {
  uint64_t spun[kWaitReasons];
  uint64_t slept[kWaitReasons];
};
static_assert(sizeof(WaitCounters) == 128);
inline constexpr uint64_t kWaitCountersOffset = 2048;
static_assert(sizeof(SegmentHeader) <= kWaitCountersOffset);
// Why sticky_error was stored, in one line, NUL-terminated; empty: not known. Written by the proxy
// before it, once.
inline constexpr uint64_t kFaultTextOffset = 2560;
inline constexpr uint32_t kFaultTextBytes = 512;
static_assert(kWaitCountersOffset + sizeof(WaitCounters) <= kFaultTextOffset);
static_assert(kFaultTextOffset + kFaultTextBytes <= 4096);

// A block of GPU memory. The proxy writes the other fields while the offer is empty.
enum class OfferState : uint32_t { kEmpty = 0, kReady = 1, kTaken = 2 };
struct MemoryOffer {
  uint64_t state;  // atomic; generation << 2 | OfferState
  uint64_t address;
  uint64_t bytes;   // of the block
  uint32_t device;  // the proxy's ordinal
  uint32_t reserved;
};
static_assert(sizeof(MemoryOffer) == 32);
static_assert(offsetof(MemoryOffer, address) == 8);
static_assert(offsetof(MemoryOffer, bytes) == 16);
static_assert(offsetof(MemoryOffer, device) == 24);
inline constexpr uint32_t kOffers = 128;
inline constexpr uint64_t kOffersOffset = 4096;
// Smaller allocations share slabs, and are not offered.
inline constexpr uint64_t kLargestInSlab = 1u << 20;
inline constexpr uint64_t kBlockUnit = 2u << 20;
// Slabs of kBlockUnit bytes that a client may cut small allocations out of without asking, in units
// of kPieceUnit (tubeMemCut).
inline constexpr uint64_t kPieceUnit = 512;
inline constexpr uint32_t kMostLeases = 64;
// In the record that frees such a piece: the client may cut its place again before the record is
// heard.
inline constexpr uint32_t kCutAgain = 0xffffffffu;
inline constexpr uint32_t kMostPieces = kMostLeases * (kBlockUnit / kPieceUnit);
// A request gets a block of the size that would be made for it.
constexpr bool offer_serves(uint64_t block_bytes, uint64_t request_bytes) {
  return request_bytes > kLargestInSlab && request_bytes <= block_bytes &&
         block_bytes - request_bytes < kBlockUnit;
}

// Every record begins with this. 32 bytes; the payload follows, its layout is the call's
// (protocol/README.md).
struct RecordHeader {
  uint32_t size_bytes;     // whole record, a multiple of 16, >= sizeof(RecordHeader)
  uint32_t call;           // wire::Call; 0 is never valid
  uint64_t sequence;       // 1, 2, 3 ... per connection; the proxy checks it
  uint32_t reply_slot;     // index, or kNoReply
  uint32_t context;        // the calling thread's current context, by its number
                           // (protocol/handle_id.h); 0: none
  uint32_t payload_bytes;  // without padding
  uint32_t thread;         // small number of the calling thread, for attribution only
};
static_assert(sizeof(RecordHeader) == 32);

enum class ReplyState : uint32_t { kIdle = 0, kWaiting = 1, kAsleep = 2, kDone = 3 };

struct ReplyHeader {
  uint32_t state;     // atomic futex; ReplyState
  uint32_t result;    // CUresult
  uint64_t sequence;  // of the record this answers
  uint32_t payload_bytes;
  uint32_t reserved0;
  uint64_t reserved1;
};
static_assert(sizeof(ReplyHeader) == 32);
inline constexpr uint32_t kMaxReplyBytes = kReplySlotBytes - sizeof(ReplyHeader);

// Chunk state words live among the words the GPU writes. 0 = free. The client claims a free chunk
// by writing kChunkClaimed (only it does), fills it or waits for it, and posts the copy. The GPU
// itself hands the chunk back behind the copy: host to device it writes kChunkFree, device to host
// kChunkFilled; the client then empties it and writes kChunkFree.
inline constexpr uint64_t kChunkFree = 0;
inline constexpr uint64_t kChunkClaimed = 1;
inline constexpr uint64_t kChunkFilled = 2;

constexpr uint64_t page_up(uint64_t n) { return (n + 4095) & ~uint64_t{4095}; }

inline constexpr uint64_t kReplyOffset = kOffersOffset + uint64_t{kOffers} * sizeof(MemoryOffer);
static_assert(kReplyOffset == 8192);
inline constexpr uint64_t kRingOffset =
    page_up(kReplyOffset + uint64_t{kReplySlots} * kReplySlotBytes);
inline constexpr uint64_t kWordsOffset =
    kRingOffset + kRingBytes;  // start of the range registered with the driver
inline constexpr uint64_t kChunkStatesOffset = kWordsOffset + uint64_t{kWordCount} * 8;
inline constexpr uint64_t kChunksOffset = page_up(kChunkStatesOffset + uint64_t{kChunkCount} * 8);
constexpr uint32_t chunk_bytes(uint32_t chunk) {
  return chunk < kFirstChunks ? kChunkBytes : kLaterChunkBytes;
}
// Behind kChunksOffset.
constexpr uint64_t chunk_place(uint32_t chunk) {
  return chunk < kFirstChunks ? uint64_t{chunk} * kChunkBytes
                              : uint64_t{kFirstChunks} * kChunkBytes +
                                    uint64_t{chunk - kFirstChunks} * kLaterChunkBytes;
}
inline constexpr uint64_t kSegmentBytes = kChunksOffset + chunk_place(kChunkCount);
inline constexpr uint64_t kFirstBytes =
    kChunksOffset + chunk_place(kFirstChunks);  // what a new segment occupies
inline constexpr uint64_t kRegisteredBytes = kFirstBytes - kWordsOffset;
inline constexpr uint64_t kMoreChunksBytes = kSegmentBytes - kFirstBytes;  // registered on request
static_assert(kRingOffset % 4096 == 0 && kWordsOffset % 4096 == 0 && kChunksOffset % 4096 == 0);

}  // namespace tube::abi
