#include "policies/gate_admission.h"

#include <algorithm>

namespace tube::policies {

bool gate_wait_matters(const GateCall& call, const GateWait& wait) {
  return wait.owner != kGateProxy && wait.owner != call.owner && (wait.gpus & call.gpus) != 0;
}

GateDecision admit_call(const GateCall& call, std::span<const GateWait> waits,
                        bool waits_on_their_way, uint64_t now_ns) {
  const uint64_t stood_ns = now_ns - call.since_ns;
  const bool patient = stood_ns < call.patience_ns;
  const GateWait* holds = nullptr;   // the call stands for this one
  const GateWait* beside = nullptr;  // the call may begin although this one stands
  for (const GateWait& wait : waits) {
    if (!gate_wait_matters(call, wait)) continue;
    const bool young = patient && now_ns - wait.since_ns < call.patience_ns;
    const GateWait*& oldest =
        young || (wait.stopped && stood_ns < call.stopped_ns) ? holds : beside;
    if (oldest == nullptr || wait.since_ns < oldest->since_ns) oldest = &wait;
  }
  if (holds != nullptr) return {GateVerdict::kStand, holds};
  if (waits_on_their_way && patient) return {GateVerdict::kStand, nullptr};
  if (beside != nullptr || waits_on_their_way) return {GateVerdict::kBeginBesideWaits, beside};
  return {GateVerdict::kBegin, nullptr};
}

bool admit_call_now(const GateCall& call, std::span<const GateWait> waits,
                    bool waits_on_their_way) {
  return !waits_on_their_way && std::none_of(waits.begin(), waits.end(), [&](const GateWait& w) {
    return w.owner != kGateProxy && (w.gpus & call.gpus) != 0;
  });
}

bool admit_wait(const GateTraffic& traffic, uint64_t patience_ns, uint64_t* until_ns,
                uint64_t now_ns) {
  *until_ns = UINT64_MAX;
  if (traffic.calls != 0) return false;
  if (traffic.bounded_calls == 0) return true;
  // All that stand behind one such call share its patience, or each would have it again.
  *until_ns = traffic.bounded_since_ns + patience_ns;
  return now_ns >= *until_ns;
}

bool wait_has_room(std::span<const GateWait> waits, GateGpus gpu, uint64_t owner, bool alone,
                   WaitRoom room) {
  uint32_t all = 0, mine = 0;
  for (const GateWait& wait : waits) {
    if ((wait.gpus & gpu) == 0) continue;
    ++all;
    mine += wait.owner == owner ? 1 : 0;
  }
  return all < room.all && (alone || mine < room.one);
}

std::vector<uint64_t> StoppedLimit::look(const std::set<uint64_t>& in_the_way, uint64_t now_ns) {
  std::erase_if(since_ns_, [&](const auto& entry) { return !in_the_way.contains(entry.first); });
  std::vector<uint64_t> over;
  for (uint64_t owner : in_the_way) {
    const uint64_t since_ns = since_ns_.try_emplace(owner, now_ns).first->second;
    if (now_ns - since_ns >= limit_ns_) over.push_back(owner);
  }
  return over;
}

}  // namespace tube::policies
