// Every budget of the proxy by its name: what is counted, who may hold how much of it, who counts,
// and what the one who is refused gets to see. `tubectl status` shows each as use against limit.
//
// The numbers of one client's objects are in client_limits.h; here stands what all clients share.
#pragma once

namespace tube::proxy {

enum class Budget {
  kFunctions,
  kHostMemory,
  kPinned,
  kSegments,
  kImages,
  kEvicted,
  kRegisteredFiles,
  kRegisteredMappings,
  kDescriptors,
  kThreads,
  kSessionCpu,
  kGreetings,
  kControlClients,
  kBrokerClients,
  kLogLines,
  kCount,
};

struct BudgetEntry {
  Budget budget;
  const char* name;     // in status
  const char* unit;     // "bytes", or ""
  const char* counter;  // who counts
  const char* refused;  // what the one beyond it sees
};

inline constexpr const char* kOutOfMemory = "CUDA_ERROR_OUT_OF_MEMORY from that call";

inline constexpr BudgetEntry kBudgets[] = {
    {Budget::kFunctions, "functions", "", "server/places.cc", "is turned away in words"},
    {Budget::kHostMemory, "host_memory", "bytes", "memory/host_budget.h", kOutOfMemory},
    {Budget::kPinned, "pinned", "bytes", "memory/pinned_pool.h", kOutOfMemory},
    {Budget::kSegments, "segments", "bytes", "memory/spare_segments.h", "is turned away in words"},
    {Budget::kImages, "images", "bytes", "code/image_store.h", kOutOfMemory},
    {Budget::kEvicted, "evicted", "bytes", "memory/host_arena.h",
     "GPU memory of others does not move for it: CUDA_ERROR_OUT_OF_MEMORY"},
    {Budget::kRegisteredFiles, "registered_files", "bytes", "memory/host_pages.h", kOutOfMemory},
    {Budget::kRegisteredMappings, "registered_mappings", "", "memory/host_pages.h", kOutOfMemory},
    {Budget::kDescriptors, "descriptors", "", "common/descriptors.h",
     "a function is turned away in words; an open one gets an error for that file"},
    {Budget::kThreads, "threads", "", "session/session.cc", "is turned away in words"},
    {Budget::kSessionCpu, "session_cpu_ms", "", "common/cpu_watch.h",
     "with a quota of cores, its thread in the proxy rests while others want the cores"},
    {Budget::kGreetings, "greetings", "", "server/greetings.cc", "its connection is closed"},
    {Budget::kControlClients, "control_clients", "", "server/control_clients.cc",
     "waits for a place; the one that is silent longest makes room"},
    {Budget::kBrokerClients, "broker_clients", "", "server/shares.cc",
     "its connection is closed: the other proxy's client gets an error"},
    {Budget::kLogLines, "log_lines_left_out", "", "base/log_limits.h",
     "the line is left out and counted"},
};
static_assert(sizeof(kBudgets) / sizeof(kBudgets[0]) == static_cast<unsigned>(Budget::kCount));

}  // namespace tube::proxy
