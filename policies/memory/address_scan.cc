#include "policies/memory/address_scan.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace tube::policies {

namespace {

constexpr size_t kWord = sizeof(uint64_t);

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, kWord);
  return word;
}

}  // namespace

std::vector<AddressSpans::Span>::iterator AddressSpans::at(uint64_t base) {
  return std::lower_bound(spans_.begin(), spans_.end(), base,
                          [](const Span& span, uint64_t wanted) { return span.base < wanted; });
}

void AddressSpans::find_hull() {
  low_ = spans_.empty() ? 0 : spans_.front().low;
  reach_ = spans_.empty() ? 0 : spans_.back().high - low_;
}

void AddressSpans::add(uint64_t base, uint64_t bytes) {
  const uint64_t low = base - std::min(base, kPointerSlack);
  spans_.insert(at(base), {base, low, base + bytes + kPointerSlack, false});
  find_hull();
}

void AddressSpans::remove(uint64_t base) {
  const auto found = at(base);
  if (found == spans_.end() || found->base != base) return;
  named_ -= found->named ? 1 : 0;
  spans_.erase(found);
  find_hull();
}

bool AddressSpans::named(uint64_t base) const {
  const auto found = const_cast<AddressSpans*>(this)->at(base);
  return found != spans_.end() && found->base == base && found->named;
}

void AddressSpans::look_at(uint64_t word) {
  if (word - low_ >= reach_) return;
  const auto next =
      std::upper_bound(spans_.begin(), spans_.end(), word,
                       [](uint64_t value, const Span& span) { return value < span.low; });
  // Spans of blocks without room between them overlap by twice the slack: two have the word.
  for (auto span = next; span != spans_.begin();) {
    --span;
    if (word >= span->high) break;
    if (span->named) continue;
    span->named = true;
    ++named_;
  }
}

// Mostly nothing is found: blocks of words are looked through without a branch for each.
template <size_t kStep>
void AddressSpans::scan_words(const std::byte* bytes, size_t words) {
  constexpr size_t kAtOnce = 64;
  const uint64_t low = low_, reach = reach_;
  for (size_t begin = 0; begin < words; begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, words - begin);
    const std::byte* const from = bytes + begin * kStep;
    uint64_t found = 0;
    for (size_t i = 0; i < count; ++i) found |= uint64_t{word_at(from + i * kStep) - low < reach};
    if (found == 0) continue;
    for (size_t i = 0; i < count; ++i) look_at(word_at(from + i * kStep));
  }
}

void AddressSpans::scan_small(std::span<const std::byte> bytes) {
  if (spans_.empty() || bytes.size() < kWord) return;
  scan_words<1>(bytes.data(), bytes.size() - kWord + 1);
}

void AddressSpans::scan_bulk(std::span<const std::byte> bytes, uint64_t address) {
  if (bytes.size() <= kSmallPieceBytes) return scan_small(bytes);
  if (spans_.empty()) return;
  const size_t first = (kWord - address % kWord) % kWord;
  scan_words<kWord>(bytes.data() + first, (bytes.size() - first) / kWord);
}

void AddressSet::add(uint64_t base, uint64_t bytes) {
  uint64_t begin = base, end = base + bytes;
  auto next = pieces_.upper_bound(begin);
  if (next != pieces_.begin() && std::prev(next)->second >= begin) --next;
  while (next != pieces_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = pieces_.erase(next);
  }
  pieces_[begin] = end;
  if (pieces_.size() <= kMost) return;
  const uint64_t last = std::prev(pieces_.end())->second;
  const uint64_t first = pieces_.begin()->first;
  pieces_.clear();
  pieces_[first] = last;
}

bool AddressSet::overlaps(uint64_t base, uint64_t bytes) const {
  const auto next = pieces_.lower_bound(base + bytes);
  return next != pieces_.begin() && std::prev(next)->second > base;
}

}  // namespace tube::policies
