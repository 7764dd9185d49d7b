#include "bench/links/copy_model.h"

#include <algorithm>

namespace tube::bench {

using policies::GpuPath;
using policies::kMaxGpus;
using policies::Pieces;

CopyModel::CopyModel(const ctl::Machine& machine, CopyRule rule, const Pieces::Options& pieces)
    : machine_(machine),
      rule_(rule),
      options_(pieces),
      gpu_paths_(machine.nvlink),
      rate_(kAllLinks),
      free_ns_(kAllLinks) {
  for (uint32_t a = 0; a < machine.nvlink.gpus; ++a) {
    for (uint32_t b = 0; b < machine.nvlink.gpus; ++b)
      rate_[a * kMaxGpus + b] = machine.nvlink.bytes_per_s[a][b];
    for (bool up : {false, true}) {
      rate_[host_link(a, up)] = machine.host.link[a].alone_bytes_per_s[up ? 0 : 1];
      if (machine.host.switch_bytes_per_s != 0)
        rate_[uplink(a, up)] = machine.host.switch_bytes_per_s;
    }
  }
}

uint32_t CopyModel::uplink(uint32_t gpu, bool up) const {
  return kUplinks + 2 * machine_.host.link[gpu].pcie_switch + (up ? 1 : 0);
}

uint32_t CopyModel::begin(uint32_t from, uint32_t to, uint64_t bytes, uint64_t at_ns) {
  copies_.push_back({from, to, bytes, at_ns, 0});
  running_.emplace_back();
  const auto number = static_cast<uint32_t>(copies_.size() - 1);
  events_.push({at_ns, ++events_made_, number, {}, nullptr, 0});
  return number;
}

void CopyModel::run(uint64_t end_ns) {
  while (!events_.empty() && events_.top().at_ns <= end_ns) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = event.at_ns;
    if (event.hops == nullptr) start(event.copy);
    else arrive(event);
  }
  if (end_ns != UINT64_MAX) now_ns_ = end_ns;
}

uint64_t CopyModel::done_bytes() const {
  uint64_t sum = ended_bytes_;
  for (const Running& r : running_)
    if (r.pieces != nullptr) sum += r.pieces->done_bytes();
  return sum;
}

// Null: through host memory.
CopyModel::Path CopyModel::path_of(const Copy& copy, const GpuPath* way) const {
  Path path;
  if (way == nullptr) {
    path.through_host = true;
    path.hops = {{host_link(copy.from, false)}, {host_link(copy.to, true)}};
    if (machine_.host.switch_bytes_per_s != 0) {
      path.hops[0].push_back(uplink(copy.from, false));
      path.hops[1].push_back(uplink(copy.to, true));
    }
    return path;
  }
  path.way = *way;
  uint32_t at = copy.from;
  for (uint32_t i = 0; i <= way->relays; ++i) {
    const uint32_t next = i == way->relays ? copy.to : way->relay[i];
    path.hops.push_back({at * kMaxGpus + next});
    at = next;
  }
  return path;
}

// Short pieces where relays store them, so that the first bytes are soon over all of them.
Pieces::Path CopyModel::terms(const Path& path, uint64_t bytes_per_s) {
  constexpr uint64_t kPiecesPerSecond = 12'000;  // 2 MiB over 25 GB/s
  return {bytes_per_s, static_cast<uint32_t>(path.hops.size()) + 1,
          path.hops.size() == 1 ? UINT64_MAX : bytes_per_s / kPiecesPerSecond};
}

void CopyModel::start(uint32_t copy) {
  const Copy& c = copies_[copy];
  Running& r = running_[copy];
  r.pieces = std::make_unique<Pieces>(c.bytes, options_);
  if (rule_ == CopyRule::kPaths) {
    policies::GpuTransfer transfer;
    transfer.id = copy;
    transfer.from = c.from;
    transfer.to = c.to;
    gpu_paths_.open(transfer);
    for (uint32_t i = 0; i < running_.size(); ++i)
      if (running_[i].pieces != nullptr) follow_paths(i);
    return;
  }
  const GpuPath direct;
  const uint64_t link = machine_.nvlink.bytes_per_s[c.from][c.to];
  const uint64_t rate = link != 0 ? link : ctl::host_bytes_per_s(machine_, c.from);
  Path path = path_of(c, link != 0 ? &direct : nullptr);
  path.number = *r.pieces->add_path(terms(path, rate));
  r.paths.push_back(std::move(path));
  pull(copy);
}

// The transfer's paths are as the policy says now: old ones are taken back, new ones added.
void CopyModel::follow_paths(uint32_t copy) {
  Running& r = running_[copy];
  const policies::GpuPathSet* set = gpu_paths_.paths(copy);
  if (set == nullptr || (set->version == r.version && !r.paths.empty())) return;
  r.version = set->version;
  const auto same = [](const GpuPath& a, const GpuPath& b) {
    return a.relays == b.relays && std::equal(a.relay, a.relay + a.relays, b.relay);
  };
  std::vector<Path> kept;
  for (Path& path : r.paths) {
    const GpuPath* now = std::find_if(set->path, set->path + set->count, [&](const GpuPath& p) {
      return !path.through_host && same(p, path.way);
    });
    if (path.through_host ? !set->through_host : now == set->path + set->count) {
      r.pieces->take_back(path.number);
      continue;
    }
    if (!path.through_host) r.pieces->set_rate(path.number, now->bytes_per_s);
    kept.push_back(std::move(path));
  }
  const auto add = [&](const GpuPath* way, uint64_t bytes_per_s) {
    Path path = path_of(copies_[copy], way);
    const auto number = r.pieces->add_path(terms(path, bytes_per_s));
    if (!number) return;  // the old ones have pieces in flight
    path.number = *number;
    kept.push_back(std::move(path));
  };
  for (uint32_t i = 0; i < set->count; ++i)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const Path& p) { return !p.through_host && same(p.way, set->path[i]); }))
      add(&set->path[i], set->path[i].bytes_per_s);
  if (set->through_host && kept.empty())
    add(nullptr, ctl::host_bytes_per_s(machine_, copies_[copy].from));
  r.paths = std::move(kept);
  if (r.paths.size() < std::max(set->count, 1u)) r.version = 0;  // again with the next piece
  pull(copy);
}

void CopyModel::pull(uint32_t copy) {
  Running& r = running_[copy];
  for (const Path& path : r.paths) {
    while (const auto piece = r.pieces->next(path.number))
      send({now_ns_, 0, copy, *piece, std::make_shared<std::vector<Links>>(path.hops), 0});
  }
}

void CopyModel::send(Event event) {
  Running& r = running_[event.copy];
  const bool pays = rule_ == CopyRule::kPaths || !r.paid;
  if (rule_ == CopyRule::kDirect) r.paid = true;
  uint64_t end_ns = now_ns_;
  for (uint32_t link : (*event.hops)[event.hop]) {
    const double bytes_ns =
        static_cast<double>(event.piece.bytes) * 1e9 / static_cast<double>(rate_[link]);
    free_ns_[link] = std::max(free_ns_[link], now_ns_) + static_cast<uint64_t>(bytes_ns) +
                     (pays ? machine_.copy_ns : 0);
    end_ns = std::max(end_ns, free_ns_[link]);
  }
  event.at_ns = end_ns;
  event.order = ++events_made_;
  events_.push(std::move(event));
}

void CopyModel::arrive(Event event) {
  const uint32_t copy = event.copy;
  if (++event.hop < event.hops->size()) return send(std::move(event));
  Running& r = running_[copy];
  r.pieces->done(event.piece);
  if (r.pieces->complete()) return end(copy);
  if (rule_ == CopyRule::kPaths && r.version == 0) follow_paths(copy);
  pull(copy);
}

void CopyModel::end(uint32_t copy) {
  copies_[copy].end_ns = now_ns_;
  ended_bytes_ += copies_[copy].bytes;
  running_[copy] = Running();
  if (rule_ == CopyRule::kPaths) {
    gpu_paths_.close(copy);
    for (uint32_t i = 0; i < running_.size(); ++i)
      if (running_[i].pieces != nullptr) follow_paths(i);
  }
  on_end(copy);
}

uint64_t max_flow(const policies::GpuLinks& links, uint32_t from, uint32_t to) {
  const uint32_t n = links.gpus;
  std::vector<std::vector<uint64_t>> left(n, std::vector<uint64_t>(n));
  for (uint32_t a = 0; a < n; ++a)
    for (uint32_t b = 0; b < n; ++b) left[a][b] = links.bytes_per_s[a][b];
  uint64_t flow = 0;
  while (true) {
    std::vector<uint32_t> before(n, n);
    std::queue<uint32_t> reached;
    before[from] = from;
    for (reached.push(from); !reached.empty() && before[to] == n; reached.pop())
      for (uint32_t b = 0; b < n; ++b)
        if (left[reached.front()][b] != 0 && before[b] == n) {
          before[b] = reached.front();
          reached.push(b);
        }
    if (before[to] == n) break;
    uint64_t more = UINT64_MAX;
    for (uint32_t at = to; at != from; at = before[at]) more = std::min(more, left[before[at]][at]);
    for (uint32_t at = to; at != from; at = before[at]) {
      left[before[at]][at] -= more;
      left[at][before[at]] += more;
    }
    flow += more;
  }
  for (uint32_t end : {from, to})
    if (links.ports_bytes_per_s[end] != 0) flow = std::min(flow, links.ports_bytes_per_s[end]);
  return flow;
}

}  // namespace tube::bench
