#include "proxy/session/parked_records.h"

#include <cstring>
#include <utility>

namespace tube::proxy {

bool ParkedRecords::meets(const ParkKeys& keys, const Uses& uses) {
  if (keys.behind == wire::Behind::kAll && uses.count != 0) return true;
  if (keys.behind != wire::Behind::kNamed && uses.ends != 0) return true;
  for (const ParkKeys::Key& key : keys.all()) {
    const auto found = uses.keys.find(key.value);
    if (found == uses.keys.end()) continue;
    if (found->second.changers != 0 || (key.looks && found->second.users != 0)) return true;
  }
  return false;
}

void ParkedRecords::note(Uses& uses, const ParkKeys& keys, int by) {
  if (keys.uses) uses.count += static_cast<size_t>(by);
  if (keys.behind == wire::Behind::kAll) uses.ends += static_cast<size_t>(by);
  for (const ParkKeys::Key& key : keys.all()) {
    Use& use = uses.keys[key.value];
    (key.changes ? use.changers : use.users) += static_cast<uint32_t>(by);
    if (use.changers == 0 && use.users == 0) uses.keys.erase(key.value);
  }
}

bool ParkedRecords::must_stay(const ParkKeys& keys) const {
  if (!any_) return false;
  if (keys.behind != wire::Behind::kTried) return stays(keys, kept_);
  ParkKeys names = keys;
  names.behind = wire::Behind::kNamed;
  return stays(names, kept_);
}

void ParkedRecords::keep(const abi::RecordHeader& header, std::span<const std::byte> payload,
                         const ParkKeys& keys) {
  Record& record = records_.emplace_back();
  record.header = header;
  record.keys = keys;
  record.keys.uses = keys.behind != wire::Behind::kTried || header.reply_slot == abi::kNoReply;
  record.bytes = payload.size();
  record.data = std::make_unique_for_overwrite<std::byte[]>(payload.size());
  if (!payload.empty()) std::memcpy(record.data.get(), payload.data(), payload.size());
  bytes_ += payload.size();
  note(kept_, record.keys, +1);
  if (keys.behind == wire::Behind::kAll) count(ends_kept_);
  any_ = true;
}

ParkedRecords::Record ParkedRecords::take(std::list<Record>::iterator it) {
  Record record = std::move(*it);
  records_.erase(it);
  bytes_ -= record.bytes;
  note(kept_, record.keys, -1);
  return record;
}

void ParkedRecords::put_back(std::list<Record>::iterator before, Record record) {
  bytes_ += record.bytes;
  note(kept_, record.keys, +1);
  records_.insert(before, std::move(record));
}

void ParkedRecords::hold(const ParkKeys& keys) {
  note(held_, keys, +1);
  any_ = true;
}

void ParkedRecords::let_go(const ParkKeys& keys) {
  note(held_, keys, -1);
  any_ = held_.count != 0 || !records_.empty();
}

void ParkedRecords::clear() {
  records_.clear();
  kept_ = {};
  held_ = {};
  bytes_ = 0;
  any_ = false;
}

}  // namespace tube::proxy
