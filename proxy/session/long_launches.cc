#include "proxy/session/long_launches.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/stats.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kFirst = 3;              // launches of a unit that are measured at once
constexpr uint32_t kLonger = 8;             // samples after which it is taken to have become longer
constexpr uint64_t kMayBeLongNs = 100'000;  // each launch of such a kernel is looked at
constexpr uint32_t kLeastSpan = 16, kMostSpan = 1000;  // launches from one sample to the next
constexpr uint64_t kSampleNs = 250'000'000;            // and how long that should take
constexpr uint64_t kHarvestNs = 20'000;                // between two looks at what has ended
constexpr size_t kSamples = 64;                        // that have not ended
constexpr size_t kUnits = 16384;                       // beyond them all are learnt anew

}  // namespace

LaunchPass::LaunchPass(LaunchPass&& other) noexcept
    : owner_(other.owner_),
      held_(other.held_),
      gpu_(other.gpu_),
      unit_(std::exchange(other.unit_, 0)),
      beside_(other.beside_),
      turn_(std::move(other.turn_)),
      work_(std::move(other.work_)) {}

LaunchPass::~LaunchPass() {
  if (owner_ != nullptr && turn_ != nullptr) owner_->turns_->drop(*turn_);
}

void LaunchPass::before(CUstream stream) {
  work_ = owner_->turns_->work(gpu_);
  if (work_ != nullptr && owner_->driver_.cuEventRecord(work_->begin, stream) != CUDA_SUCCESS)
    work_ = nullptr;
}

// Without an end that can be seen the turn ends here.
void LaunchPass::after(CUstream stream, CUresult result) {
  const std::shared_ptr<TimedWork> work = std::move(work_);
  work_ = nullptr;
  if (result != CUDA_SUCCESS || work == nullptr ||
      owner_->driver_.cuEventRecord(work->end, stream) != CUDA_SUCCESS)
    return;
  ++owner_->time_of(unit_).pending;
  owner_->samples_.push_back({unit_, gpu_, beside_, work});
  if (turn_ != nullptr) owner_->turns_->started(*std::exchange(turn_, nullptr), work);
}

void LongLaunches::use(LaunchTurns* turns, const LaunchUser& user, std::function<void()> told) {
  if (turns == nullptr || turns->order() == policies::LaunchOrder::kNative) return;
  turns_ = turns;
  session_ = user.session;
  told_ = std::move(told);
  turns->join(user);
}

LongLaunches::Time& LongLaunches::time_of(uint64_t unit) {
  if (times_.size() >= kUnits && !times_.contains(unit)) times_.clear();
  return times_[unit];
}

// A sample is looked at in any order: streams differ in how far they are.
void LongLaunches::harvest() {
  const uint64_t now = now_ns();
  if (samples_.empty() || now - harvested_ns_ < kHarvestNs) return;
  harvested_ns_ = now;
  std::erase_if(samples_, [&](const Sample& sample) {
    if (!turns_->ended(*sample.work)) return false;
    learn(sample, turns_->took_ns(*sample.work));
    return true;
  });
}

void LongLaunches::learn(const Sample& sample, uint64_t took_ns) {
  Time& time = time_of(sample.unit);
  if (time.pending != 0) --time.pending;
  if (took_ns == 0) return;
  const bool clean = !sample.beside && !turns_->beside(sample.gpu, session_);
  ++time.samples;
  if (time.least_ns == 0 || took_ns < time.least_ns) time.least_ns = took_ns;
  Stats::add(gpu_ns_, clean ? took_ns : time.least_ns);
  if (!clean) return;
  if (took_ns < 2 * time.least_ns) {
    time.longer = 0;
    return;
  }
  time.longer_ns = time.longer == 0 ? took_ns : std::min(time.longer_ns, took_ns);
  if (++time.longer < kLonger) return;
  time.least_ns = time.longer_ns;
  time.longer = 0;
}

// Whether this launch is measured. Long ones are each time, which ends their turns, too.
bool LongLaunches::measure(Time& time, uint64_t now) {
  if (samples_.size() >= kSamples) return false;
  const bool first = time.samples + time.pending < kFirst;
  const bool again =
      time.pending == 0 && (time.launches >= kMostSpan ||
                            (now - time.measured_ns >= kSampleNs && time.launches >= kLeastSpan));
  return first || again;
}

// When the next launch of the kernel is looked at.
void LongLaunches::plan(const Time& time, const Unit& unit, LaunchWatch& watch, uint64_t now) {
  const bool known = time.samples >= kFirst;
  if (!known || time.least_ns >= std::min(kMayBeLongNs, turns_->long_ns())) {
    watch.look_in(1);
    return;
  }
  watch.most_blocks = std::max(watch.most_blocks, unit.blocks);
  const uint64_t passed = std::max<uint64_t>(now - time.measured_ns, 1);
  const uint64_t span = passed < kSampleNs ? time.launches * (kSampleNs / passed) : kLeastSpan;
  watch.look_in(static_cast<uint32_t>(std::clamp<uint64_t>(span, kLeastSpan, kMostSpan)));
}

std::shared_ptr<LaunchTurn> LongLaunches::take_pass(uint64_t record) {
  const auto found = std::find_if(passes_.begin(), passes_.end(),
                                  [&](const Hold& pass) { return pass.record == record; });
  if (found == passes_.end()) return nullptr;
  auto turn = std::move(found->turn);
  passes_.erase(found);
  return turn;
}

void LongLaunches::hold(const Unit& unit, std::shared_ptr<LaunchTurn> turn) {
  ParkKeys keys;
  unit.stream->add_keys(keys, true);
  if (unit.also != 0) keys.add(unit.also, true);
  parked_.hold(keys);
  holds_.push_back({std::move(turn), keys, unit.record});
}

LaunchPass LongLaunches::look(const Unit& unit, LaunchWatch& watch) {
  LaunchPass pass;
  const uint32_t seen = watch.seen();
  watch.look_in(1);  // if it comes again
  const ContextShare* share = shares_.find(unit.stream->context);
  if (share == nullptr || share->driver_context != nullptr || unit.stream->in_slice) return pass;
  harvest();
  const uint64_t now = now_ns();
  Time& time = time_of(unit.key);
  pass.owner_ = this;
  pass.gpu_ = share->gpu;
  pass.turn_ = take_pass(unit.record);
  const bool is_long =
      unit.may_wait && time.least_ns >= turns_->long_ns() && turns_->fills(share->gpu, unit.blocks);
  if (pass.turn_ == nullptr && is_long) {
    auto turn = turns_->ask(share->gpu,
                            {.function = session_,
                             .stream = reinterpret_cast<uint64_t>(unit.stream),
                             .expected_ns = time.least_ns},
                            told_);
    if (!turn->granted()) {
      hold(unit, std::move(turn));
      pass.held_ = true;
      return pass;
    }
    pass.turn_ = std::move(turn);
  }
  time.launches += seen;
  const bool measured = pass.turn_ != nullptr || measure(time, now);
  Stats::add(gpu_ns_, time.least_ns * (measured && seen != 0 ? seen - 1 : seen));
  plan(time, unit, watch, now);
  if (!measured) return pass;
  pass.unit_ = unit.key;
  pass.beside_ = turns_->beside(share->gpu, session_);
  time.launches = 0;
  time.measured_ns = now;
  return pass;
}

void LongLaunches::watch() {
  is_next_ = false;
  for (const Hold& hold : holds_) is_next_ = turns_->look(*hold.turn) || is_next_;
}

void LongLaunches::settle() {
  for (size_t i = 0; i < holds_.size();) {
    if (!holds_[i].turn->granted()) {
      ++i;
      continue;
    }
    parked_.let_go(holds_[i].keys);
    passes_.push_back(std::move(holds_[i]));
    holds_.erase(holds_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void LongLaunches::settled() {
  for (const Hold& pass : passes_) turns_->drop(*pass.turn);
  passes_.clear();
}

void LongLaunches::take_all_back() {
  if (turns_ == nullptr) return;
  for (const Hold& hold : holds_) turns_->drop(*hold.turn);
  holds_.clear();
  settled();
  samples_.clear();
  std::exchange(turns_, nullptr)->leave(session_);
}

}  // namespace tube::proxy
