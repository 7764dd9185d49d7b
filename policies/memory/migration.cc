#include "policies/memory/migration.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tube::policies {
namespace {

// When it is expected to be taken. A wait that is over by its own length tells nothing any more:
// then it is as far ahead as the making is behind.
uint64_t due_ns(const StoredObject& object, uint64_t now_ns) {
  const uint64_t due = object.made_ns + object.waits_ns;
  if (object.waits_ns == 0 || now_ns < due + object.waits_ns) return due;
  return now_ns + (now_ns - object.made_ns);
}

// Who comes later; the queue's own turns are before all others.
std::tuple<uint32_t, bool, uint64_t> lateness(const StoredObject& object, uint64_t now_ns) {
  return {object.turn, object.taken, due_ns(object, now_ns) / kTurnWindowNs};
}

}  // namespace

std::string_view migration_order_name(MigrationOrder order) {
  switch (order) {
    case MigrationOrder::kQueue: return "queue";
    case MigrationOrder::kLru: return "lru";
  }
  return "";
}

std::optional<MigrationOrder> parse_migration_order(std::string_view name) {
  for (const MigrationOrder order : kMigrationOrders)
    if (name == migration_order_name(order)) return order;
  return std::nullopt;
}

std::vector<size_t> choose_leaving(MigrationOrder order, std::span<const StoredObject> objects,
                                   uint64_t bytes, uint64_t now_ns) {
  std::vector<size_t> sorted(objects.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(), [&](size_t one, size_t other) {
    const StoredObject &a = objects[one], &b = objects[other];
    if (a.whole != b.whole) return a.whole;
    if (order == MigrationOrder::kLru) return a.used_ns < b.used_ns;
    const auto late_a = lateness(a, now_ns), late_b = lateness(b, now_ns);
    if (late_a != late_b) return late_a > late_b;
    if (a.elsewhere != b.elsewhere) return a.elsewhere;
    return a.bytes > b.bytes;
  });
  std::vector<size_t> chosen;
  for (const size_t index : sorted) {
    if (bytes == 0) break;
    chosen.push_back(index);
    bytes -= std::min(bytes, objects[index].bytes);
  }
  return chosen;
}

std::vector<size_t> choose_returning(MigrationOrder order, std::span<const StoredObject> objects,
                                     uint64_t room, uint64_t now_ns) {
  std::vector<size_t> sorted;
  if (order == MigrationOrder::kLru) return sorted;
  for (size_t i = 0; i < objects.size(); ++i) {
    const StoredObject& object = objects[i];
    const bool untold = !object.taken && now_ns >= object.used_ns + kLeastAwayNs;
    if (object.turn != kNoTurn || untold) sorted.push_back(i);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [&](size_t one, size_t other) {
    const StoredObject &a = objects[one], &b = objects[other];
    if (a.turn != b.turn) return a.turn < b.turn;
    return due_ns(a, now_ns) < due_ns(b, now_ns);
  });
  std::vector<size_t> chosen;
  for (const size_t index : sorted) {
    if (objects[index].bytes > room) break;  // the others come later
    chosen.push_back(index);
    room -= objects[index].bytes;
  }
  return chosen;
}

int choose_place(std::span<const GpuSpace> spaces, int from, uint64_t bytes) {
  const auto share = [](const GpuSpace& space) {
    return space.total_bytes == 0
               ? 0.0
               : static_cast<double>(space.free_bytes) / static_cast<double>(space.total_bytes);
  };
  double most = 0;
  for (const GpuSpace& space : spaces)
    if (space.gpu == from) most = share(space);
  int chosen = kToHost;
  for (const GpuSpace& space : spaces) {
    const uint64_t taken = bytes + store_reserve(space.total_bytes, 0);
    if (space.gpu == from || space.free_bytes < taken || share(space) <= most) continue;
    chosen = space.gpu;
    most = share(space);
  }
  return chosen;
}

void MemoryGrowth::note(uint64_t now_ns, uint64_t used_bytes) {
  const uint64_t window = now_ns / kTurnWindowNs;
  if (!known_ || window >= window_ + kWindows) {
    grown_ = {};
  } else {
    for (uint64_t each = window_ + 1; each <= window; ++each) grown_[each % kWindows] = 0;
  }
  if (known_ && used_bytes > used_) grown_[window % kWindows] += used_bytes - used_;
  known_ = true;
  window_ = window;
  used_ = used_bytes;
}

uint64_t MemoryGrowth::expected() const { return *std::max_element(grown_.begin(), grown_.end()); }

}  // namespace tube::policies
