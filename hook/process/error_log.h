// The log behind cuLogs*: the last calls that failed in this process, and the
// callbacks that hear of new ones.
//
// An entry is the call, its code, the time and the thread; text is made when somebody asks, so that
// programs whose calls fail as a matter of course (pointer queries) pay a few stores. An iterator
// counts entries ever made. Any thread; the callbacks run on the thread whose call failed, without
// the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>

#include "base/cuda_api.h"
#include "hook/process/lock.h"

namespace tube::hook {

class ErrorLog {
 public:
  static constexpr uint32_t kEntries = 128;
  static constexpr uint32_t kCallbacks = 64;
  static constexpr size_t kLineBytes = 200;
  static constexpr size_t kTextBytes =
      25600;  // what the driver keeps at most; 128 lines of 200 bytes

  // `call` is a literal.
  void add(const char* call, CUresult result);
  // nullptr: all places are taken.
  void* add_callback(CUlogsCallback callback, void* data);
  bool remove_callback(const void* handle);

  CUlogIterator end();
  // NUL-terminated, whole lines only, the newest when not all fit; *size is the room, then the
  // bytes without the NUL. nullptr: from the beginning. False when the room takes no line of those
  // there are.
  bool copy(CUlogIterator* iterator, char* out, size_t* size);

  // A thread that is not here may hold the lock, and a child's calls fail and are noted.
  void in_forked_child() { new (&lock_) Lock; }

 private:
  struct Entry {
    const char* call = nullptr;
    CUresult result = CUDA_SUCCESS;
    unsigned long thread = 0;
    timespec time{};
  };
  struct Callback {
    CUlogsCallback function = nullptr;
    void* data = nullptr;
  };
  // As the driver words them; the driver also says more about some calls. The length, without a
  // NUL.
  static size_t message(const Entry& entry, char (&text)[kLineBytes]);
  static size_t line(const Entry& entry, char (&text)[kLineBytes]);

  Lock lock_;          // rank 2
  uint64_t made_ = 0;  // entries ever
  uint32_t listeners_ = 0;
  Callback callbacks_[kCallbacks] = {};
  Entry entries_[kEntries] = {};
};

ErrorLog& error_log();

}  // namespace tube::hook
