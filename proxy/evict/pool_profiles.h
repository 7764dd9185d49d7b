// What the pool has learnt of a function's requests (policies/memory/pool_size.h), kept between its
// runs: a JSON file for each name of a function, CACHE/pool/NAME-HASH.json. With it, `demand` knows
// from the first request on what a block is worth that comes back.
//
// A file is bounded and believed nothing but numbers, which are cut to what a run could have
// counted: the worst that a wrong one does is that the pool keeps too much, within its bound, or
// too little. Reading and writing may wait for the disk: on the session's thread, at its begin and
// end.
#pragma once

#include <string>

#include "base/result.h"
#include "policies/memory/pool_size.h"

namespace tube::proxy {

std::string pool_profile_text(const policies::PoolDemand& demand);
Result<policies::PoolDemand> parse_pool_profile(const std::string& text);

// Empty when there is none, or none that is right.
policies::PoolDemand load_pool_profile(const std::string& function);
// Nothing is written where nothing was learnt; an error is logged.
void keep_pool_profile(const std::string& function, const policies::PoolDemand& demand);

}  // namespace tube::proxy
