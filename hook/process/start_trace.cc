#include "hook/process/start_trace.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/env.h"
#include "base/unique_fd.h"

namespace tube::hook {
namespace {

constexpr uint32_t kMarks = static_cast<uint32_t>(StartMark::kCount);
constexpr uint32_t kTallies = static_cast<uint32_t>(Tally::kCount);
constexpr const char* kMarkNames[kMarks] = {
    "loaded",   "driver_thread", "driver_asked", "driver_started", "init",  "connected",
    "reserved", "greeted",       "attached",     "ready",          "table", "table_ready",
    "load",     "load_end",      "kernel",       "kernel_end",     "launch"};
constexpr const char* kTallyNames[kTallies] = {"round_trips", "images",    "files",
                                               "image_bytes", "map_reads", "lookups",
                                               "known",       "load_ns",   "lookup_ns"};

constinit std::atomic<uint64_t> g_marks[kMarks] = {};
constinit std::atomic<uint64_t> g_tallies[kTallies] = {};

}  // namespace

namespace start_trace {

constinit std::atomic<bool> on{false};

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void record(StartMark mark) {
  uint64_t none = 0;
  std::atomic<uint64_t>& place = g_marks[static_cast<uint32_t>(mark)];
  if (place.load(std::memory_order_relaxed) == 0)
    place.compare_exchange_strong(none, now_ns(), std::memory_order_relaxed);
}

void add(Tally tally, uint64_t amount) {
  g_tallies[static_cast<uint32_t>(tally)].fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace start_trace

void begin_start_trace() {
  const char* path = ::secure_getenv(env_entry(Env::kTraceStart).name);
  if (path == nullptr || *path == 0) return;
  start_trace::on.store(true, std::memory_order_relaxed);
  mark_start(StartMark::kLoaded);
}

void write_start_trace() {
  if (!start_trace::on.load(std::memory_order_relaxed)) return;
  start_trace::on.store(false, std::memory_order_relaxed);
  char line[2048];
  int used = std::snprintf(line, sizeof line, "{\"pid\": %d", static_cast<int>(getpid()));
  const auto add = [&](const char* name, uint64_t value) {
    if (value != 0)
      used += std::snprintf(line + used, sizeof line - static_cast<size_t>(used), ", \"%s\": %llu",
                            name, static_cast<unsigned long long>(value));
  };
  for (uint32_t i = 0; i < kMarks; ++i)
    add(kMarkNames[i], g_marks[i].load(std::memory_order_relaxed));
  for (uint32_t i = 0; i < kTallies; ++i)
    add(kTallyNames[i], g_tallies[i].load(std::memory_order_relaxed));
  used += std::snprintf(line + used, sizeof line - static_cast<size_t>(used), "}\n");
  const char* path = env_text(Env::kTraceStart);
  UniqueFd file(open(path != nullptr ? path : "", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.valid()) (void)!write(file.get(), line, static_cast<size_t>(used));
}

}  // namespace tube::hook
