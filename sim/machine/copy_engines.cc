#include "sim/machine/copy_engines.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "sim/machine/state.h"

namespace tube::sim {
namespace {

constexpr size_t kServedKept = 65536;

bool setting(const char* variable, const char* value) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, value) == 0;
}

}  // namespace

std::unique_ptr<CopyEngines> CopyEngines::load(const TopologySpec& spec, Fabric* fabric,
                                               std::string* error) {
  const char* copies = std::getenv("TUBE_SIM_COPIES");
  const bool rule = setting("TUBE_SIM_COPIES", "engine"),
             clock = setting("TUBE_SIM_TIME", "virtual");
  if (copies != nullptr && !rule && std::strcmp(copies, "free") != 0)
    *error = std::string("TUBE_SIM_COPIES: not understood: ") + copies;
  if (!rule && !clock) return nullptr;
  return std::unique_ptr<CopyEngines>(new CopyEngines(spec, fabric, clock));
}

CopyEngines::CopyEngines(const TopologySpec& spec, Fabric* fabric, bool clock)
    : fabric_(fabric), clock_(clock), engines_(2 * spec.devices.size()) {
  for (size_t i = 0; i < engines_.size(); ++i) engines_[i].copy_ns = spec.devices[i / 2].copy_ns;
  kernels_.resize(spec.devices.size());
  for (size_t i = 0; i < kernels_.size() && clock; ++i) {
    const DeviceSpec& device = spec.devices[i];
    if (device.block_ns != 0)
      kernels_[i].emplace(static_cast<uint64_t>(std::max(device.sm_count, 1)), device.block_ns);
  }
}

uint64_t CopyEngines::duration_of(const Engine& of, const Transfer& transfer) const {
  if (transfer.bytes == 0) return 0;
  const double rate = std::max(fabric_->host_link(transfer.device, transfer.up), 1.0);
  return of.copy_ns +
         static_cast<uint64_t>(std::llround(static_cast<double>(transfer.bytes) / rate * 1e9));
}

void CopyEngines::add(const LanePtr& lane, const Transfer& transfer) {
  Engine& to = engine(transfer.device, transfer.up);
  const uint64_t number = ++numbers_, context = base_context(lane->context)->id;
  to.waiting.emplace(number, Copy{lane, {transfer, context, lane->stream, now(), 0, 0}});
  to.order.add({number, context, lane->stream, transfer.keeps});
  // While the end of its copy in hand is being completed, the engine is not idle: what becomes
  // ready with it is added first.
  if (to.order.idle()) take_next(to);
  changed_.notify_all();
  go_on();
}

void CopyEngines::take_next(Engine& to) {
  const std::optional<ReadyCopy> next = to.order.next();
  if (!next) return;
  to.in_hand = std::move(to.waiting.extract(next->number).mapped());
  ServedCopy& copy = to.in_hand.served;
  copy.begin_ns = now();
  copy.end_ns = clock_ ? now_ + duration_of(to, copy.transfer) : 0;
  to.turn = ++turns_;
}

CopyEngines::Engine* CopyEngines::first_to_end() {
  Engine* first = nullptr;
  for (Engine& e : engines_) {
    if (!e.in_hand.lane) continue;
    if (first == nullptr || std::pair(e.in_hand.served.end_ns, e.turn) <
                                std::pair(first->in_hand.served.end_ns, first->turn))
      first = &e;
  }
  return first;
}

void CopyEngines::start(Engine& of) {
  of.started = true;
  start_body(of.in_hand.lane);
}

// Without the clock the engines work side by side; with it one copy ends after the other. Words
// take no time.
void CopyEngines::go_on() {
  for (Engine& e : engines_)
    if (e.in_hand.lane && !e.started && e.in_hand.served.transfer.bytes == 0) start(e);
  if (held_) return;
  if (!clock_) {
    for (Engine& e : engines_)
      if (e.in_hand.lane && !e.started) start(e);
    return;
  }
  for (const Engine& e : engines_)
    if (e.started) return;
  if (kernel_started_ || go_on_with_kernels()) return;
  if (Engine* first = first_to_end()) start(*first);
}

void CopyEngines::add(const LanePtr& lane, const Grid& grid) {
  const uint64_t number = ++numbers_;
  kernel_lanes_.emplace(number, lane);
  kernels_[static_cast<size_t>(grid.device)]->add(number, {grid.blocks, grid.sms, lane->priority},
                                                  now_);
  changed_.notify_all();
  go_on();
}

// Lets blocks end until a kernel has, before the first copy does. True: its body runs.
bool CopyEngines::go_on_with_kernels() {
  const Engine* const copy = first_to_end();
  for (;;) {
    BlockOrder* first = nullptr;
    for (std::optional<BlockOrder>& kernels : kernels_)
      if (kernels && kernels->next_ns() &&
          (first == nullptr || *kernels->next_ns() < *first->next_ns()))
        first = &*kernels;
    if (first == nullptr || (copy != nullptr && copy->in_hand.served.end_ns < *first->next_ns()))
      return false;
    now_ = std::max(now_, *first->next_ns());
    const std::optional<uint64_t> ended = first->end_next();
    if (!ended) continue;
    kernel_started_ = true;
    start_body(kernel_lanes_.extract(*ended).mapped());
    return true;
  }
}

void CopyEngines::kernel_left(Lock& lock) {
  look_at_conditions(lock);
  kernel_started_ = false;
  changed_.notify_all();
  go_on();
}

void CopyEngines::reach_end(const Transfer& transfer) {
  Engine& of = engine(transfer.device, transfer.up);
  ServedCopy& copy = of.in_hand.served;
  if (clock_) now_ = std::max(now_, copy.end_ns);
  else copy.end_ns = now_ns();
  if (transfer.bytes == 0) return;
  served_.push_back(copy);
  ++ends_;
  if (served_.size() > kServedKept) served_.pop_front();
}

void CopyEngines::left(Lock& lock, const Transfer& transfer) {
  Engine& of = engine(transfer.device, transfer.up);
  if (clock_ || held_) look_at_conditions(lock);
  of.in_hand.lane = nullptr;
  of.started = false;
  of.order.ended();
  take_next(of);
  changed_.notify_all();
  go_on();
}

void CopyEngines::hold(Lock& lock, bool on) {
  held_ = on;
  if (!on) return go_on();
  changed_.wait(lock, [this] {
    return std::none_of(engines_.begin(), engines_.end(),
                        [](const Engine& e) { return e.started; });
  });
}

bool CopyEngines::step(Lock& lock) {
  const auto has_word = [](const Engine& e) {
    return e.in_hand.lane && e.in_hand.served.transfer.bytes == 0;
  };
  const auto no_words = [&] { return std::none_of(engines_.begin(), engines_.end(), has_word); };
  changed_.wait(lock, no_words);
  Engine* first = first_to_end();
  if (first == nullptr) return false;
  start(*first);
  const uint64_t turn = first->turn;
  changed_.wait(lock, [first, turn] { return !first->started || first->turn != turn; });
  changed_.wait(lock, no_words);
  return true;
}

void CopyEngines::advance_to(Lock& lock, uint64_t until_ns) {
  for (;;) {
    const Engine* first = first_to_end();
    if (first == nullptr || first->in_hand.served.end_ns > until_ns) break;
    step(lock);
  }
  now_ = std::max(now_, until_ns);
}

size_t CopyEngines::pending() const {
  size_t count = 0;
  for (const Engine& e : engines_) count += e.order.waiting() + (e.in_hand.lane ? 1 : 0);
  return count;
}

size_t CopyEngines::pending(int device, bool up) const {
  const size_t at = static_cast<size_t>(device) * 2 + (up ? 0 : 1);
  if (device < 0 || at >= engines_.size()) return 0;
  return engines_[at].order.waiting() + (engines_[at].in_hand.lane ? 1 : 0);
}

void CopyEngines::wait_for_pending(Lock& lock, size_t count) {
  changed_.wait(lock, [this, count] { return pending() >= count; });
}

}  // namespace tube::sim
