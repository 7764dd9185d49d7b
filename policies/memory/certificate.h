// What `tubectl profile` has found a function to do, and whether it still does that
// (docs/memory.md, "By address").
//
// A certificate says: while this function loaded only these images and allocated in this order,
// each address that its kernels used was found by the scan (address_scan.h). An image that the
// certificate does not know, or an allocation of another size, is another function: nothing is
// known of it from then on. A function may stop anywhere in the order.
//
// Plain values in, decisions out. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tube::policies {

// What an image is known by: a hash of its bytes, which says nothing against who forges one. A
// function that wants to can fault its neighbours without.
struct ImageName {
  uint64_t low = 0, high = 0;
  auto operator<=>(const ImageName&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct Certificate {
  // Of the rules by which addresses are found: a certificate of others is none.
  static constexpr uint32_t kRules = 1;
  static constexpr size_t kMostImages = 16384, kMostAllocations = 65536;

  std::string function;
  std::string gpu;                    // its name: libraries choose kernels by it
  std::vector<ImageName> images;      // in ascending order, each once
  std::vector<uint64_t> allocations;  // bytes, in the order of the requests

  bool fits() const {
    return images.size() <= kMostImages && allocations.size() <= kMostAllocations;
  }
};

// Follows a run of the function, and writes down what it does or compares it.
class Behaviour {
 public:
  // An image's or allocation's like was not there in the run that was certified.
  enum class Step : uint8_t { kKnown, kImage, kAllocation };

  // From its beginning; `certificate` nullptr: nothing is compared.
  void begin(const Certificate* certificate);
  Step loads(const ImageName& image);
  Step allocates(uint64_t bytes);
  size_t allocations() const { return count_; }
  // What was seen so far.
  Certificate seen() const;

 private:
  bool compares_ = false;
  size_t count_ = 0;
  Certificate certificate_;            // that is compared
  std::vector<ImageName> images_;      // in ascending order
  std::vector<uint64_t> allocations_;  // of a run that is written down
};

}  // namespace tube::policies
