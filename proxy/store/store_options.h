// What the store of a proxy is told at its start: by tubed's flags and TUBE_STORE_*.
#pragma once

#include <string>

#include "proxy/store/store.h"

namespace tube::proxy {

// `share`: beginnings of names, with commas between them; "all" is the one that every name has.
StoreOptions store_options(const std::string& share, bool verify, const std::string& workflow,
                           const std::string& folder);

}  // namespace tube::proxy
