// suld, sust, sured: surfaces, as plain bytes (.b). x counts bytes, y and z rows and slices.
//
// Outside the surface .trap faults, .clamp goes to the nearest element, .zero reads zero and drops
// what is written.
#include <algorithm>

#include "sim/ptx/ops.h"
#include "sim/ptx/texture.h"

namespace tube::sim::ptx {
namespace {

enum class Outside : uint8_t { kTrap, kClamp, kZero };
enum class Reduce : uint8_t { kAdd, kMin, kMax, kAnd, kOr };

struct Geometry {
  std::string_view name;
  uint32_t dimensions;
  bool layered;
};
constexpr Geometry kGeometries[] = {
    {"1d", 1, false}, {"2d", 2, false}, {"3d", 3, false}, {"a1d", 1, true}, {"a2d", 2, true}};

// Host memory behind one lane's element of `bytes` bytes; nullptr: outside (*drop) or a fault.
// Inst: mode is the geometry, mode2 what happens outside, e the list of layer and three
// coordinates.
std::byte* element(Warp& w, const Inst& in, unsigned lane, uint32_t bytes, bool write, bool* drop) {
  *drop = false;
  const uint64_t handle = slot64(w, in.a)[lane] + in.imm;
  const Texture* const t = w.launch->texture(handle);
  if (t == nullptr) {
    w.fault(Fault::Kind::kIllegalAddress, in, handle, "no surface has this handle");
    return nullptr;
  }
  const Geometry& g = kGeometries[in.mode];
  const TextureLevel& level = t->levels[0];
  const int32_t* const slots = w.frame->function->lists.data() + in.e;
  const int64_t row = int64_t{level.width} * t->element_bytes();
  const int64_t last[4] = {g.layered ? int64_t{t->layers} - 1 : 0, row - bytes,
                           int64_t{level.height} - 1, int64_t{level.depth} - 1};
  int64_t at[4] = {};
  for (uint32_t d = g.layered ? 0 : 1; d <= g.dimensions; ++d) {
    at[d] = static_cast<int32_t>(slot32(w, slots[d])[lane]);
    if (at[d] >= 0 && at[d] <= last[d]) continue;
    switch (static_cast<Outside>(in.mode2)) {
      case Outside::kClamp:
        at[d] = std::clamp<int64_t>(at[d], 0, std::max<int64_t>(last[d], 0));
        break;
      case Outside::kZero: *drop = true; return nullptr;
      case Outside::kTrap:
        w.fault(Fault::Kind::kIllegalAddress, in, handle, "surface access outside its bounds");
        return nullptr;
    }
  }
  const uint64_t address =
      level.address + static_cast<uint64_t>(at[0] + at[3]) * level.slice_bytes +
      static_cast<uint64_t>(at[2]) * level.row_bytes + static_cast<uint64_t>(at[1]);
  if (address % std::min(bytes, t->element_bytes()) != 0) {
    w.fault(Fault::Kind::kMisalignedAddress, in, address, "misaligned surface access");
    return nullptr;
  }
  std::byte* const host = w.launch->global(address, bytes, write);
  if (host == nullptr)
    w.fault(Fault::Kind::kIllegalAddress, in, address, "illegal address in a surface access");
  return host;
}

template <class T, bool Store>
void access(Warp& w, const Inst& in, uint32_t mask) {
  const int32_t* const list = w.frame->function->lists.data() + in.target;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    bool drop = false;
    std::byte* const host = element(w, in, lane, sizeof(T) * in.count, Store, &drop);
    if (host == nullptr && !drop) return;
    for (uint32_t k = 0; k < in.count; ++k) {
      if constexpr (Store) {
        const T value = static_cast<T>(words<T>(w, list[k])[lane]);
        if (!drop) std::memcpy(host + k * sizeof(T), &value, sizeof(T));
      } else {
        T value = 0;
        if (!drop) std::memcpy(&value, host + k * sizeof(T), sizeof(T));
        words<T>(w, list[k])[lane] = static_cast<WordOf<T>>(value);
      }
    }
  }
}

template <class T>
T combine(Reduce op, T old, T value) {
  switch (op) {
    case Reduce::kAdd:
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(value));
    case Reduce::kMin: return std::min(old, value);
    case Reduce::kMax: return std::max(old, value);
    case Reduce::kAnd: return static_cast<T>(old & value);
    case Reduce::kOr: return static_cast<T>(old | value);
  }
  return old;
}

// Other grids may run at the same time: host atomics, as for red. Inst::count: the operation.
template <class T>
void reduce(Warp& w, const Inst& in, uint32_t mask) {
  const auto* const values = words<T>(w, in.b);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    bool drop = false;
    auto* const host = reinterpret_cast<T*>(element(w, in, lane, sizeof(T), true, &drop));
    if (drop) continue;
    if (host == nullptr) return;
    T old = __atomic_load_n(host, __ATOMIC_RELAXED);
    T wanted;
    do {
      wanted = combine(static_cast<Reduce>(in.count), old, from_word<T>(values[lane]));
    } while (
        !__atomic_compare_exchange_n(host, &old, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  }
}

// ---- building ----

uint8_t take_geometry(Builder& b) {
  for (size_t i = 0; i < std::size(kGeometries); ++i)
    if (b.has(kGeometries[i].name)) return static_cast<uint8_t>(i);
  b.fail("unsupported surface geometry");
}

uint8_t take_outside(Builder& b) {
  if (b.has("clamp")) return static_cast<uint8_t>(Outside::kClamp);
  if (b.has("zero")) return static_cast<uint8_t>(Outside::kZero);
  b.has("trap");
  return static_cast<uint8_t>(Outside::kTrap);
}

// [handle, {coordinates}] into the instruction that `emit` makes once everything else is there.
struct Where {
  Address handle;
  uint32_t list;
};
Where take_where(Builder& b, const Operand& operand, const Geometry& g) {
  if (operand.kind != Operand::Kind::kAddress || operand.elements.size() != 1)
    b.fail("expected [handle, coordinates]");
  Operand handle = operand;
  handle.elements.clear();
  Where out;
  out.handle = b.address(handle, Space::kGlobal);
  if (out.handle.base == kNoSlot || out.handle.frame || out.handle.kernel_param)
    b.fail("expected a register with a surface handle");
  const Operand& coordinates = operand.elements[0];
  const std::vector<Operand> one{coordinates};
  const std::vector<Operand>& given =
      coordinates.kind == Operand::Kind::kVector ? coordinates.elements : one;
  const size_t first = g.layered ? 1 : 0;
  if (given.size() < g.dimensions + first) b.fail("too few coordinates");
  const int32_t zero = b.constant(0, Class::k32);
  std::vector<int32_t> slots{g.layered ? b.source(given[0], Type::kU32) : zero};
  for (uint32_t d = 0; d < 3; ++d)
    slots.push_back(d < g.dimensions ? b.source(given[d + first], Type::kS32) : zero);
  out.list = b.list(slots);
  return out;
}

void finish(Inst& in, const Where& where, uint8_t geometry, uint8_t outside) {
  in.a = where.handle.base;
  in.imm = where.handle.offset;
  in.e = static_cast<int32_t>(where.list);
  in.mode = geometry;
  in.mode2 = outside;
}

template <bool Store>
Handler access_handler(Type type) {
  switch (type_bits(type)) {
    case 8: return access<uint8_t, Store>;
    case 16: return access<uint16_t, Store>;
    case 32: return access<uint32_t, Store>;
    case 64: return access<uint64_t, Store>;
    default: return nullptr;
  }
}

template <bool Store>
void build_access(Builder& b) {
  if (!b.has("b")) b.fail("formatted surface access is not supported");
  b.any("ca", "cg", "cs", "cv", "wb", "wt");
  const uint8_t geometry = take_geometry(b), outside = take_outside(b);
  const uint32_t vector = b.has("v2") ? 2 : b.has("v4") ? 4 : 1;
  const Type type = b.type();
  const Handler handler = access_handler<Store>(type);
  if (handler == nullptr || type_bits(type) * vector > 128) b.fail("unsupported width");
  b.count(2);
  const Operand& memory = b.operand(Store ? 0 : 1);
  const Operand& data = b.operand(Store ? 1 : 0);
  const Where where = take_where(b, memory, kGeometries[geometry]);
  const std::vector<Operand> one{data};
  const std::vector<Operand>& elements = data.kind == Operand::Kind::kVector ? data.elements : one;
  if (elements.size() != vector) b.fail("vector does not match its width");
  std::vector<int32_t> slots;
  slots.reserve(elements.size());
  for (const Operand& each : elements)
    slots.push_back(Store ? b.source(each, type) : b.target(each, type));
  const uint32_t list = b.list(slots);
  Inst& in = b.emit(handler);
  finish(in, where, geometry, outside);
  in.target = list;
  in.count = static_cast<uint8_t>(vector);
}

void build_reduce(Builder& b) {
  if (!b.has("b")) b.fail("formatted surface access is not supported");
  static constexpr std::string_view kOps[] = {"add", "min", "max", "and", "or"};
  uint8_t op = std::size(kOps);
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (b.has(kOps[i])) op = static_cast<uint8_t>(i);
  if (op == std::size(kOps)) b.fail("unknown surface reduction");
  const uint8_t geometry = take_geometry(b), outside = take_outside(b);
  const Type type = b.type();
  if (type_bits(type) < 32 || !is_integer(type)) b.fail("unsupported type of a surface reduction");
  b.count(2);
  const Where where = take_where(b, b.operand(0), kGeometries[geometry]);
  const int32_t value = b.source(1, type);
  const bool wide = type_bits(type) == 64;
  Inst& in = b.emit(is_signed(type) ? (wide ? reduce<int64_t> : reduce<int32_t>)
                                    : (wide ? reduce<uint64_t> : reduce<uint32_t>));
  finish(in, where, geometry, outside);
  in.b = value;
  in.count = op;
}

}  // namespace

void register_surface(BuildTable& table) {
  table["suld"] = build_access<false>;
  table["sust"] = build_access<true>;
  table["sured"] = build_reduce;
}

}  // namespace tube::sim::ptx
