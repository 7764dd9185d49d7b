// ld, st, ldu, prefetch and the cache hints. One handler per element width and state space, up to
// eight elements.
//
// Every access is checked: alignment, then the range the caller's Memory answers with. Cache
// operators, eviction hints and memory orders change nothing here: one thread runs the launch, and
// host memory is coherent.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

constexpr uint8_t kFrameRelative = 1, kSynchronising = 2;

inline uint64_t lane_address(const Warp& w, const Inst& in, const uint64_t* base, unsigned lane) {
  return (base != nullptr ? base[lane] : 0) + in.imm +
         ((in.mode & kFrameRelative) != 0 ? w.local_base : 0);
}

[[gnu::noinline]] void bad_address(Warp& w, const Inst& in, uint64_t address, uint64_t size,
                                   const char* what) {
  if ((address & (size - 1)) != 0)
    w.fault(Fault::Kind::kMisalignedAddress, in, address, std::string("misaligned ") + what);
  else
    w.fault(Fault::Kind::kIllegalAddress, in, address, std::string("illegal address in ") + what);
}

// Volatile and stronger accesses are how kernels that run beside each other talk: such words are
// read and written whole, whatever thread the other kernel runs on.
template <class T>
T read_word(const std::byte* at, bool shared) {
  T value;
  if (shared) __atomic_load(reinterpret_cast<const T*>(at), &value, __ATOMIC_ACQUIRE);
  else std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void write_word(std::byte* at, T value, bool shared) {
  if (shared) __atomic_store(reinterpret_cast<T*>(at), &value, __ATOMIC_RELEASE);
  else std::memcpy(at, &value, sizeof(T));
}

template <class T, Space S, bool Vector>
void load(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const base = in.a == kNoSlot ? nullptr : slot64(w, in.a);
  const uint32_t count = Vector ? in.count : 1;
  const uint32_t size = sizeof(T) * count;
  const int32_t* const list = Vector ? w.frame->function->lists.data() + in.target : &in.d;
  const bool shared = (in.mode & kSynchronising) != 0;
  if (shared) w.touched_sync = true;
  // The base may be one of the destinations: addresses are read before the lane is written.
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t address = lane_address(w, in, base, i);
    const std::byte* const at =
        (address & (size - 1)) == 0 ? resolve<S>(w, address, size, i, false) : nullptr;
    if (at == nullptr) [[unlikely]]
      return bad_address(w, in, address, size, "load");
    for (uint32_t k = 0; k < count; ++k) {
      const T value = read_word<T>(at + k * sizeof(T), shared);
      words<T>(w, list[k])[i] = static_cast<WordOf<T>>(+value);  // a signed byte is extended
    }
  }
}

template <class T, Space S, bool Vector>
void store(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const base = in.a == kNoSlot ? nullptr : slot64(w, in.a);
  const uint32_t count = Vector ? in.count : 1;
  const uint32_t size = sizeof(T) * count;
  const int32_t* const list = Vector ? w.frame->function->lists.data() + in.target : &in.b;
  const bool shared = (in.mode & kSynchronising) != 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t address = lane_address(w, in, base, i);
    std::byte* const at =
        (address & (size - 1)) == 0 ? resolve<S>(w, address, size, i, true) : nullptr;
    if (at == nullptr) [[unlikely]]
      return bad_address(w, in, address, size, "store");
    for (uint32_t k = 0; k < count; ++k) {
      write_word(at + k * sizeof(T), static_cast<T>(words<T>(w, list[k])[i]), shared);
    }
  }
}

// Kernel parameters at a fixed offset: one read for all lanes.
template <class T>
void load_parameter(Warp& w, const Inst& in, uint32_t mask) {
  const std::byte* const at = resolve<Space::kParam>(w, in.imm, sizeof(T), 0, false);
  if (at == nullptr || in.imm % sizeof(T) != 0)
    return bad_address(w, in, in.imm, sizeof(T), "parameter load");
  T value;
  std::memcpy(&value, at, sizeof(T));
  auto* const d = words<T>(w, in.d);
  const auto word = static_cast<WordOf<T>>(+value);  // a signed byte is extended
  for_lanes(mask, [=](unsigned i) { d[i] = word; });
}

template <class T, bool Store>
Handler for_space(Space space, bool vector) {
  const auto pick = [&]<Space S>() -> Handler {
    if constexpr (Store) return vector ? store<T, S, true> : store<T, S, false>;
    else return vector ? load<T, S, true> : load<T, S, false>;
  };
  switch (space) {
    case Space::kGlobal:
    case Space::kConst: return pick.template operator()<Space::kGlobal>();
    case Space::kShared: return pick.template operator()<Space::kShared>();
    case Space::kLocal: return pick.template operator()<Space::kLocal>();
    case Space::kParam: return pick.template operator()<Space::kParam>();
    default: return pick.template operator()<Space::kGeneric>();
  }
}

template <bool Store>
Handler access_handler(Type type, Space space, bool vector) {
  switch (type_bits(type)) {
    case 8:
      return is_signed(type) ? for_space<int8_t, Store>(space, vector)
                             : for_space<uint8_t, Store>(space, vector);
    case 16:
      return is_signed(type) ? for_space<int16_t, Store>(space, vector)
                             : for_space<uint16_t, Store>(space, vector);
    case 32: return for_space<uint32_t, Store>(space, vector);
    case 64: return for_space<uint64_t, Store>(space, vector);
    default: return nullptr;
  }
}

Handler parameter_handler(Type type) {
  switch (type_bits(type)) {
    case 8: return is_signed(type) ? load_parameter<int8_t> : load_parameter<uint8_t>;
    case 16: return is_signed(type) ? load_parameter<int16_t> : load_parameter<uint16_t>;
    case 32: return load_parameter<uint32_t>;
    default: return load_parameter<uint64_t>;
  }
}

Space take_space(Builder& b) {
  if (b.has("global")) return Space::kGlobal;
  if (b.any("shared", "shared::cta", "shared::cluster")) return Space::kShared;
  if (b.has("local")) return Space::kLocal;
  if (b.any("param", "param::entry", "param::func")) return Space::kParam;
  if (b.has("const")) return Space::kConst;
  return Space::kGeneric;
}

// Consumes memory order, scope, cache and prefetch modifiers. True when the access may be part of a
// spin.
bool take_qualifiers(Builder& b) {
  const bool sync = b.any("volatile", "relaxed", "acquire", "release", "mmio");
  b.any("weak", "cta", "cluster", "gpu", "sys", "nc", "unified");
  b.any("ca", "cg", "cs", "lu", "cv", "wb", "wt");
  b.any("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
        "L1::no_allocate");
  b.any("L2::evict_normal", "L2::evict_first", "L2::evict_last");
  b.any("L2::64B", "L2::128B", "L2::256B");
  return sync;
}

uint32_t take_vector(Builder& b) {
  if (b.has("v2")) return 2;
  if (b.has("v4")) return 4;
  return b.has("v8") ? 8 : 1;
}

void finish_address(Inst& in, const Address& address, bool sync) {
  in.a = address.base;
  in.imm = address.offset;
  in.mode =
      static_cast<uint8_t>((address.frame ? kFrameRelative : 0) | (sync ? kSynchronising : 0));
}

// Where a .param or generic access really goes.
Space effective(Builder& b, Space space, const Address& address) {
  if (space == Space::kParam)
    return address.kernel_param && b.decl().entry ? Space::kParam : Space::kLocal;
  if (space == Space::kGeneric && address.frame) return Space::kLocal;
  if (space == Space::kGeneric && address.kernel_param) return Space::kParam;
  return space;
}

template <bool Store>
void build_access(Builder& b) {
  const bool sync = take_qualifiers(b);
  const bool hint = b.has("L2::cache_hint");
  const Space space = take_space(b);
  const uint32_t vector = take_vector(b);
  const Type type = b.type();
  if (type == Type::kPred || type_bits(type) > 64 || type_bits(type) * vector > 256)
    b.fail("unsupported width");
  b.count(hint ? 3 : 2);
  if (hint) b.source(2, Type::kB64);
  const Operand& memory = b.operand(Store ? 0 : 1);
  const Operand& data = b.operand(Store ? 1 : 0);
  const Address address = b.address(memory, space);
  const Space where = effective(b, space, address);
  if (Store && where == Space::kParam) b.fail("a kernel's parameters cannot be written");
  if (Store && where == Space::kConst) b.fail("constant memory cannot be written");
  std::vector<int32_t> slots;
  const std::vector<Operand> one{data};
  const std::vector<Operand>& elements = data.kind == Operand::Kind::kVector ? data.elements : one;
  if (elements.size() != vector) b.fail("vector does not match its width");
  slots.reserve(elements.size());
  for (const Operand& element : elements)
    slots.push_back(Store ? b.source(element, type) : b.target(element, type));
  Handler handler = access_handler<Store>(type, where, vector > 1);
  if (!Store && where == Space::kParam && address.base == kNoSlot && vector == 1)
    handler = parameter_handler(type);
  Inst& in = b.emit(handler);
  finish_address(in, address, sync);
  in.count = static_cast<uint8_t>(vector);
  if (vector > 1) in.target = b.list(slots);
  else if (Store) in.b = slots[0];
  else in.d = slots[0];
}

void nothing(Warp&, const Inst&, uint32_t) {}

// Cache control: checked for its operand, then ignored.
void build_ignored(Builder& b) {
  while (!b.next_modifier().empty()) {
  }
  b.emit(nothing);
}

void build_createpolicy(Builder& b) {
  while (!b.next_modifier().empty()) {
  }
  b.emit(move64, b.target(0, Type::kB64), b.constant(0, Class::k64));
}

// mapa: the shared memory of another block of the cluster
template <class T>
void mapa(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto* const a = words<T>(w, in.a);
  const uint32_t* const rank = slot32(w, in.b);
  for_lanes(mask, [=](unsigned i) {
    const T offset_mask = (T{1} << kClusterShift) - 1;
    T window = 0;
    if constexpr (sizeof(T) == 8) window = a[i] & kWindowMask;
    d[i] = window | static_cast<T>(rank[i] + 1) << kClusterShift | (a[i] & offset_mask);
  });
}

template <class T>
void getctarank(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const auto* const a = words<T>(w, in.a);
  for_lanes(mask, [&](unsigned i) {
    const auto rank =
        static_cast<uint32_t>((static_cast<uint64_t>(a[i]) & ~kWindowMask) >> kClusterShift);
    d[i] = rank == 0 ? w.block->cluster_rank : rank - 1;
  });
}

void build_mapa(Builder& b) {
  b.has("shared::cluster");
  const Type type = b.type();
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, Type::kU32);
  b.emit(type_class(type) == Class::k64 ? mapa<uint64_t> : mapa<uint32_t>, b.target(0, type), x, y);
}

void build_getctarank(Builder& b) {
  b.has("shared::cluster");
  const Type type = b.type();
  b.count(2);
  const int32_t x = b.source(1, type);
  b.emit(type_class(type) == Class::k64 ? getctarank<uint64_t> : getctarank<uint32_t>,
         b.target(0, Type::kU32), x);
}

}  // namespace

void register_memory(BuildTable& table) {
  table["ld"] = build_access<false>;
  table["ldu"] = build_access<false>;
  table["st"] = build_access<true>;
  for (const char* name : {"prefetch", "prefetchu", "discard", "applypriority"})
    table[name] = build_ignored;
  table["createpolicy"] = build_createpolicy;
  table["mapa"] = build_mapa;
  table["getctarank"] = build_getctarank;
}

}  // namespace tube::sim::ptx
