// fork(2) while memory is registered: natively the child gets its own copy of the pages, as of all
// private memory.
//
// Replaced pages (host_pages.h) are a shared mapping, which a child would share. So its side of
// fork() maps the file privately over them before anything else runs, and the parent's fork() waits
// for that (at most a second, if the child dies on the way): what the child then sees is the memory
// as it was, except that bytes inside a range which the parent's other threads or the GPU write
// later show through until the child writes to the same page (docs/limits.md). The first and last
// page of each range, which hold other data of the program, are copied at once. Pages whose
// registration the proxy has not answered yet are in the table already, so fork() waits for an
// exchange of pages at most, never for the proxy. vfork and
// posix_spawn share memory anyway and are not touched.
#pragma once

#include <cstdint>
#include <map>

#include "hook/process/lock.h"

namespace tube::hook {

struct Context;

struct PageRange {
  uint64_t bytes = 0;
  uint64_t offset = 0;      // in the process's memory file, when replaced
  uint32_t references = 0;  // registrations
  bool replaced = false;
};

struct RegisteredPages {
  Lock calls;  // rank 0: held by one registration at a time, while the proxy is asked too
  // Rank 0, behind `calls`: held while pages are exchanged and `ranges` changes, which belong
  // together, and by fork(); never while the proxy is asked.
  Lock pages;
  std::map<uint64_t, PageRange> ranges;
};
RegisteredPages& registered_pages();

// Once is enough; more does no harm. With `calls` held.
void watch_forks();

// The registrations of a context that was reset or destroyed (calls/host_register.cc).
void forget_registrations(const Context* context);

}  // namespace tube::hook
