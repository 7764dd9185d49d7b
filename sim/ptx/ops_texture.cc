// tex, tld4, txq: reading textures by handle. The handle is a 64-bit register (bindless mode, the
// only one that compilers still use); depth comparison, offsets, samplers of their own and
// multisampled textures are refused when the module loads.
#include <algorithm>

#include "sim/ptx/ops.h"
#include "sim/ptx/texture.h"

namespace tube::sim::ptx {
namespace {

struct Geometry {
  std::string_view name;
  uint32_t dimensions;  // coordinates besides the layer; a cube's direction has three
  bool layered, cube;
};
constexpr Geometry kGeometries[] = {{"1d", 1, false, false}, {"2d", 2, false, false},
                                    {"3d", 3, false, false}, {"a1d", 1, true, false},
                                    {"a2d", 2, true, false}, {"cube", 3, false, true},
                                    {"acube", 3, true, true}};

// Inst::mode2
constexpr uint8_t kInteger = 1, kLevel = 2, kGradient = 4;

// Slots of one instruction in Function::lists.
struct Slots {
  const int32_t* out;         // 4
  const int32_t* layer;       // 1
  const int32_t* coordinate;  // 3
  const int32_t* extra;       // level, or two gradients of three
};
Slots slots_of(const Warp& w, const Inst& in) {
  const int32_t* list = w.frame->function->lists.data() + in.target;
  return {list, list + 4, list + 5, list + 8};
}

float float_at(const Warp& w, int32_t slot, unsigned lane) {
  return std::bit_cast<float>(slot32(w, slot)[lane]);
}

[[gnu::noinline]] void no_texture(Warp& w, const Inst& in, uint64_t handle) {
  w.fault(Fault::Kind::kIllegalAddress, in, handle, "no texture has this handle");
}

// How much of the first level a step covers, as a level of detail (isotropic).
float level_of_gradient(const Warp& w, const Texture& t, const Geometry& g, const int32_t* extra,
                        unsigned lane) {
  const float size[3] = {static_cast<float>(t.levels[0].width),
                         static_cast<float>(t.levels[0].height),
                         static_cast<float>(t.levels[0].depth)};
  float longest = 0;
  for (int direction = 0; direction < 2; ++direction) {
    float sum = 0;
    for (uint32_t d = 0; d < g.dimensions; ++d) {
      const float step = float_at(w, extra[direction * 3 + static_cast<int>(d)], lane) *
                         (t.normalized_coordinates ? size[d] : 1.0f);
      sum += step * step;
    }
    longest = std::max(longest, sum);
  }
  return longest > 0 ? 0.5f * std::log2(longest) : 0;
}

TexturePoint point_of(const Warp& w, const Inst& in, const Slots& slots, const Texture& t,
                      unsigned lane) {
  const Geometry& g = kGeometries[in.mode];
  TexturePoint p;
  p.dimensions = g.dimensions;
  p.layered = g.layered;
  p.cube = g.cube;
  p.integer = (in.mode2 & kInteger) != 0;
  if (g.layered) p.layer = slot32(w, *slots.layer)[lane];
  for (uint32_t d = 0; d < g.dimensions; ++d) {
    const uint32_t bits = slot32(w, slots.coordinate[d])[lane];
    if (p.integer) p.index[d] = static_cast<int32_t>(bits);
    else p.at[d] = std::bit_cast<float>(bits);
  }
  if ((in.mode2 & kLevel) != 0) {
    const uint32_t bits = slot32(w, slots.extra[0])[lane];
    p.level =
        p.integer ? static_cast<float>(static_cast<int32_t>(bits)) : std::bit_cast<float>(bits);
  }
  if ((in.mode2 & kGradient) != 0) p.level = level_of_gradient(w, t, g, slots.extra, lane);
  return p;
}

// tex and (with `Gather`) tld4; Inst::count is the component of tld4.
template <bool Gather>
void fetch(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const handles = slot64(w, in.a);
  const Slots slots = slots_of(w, in);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t handle = handles[lane] + in.imm;
    const Texture* const t = w.launch->texture(handle);
    if (t == nullptr) return no_texture(w, in, handle);
    const TexturePoint p = point_of(w, in, slots, *t, lane);
    uint32_t out[4] = {};
    uint64_t bad = 0;
    const bool good = Gather ? gather(*w.launch, *t, p, in.count, out, &bad)
                             : sample(*w.launch, *t, p, out, &bad);
    if (!good)
      return w.fault(Fault::Kind::kIllegalAddress, in, bad, "illegal address in a texture fetch");
    for (int i = 0; i < 4; ++i) slot32(w, slots.out[i])[lane] = out[i];
  }
}

// ---- building ----

uint8_t take_geometry(Builder& b) {
  for (size_t i = 0; i < std::size(kGeometries); ++i)
    if (b.has(kGeometries[i].name)) return static_cast<uint8_t>(i);
  b.fail("unsupported texture geometry");
}

const std::vector<Operand>& elements_of(const Operand& operand, std::vector<Operand>* one) {
  if (operand.kind == Operand::Kind::kVector) return operand.elements;
  *one = {operand};
  return *one;
}

// [handle, {coordinates}]: the handle's slot into `in`, the coordinates behind the outputs in
// `slots`.
Address handle_operand(Builder& b, const Operand& operand) {
  if (operand.kind != Operand::Kind::kAddress || operand.elements.size() != 1)
    b.fail("expected [handle, coordinates]");
  Operand handle = operand;
  handle.elements.clear();
  const Address address = b.address(handle, Space::kGlobal);
  if (address.base == kNoSlot || address.frame || address.kernel_param)
    b.fail("expected a register with a texture handle");
  return address;
}

void add_coordinates(Builder& b, const Operand& operand, const Geometry& g, Type type,
                     std::vector<int32_t>* slots) {
  std::vector<Operand> one;
  const std::vector<Operand>& given = elements_of(operand, &one);
  const size_t first = g.layered ? 1 : 0;
  if (given.size() < g.dimensions + first) b.fail("too few coordinates");
  const int32_t zero = b.constant(0, Class::k32);
  slots->push_back(g.layered ? b.source(given[0], Type::kU32) : zero);
  for (uint32_t d = 0; d < 3; ++d)
    slots->push_back(d < g.dimensions ? b.source(given[d + first], type) : zero);
}

void add_outputs(Builder& b, const Operand& operand, Type type, std::vector<int32_t>* slots) {
  std::vector<Operand> one;
  const std::vector<Operand>& given = elements_of(operand, &one);
  if (given.size() != 1 && given.size() != 4) b.fail("expected four destinations");
  for (size_t i = 0; i < 4; ++i)
    slots->push_back(i < given.size() ? b.target(given[i], type) : b.temporary(Class::k32));
}

void add_gradient(Builder& b, size_t index, const Geometry& g, std::vector<int32_t>* slots) {
  std::vector<Operand> one;
  const std::vector<Operand>& given = elements_of(b.operand(index), &one);
  if (given.size() < g.dimensions) b.fail("too few gradient components");
  for (uint32_t d = 0; d < 3; ++d)
    slots->push_back(d < g.dimensions ? b.source(given[d], Type::kF32) : b.constant(0, Class::k32));
}

Type take_result(Builder& b) {
  const Type type = b.type();
  if (type != Type::kF32 && type != Type::kU32 && type != Type::kS32)
    b.fail("unsupported result type of a texture fetch");
  return type;
}

void build_tex(Builder& b) {
  const bool level = b.has("level"), gradient = b.has("grad");
  b.has("base");
  const uint8_t geometry = take_geometry(b);
  const Geometry& g = kGeometries[geometry];
  b.has("v4");
  const Type result = take_result(b), coordinate = b.type();
  if (coordinate != Type::kF32 && coordinate != Type::kS32) b.fail("unsupported coordinate type");
  b.count(2 + (level ? 1 : 0) + (gradient ? 2 : 0));
  std::vector<int32_t> slots;
  const Operand& where = b.operand(1);
  const Address handle = handle_operand(b, where);
  add_outputs(b, b.operand(0), result, &slots);
  add_coordinates(b, where.elements[0], g, coordinate, &slots);
  if (level) slots.push_back(b.source(2, coordinate));
  if (gradient) {
    add_gradient(b, 2, g, &slots);
    add_gradient(b, 3, g, &slots);
  }
  const uint32_t list = b.list(slots);
  Inst& in = b.emit(fetch<false>);
  in.a = handle.base;
  in.imm = handle.offset;
  in.target = list;
  in.mode = geometry;
  in.mode2 = static_cast<uint8_t>((coordinate == Type::kS32 ? kInteger : 0) | (level ? kLevel : 0) |
                                  (gradient ? kGradient : 0));
}

void build_tld4(Builder& b) {
  uint8_t component = 0;
  static constexpr std::string_view kComponents[] = {"r", "g", "b", "a"};
  for (uint8_t i = 0; i < 4; ++i)
    if (b.has(kComponents[i])) component = i;
  const uint8_t geometry = take_geometry(b);
  const Geometry& g = kGeometries[geometry];
  if (g.dimensions == 1 || (g.dimensions == 3 && !g.cube)) b.fail("unsupported texture geometry");
  b.has("v4");
  const Type result = take_result(b), coordinate = b.type();
  if (coordinate != Type::kF32) b.fail("unsupported coordinate type");
  b.count(2);
  std::vector<int32_t> slots;
  const Operand& where = b.operand(1);
  const Address handle = handle_operand(b, where);
  add_outputs(b, b.operand(0), result, &slots);
  add_coordinates(b, where.elements[0], g, coordinate, &slots);
  const uint32_t list = b.list(slots);
  Inst& in = b.emit(fetch<true>);
  in.a = handle.base;
  in.imm = handle.offset;
  in.target = list;
  in.mode = geometry;
  in.count = component;
}

// ---- txq, suq: what a handle's texture is ----

constexpr std::string_view kQueries[] = {
    "width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords"};

uint32_t answer(const Texture& t, uint8_t query, uint32_t level) {
  if (level >= t.levels.size()) return 0;
  const TextureLevel& l = t.levels[level];
  switch (query) {
    case 0: return l.width;
    case 1: return l.height;
    case 2: return l.depth;
    case 3: return t.cube ? t.layers / 6 : t.layers;
    case 4: return static_cast<uint32_t>(t.levels.size());
    default: return t.normalized_coordinates ? 1 : 0;
  }
}

void query(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const handles = slot64(w, in.a);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    const Texture* const t = w.launch->texture(handles[lane] + in.imm);
    if (t == nullptr) return no_texture(w, in, handles[lane] + in.imm);
    slot32(w, in.d)[lane] = answer(*t, in.mode, in.b == kNoSlot ? 0 : slot32(w, in.b)[lane]);
  }
}

void build_query(Builder& b) {
  const bool level = b.has("level");
  uint8_t what = std::size(kQueries);
  for (size_t i = 0; i < std::size(kQueries); ++i)
    if (b.has(kQueries[i])) what = static_cast<uint8_t>(i);
  if (what == std::size(kQueries)) b.fail("unsupported texture query");
  b.has("b32");
  b.count(level ? 3 : 2);
  const Operand& where = b.operand(1);
  if (where.kind != Operand::Kind::kAddress || !where.elements.empty()) b.fail("expected [handle]");
  const Address handle = b.address(where, Space::kGlobal);
  if (handle.base == kNoSlot || handle.frame || handle.kernel_param)
    b.fail("expected a register with a handle");
  const int32_t detail = level ? b.source(2, Type::kU32) : kNoSlot;
  const int32_t out = b.target(0, Type::kB32);
  Inst& in = b.emit(query);
  in.d = out;
  in.a = handle.base;
  in.b = detail;
  in.imm = handle.offset;
  in.mode = what;
}

}  // namespace

void register_texture(BuildTable& table) {
  table["tex"] = build_tex;
  table["tld4"] = build_tld4;
  table["txq"] = build_query;
  table["suq"] = build_query;
}

}  // namespace tube::sim::ptx
