#include "policies/memory/certificate.h"

#include <algorithm>

namespace tube::policies {

void Behaviour::begin(const Certificate* certificate) {
  compares_ = certificate != nullptr;
  if (compares_) certificate_ = *certificate;
}

Behaviour::Step Behaviour::loads(const ImageName& image) {
  if (compares_)
    return std::binary_search(certificate_.images.begin(), certificate_.images.end(), image)
               ? Step::kKnown
               : Step::kImage;
  const auto place = std::lower_bound(images_.begin(), images_.end(), image);
  const bool known = place != images_.end() && *place == image;
  // One more than fits is kept: it tells that there were too many.
  if (!known && images_.size() <= Certificate::kMostImages) images_.insert(place, image);
  return Step::kKnown;
}

Behaviour::Step Behaviour::allocates(uint64_t bytes) {
  const size_t at = count_++;
  if (!compares_) {
    if (at <= Certificate::kMostAllocations) allocations_.push_back(bytes);
    return Step::kKnown;
  }
  return at < certificate_.allocations.size() && certificate_.allocations[at] == bytes
             ? Step::kKnown
             : Step::kAllocation;
}

Certificate Behaviour::seen() const {
  Certificate seen;
  seen.images = images_;
  seen.allocations = allocations_;
  return seen;
}

}  // namespace tube::policies
