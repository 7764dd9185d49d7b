// cp.async and mbarrier: copies happen at once, so waiting for them never waits; barriers keep
// their own state word.
//
// An mbarrier's 64 bits: phase in bit 63, expected arrivals in bits 40-59, pending arrivals in bits
// 20-39, transaction bytes (biased by 2^19) in bits 0-19. Programs treat the word as opaque. A
// phase ends when pending and bytes are zero.
#include <algorithm>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

constexpr uint64_t kField = (uint64_t{1} << 20) - 1, kNoBytes = uint64_t{1} << 19,
                   kPhase = uint64_t{1} << 63;

struct Mbarrier {
  uint64_t phase, expected, pending, bytes;
  explicit Mbarrier(uint64_t word)
      : phase(word & kPhase),
        expected(word >> 40 & kField),
        pending(word >> 20 & kField),
        bytes(word & kField) {}
  uint64_t word() const { return phase | expected << 40 | pending << 20 | bytes; }
  void settle() {
    if (pending != 0 || bytes != kNoBytes) return;
    phase ^= kPhase;
    pending = expected;
  }
};

// A lane's shared (or generic) address; the space is in mode bit 7, frame-relative never.
std::byte* at_lane(Warp& w, const Inst& in, int32_t slot, uint64_t offset, uint32_t size,
                   unsigned lane, bool shared, bool write) {
  const uint64_t address = (slot == kNoSlot ? 0 : slot64(w, slot)[lane]) + offset;
  std::byte* const at = address % (size < 16 ? size : 16) != 0 ? nullptr
                        : shared
                            ? resolve<Space::kShared>(w, address & ~kWindowMask, size, lane, write)
                            : resolve<Space::kGeneric>(w, address, size, lane, write);
  if (at == nullptr)
    w.fault(Fault::Kind::kIllegalAddress, in, address,
            "illegal address in an asynchronous operation");
  return at;
}

// cp.async: a: destination (imm), b: source, offset in Function::lists; count: bytes; c: source
// size or none
void copy_async(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t offset =
      static_cast<uint64_t>(static_cast<int64_t>(w.frame->function->lists[in.target]));
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    std::byte* const to = at_lane(w, in, in.a, in.imm, in.count, i, true, true);
    if (to == nullptr) return;
    uint32_t bytes = in.count;
    if (in.c != kNoSlot) bytes = std::min(bytes, slot32(w, in.c)[i]);
    if (in.e != kNoSlot && (predicate(w, in.e) >> i & 1) != 0) bytes = 0;
    if (bytes != 0) {
      const uint64_t address = (in.b == kNoSlot ? 0 : slot64(w, in.b)[i]) + offset;
      const std::byte* const from = resolve<Space::kGeneric>(w, address, bytes, i, false);
      if (from == nullptr)
        return w.fault(Fault::Kind::kIllegalAddress, in, address, "illegal address in cp.async");
      std::memcpy(to, from, bytes);
    }
    std::memset(to + bytes, 0, in.count - bytes);
  }
}

void nothing(Warp&, const Inst&, uint32_t) {}

enum class Bar : uint8_t {
  kInit,
  kInval,
  kArrive,
  kArriveDrop,
  kExpect,
  kTest,
  kTestParity,
  kTry,
  kTryParity,
  kPending
};

// mode: Bar; a/imm: barrier; b: count, bytes, state or parity; d: state or result; mode2 bit 0:
// shared, 1: expect_tx too
void mbarrier(Warp& w, const Inst& in, uint32_t mask) {
  const auto op = static_cast<Bar>(in.mode);
  uint32_t result = 0;
  w.touched_sync = true;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    std::byte* const at = at_lane(w, in, in.a, in.imm, 8, i, (in.mode2 & 1) != 0, true);
    if (at == nullptr) return;
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    Mbarrier barrier(word);
    const uint32_t argument = in.b == kNoSlot ? 1 : slot32(w, in.b)[i];
    switch (op) {
      case Bar::kInit:
        barrier = Mbarrier(0);
        barrier.expected = barrier.pending = argument & kField;
        barrier.bytes = kNoBytes;
        break;
      case Bar::kInval: barrier = Mbarrier(0); break;
      case Bar::kExpect: barrier.bytes = (barrier.bytes + argument) & kField; break;
      case Bar::kArrive:
      case Bar::kArriveDrop: {
        if (in.d != kNoSlot) slot64(w, in.d)[i] = word;
        const bool transaction = (in.mode2 & 2) != 0;
        const uint32_t count = transaction ? 1 : argument;
        if (transaction) barrier.bytes = (barrier.bytes + argument) & kField;
        if (op == Bar::kArriveDrop) barrier.expected -= std::min<uint64_t>(barrier.expected, count);
        barrier.pending -= std::min<uint64_t>(barrier.pending, count);
        barrier.settle();
        break;
      }
      case Bar::kTest:
      case Bar::kTry: {
        const bool done = ((slot64(w, in.b)[i] ^ word) & kPhase) != 0;
        result |= static_cast<uint32_t>(done) << i;
        break;
      }
      case Bar::kTestParity:
      case Bar::kTryParity: {
        const bool done = (barrier.phase != 0) != ((argument & 1) != 0);
        result |= static_cast<uint32_t>(done) << i;
        break;
      }
      case Bar::kPending: break;
    }
    word = barrier.word();
    std::memcpy(at, &word, 8);
  }
  if (op >= Bar::kTest) set_predicate(w, in.d, mask, result);
}

struct PendingCount {
  static uint32_t op(uint64_t state) { return static_cast<uint32_t>(Mbarrier(state).pending); }
};

// cp.async.mbarrier.arrive: the copies are done, so it arrives; without .noinc the arrival was not
// counted before
void copy_arrive(Warp& w, const Inst& in, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    std::byte* const at = at_lane(w, in, in.a, in.imm, 8, i, (in.mode2 & 1) != 0, true);
    if (at == nullptr) return;
    if (in.mode == 0) continue;  // one more expected, one more arrived
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    Mbarrier barrier(word);
    barrier.pending -= std::min<uint64_t>(barrier.pending, 1);
    barrier.settle();
    word = barrier.word();
    std::memcpy(at, &word, 8);
  }
}

// cp.async.bulk: a/imm destination, b source, c bytes, e mbarrier or none; mode bit 0: to shared
void copy_bulk(Warp& w, const Inst& in, uint32_t mask) {
  const int32_t* const lists = w.frame->function->lists.data() + in.target;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint32_t bytes = slot32(w, in.c)[i];
    if (bytes == 0) continue;
    const bool to_shared = (in.mode & 1) != 0, from_shared = (in.mode & 2) != 0;
    const uint64_t to_address = (in.a == kNoSlot ? 0 : slot64(w, in.a)[i]) + in.imm;
    const uint64_t from_address =
        (in.b == kNoSlot ? 0 : slot64(w, in.b)[i]) + static_cast<uint64_t>(int64_t{lists[0]});
    std::byte* const to = to_shared ? shared_memory(w, to_address & ~kWindowMask, bytes)
                                    : resolve<Space::kGeneric>(w, to_address, bytes, i, true);
    const std::byte* const from = from_shared
                                      ? shared_memory(w, from_address & ~kWindowMask, bytes)
                                      : resolve<Space::kGeneric>(w, from_address, bytes, i, false);
    if (to == nullptr || from == nullptr)
      return w.fault(Fault::Kind::kIllegalAddress, in, to == nullptr ? to_address : from_address,
                     "illegal address in cp.async.bulk");
    std::memcpy(to, from, bytes);
    if (in.e == kNoSlot) continue;
    std::byte* const at =
        at_lane(w, in, in.e, static_cast<uint64_t>(int64_t{lists[1]}), 8, i, true, true);
    if (at == nullptr) return;
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    Mbarrier barrier(word);
    barrier.bytes = (barrier.bytes - bytes) & kField;
    barrier.settle();
    word = barrier.word();
    std::memcpy(at, &word, 8);
  }
}

void build_bulk(Builder& b) {
  if (b.any("commit_group", "wait_group")) {
    b.has("read");
    b.emit(nothing);
    return;
  }
  b.any("shared::cluster", "shared::cta", "global");
  const bool counted = b.has("mbarrier::complete_tx::bytes");
  b.has("bulk_group");
  const bool hint = b.has("L2::cache_hint");
  // The mbarrier form copies to shared memory, the group form from it.
  b.count(counted ? 4 : 3, (counted ? 4 : 3) + (hint ? 1 : 0));
  const Address to = b.address(b.operand(0), counted ? Space::kShared : Space::kGlobal);
  const Address from = b.address(b.operand(1), counted ? Space::kGlobal : Space::kShared);
  const int32_t bytes = b.source(2, Type::kU32);
  Address barrier;
  if (counted) barrier = b.address(b.operand(3), Space::kShared);
  Inst& in = b.emit(copy_bulk, kNoSlot, to.base, from.base, bytes);
  in.imm = to.offset;
  in.e = counted ? barrier.base : kNoSlot;
  in.mode = counted ? 1 : 2;
  in.target = b.list({static_cast<int32_t>(from.offset), static_cast<int32_t>(barrier.offset)});
}

void build_cp(Builder& b) {
  if (!b.has("async")) b.fail("expected .async");
  if (b.has("bulk")) return build_bulk(b);
  if (b.any("commit_group", "wait_group", "wait_all")) {
    b.emit(nothing);
    return;
  }
  if (b.has("mbarrier")) {
    if (!b.has("arrive")) b.fail("expected .arrive");
    const bool noinc = b.has("noinc");
    const bool shared = b.any("shared", "shared::cta");
    b.type();
    b.count(1);
    const Address address = b.address(b.operand(0), Space::kShared);
    Inst& in = b.emit(copy_arrive, kNoSlot, address.base);
    in.imm = address.offset;
    in.mode = noinc;
    in.mode2 = shared;
    return;
  }
  if (!b.any("ca", "cg")) b.fail("expected .ca or .cg");
  if (!b.any("shared", "shared::cta")) b.fail("expected .shared");
  if (!b.has("global")) b.fail("expected .global");
  const bool hint = b.has("L2::cache_hint");
  b.any("L2::64B", "L2::128B", "L2::256B");
  b.count(3, hint ? 5 : 4);
  const uint64_t bytes = b.immediate(b.operand(2));
  if (bytes != 4 && bytes != 8 && bytes != 16) b.fail("cp.async copies 4, 8 or 16 bytes");
  const Address to = b.address(b.operand(0), Space::kShared),
                from = b.address(b.operand(1), Space::kGlobal);
  int32_t size = kNoSlot, ignore = kNoSlot;
  if (b.operands() - (hint ? 1 : 0) == 4) {
    if (b.register_type(b.operand(3)) == Type::kPred) ignore = b.predicate_source(b.operand(3));
    else size = b.source(3, Type::kU32);
  }
  Inst& in = b.emit(copy_async, kNoSlot, to.base, from.base, size);
  in.e = ignore;
  in.imm = to.offset;
  in.count = static_cast<uint8_t>(bytes);
  in.target = b.list({static_cast<int32_t>(from.offset)});
}

void build_mbarrier(Builder& b) {
  Bar op = Bar::kInit;
  bool transaction = false;
  if (b.has("init")) op = Bar::kInit;
  else if (b.has("inval")) op = Bar::kInval;
  else if (b.has("arrive_drop")) op = Bar::kArriveDrop;
  else if (b.has("arrive")) op = Bar::kArrive;
  else if (b.has("expect_tx")) op = Bar::kExpect;
  else if (b.has("test_wait")) op = b.has("parity") ? Bar::kTestParity : Bar::kTest;
  else if (b.has("try_wait")) op = b.has("parity") ? Bar::kTryParity : Bar::kTry;
  else if (b.has("pending_count")) op = Bar::kPending;
  else b.fail("unknown mbarrier operation");
  if (op == Bar::kArrive || op == Bar::kArriveDrop) {
    transaction = b.has("expect_tx");
    b.has("noComplete");
  }
  b.any("release", "acquire", "relaxed");
  b.any("cta", "cluster");
  const bool shared = b.any("shared", "shared::cta", "shared::cluster");
  b.type();
  if (op == Bar::kPending) {
    b.count(2);
    const int32_t state = b.source(1, Type::kB64);
    b.emit(unary<PendingCount, uint32_t, uint64_t>, b.target(0, Type::kU32), state);
    return;
  }
  size_t at = 0;
  int32_t d = kNoSlot, argument = kNoSlot;
  const bool tests = op >= Bar::kTest;
  const bool arrives = op == Bar::kArrive || op == Bar::kArriveDrop;
  if (tests) d = b.target(at++, Type::kPred);
  else if (arrives && b.operand(0).kind != Operand::Kind::kAddress) d = b.target(at++, Type::kB64);
  const Address address = b.address(b.operand(at++), Space::kShared);
  if (at < b.operands())
    argument = b.source(at++, op == Bar::kTest || op == Bar::kTry ? Type::kB64 : Type::kU32);
  if (at < b.operands() && (op == Bar::kTry || op == Bar::kTryParity))
    b.source(at++, Type::kU32);  // time limit
  if (at != b.operands() || (tests && argument == kNoSlot)) b.fail("wrong number of operands");
  Inst& in = b.emit(mbarrier, d, address.base, argument);
  in.imm = address.offset;
  in.mode = static_cast<uint8_t>(op);
  in.mode2 = static_cast<uint8_t>((shared ? 1 : 0) | (transaction ? 2 : 0));
}

}  // namespace

void register_async(BuildTable& table) {
  table["cp"] = build_cp;
  table["mbarrier"] = build_mbarrier;
}

}  // namespace tube::sim::ptx
