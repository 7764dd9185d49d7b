#include "proxy/session/parked_records.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tube::proxy {
namespace {

constexpr uint64_t kLast = UINT64_MAX;  // the place of a record that has not come

uint64_t first(const std::set<uint64_t>& places) {
  return places.empty() ? kLast : *places.begin();
}

}  // namespace

bool ParkedRecords::Queue::idle() const {
  return held_users == 0 && held_changers == 0 && users.empty() && changers.empty();
}

bool ParkedRecords::Queue::stops(uint64_t place, bool looks) const {
  if (held_changers != 0 || first(changers) < place) return true;
  return looks && (held_users != 0 || first(users) < place);
}

bool ParkedRecords::must_stay(const ParkKeys& keys) const {
  if (!any_) return false;
  if (keys.behind == wire::Behind::kAll && uses()) return true;
  const bool named = keys.behind == wire::Behind::kNamed || keys.behind == wire::Behind::kTried;
  if (!named && ends_.stops(kLast, false)) return true;
  return std::ranges::any_of(keys.all(), [&](const ParkKeys::Key& key) {
    const auto found = queues_.find(key.value);
    return found != queues_.end() && found->second.stops(kLast, key.looks);
  });
}

// What looks needs no note of it: it may go once it is the first in the queue.
bool ParkedRecords::is_stopped(uint64_t place, const ParkKeys& keys) {
  bool stopped = false;
  each_queue(keys, [&](Queue& queue, const ParkKeys::Key& key) {
    if (stopped || !queue.stops(place, key.looks)) return;
    stopped = true;
    if (!key.looks) queue.waiting.insert(place);
  });
  return stopped;
}

void ParkedRecords::moves(Queue& queue) {
  if (queue.held_changers != 0) return;
  const uint64_t changer = first(queue.changers);
  const uint64_t next = std::min(changer, first(queue.users));
  if (next != kLast) may_go_.insert(next);
  while (!queue.waiting.empty() && *queue.waiting.begin() <= changer)
    may_go_.insert(queue.waiting.extract(queue.waiting.begin()));
}

void ParkedRecords::join(uint64_t place, const ParkKeys& keys) {
  each_queue(keys, [&](Queue& queue, const ParkKeys::Key& key) {
    (key.changes ? queue.changers : queue.users).insert(place);
  });
}

void ParkedRecords::keep(const abi::RecordHeader& header, std::span<const std::byte> payload,
                         const ParkKeys& keys) {
  const uint64_t place = ++last_place_;
  Record& record = records_[place];
  record.header = header;
  record.keys = keys;
  record.keys.uses = keys.behind != wire::Behind::kTried || header.reply_slot == abi::kNoReply;
  record.bytes = payload.size();
  record.data = std::make_unique_for_overwrite<std::byte[]>(payload.size());
  if (!payload.empty()) std::memcpy(record.data.get(), payload.data(), payload.size());
  bytes_ += payload.size();
  join(place, record.keys);
  if (!is_stopped(place, record.keys)) may_go_.insert(place);
  if (keys.behind == wire::Behind::kAll) count(ends_kept_);
  any_ = true;
}

ParkedRecords::Record ParkedRecords::take(std::map<uint64_t, Record>::iterator it) {
  const uint64_t place = it->first;
  Record record = std::move(it->second);
  records_.erase(it);
  bytes_ -= record.bytes;
  each_queue(record.keys, [&](Queue& queue, const ParkKeys::Key& key) {
    (key.changes ? queue.changers : queue.users).erase(place);
    queue.waiting.erase(place);
    moves(queue);
  });
  may_go_.erase(place);  // it may name a thing twice
  return record;
}

void ParkedRecords::put_back(uint64_t place, Record record) {
  bytes_ += record.bytes;
  join(place, record.keys);
  may_go_.insert(place);
  records_.emplace(place, std::move(record));
}

void ParkedRecords::hold(const ParkKeys& keys) {
  each_queue(keys, [](Queue& queue, const ParkKeys::Key& key) {
    ++(key.changes ? queue.held_changers : queue.held_users);
  });
  any_ = true;
}

void ParkedRecords::let_go(const ParkKeys& keys) {
  each_queue(keys, [&](Queue& queue, const ParkKeys::Key& key) {
    --(key.changes ? queue.held_changers : queue.held_users);
    moves(queue);
  });
  any_ = holds() || !records_.empty();
}

void ParkedRecords::clear() {
  records_.clear();
  queues_.clear();
  unnamed_ = ends_ = {};
  may_go_.clear();
  bytes_ = 0;
  any_ = false;
}

}  // namespace tube::proxy
