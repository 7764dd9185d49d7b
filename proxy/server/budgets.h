// How limits of memory look in the control socket's answers. Server thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "policies/memory_budget.h"

namespace tube::proxy {

// {"held_bytes": n, "limit_bytes": n or null}
nlohmann::json budget_json(const policies::MemoryBudget& budget);

}  // namespace tube::proxy
