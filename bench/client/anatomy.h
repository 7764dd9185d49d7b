// Operations taken apart: one at a time, with the moments at which the call returned and the work
// was complete.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/client/lane.h"

namespace bench {

struct Anatomy {
  std::string name;
  std::function<void(Lane&)> call;
  std::function<void(Lane&)> wait;  // empty: the call itself is the wait
};

const std::vector<Anatomy>& anatomies();

// `samples` of one: [before the call, behind it, behind the wait] in CLOCK_MONOTONIC nanoseconds
// each, as a JSON list. Between two samples the GPU is idle and everything posted has been
// executed.
std::string take_apart(const Anatomy& anatomy, Lane& lane, int samples);

}  // namespace bench
