#include "proxy/store/lost_seals.h"

#include <pthread.h>

#include "base/clock.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/store/store.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kMomentNs = uint64_t{limits::kUnwrittenMs} * 1'000'000;

}  // namespace

LostSeals::~LostSeals() {
  if (asker_.joinable()) asker_.join();
}

bool LostSeals::start(Store& store, uint64_t session) {
  return contained("the thread that asks which seals are over", [&] {
    asker_ = std::thread([this, &store, session] {
      pthread_setname_np(pthread_self(), "tube-seals");
      (void)contained("the question which seals are over",
                      [&] { (void)store.unwritten(session, true); });
      lost_.store(true, std::memory_order_release);
    });
  });
}

bool LostSeals::step(Store& store, uint64_t session) {
  if (lost_.load(std::memory_order_acquire) || !store.has_unseen(session)) return true;
  const uint64_t now = now_ns();
  if (since_ns_ == 0) since_ns_ = now;
  // What ends by itself has its moment; then the driver has one to answer.
  if (now - since_ns_ < kMomentNs) return false;
  const bool asked = asker_.joinable() || start(store, session);
  if (asked && now - since_ns_ < 2 * kMomentNs) return false;
  store.lose_unseen(session);
  return true;
}

}  // namespace tube::proxy
