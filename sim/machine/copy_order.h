// In which order one copy engine (one direction of one GPU) serves the copies that are ready.
//
// As measured on an H200 (docs/facts.md, "Copies"): inside one context the engine goes on with the
// stream that it serves for as long as that stream's next copy was submitted before the present one
// ended. Only when the stream has none ready at that moment is another stream of the context
// served, the one whose copy has waited longest. Contexts take turns copy by copy.
//
// Copies of pageable memory are staged by the driver and keep nobody waiting: behind one, the
// longest waiting copy is next.
//
// Plain values: no clock, no lock, no GPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tube::sim {

struct ReadyCopy {
  uint64_t number = 0;   // the caller's; later copies have higher ones
  uint64_t context = 0;  // never 0
  uint64_t stream = 0;   // never 0; of a graph's node: that of the launch
  bool keeps = true;     // its stream keeps the engine when it has another copy ready at the end
};

class CopyOrder {
 public:
  // The copy can begin: all before it in its stream is done.
  void add(const ReadyCopy& copy) { waiting_.push_back(copy); }
  // Takes the copy whose turn it is; none may be in hand.
  std::optional<ReadyCopy> next();
  // The copy that next() gave has ended, and what became ready with its end was added.
  void ended();

  bool idle() const { return !in_hand_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  uint64_t next_context() const;
  std::vector<ReadyCopy>::iterator choose(uint64_t context);

  std::vector<ReadyCopy> waiting_;
  std::optional<ReadyCopy> in_hand_;
  std::map<uint64_t, uint64_t> holder_;  // by context: the stream that the engine goes on with
  uint64_t last_context_ = 0;
};

}  // namespace tube::sim
