#include "proxy/session/deadline_watch.h"

#include <algorithm>

#include "proxy/common/stats.h"
#include "proxy/gpu/gpu_slices.h"
#include "proxy/launch/asked_word.h"
#include "proxy/launch/launch_turns.h"
#include "proxy/session/context_shares.h"

namespace tube::proxy {

void DeadlineWatch::use(GpuSlices* slices, LaunchTurns* turns, const Client& client) {
  client_ = client;
  slices_ = slices;
  turns_ = turns;
}

void DeadlineWatch::began(uint64_t now_ns) {
  // When it was not looked at in time nobody knows when it ended: it counts as in time.
  if (due_ns_ != 0) ended(false, now_ns);
  began_ns_ = now_ns;
  due_ns_ = now_ns + client_.slo_ns;
  plan(now_ns);
}

void DeadlineWatch::look(uint64_t now_ns, bool kept_back) {
  if (due_ns_ != 0 && now_ns >= due_ns_) ended(kept_back || word_.outstanding(), now_ns);
  if (policy_) policy_->look(now_ns);
  apply();
  plan(now_ns);
}

void DeadlineWatch::ended(bool missed, uint64_t now_ns) {
  due_ns_ = 0;
  Stats::add(steps_);
  Stats::add(missed_, missed ? 1 : 0);
  if (slices_ == nullptr || turns_ == nullptr || !client_.may_hold || client_.keep_ns == 0) return;
  if (!policy_) {
    gpu_ = shares_.gpu();
    policy_.emplace(slices_->ways(gpu_), policies::AutoSlice::Options{.alone_ns = client_.keep_ns});
  }
  const auto held = slices_->held(gpu_);
  policy_->step(began_ns_, missed, turns_->others(gpu_, client_.session),
                held && held->session == client_.session, now_ns);
}

void DeadlineWatch::apply() {
  if (!policy_ || policy_->wanted() == applied_) return;
  applied_ = policy_->wanted();
  const ContextShares::Current before = shares_.current();
  if (shares_.make_current(gpu_) == CUDA_SUCCESS) slices_->want(gpu_, client_.session, applied_);
  (void)shares_.make_current(before);
}

void DeadlineWatch::plan(uint64_t now_ns) {
  look_ns_ = due_ns_ != 0 ? due_ns_ : UINT64_MAX;
  if (applied_) look_ns_ = std::min(look_ns_, now_ns + client_.keep_ns / 4 + 1);
}

}  // namespace tube::proxy
