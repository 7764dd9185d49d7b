// What bench/calls measures: each operation by name, what is timed, and how its effect is checked
// afterwards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/client/lane.h"

namespace bench {

struct Operation {
  std::string name;
  // The calls that are timed, and how many operations one execution makes (short ones are timed
  // several at a time; what is reported is the time divided by it).
  std::function<void(Lane&)> body;
  uint32_t per_sample = 1;
  // After so many samples the stream is synchronised, untimed: the queue of the GPU must not fill
  // up, or what is timed is the GPU. 0: never.
  uint32_t burst = 0;
  // How many times dearer than a launch: so many times fewer samples are taken.
  uint32_t cost = 1;
  // Empty, or what is wrong. Called after all samples, the stream synchronised.
  std::function<std::string(Lane&)> verify = [](Lane& lane) { return lane.check_counter(); };
  // Before the samples, untimed.
  std::function<void(Lane&)> prepare = [](Lane&) {};
};

// All, in the order of the tables.
const std::vector<Operation>& operations();
// nullptr when there is none of that name.
const Operation* find_operation(const std::string& name);

}  // namespace bench
