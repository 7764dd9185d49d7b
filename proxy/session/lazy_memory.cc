// What a session has to do with memory that is promised, away, or backed by address
// (proxy/evict/residency.h, known_function.h).
#include <poll.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/common/contained.h"
#include "proxy/evict/pool_profiles.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/block_offers.h"
#include "proxy/session/session.h"
#include "proxy/store/store.h"
#include "sharedmem/accessors.h"
#include "sharedmem/chunks.h"
#include "sharedmem/ring.h"

namespace tube::proxy {

// Called by the constructor: what it names is there when a record is.
Residency::Hooks Session::residency_hooks() {
  const auto pinned = [this](uint64_t address, uint64_t bytes) -> std::span<const std::byte> {
    const Range* range = ranges_.covering(address, bytes);
    if (range == nullptr || !range->is_host()) return {};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): mapped here at the same address
    return {reinterpret_cast<const std::byte*>(address), bytes};
  };
  const auto chunk = [this](uint32_t untrusted_chunk, uint64_t untrusted_offset,
                            uint64_t untrusted_bytes) -> std::span<const std::byte> {
    if (!shared::valid_chunk_range(copies_.chunks(), untrusted_chunk, untrusted_offset,
                                   untrusted_bytes))
      return {};
    return {copies_.chunk_data(untrusted_chunk) + untrusted_offset, untrusted_bytes};
  };
  return {.at_rest = [this] { return at_rest(); },
          .go_on = [this] { return go_on_parked(); },
          .captures = [this] { return captures(); },
          .stop = [this] { return stopping(); },
          .has_record = [this] { return reader_->has_record(); },
          .make_current = [this](uint32_t gpu) { return contexts_.make_current(gpu); },
          .drop_code = [this](uint32_t gpu) { return shared_.modules.make_room(gpu); },
          .move_objects =
              [this](uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take) {
                return shared_.store == nullptr
                           ? CUDA_ERROR_OUT_OF_MEMORY
                           : shared_.store->make_room(static_cast<int>(gpu), bytes, take);
              },
          .fail = [this](uint32_t gpu, CUresult error) { lose_promises(gpu, error); },
          .host = {.pinned = pinned, .chunk = chunk, .captures = [this] { return captures(); }},
          .settle = [this] { return settle(); }};
}

CUresult Session::make_room(uint32_t gpu, uint64_t bytes, const std::function<CUresult()>& take) {
  const ContextShares::Current before = contexts_.current();
  const CUresult error = residency_.make_room(gpu, bytes, [&] {
    const CUresult back = contexts_.make_current(before);
    return back == CUDA_SUCCESS ? take() : back;
  });
  const CUresult back = contexts_.make_current(before);
  return error != CUDA_SUCCESS ? error : back;
}

// For others' threads. Until the session leaves, which is after its client's end.
PostedRecords::Poster Session::poster() {
  return {.mark =
              [this] {
                return PostedRecords::Mark{.ring = reader_->posted(),
                                           .gone = stopping() || !client_alive(true)};
              },
          .is_past =
              [this](PostedRecords::Mark& mark) {
                if (mark.gone) return false;
                if (residency_.waits()) return true;
                if (mark.in_ring && static_cast<int64_t>(reader_->head() - mark.ring) < 0)
                  return false;
                if (std::exchange(mark.in_ring, false)) mark.frees = parked_.ends_kept();
                return parked_.ends_done() >= mark.frees;
              }};
}

bool Session::settle_posted(uint32_t gpu, uint64_t bytes) {
  if (shared_.posted == nullptr || !account_->own_fits(gpu, bytes)) return false;
  const ContextShares::Current before = contexts_.current();
  const auto serve = [this] {
    if (residency_.asked()) residency_.serve_within();
  };
  const auto stop = [this] { return stopping(); };
  bool again = shared_.posted->settle(client_.id, {.serve = serve, .stop = stop});
  // What left meanwhile comes before anything more: all must fit at once (docs/memory.md, 7).
  if (residency_.away()) again &= residency_.come_back() == CUDA_SUCCESS;
  return contexts_.make_current(before) == CUDA_SUCCESS && again;
}

// Memory that the client was promised is not to be had: what it launches would fault.
void Session::lose_promises(uint32_t gpu, CUresult error) {
  log_error("function '%s' (pid %d): GPU %u has no memory for what it was promised (%s)",
            client_.name.c_str(), client_.pid, gpu, result_text(driver(), error).c_str());
  shared::proxy_store_sticky_error(segment_.header(), static_cast<uint32_t>(error));
}

// Work that is kept back does not count: it is looked at when it goes on.
std::vector<std::string> Session::settle() {
  constexpr uint64_t kMost = 2'000'000'000;
  runs_.end();
  const uint64_t end = now_ns() + kMost;
  const auto ended = [&](const StreamState& state, uint32_t gpu) {
    while (true) {
      if (query(state, gpu) != CUDA_ERROR_NOT_READY) return true;
      if (stopping() || now_ns() > end) return false;
      poll(nullptr, 0, 1);
    }
  };
  if (contexts_.all_streams(ended)) return {};
  std::vector<std::string> kernels = notes_.in_flight();
  if (kernels.empty()) kernels.emplace_back("what a stream waits for");
  return kernels;
}

void Session::begin_known() {
  if (shared_.known.pool && offers_ != nullptr)
    (void)contained("a profile of the pool",
                    [this] { offers_->restore(load_pool_profile(client_.name)); });
  if (!client_.lazy_memory && shared_.known.profile.empty()) return;
  (void)contained("a certificate", [this] {
    known_.begin(shared_.known, {.session = client_.id,
                                 .pid = client_.pid,
                                 .name = client_.name,
                                 .lazy = client_.lazy_memory,
                                 .gpu = shared_.gpus[0].name});
  });
}

// `idle`: all its work has ended. A fault that no call has found is found here.
void Session::end_known(bool idle) {
  if (shared_.known.pool && offers_ != nullptr)
    (void)contained("a profile of the pool",
                    [this] { keep_pool_profile(client_.name, offers_->demand()); });
  if (shared_.known.profile.empty()) return;
  (void)contained("a profile", [this, idle] {
    if (contexts_.make_current(0u) == CUDA_SUCCESS && idle)
      report_if_sticky(0, driver().cuCtxSynchronize());
    known_.end(idle && !poisoned());
  });
}

}  // namespace tube::proxy
