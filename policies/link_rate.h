// What a proxy can expect of a link that other proxies use as well.
//
// Each proxy is a context, and the hardware lets contexts take turns copy by copy: of those that
// always have a copy ready each gets the same, and what one does not use goes to the others.
#pragma once

#include <cstdint>
#include <span>

namespace tube::policies {

// `others`: the rates at which they moved bytes lately; reordered. Bytes a second, as `link` is.
uint64_t own_link_rate(uint64_t link, std::span<uint64_t> others);

}  // namespace tube::policies
