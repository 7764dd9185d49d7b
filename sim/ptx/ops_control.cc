// Branches, calls, barriers, fences, traps.
#include "sim/ptx/lower.h"
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

void bra(Warp& w, const Inst& in, uint32_t mask) { w.branch(in.target, mask); }

// Lanes go one index at a time; those with another index run the instruction again.
void brx(Warp& w, const Inst& in, uint32_t mask) {
  const uint32_t* const a = slot32(w, in.a);
  const uint32_t index = a[std::countr_zero(mask)];
  uint32_t same = 0;
  for_lanes(mask, [&](unsigned i) { same |= static_cast<uint32_t>(a[i] == index) << i; });
  if (index >= in.imm)
    return w.fault(Fault::Kind::kInvalidPc, in, index, "branch index out of range");
  const auto again = static_cast<uint32_t>(&in - w.code);
  const auto target = static_cast<uint32_t>(w.frame->function->lists[in.target + index]);
  w.leave(mask & ~same, again);
  w.branch(target, same);
}

void ret(Warp& w, const Inst&, uint32_t mask) { w.ret(mask); }
void exit_lanes(Warp& w, const Inst&, uint32_t mask) { w.exit(mask); }

void enter(Warp& w, const Inst& in, uint32_t mask, uint32_t function) {
  const Function& callee = w.launch->module.functions[function];
  if (callee.builtin != nullptr) callee.builtin(w, in, mask);
  else if (!callee.has_body)
    w.fault(Fault::Kind::kInvalidPc, in, function, "call of a function without a body");
  else w.call(in, mask, function);
}

void call_direct(Warp& w, const Inst& in, uint32_t mask) {
  enter(w, in, mask, w.frame->function->calls[in.target].function);
}

void call_indirect(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const a = slot64(w, in.a);
  const uint64_t address = a[std::countr_zero(mask)];
  uint32_t same = 0;
  for_lanes(mask, [&](unsigned i) { same |= static_cast<uint32_t>(a[i] == address) << i; });
  const uint64_t index = (address - kCodeWindow) / 16 - 1;
  if ((address & kWindowMask) != kCodeWindow || address % 16 != 0 ||
      index >= w.launch->module.functions.size() || w.launch->module.functions[index].entry)
    return w.fault(Fault::Kind::kInvalidPc, in, address, "call of an address that is no function");
  w.leave(mask & ~same, static_cast<uint32_t>(&in - w.code));
  enter(w, in, same, static_cast<uint32_t>(index));
}

void trap(Warp& w, const Inst& in, uint32_t) { w.fault(Fault::Kind::kTrap, in, 0, "trap"); }
void nothing(Warp&, const Inst&, uint32_t) {}
void give_way(Warp& w, const Inst&, uint32_t) { w.touched_sync = true; }

void build_bra(Builder& b) {
  b.has("uni");
  b.count(1);
  const Operand& to = b.operand(0);
  if (to.kind != Operand::Kind::kName) b.fail("expected a label");
  b.label_target(b.emit(bra), to.name);
}

void build_brx(Builder& b) {
  if (!b.has("idx")) b.fail("expected .idx");
  b.has("uni");
  b.count(2);
  const int32_t a = b.source(0, Type::kU32);
  const std::vector<std::string_view>* const targets = b.targets(b.operand(1).name);
  if (targets == nullptr) b.fail("expected a list of branch targets");
  Inst& in = b.emit(brx, kNoSlot, a);
  in.target = b.list(std::vector<int32_t>(targets->size(), 0));
  in.imm = targets->size();
  const uint32_t first = in.target;
  for (uint32_t i = 0; i < targets->size(); ++i) b.list_label(first + i, (*targets)[i]);
}

void build_call(Builder& b) {
  b.has("uni");
  size_t at = 0;
  const Operand* returns = nullptr;
  const Operand* args = nullptr;
  if (b.operand(0).kind == Operand::Kind::kList) returns = &b.operand(at++);
  const Operand& callee = b.operand(at++);
  if (callee.kind != Operand::Kind::kName) b.fail("expected a function");
  if (at < b.operands() && b.operand(at).kind == Operand::Kind::kList) args = &b.operand(at++);
  const Symbol* symbol = nullptr;
  const FunctionDecl* decl = nullptr;
  int32_t pointer = kNoSlot;
  if (b.register_type(callee) != Type::kNone) {
    pointer = b.source(callee, Type::kU64);
    if (at < b.operands()) decl = b.prototype(b.operand(at++).name);
  } else {
    symbol = b.find_symbol(callee.name);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kFunction)
      b.fail("unknown function '" + std::string(callee.name) + "'");
    decl = symbol->function;
    if (at < b.operands()) ++at;  // a prototype or target list may stand here
    const Function& target = b.module().module().functions[symbol->index];
    if (!target.has_body && target.builtin == nullptr)
      b.fail("function '" + std::string(callee.name) + "' is extern and nothing defines it");
    if (target.entry) b.fail("a kernel cannot be called");
  }
  if (at != b.operands()) b.fail("too many operands");
  CallSite site;
  const auto gather = [&](const Operand* list, const std::vector<VariableDecl>* formals,
                          std::vector<Actual>& out) {
    if (list == nullptr) return;
    for (size_t i = 0; i < list->elements.size(); ++i)
      out.push_back(b.actual(list->elements[i],
                             formals != nullptr && i < formals->size() ? &(*formals)[i] : nullptr));
  };
  gather(args, decl != nullptr ? &decl->params : nullptr, site.args);
  gather(returns, decl != nullptr ? &decl->returns : nullptr, site.returns);
  if (decl != nullptr &&
      (site.args.size() != decl->params.size() || site.returns.size() != decl->returns.size()))
    b.fail("arguments do not match the function");
  if (symbol != nullptr) {
    site.function = symbol->index;
    b.function().callees.push_back(symbol->index);
  } else {
    b.function().calls_indirect = true;
  }
  Inst& in = b.emit(symbol != nullptr ? call_direct : call_indirect);
  in.a = pointer;
  b.call_site(in) = std::move(site);
}

// ---- barriers. mode: 0 plain, 1 popc, 2 and, 3 or; mode2: 0 wait, 1 arrive only

void bar(Warp& w, const Inst& in, uint32_t mask) {
  const unsigned first = static_cast<unsigned>(std::countr_zero(mask));
  const uint32_t id = slot32(w, in.a)[first];
  const uint32_t threads = in.b == kNoSlot ? 0 : slot32(w, in.b)[first];
  Block& block = *w.block;
  if (id >= std::size(block.barriers))
    return w.fault(Fault::Kind::kIllegalInstruction, in, id, "barrier out of range");
  const auto count = static_cast<uint32_t>(std::popcount(mask));
  if (in.mode != 0) {
    block.barriers[id].trues += static_cast<uint32_t>(std::popcount(predicate(w, in.c) & mask));
    block.barriers[id].voters += count;
  }
  if (in.mode2 == 0) w.park(in, mask, Wait::kBarrier, static_cast<uint8_t>(id));
  block.arrive(id, count, threads);
}

void build_bar(Builder& b) {
  if (b.has("warp")) {
    if (!b.has("sync")) b.fail("expected .sync");
    return build_warp_barrier(b);
  }
  if (b.has("cluster")) return build_cluster_barrier(b);
  b.has("cta");
  b.has("aligned");
  const bool arrive = b.has("arrive"), reduce = b.has("red");
  if (!arrive && !reduce && !b.has("sync")) b.fail("expected .sync, .arrive or .red");
  uint8_t mode = 0;
  int32_t d = kNoSlot, c = kNoSlot;
  size_t at = 0;
  if (reduce) {
    mode = b.has("popc") ? 1 : b.has("and") ? 2 : b.has("or") ? 3 : 0;
    if (mode == 0) b.fail("expected .popc, .and or .or");
    b.type();
    c = b.predicate_source(b.operand(b.operands() - 1));
    d = b.target(at++, mode == 1 ? Type::kU32 : Type::kPred);
  }
  const size_t rest = b.operands() - at - (reduce ? 1 : 0);
  if (rest < 1 || rest > 2) b.fail("wrong number of operands");
  const int32_t id = b.source(at, Type::kU32);
  const int32_t threads = rest == 2 ? b.source(at + 1, Type::kU32) : kNoSlot;
  if (arrive && threads == kNoSlot) b.fail("bar.arrive needs a thread count");
  Inst& in = b.emit(bar, d, id, threads, c);
  in.mode = mode;
  in.mode2 = arrive;
}

void build_fence(Builder& b) {
  while (!b.next_modifier().empty()) {
  }
  b.emit(nothing);
}

void build_plain(Builder& b, Handler handler) {
  b.has("uni");
  b.count(0);
  b.emit(handler);
}

}  // namespace

void register_control(BuildTable& table) {
  table["bra"] = build_bra;
  table["brx"] = build_brx;
  table["call"] = build_call;
  table["ret"] = [](Builder& b) { build_plain(b, ret); };
  table["exit"] = [](Builder& b) { build_plain(b, exit_lanes); };
  table["trap"] = [](Builder& b) { build_plain(b, trap); };
  table["brkpt"] = [](Builder& b) { build_plain(b, trap); };
  table["bar"] = build_bar;
  table["barrier"] = build_bar;
  table["membar"] = build_fence;
  table["fence"] = build_fence;
  table["pmevent"] = build_fence;
  table["griddepcontrol"] = build_fence;
  table["setmaxnreg"] = build_fence;
  table["nanosleep"] = [](Builder& b) {
    b.type();
    b.count(1);
    b.source(0, Type::kU32);
    b.emit(give_way);
  };
}

}  // namespace tube::sim::ptx
