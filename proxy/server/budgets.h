// How limits of memory and refusals look in the control socket's answers. Server thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "policies/memory/memory_budget.h"

namespace tube::proxy {

// {"held_bytes": n, "limit_bytes": n or null}
nlohmann::json budget_json(const policies::MemoryBudget& budget);
// {"ok": false, "error": text}
nlohmann::json refusal(const std::string& text);

}  // namespace tube::proxy
