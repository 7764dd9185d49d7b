// Which units of a slab are taken: a bit each, first fit. Plain values, no lock.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace tube::hook {

class UnitMap {
 public:
  static constexpr uint32_t kUnits = 4096;
  static constexpr uint32_t kNone = ~0u;

  // Takes `count` units in a row: the first of them. kNone: there are none.
  uint32_t take(uint32_t count) {
    const uint32_t at = find(count);
    if (at != kNone) set(at, count, true);
    return at;
  }
  // They need not have been free; what was taken counts once.
  void take_at(uint32_t at, uint32_t count) { set(at, count, true); }
  void free(uint32_t at, uint32_t count) { set(at, count, false); }
  bool empty() const { return taken_ == 0; }
  uint32_t taken() const { return taken_; }

 private:
  // The next unit from `at` on that is (not) taken; kUnits: there is none.
  uint32_t next(uint32_t at, bool taken) const {
    for (uint32_t word = at / 64; word < words_.size(); ++word) {
      uint64_t bits = taken ? words_[word] : ~words_[word];
      if (word == at / 64) bits &= ~uint64_t{0} << (at % 64);
      if (bits != 0) return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    }
    return kUnits;
  }
  uint32_t find(uint32_t count) const {
    if (count == 0 || count > kUnits - taken_) return kNone;
    for (uint32_t at = next(0, false); at + count <= kUnits;) {
      const uint32_t end = next(at, true);
      if (end - at >= count) return at;
      at = next(end, false);
    }
    return kNone;
  }
  void set(uint32_t at, uint32_t count, bool taken) {
    for (uint32_t unit = at; unit < at + count && unit < kUnits; ++unit) {
      const uint64_t bit = uint64_t{1} << (unit % 64);
      uint64_t& word = words_[unit / 64];
      if (((word & bit) != 0) == taken) continue;
      word ^= bit;
      taken_ += taken ? 1u : ~0u;
    }
  }

  std::array<uint64_t, kUnits / 64> words_{};
  uint32_t taken_ = 0;
};

}  // namespace tube::hook
