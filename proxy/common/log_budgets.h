// How many lines of the proxy's log each of those who can cause them may have (base/log_limits.h).
#pragma once

#include "base/log_limits.h"

namespace tube::proxy {

struct LogBudgets {
  LogBudget own{400, 10};           // the proxy's own threads
  LogBudget server{400, 10, &own};  // connections, joins, ends
  LogBudget clients{400, 5};        // all sessions together
};
inline LogBudgets& log_budgets() {
  static LogBudgets& budgets = *new LogBudgets;  // lives for ever
  return budgets;
}
// Of one session, within that of all.
inline constexpr uint32_t kClientLogBurst = 60, kClientLogPerSecond = 1;

}  // namespace tube::proxy
