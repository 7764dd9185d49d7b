#include "proxy/session/record_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "protocol/wire.gen.h"

namespace tube::proxy {

std::unique_ptr<RecordTrace> RecordTrace::from_environment() {
  const char* path = env_text(Env::kTraceRecords);
  return path != nullptr ? std::make_unique<RecordTrace>(path) : nullptr;
}

RecordTrace::RecordTrace(std::string path) : path_(std::move(path)) { entries_.reserve(kMost); }

void RecordTrace::add(uint32_t call, uint64_t seen_ns, uint64_t done_ns) {
  if (entries_.size() < kMost) entries_.push_back({call, seen_ns, done_ns});
}

void RecordTrace::write(int pid) const {
  std::string text;
  for (const Entry& entry : entries_) {
    text += std::to_string(pid) + ' ' + wire::call_name(entry.call) + ' ' +
            std::to_string(entry.seen_ns) + ' ' + std::to_string(entry.done_ns) + '\n';
  }
  UniqueFd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    log_warn("TUBE_TRACE_RECORDS: %s: %s", path_.c_str(), std::strerror(errno));
  }
}

}  // namespace tube::proxy
