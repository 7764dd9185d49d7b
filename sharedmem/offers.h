// Blocks of GPU memory that the proxy offers (abi.h), as the client takes and returns them.
//
// A look reads the offers that were ever made, and first the one that was returned last: a program
// that frees and allocates one size in turns finds it at once. No lock, no call: a tenth of a
// microsecond. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "sharedmem/segment.h"

namespace tube::shared {

struct OfferedBlock {
  uint32_t number = 0;  // of the offer, from 1; 0: none
  uint64_t address = 0;
  uint64_t generation = 0;
};

class Offers {
 public:
  void attach(const Segment& segment) { segment_ = &segment; }

  // A block of that GPU for a request of so many bytes, from now on the caller's. Number 0: there
  // is none.
  OfferedBlock take(uint32_t device, uint64_t bytes);
  // A block that came as an answer. `number` is the proxy's, and may be 0.
  OfferedBlock granted(uint32_t number, uint64_t address) const;
  // The caller has published the record that frees it. Number 0: nothing.
  void give_back(uint32_t number, uint64_t generation);

 private:
  bool try_take(uint32_t index, uint32_t device, uint64_t bytes, OfferedBlock* block);

  const Segment* segment_ = nullptr;
  std::atomic<uint32_t> last_{0};  // index of the offer returned last
};

}  // namespace tube::shared
