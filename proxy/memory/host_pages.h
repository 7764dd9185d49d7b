// One client's registered host memory: files of the client, mapped at the client's own addresses
// and registered with the driver.
//
// A registration is a range of bytes; its pages are mapped and registered once, however many
// registrations touch them (runs of pages have a count). The client names the files and says which
// pages they are; nothing of it is believed: addresses are mapped only where nothing else is, files
// must be ordinary ones long enough, and a file cut short later is caught (bus_guard.h). An address
// that is taken in this process, by a library or by another client's registration, is refused with
// CUDA_ERROR_OUT_OF_MEMORY and one line. Each segment takes one of the mappings that the system
// grants a process, which all clients share: limits::kHostMappingsPercent bounds a client and all
// of them. Pages that were registered for reading only are told to the ranges as such, and stay so
// for a later registration of the same pages. Session thread only; bytes() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "base/cuda_api.h"
#include "base/unique_fd.h"
#include "protocol/host_segment.h"
#include "proxy/memory/ranges.h"

namespace tube::proxy {

struct Driver;
class HostBudget;
class Registrations;

class HostPages {
 public:
  // A segment whose file has arrived.
  struct Segment {
    wire::HostSegment untrusted;
    int fd;
  };

  // `host` counts the pages that registering brings into being.
  HostPages(const Driver& driver, Ranges& ranges, HostBudget* host = nullptr,
            Registrations* registrations = nullptr);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // `segments` are exactly the pages of the range that are not mapped yet, in order.
  CUresult add(uint32_t context, uint64_t untrusted_base, uint64_t untrusted_bytes, uint32_t flags,
               const std::vector<Segment>& segments);
  // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED when no registration begins there. The GPU must be done
  // with it.
  CUresult remove(uint64_t untrusted_base);
  void free_all(uint32_t context);
  void close();
  // Leaves everything mapped for good: the GPU may still use it.
  void abandon();
  // Whether a file system (statfs' f_type) answers page faults by itself: one behind another
  // process or machine could hold the driver, and with it everybody, up for ever.
  static bool answers_page_faults(int64_t file_system);
  // The most segments that one client may have mapped, and all together. Any thread.
  static uint32_t most_mappings();
  static uint32_t most_mappings_of_all();
  static uint32_t mappings_of_all();
  // The most bytes that one client may have registered. Any thread.
  static uint64_t most_bytes();

  // Whether other programs may have the registered page, too: it is no private one, which the hook
  // has put into a file of its own.
  bool shared(uint64_t address) const;

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Run {
    uint64_t bytes = 0;
    uint32_t registrations = 0;
    uint32_t mappings = 0;
    uint64_t new_bytes = 0;  // pages that its files did not have
    bool shared = false;     // some of its files are other programs', too
  };
  struct Gap {
    uint64_t first, last;
    uint32_t mappings = 0;
    uint64_t new_bytes = 0;
  };
  bool take_mappings(size_t wanted);
  void give_mappings(uint32_t mappings);
  bool divide(uint64_t first, uint64_t last, const std::vector<Segment>& segments,
              std::vector<Gap>& gaps, std::vector<uint64_t>& known) const;
  CUresult map_run(uint64_t first, uint64_t last, uint32_t flags,
                   const std::vector<Segment>& segments);
  bool take(std::vector<Gap>& gaps, const std::vector<Segment>& segments);
  void give(const Gap& gap);
  void unmap_run(uint64_t first, const Run& run);

  const Driver& driver_;
  Ranges& ranges_;
  HostBudget* const host_;
  Registrations* const registrations_;
  std::map<uint64_t, Run> runs_;  // first page -> pages
  std::atomic<uint64_t> bytes_{0};
  uint32_t count_ = 0;
  uint32_t mappings_ = 0;
  bool told_ = false;  // that it has as many mappings as it may
};

}  // namespace tube::proxy
