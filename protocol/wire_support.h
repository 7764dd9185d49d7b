// What every generated wire struct is made of and checked with. protocol/README.md is the
// specification.
//
// Payloads come from the other process: they are untrusted until validate() has said yes. These
// helpers look at sizes only; they never follow an offset that they have not checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "sharedmem/abi.h"

namespace tube::wire {

// Bytes that follow the fixed struct: offset from the start of the payload, 8-aligned. Size 0 means
// none.
struct BlobRef {
  uint32_t offset;
  uint32_t size;
};
static_assert(sizeof(BlobRef) == 8);

// kHand: the hook's body is written by hand and either posts or waits.
enum class Lane : uint32_t { kPost = 1, kReply = 2, kHand = 3 };

// Which of the launches that the session holds back go to the driver before a record is executed
// (proxy/session/runs.h): none, since no stream could tell; those of the stream that it
// names, when its handler asks for that stream; those of all streams.
enum class Orders : uint8_t { kNone, kStream, kAll };

// Behind which of the records that are kept back a record stays (proxy/session/parked_records.h).
// kNamed: those with which it shares a named object. kTried: no others, until it was executed and
// has to wait (Session::stay_behind_all, or for memory). kEnds: those that are kAll, too. kAll:
// all.
enum class Behind : uint8_t { kNamed, kTried, kEnds, kAll };

// A field of the fixed struct that holds the id of an object on whose order others depend.
enum class NamedKind : uint8_t { kStream, kEvent, kKernel, kExec };
struct NamedField {
  uint16_t at;  // u64
  NamedKind kind;
  bool changes;  // later records find another object; of a stream: this one makes or ends it
};

// What the client waits for when the record is executed: a progress word with a value, or the state
// of a staging chunk. The proxy writes it when the record fails, since the GPU will not.
enum class Completes : uint8_t { kNothing, kWord, kChunk };

struct Completion {
  Completes what;
  uint16_t index_at;  // in the fixed struct: u32
  uint16_t value_at;  // u64 of a word, u32 of a chunk
};

// What the proxy knows of a record by its call number (protocol/calls, properties.gen.h).
template <size_t kMostNamed>
struct PropertiesOf {
  Orders orders;
  bool needs_gpu;  // false: executed although the GPU's context has died
  Behind behind;
  bool marks;  // puts no work into its stream
  Completion completes;
  uint16_t named_count;
  NamedField named[kMostNamed];

  constexpr std::span<const NamedField> named_fields() const { return {named, named_count}; }
};

inline constexpr uint32_t kMaxNameBytes = 64u << 10;  // those of templates reach some thousands
inline constexpr uint32_t kMaxBlobBytes =
    64u << 10;  // what a generated call takes; larger things have calls of their own

constexpr uint32_t align8(uint32_t bytes) { return (bytes + 7u) & ~7u; }

// The message struct that answers X.
template <class X>
struct ReplyOf {
  using type = typename X::Reply;
};

// An array element of 8 bytes that need not be aligned in the payload.
inline uint64_t blob_u64(std::span<const std::byte> bytes, size_t index) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

namespace detail {

// In range, behind the fixed struct, 8-aligned, whole elements, not more than max_bytes (0: no
// limit but the payload).
[[nodiscard]] constexpr bool blob_ok(size_t payload_bytes, uint32_t fixed_bytes, BlobRef untrusted,
                                     uint32_t element_bytes, uint32_t max_bytes) {
  if (untrusted.size == 0) return untrusted.offset <= payload_bytes;
  if (untrusted.offset < fixed_bytes || untrusted.offset % 8 != 0) return false;
  if (untrusted.offset > payload_bytes || untrusted.size > payload_bytes - untrusted.offset)
    return false;
  return untrusted.size % element_bytes == 0 && (max_bytes == 0 || untrusted.size <= max_bytes);
}

// Text: a blob without NUL, at most kMaxNameBytes.
[[nodiscard]] inline bool name_ok(std::span<const std::byte> untrusted_payload,
                                  uint32_t fixed_bytes, BlobRef untrusted) {
  if (!blob_ok(untrusted_payload.size(), fixed_bytes, untrusted, 1, kMaxNameBytes)) return false;
  return untrusted.size == 0 ||
         std::memchr(untrusted_payload.data() + untrusted.offset, 0, untrusted.size) == nullptr;
}

}  // namespace detail
}  // namespace tube::wire
