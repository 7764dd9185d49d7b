#include "policies/paths/gpu_paths.h"

#include <algorithm>
#include <bit>

namespace tube::policies {
namespace {

constexpr uint32_t kExactRelays = 2;  // how many the small graph has a place for

// The GPUs that a path passes, its ends included.
struct Stops {
  uint32_t count = 0;
  uint32_t gpu[kMaxRelays + 2] = {};
};

Stops stops_of(const GpuTransfer& t, const GpuPath& path) {
  Stops s;
  s.gpu[s.count++] = t.from;
  for (uint32_t i = 0; i < path.relays; ++i) s.gpu[s.count++] = path.relay[i];
  s.gpu[s.count++] = t.to;
  return s;
}

bool same_way(const GpuPath& a, const GpuPath& b) {
  return a.relays == b.relays && std::equal(a.relay, a.relay + a.relays, b.relay);
}

GpuPath way(uint32_t first, uint32_t second, uint64_t bytes_per_s) {
  GpuPath path;
  path.relays = first == second ? 1 : 2;
  path.relay[0] = static_cast<uint8_t>(first);
  path.relay[1] = static_cast<uint8_t>(second);
  path.bytes_per_s = bytes_per_s;
  return path;
}

// The lowest of a set, which is not empty, and the set without it.
uint32_t pop(uint64_t& set) {
  const auto lowest = static_cast<uint32_t>(std::countr_zero(set));
  set &= set - 1;
  return lowest;
}

// One level of a breadth-first search: who is reached from `reached` over `next` and was not seen
// before. `before` says from where.
uint64_t next_level(uint64_t reached, const uint64_t* next, uint64_t* seen, uint32_t* before) {
  uint64_t further = 0;
  while (reached != 0) {
    const uint32_t at = pop(reached);
    uint64_t fresh = next[at] & ~*seen;
    *seen |= fresh;
    further |= fresh;
    while (fresh != 0) before[pop(fresh)] = at;
  }
  return further;
}

}  // namespace

// ---- The small graph: from the sender over a first relay (left) and a second one (right) to the
// receiver. A path with one relay uses the same GPU on both sides.

struct GpuPaths::Flow {
  static constexpr uint32_t kNobody = 0xffffffffu;

  uint32_t gpus = 0;
  uint64_t limit = 0;                // how much more may flow
  uint64_t in[kMaxGpus];             // free from the sender to a left one
  uint64_t out[kMaxGpus];            // free from a right one to the receiver
  uint64_t mid[kMaxGpus][kMaxGpus];  // free from left to right
  uint64_t flow[kMaxGpus][kMaxGpus];
  uint64_t relays = 0;  // sets of GPUs: all that are neither of the ends
  uint64_t has_in = 0, has_out = 0;
  uint64_t has_mid[kMaxGpus];    // of a left one: right ones
  uint64_t has_flow[kMaxGpus];   // of a right one: left ones
  uint32_t from_left[kMaxGpus];  // the search: how a right one, and a left one, was reached
  uint32_t from_right[kMaxGpus];

  void add(uint32_t left, uint32_t right, uint64_t more) {
    flow[left][right] += more;
    has_flow[right] |= uint64_t{1} << left;
    if (left == right) return;
    mid[left][right] -= more;
    if (mid[left][right] == 0) has_mid[left] &= ~(uint64_t{1} << right);
  }

  void cancel(uint32_t left, uint32_t right, uint64_t less) {
    flow[left][right] -= less;
    if (flow[left][right] == 0) has_flow[right] &= ~(uint64_t{1} << left);
    if (left == right) return;
    mid[left][right] += less;
    has_mid[left] |= uint64_t{1} << right;
  }

  void end(uint32_t left, uint32_t right, uint64_t more) {
    limit -= more;
    if ((in[left] -= more) == 0) has_in &= ~(uint64_t{1} << left);
    if ((out[right] -= more) == 0) has_out &= ~(uint64_t{1} << right);
  }

  void one_relay() {
    for (uint64_t both = has_in & has_out; both != 0 && limit != 0;) {
      const uint32_t at = pop(both);
      const uint64_t more = std::min({in[at], out[at], limit});
      add(at, at, more);
      end(at, at, more);
    }
  }

  // Breadth first from the left ones that the sender still reaches; back from right to left where
  // flow can be moved. The right one where the receiver is reached, or kNobody.
  uint32_t search() {
    uint64_t seen_right = 0, seen_left = has_in;
    for (uint64_t left = has_in; left != 0;) {
      const uint64_t right = next_level(left, has_mid, &seen_right, from_left);
      if ((right & has_out) != 0) return static_cast<uint32_t>(std::countr_zero(right & has_out));
      left = next_level(right, has_flow, &seen_left, from_right);
    }
    return kNobody;
  }

  void two_relays() {
    while (limit != 0 && has_in != 0 && has_out != 0) {
      const uint64_t starts = has_in;
      const uint32_t last = search();
      if (last == kNobody) return;
      const auto begins = [&](uint32_t left) { return (starts >> left & 1) != 0; };
      uint64_t more = std::min(limit, out[last]);
      uint32_t left = from_left[last];
      for (uint32_t right = last;; right = from_right[left], left = from_left[right]) {
        if (left != right) more = std::min(more, mid[left][right]);
        if (begins(left)) break;
        more = std::min(more, flow[left][from_right[left]]);
      }
      more = std::min(more, in[left]);
      const uint32_t first = left;
      left = from_left[last];
      for (uint32_t right = last;; right = from_right[left], left = from_left[right]) {
        add(left, right, more);
        if (begins(left)) break;
        cancel(left, from_right[left], more);
      }
      end(first, last, more);
    }
  }
};

// ---- What is used and what is free.

GpuPaths::GpuPaths(const GpuLinks& links, const Options& options)
    : options_(options), links_(links) {
  links_.gpus = std::min(links_.gpus, kMaxGpus);
  options_.most_relays = std::clamp(options_.most_relays, kExactRelays, kMaxRelays);
  options_.least_bytes_per_s = std::max<uint64_t>(options_.least_bytes_per_s, 1);
  for (uint32_t a = 0; a < links_.gpus; ++a) {
    for (uint32_t b = 0; b < links_.gpus; ++b) {
      free_[a][b] = a == b ? 0 : links_.bytes_per_s[a][b];
      free_out_[a] += free_[a][b];
      free_in_[b] += free_[a][b];
    }
  }
  for (uint32_t g = 0; g < links_.gpus; ++g) {
    if (links_.ports_bytes_per_s[g] == 0) continue;
    free_out_[g] = links_.ports_bytes_per_s[g];
    free_in_[g] = links_.ports_bytes_per_s[g];
  }
}

uint32_t GpuPaths::find(uint64_t id) const {
  for (uint32_t at = 0; at < count_; ++at)
    if (entries_[at].ask.id == id) return at;
  return kNone;
}

const GpuPathSet* GpuPaths::paths(uint64_t id) const {
  const uint32_t at = find(id);
  return at == kNone ? nullptr : &entries_[at].set;
}

// How much more the transfer may have, by its wish and its ends' ports.
uint64_t GpuPaths::room(const Entry& e) const {
  const uint64_t wish =
      e.ask.wanted_bytes_per_s - std::min(e.ask.wanted_bytes_per_s, e.set.bytes_per_s);
  return std::min({wish, free_out_[e.ask.from], free_in_[e.ask.to]});
}

uint64_t GpuPaths::free_along(const Entry& e, const GpuPath& path) const {
  const Stops s = stops_of(e.ask, path);
  uint64_t free = UINT64_MAX;
  for (uint32_t i = 0; i + 1 < s.count; ++i)
    free = std::min(
        {free, free_[s.gpu[i]][s.gpu[i + 1]], free_out_[s.gpu[i]], free_in_[s.gpu[i + 1]]});
  return free;
}

void GpuPaths::use(const Entry& e, const GpuPath& path, uint64_t bytes_per_s, bool more) {
  const Stops s = stops_of(e.ask, path);
  const uint64_t add = more ? 0 - bytes_per_s : bytes_per_s;  // unsigned arithmetic wraps
  for (uint32_t i = 0; i + 1 < s.count; ++i) {
    free_[s.gpu[i]][s.gpu[i + 1]] += add;
    free_out_[s.gpu[i]] += add;
    free_in_[s.gpu[i + 1]] += add;
  }
}

// Gives the transfer this way, with at most path.bytes_per_s and what is free along it.
void GpuPaths::take(Entry& e, const GpuPath& path) {
  const uint64_t more = std::min({path.bytes_per_s, free_along(e, path), room(e)});
  GpuPathSet& set = e.set;
  uint32_t at = 0;
  while (at < set.count && !same_way(set.path[at], path)) ++at;
  const bool known = at < set.count;
  if (more == 0 || (!known && (more < options_.least_bytes_per_s || at == kMaxGpuPaths))) return;
  if (!known) {
    set.path[set.count++] = path;
    set.path[at].bytes_per_s = 0;
  }
  use(e, path, more, true);
  set.path[at].bytes_per_s += more;
  set.bytes_per_s += more;
  set.version += 1;
}

void GpuPaths::give_back(Entry& e, uint32_t path, uint64_t bytes_per_s) {
  GpuPathSet& set = e.set;
  GpuPath& p = set.path[path];
  use(e, p, bytes_per_s, false);
  p.bytes_per_s -= bytes_per_s;
  set.bytes_per_s -= bytes_per_s;
  set.version += 1;
  if (p.bytes_per_s != 0) return;
  std::move(set.path + path + 1, set.path + set.count, set.path + path);
  set.count -= 1;
}

// Gives back so much of a link, or all that the transfer has of it. `relayed`: not the pair's own.
uint64_t GpuPaths::give_back_link(Entry& e, uint32_t from, uint32_t to, uint64_t bytes_per_s,
                                  bool relayed) {
  uint64_t given = 0;
  for (uint32_t at = e.set.count; at-- > 0 && given < bytes_per_s;) {
    const GpuPath path = e.set.path[at];
    if (relayed && path.relays == 0) continue;
    const Stops s = stops_of(e.ask, path);
    for (uint32_t i = 0; i + 1 < s.count; ++i) {
      if ((from != kAny && s.gpu[i] != from) || (to != kAny && s.gpu[i + 1] != to)) continue;
      const uint64_t before = e.set.bytes_per_s;
      give_back(e, at, std::min(path.bytes_per_s, bytes_per_s - given));
      given += before - e.set.bytes_per_s;
      break;
    }
  }
  return given;
}

// ---- Beginning, end, changes.

const GpuPathSet* GpuPaths::open(const GpuTransfer& transfer) {
  if (transfer.from >= links_.gpus || transfer.to >= links_.gpus || transfer.from == transfer.to ||
      count_ == kMaxTransfers || find(transfer.id) != kNone)
    return nullptr;
  const uint32_t at = count_++;
  Entry& e = entries_[at];
  e = Entry{transfer, {}};
  Set displaced = displace_relays(e);
  fill(e);
  fill_poorest_first(displaced);
  balance(at);
  while (displaced != 0)
    if (const uint32_t other = pop(displaced); entries_[other].set.count == 0) balance(other);
  for (uint32_t i = 0; i < count_; ++i) entries_[i].set.through_host = entries_[i].set.count == 0;
  return &e.set;
}

bool GpuPaths::close(uint64_t id) {
  const uint32_t at = find(id);
  if (at == kNone) return false;
  Entry& e = entries_[at];
  while (e.set.count != 0) give_back(e, e.set.count - 1, e.set.path[e.set.count - 1].bytes_per_s);
  e = entries_[--count_];
  fill_poorest_first(all());
  for (uint32_t i = 0; i < count_; ++i) entries_[i].set.through_host = entries_[i].set.count == 0;
  return true;
}

void GpuPaths::set_link(uint32_t from, uint32_t to, uint64_t bytes_per_s) {
  if (from >= links_.gpus || to >= links_.gpus || from == to) return;
  uint64_t& had = links_.bytes_per_s[from][to];
  for (uint32_t i = 0; i < count_; ++i) {
    const uint64_t used = had - free_[from][to];
    if (used > bytes_per_s) give_back_link(entries_[i], from, to, used - bytes_per_s, false);
  }
  free_[from][to] += bytes_per_s - had;
  if (links_.ports_bytes_per_s[from] == 0) free_out_[from] += bytes_per_s - had;
  if (links_.ports_bytes_per_s[to] == 0) free_in_[to] += bytes_per_s - had;
  had = bytes_per_s;
  fill_poorest_first(all());
  for (uint32_t i = 0; i < count_; ++i) {
    if (entries_[i].set.count == 0) balance(i);
    entries_[i].set.through_host = entries_[i].set.count == 0;
  }
}

// ---- Direct: what others relay over the pair's own link goes, as far as the pair has use for it.

GpuPaths::Set GpuPaths::displace_relays(const Entry& newcomer) {
  const uint32_t from = newcomer.ask.from, to = newcomer.ask.to;
  const uint64_t most = std::min(newcomer.ask.wanted_bytes_per_s, links_.bytes_per_s[from][to]);
  Set displaced = 0;
  for (uint32_t i = 0; i + 1 < count_ && free_[from][to] < most; ++i)
    if (give_back_link(entries_[i], from, to, most - free_[from][to], true) != 0)
      displaced |= Set{1} << i;
  return displaced;
}

// ---- Free: what nobody uses.

void GpuPaths::fill(Entry& e) {
  if (room(e) == 0) return;
  GpuPath direct;
  direct.bytes_per_s = UINT64_MAX;
  take(e, direct);
  if (room(e) >= options_.least_bytes_per_s) fill_relays(e);
  if (options_.most_relays > kExactRelays && room(e) >= options_.least_bytes_per_s) fill_longer(e);
}

void GpuPaths::fill_relays(Entry& e) {
  Flow flow;
  if (!load_ends(e, flow)) return;
  load_middle(e, flow);
  flow.one_relay();
  flow.two_relays();
  store(e, flow);
}

// False: no relay is reached, or none reaches the receiver.
bool GpuPaths::load_ends(const Entry& e, Flow& flow) const {
  flow.gpus = links_.gpus;
  flow.limit = room(e);
  flow.relays = (uint64_t{1} << links_.gpus) - 1;
  flow.relays &= ~(uint64_t{1} << e.ask.from | uint64_t{1} << e.ask.to);
  for (uint64_t left = flow.relays; left != 0;) {
    const uint32_t g = pop(left);
    const uint64_t ports = std::min(free_in_[g], free_out_[g]);
    flow.in[g] = std::min(free_[e.ask.from][g], ports);
    flow.out[g] = std::min(free_[g][e.ask.to], ports);
    flow.has_in |= uint64_t{flow.in[g] != 0} << g;
    flow.has_out |= uint64_t{flow.out[g] != 0} << g;
  }
  return flow.has_in != 0 && flow.has_out != 0;
}

void GpuPaths::load_middle(const Entry& e, Flow& flow) const {
  for (uint64_t left = flow.relays; left != 0;) {
    const uint32_t g = pop(left);
    flow.has_flow[g] = 0;
    uint64_t reached = uint64_t{1} << g;
    for (uint32_t h = 0; h < links_.gpus; ++h) {
      flow.mid[g][h] = free_[g][h];
      flow.flow[g][h] = 0;
      reached |= uint64_t{free_[g][h] != 0} << h;
    }
    flow.has_mid[g] = reached & flow.relays;
  }
  for (uint32_t i = 0; i < e.set.count; ++i) {
    const GpuPath& p = e.set.path[i];
    if (p.relays == 0 || p.relays > kExactRelays) continue;
    const uint32_t first = p.relay[0], second = p.relay[p.relays - 1];
    flow.flow[first][second] = p.bytes_per_s;
    flow.has_flow[second] |= uint64_t{1} << first;
  }
}

// What became less first: the rest may need it.
void GpuPaths::store(Entry& e, const Flow& flow) {
  uint64_t had[kMaxGpus][kMaxGpus];
  for (uint64_t second = flow.relays; second != 0;) {
    const uint32_t b = pop(second);
    for (uint64_t first = flow.has_flow[b]; first != 0;) had[pop(first)][b] = 0;
  }
  for (uint32_t i = e.set.count; i-- > 0;) {
    const GpuPath p = e.set.path[i];
    if (p.relays == 0 || p.relays > kExactRelays) continue;
    const uint32_t first = p.relay[0], second = p.relay[p.relays - 1];
    const uint64_t now = flow.flow[first][second];
    if (now < p.bytes_per_s) give_back(e, i, p.bytes_per_s - now);
    had[first][second] = p.bytes_per_s;
  }
  for (uint64_t seconds = flow.relays; seconds != 0;) {
    const uint32_t second = pop(seconds);
    for (uint64_t firsts = flow.has_flow[second]; firsts != 0;) {
      const uint32_t first = pop(firsts);
      const uint64_t now = flow.flow[first][second];
      if (now > had[first][second]) take(e, way(first, second, now - had[first][second]));
    }
  }
}

// Shortest path after shortest path, breadth first, of what is free.
void GpuPaths::fill_longer(Entry& e) {
  const uint32_t from = e.ask.from, to = e.ask.to;
  uint64_t next[kMaxGpus];  // sets of GPUs
  for (uint32_t a = 0; a < links_.gpus; ++a) {
    next[a] = 0;
    for (uint32_t b = 0; b < links_.gpus; ++b)
      next[a] |= uint64_t{free_[a][b] >= options_.least_bytes_per_s} << b;
  }
  while (e.set.count < kMaxGpuPaths && room(e) >= options_.least_bytes_per_s) {
    uint32_t before[kMaxGpus];
    uint64_t seen = uint64_t{1} << from, reached = seen;
    for (uint32_t hops = 0; hops <= options_.most_relays && (seen >> to & 1) == 0; ++hops)
      reached = next_level(reached, next, &seen, before);
    if ((seen >> to & 1) == 0) return;
    GpuPath path;
    for (uint32_t at = before[to]; at != from; at = before[at])
      path.relay[path.relays++] = static_cast<uint8_t>(at);
    std::reverse(path.relay, path.relay + path.relays);
    path.bytes_per_s = UINT64_MAX;
    const uint64_t had = e.set.bytes_per_s;
    take(e, path);
    if (e.set.bytes_per_s == had) return;  // a relay's ports
    const Stops s = stops_of(e.ask, path);
    for (uint32_t i = 0; i + 1 < s.count; ++i)
      if (free_[s.gpu[i]][s.gpu[i + 1]] < options_.least_bytes_per_s)
        next[s.gpu[i]] &= ~(uint64_t{1} << s.gpu[i + 1]);
  }
}

void GpuPaths::fill_poorest_first(Set chosen) {
  while (chosen != 0) {
    uint32_t poorest = kNone;
    for (Set left = chosen; left != 0;) {
      const uint32_t at = pop(left);
      if (poorest == kNone || entries_[at].set.bytes_per_s < entries_[poorest].set.bytes_per_s)
        poorest = at;
    }
    fill(entries_[poorest]);
    chosen &= ~(Set{1} << poorest);
  }
}

// ---- Busy: links move from transfers that are better off.

// What this one may lose to the newcomer, and still be no worse off than it.
uint64_t GpuPaths::spare(const Entry& e, const Entry& newcomer) const {
  const uint64_t has = e.set.bytes_per_s, keeps = newcomer.set.bytes_per_s;
  if (has <= keeps || has <= e.ask.needed_bytes_per_s) return 0;
  return std::min((has - keeps) / 2, has - e.ask.needed_bytes_per_s);
}

// Who could give most of each link, and how much.
struct GpuPaths::Reach {
  struct Giver {
    uint64_t bytes_per_s = 0;
    uint32_t entry = kNone;
    void note(uint32_t other, uint64_t more) {
      if (more <= bytes_per_s) return;
      bytes_per_s = more;
      entry = other;
    }
  };
  uint64_t bytes_per_s[kMaxGpus][kMaxGpus];  // of the links; others are not set
  uint32_t giver[kMaxGpus][kMaxGpus];        // set where there is one
  Giver out;                                 // of the newcomer's sender's ports
  Giver in;                                  // of its receiver's
};

void GpuPaths::find_reach(const Entry& newcomer, Reach& reach) const {
  const uint32_t from = newcomer.ask.from, to = newcomer.ask.to;
  for (uint32_t a = 0; a < links_.gpus; ++a)
    std::fill_n(reach.bytes_per_s[a], links_.gpus, uint64_t{0});
  for (uint32_t i = 0; i < count_; ++i) {
    const uint64_t most = &entries_[i] == &newcomer ? 0 : spare(entries_[i], newcomer);
    if (most == 0) continue;
    for (uint32_t p = 0; p < entries_[i].set.count; ++p) {
      const GpuPath& path = entries_[i].set.path[p];
      const uint64_t more = std::min(path.bytes_per_s, most);
      uint32_t at = entries_[i].ask.from;
      for (uint32_t k = 0; k <= path.relays; ++k) {
        const uint32_t next = k == path.relays ? entries_[i].ask.to : path.relay[k];
        if (more > reach.bytes_per_s[at][next]) {
          reach.bytes_per_s[at][next] = more;
          reach.giver[at][next] = i;
        }
        if (at == from) reach.out.note(i, more);
        if (next == to) reach.in.note(i, more);
        at = next;
      }
    }
  }
}

// Takes away what the path lacks. Returns from whom.
GpuPaths::Set GpuPaths::take_links(Entry& newcomer, const GpuPath& path, const Reach& reach) {
  Set givers = 0;
  const auto free_up = [&](uint32_t giver, uint32_t from, uint32_t to, const uint64_t& free) {
    if (free >= path.bytes_per_s || giver == kNone) return;
    const uint64_t most = std::min(path.bytes_per_s - free, spare(entries_[giver], newcomer));
    if (most != 0 && give_back_link(entries_[giver], from, to, most, false) != 0)
      givers |= Set{1} << giver;
  };
  const Stops s = stops_of(newcomer.ask, path);
  for (uint32_t k = 0; k + 1 < s.count; ++k) {
    const uint32_t a = s.gpu[k], b = s.gpu[k + 1];
    free_up(reach.bytes_per_s[a][b] == 0 ? kNone : reach.giver[a][b], a, b, free_[a][b]);
  }
  free_up(reach.out.entry, newcomer.ask.from, kAny, free_out_[newcomer.ask.from]);
  free_up(reach.in.entry, kAny, newcomer.ask.to, free_in_[newcomer.ask.to]);
  return givers;
}

// The shortest path that can have `least`, and of these the one that can have most. Returns the
// transfers that lost something; none: there is no such path.
GpuPaths::Set GpuPaths::balance_once(uint32_t at, uint64_t least) {
  Entry& e = entries_[at];
  Reach reach;
  find_reach(e, reach);
  const uint64_t wish = e.ask.wanted_bytes_per_s - e.set.bytes_per_s;
  const uint64_t ends = std::min({free_out_[e.ask.from] + reach.out.bytes_per_s,
                                  free_in_[e.ask.to] + reach.in.bytes_per_s, wish});
  if (ends < least) return 0;
  const auto link = [&](uint32_t a, uint32_t b) { return free_[a][b] + reach.bytes_per_s[a][b]; };
  const uint32_t from = e.ask.from, to = e.ask.to, n = links_.gpus;
  GpuPath best;
  best.bytes_per_s = std::min(ends, link(from, to));
  for (uint32_t relays = 1; relays <= kExactRelays && best.bytes_per_s < least; ++relays) {
    for (uint32_t a = 0; a < n; ++a) {
      const uint64_t first = std::min(ends, link(from, a));
      if (a == from || a == to || first < least || first <= best.bytes_per_s) continue;
      for (uint32_t b = relays == 1 ? a : 0; b < (relays == 1 ? a + 1 : n); ++b) {
        if (b == from || b == to || (relays == 2 && a == b)) continue;
        const uint64_t mid = a == b ? first : std::min(first, link(a, b));
        const uint64_t rate = std::min(mid, link(b, to));
        if (rate > best.bytes_per_s) best = way(a, b, rate);
      }
    }
  }
  if (best.bytes_per_s < least) return 0;
  const Set givers = take_links(e, best, reach);
  take(e, best);
  return givers;
}

void GpuPaths::balance(uint32_t at) {
  constexpr uint32_t kTurns = 8;  // each halves what is between the newcomer and one that has more
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    const Entry& e = entries_[at];
    if (e.set.bytes_per_s >= e.ask.wanted_bytes_per_s) return;
    const uint64_t least = std::max(options_.least_bytes_per_s, e.set.bytes_per_s / 8);
    const bool better_off = std::any_of(
        entries_, entries_ + count_, [&](const Entry& other) { return spare(other, e) >= least; });
    if (!better_off) return;
    const Set givers = balance_once(at, least);
    if (givers == 0) return;
    fill_poorest_first(givers);
  }
}

}  // namespace tube::policies
