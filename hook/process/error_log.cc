#include "hook/process/error_log.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constinit ErrorLog g_error_log;
constexpr char kLost[] = "[older messages are lost]\n";
constexpr size_t kLostBytes = sizeof kLost - 1;

}  // namespace

ErrorLog& error_log() { return g_error_log; }

size_t ErrorLog::message(const Entry& entry, char (&text)[kLineBytes]) {
  const char* name = nullptr;
  (void)hook::cuGetErrorName(entry.result, &name);
  const int length =
      std::snprintf(text, sizeof text, "Returning %d (%s) from %s", static_cast<int>(entry.result),
                    name != nullptr ? name : "unknown", entry.call);
  return length <= 0 ? 0 : std::min(static_cast<size_t>(length), sizeof text - 1);
}

size_t ErrorLog::line(const Entry& entry, char (&text)[kLineBytes]) {
  char said[kLineBytes];
  (void)message(entry, said);
  tm local{};
  localtime_r(&entry.time.tv_sec, &local);
  const int length =
      std::snprintf(text, sizeof text, "[%02d:%02d:%02d.%03ld][%lu][CUDA][E] %s\n", local.tm_hour,
                    local.tm_min, local.tm_sec, entry.time.tv_nsec / 1'000'000, entry.thread, said);
  if (length <= 0) return 0;
  const size_t bytes = std::min(static_cast<size_t>(length), sizeof text - 1);
  text[bytes - 1] = '\n';
  return bytes;
}

void ErrorLog::add(const char* call, CUresult result) {
  Entry entry{call, result, static_cast<unsigned long>(pthread_self()), {}};
  clock_gettime(CLOCK_REALTIME, &entry.time);
  Callback callbacks[kCallbacks];
  {
    Locked locked(lock_);
    entries_[made_++ % kEntries] = entry;
    if (listeners_ == 0) return;
    std::copy_n(callbacks_, kCallbacks, callbacks);
  }
  char text[kLineBytes];
  const size_t bytes = message(entry, text);
  for (const Callback& c : callbacks) {
    if (c.function != nullptr) c.function(c.data, CU_LOG_LEVEL_ERROR, text, bytes);
  }
}

void* ErrorLog::add_callback(CUlogsCallback callback, void* data) {
  Locked locked(lock_);
  for (Callback& c : callbacks_) {
    if (c.function != nullptr) continue;
    c = {callback, data};
    ++listeners_;
    return &c;
  }
  return nullptr;
}

bool ErrorLog::remove_callback(const void* handle) {
  Locked locked(lock_);
  for (Callback& c : callbacks_) {
    if (&c != handle || c.function == nullptr) continue;
    c = {};
    --listeners_;
    return true;
  }
  return false;
}

CUlogIterator ErrorLog::end() {
  Locked locked(lock_);
  return static_cast<CUlogIterator>(made_);
}

bool ErrorLog::copy(CUlogIterator* iterator, char* out, size_t* size) {
  Locked locked(lock_);
  const size_t room = *size - 1;
  const uint64_t oldest = made_ > kEntries ? made_ - kEntries : 0;
  // An iterator is the low half of the count.
  const uint64_t wanted =
      iterator == nullptr
          ? 0
          : made_ - std::min<uint64_t>(made_, static_cast<uint32_t>(made_) - *iterator);
  char text[kLineBytes];
  uint64_t first = made_;
  size_t bytes = 0;
  while (first > std::max(wanted, oldest)) {  // from the newest back, as long as it fits
    const size_t more = line(entries_[(first - 1) % kEntries], text);
    if (bytes + more > room) break;
    bytes += more;
    --first;
  }
  *size = 0;
  if (first == made_) return wanted >= made_;  // nothing to say: not even an end is written
  size_t at = 0;
  if (first > wanted && bytes + kLostBytes <= room) {
    std::memcpy(out, kLost, kLostBytes);
    at = kLostBytes;
  }
  for (; first < made_; ++first) {
    const size_t more = line(entries_[first % kEntries], text);
    std::memcpy(out + at, text, more);
    at += more;
  }
  out[at] = '\0';
  *size = at;
  if (iterator != nullptr) *iterator = static_cast<CUlogIterator>(made_);
  return true;
}

}  // namespace tube::hook
