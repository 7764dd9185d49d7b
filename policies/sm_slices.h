// Which functions' kernels run on which multiprocessors of a GPU.
//
// A GPU can be split in a few ways, each into a small part and the rest of it (on 132
// multiprocessors 16/116, 32/100 and 64/68). At most one split is in use, because parts of two
// splits have multiprocessors in common. Its holder is the function that asked first among those
// that may hold one, and of functions that never asked the first to which auto_slice.h gives one:
// it gets the smallest part that is as large as it asked for, and everybody else runs on the other
// part. When it leaves, who asked next holds, with the split that fits it.
//
// Who exchanges memory or events with other functions holds nothing and never will: kernels of two
// functions may wait for each other, and nothing promises that both of two disjoint parts go on.
// (In the same part they wait for each other as without slices.)
//
// Plain values: no clock, no lock, no GPU. Not for threads.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tube::policies {

// The ways to split: an eighth, a quarter and a half, in whole groups of `group` multiprocessors,
// which the hardware schedules together. Sizes of the small part, rising; fewer or none on a small
// GPU.
std::vector<uint32_t> sm_splits(uint32_t multiprocessors, uint32_t group);

// A part of a GPU: all of it, or one side of a split.
struct SmPart {
  static constexpr uint32_t kWhole = UINT32_MAX;
  uint32_t split = kWhole;  // index into the splits
  bool large = false;       // the other side than the small one
  bool whole() const { return split == kWhole; }
  bool operator==(const SmPart&) const = default;
};

class SmSlices {
 public:
  SmSlices() = default;
  // `splits`: sizes of the small parts that the GPU really has, rising.
  SmSlices(uint32_t multiprocessors, std::vector<uint32_t> splits)
      : multiprocessors_(multiprocessors), splits_(std::move(splits)) {}

  // The function came to the GPU and wants so many percent of it, 1 to 100, rounded up to whole
  // multiprocessors. Nothing when it asked before.
  void ask(uint64_t function, uint32_t percent);
  // A function that asked for no percentage wants the small part of this split as long as nobody
  // holds who did; none: nothing any more (auto_slice.h).
  void want(uint64_t function, std::optional<uint32_t> split);
  // It exchanges memory with others: gives up what it holds, and asks in vain.
  void exchanges(uint64_t function);
  // The function has ended.
  void forget(uint64_t function);

  // Who holds a slice, and which part that is.
  struct Held {
    uint64_t function;
    SmPart part;
    bool operator==(const Held&) const = default;
  };
  std::optional<Held> held() const;
  // Where the function's kernels run.
  SmPart part_of(uint64_t function) const;
  uint32_t multiprocessors_of(const SmPart& part) const;

 private:
  struct Asked {
    uint64_t function;
    uint32_t percent;  // 0: the small part of `split`, by itself
    uint32_t split = 0;
  };
  std::optional<SmPart> part_for(const Asked& asked) const;

  uint32_t multiprocessors_ = 0;
  std::vector<uint32_t> splits_;
  std::vector<Asked> asked_;  // as they came
  std::set<uint64_t> exchanging_;
};

}  // namespace tube::policies
