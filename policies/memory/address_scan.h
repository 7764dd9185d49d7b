// Which of a function's promised blocks the bytes on their way to the GPU may reach
// (docs/memory.md, "By address").
//
// A word is the address of a block when its value lies in the block, or up to kPointerSlack before
// or behind it: pointers to one before the first and one past the last element count, and so do
// those that a kernel adds a small distance to. Blocks of this kind have more room than that on
// both sides, so that no word that is another allocation's names them: what names a block does not
// depend on what lies beside it. Where a word begins is not known. In parameters and other small
// pieces every byte may be its first one; in bulk data, where pointers are aligned, every eighth.
//
// What is not found here, because it travels split, encoded or computed, faults in a run of
// `tubectl profile`, and the function is not certified.
//
// Plain values in, decisions out. AddressSpans: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tube::policies {

inline constexpr uint64_t kPointerSlack = 1ull << 20;
// Room before and behind each such block.
inline constexpr uint64_t kBlockGap = 2 * kPointerSlack;
// Of a piece; from there on only aligned words count.
inline constexpr size_t kSmallPieceBytes = 4096;

// Blocks that wait for a word that names them.
class AddressSpans {
 public:
  // Blocks do not overlap.
  void add(uint64_t base, uint64_t bytes);
  void remove(uint64_t base);
  bool empty() const { return spans_.empty(); }
  size_t size() const { return spans_.size(); }

  // Whether the block at `base` was named.
  bool named(uint64_t base) const;
  bool any_named() const { return named_ != 0; }
  // Name the blocks whose address a word of the bytes may be. Wherever a word begins:
  void scan_small(std::span<const std::byte> bytes);
  // The same for at most kSmallPieceBytes; of more, words that are aligned on the GPU, where the
  // bytes go to `address`.
  void scan_bulk(std::span<const std::byte> bytes, uint64_t address);

 private:
  struct Span {
    uint64_t base;
    uint64_t low, high;  // [low, high)
    bool named;
  };
  std::vector<Span>::iterator at(uint64_t base);
  void find_hull();
  void look_at(uint64_t word);
  template <size_t kStep>
  void scan_words(const std::byte* bytes, size_t words);

  std::vector<Span> spans_;  // in ascending order
  size_t named_ = 0;
  uint64_t low_ = 0, reach_ = 0;  // all spans lie in [low_, low_ + reach_)
};

// Addresses that a function has had. Bounded: beyond kMost pieces, what lies between counts, too.
class AddressSet {
 public:
  static constexpr size_t kMost = 4096;
  void add(uint64_t base, uint64_t bytes);
  bool overlaps(uint64_t base, uint64_t bytes) const;

 private:
  std::map<uint64_t, uint64_t> pieces_;  // begin -> end
};

}  // namespace tube::policies
