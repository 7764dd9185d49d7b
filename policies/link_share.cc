#include "policies/link_share.h"

#include <algorithm>

namespace tube::policies {

namespace {

constexpr std::string_view kOrderNames[] = {"arrival", "round-robin", "rates", "deadlines"};
// Bursts are paced to end when this part of their time is left, as chunks stand in line.
constexpr uint64_t kMarginPart = 8;
// A gap longer than this part of a burst's time ends the burst.
constexpr uint64_t kGapPart = 4;
// Copies have at least this part of an SLO, whatever is said of the inference.
constexpr uint64_t kLeastBudgetPart = 8;

uint64_t since(uint64_t now_ns, uint64_t then_ns) {
  return now_ns > then_ns ? now_ns - then_ns : 0;
}

uint64_t per_second(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / double(ns));
}

}  // namespace

std::string_view link_order_name(LinkOrder order) {
  return kOrderNames[static_cast<size_t>(order)];
}

std::optional<LinkOrder> parse_link_order(std::string_view name) {
  for (LinkOrder order : kLinkOrders)
    if (link_order_name(order) == name) return order;
  return std::nullopt;
}

LinkShare::LinkShare(const Options& options) : options_(options) {
  credit_ = static_cast<int64_t>(2 * std::max(options.chunk_alone, options.chunk_company));
  if (options_.batch == 0) options_.batch = options_.order == LinkOrder::kRoundRobin ? 6 : 5;
}

// ---- Functions and their copies.

uint32_t LinkShare::find(uint64_t function) const {
  for (uint32_t at = 0; at < ids_.size(); ++at)
    if (ids_[at] == function && functions_[at].named) return at;
  return kNone;
}

uint32_t LinkShare::slot_of(uint64_t function) {
  uint32_t at = find(function);
  if (at != kNone) return at;
  for (at = 0; at < functions_.size() && functions_[at].named;) ++at;
  if (at == functions_.size()) {
    functions_.emplace_back();
    ids_.emplace_back();
    active_.reserve(functions_.capacity());
  }
  functions_[at] = Function{};
  functions_[at].named = true;
  functions_[at].tag = virtual_ - credit_;  // it has had nothing yet
  ids_[at] = function;
  return at;
}

void LinkShare::needs(uint64_t function, const FunctionNeeds& needs) {
  Function& f = functions_[slot_of(function)];
  f.needs = needs;
  if (waits(f) && !f.burst.begun) begin_burst(f, front(f).claim);
}

void LinkShare::add(const LinkClaim& claim) {
  const uint32_t at = slot_of(claim.function);
  Function& f = functions_[at];
  if (!waits(f)) join(at, claim);
  begin_burst(f, claim);
  note_hurry(at, claim);
  enqueue(small(claim) ? f.small : f.large, claim);
  f.pending += claim.bytes;
}

bool LinkShare::remove(uint64_t copy) {
  for (uint32_t at : active_) {
    Function& f = functions_[at];
    if (!drop(f, f.small, copy) && !drop(f, f.large, copy)) continue;
    if (!waits(f)) leave(at);
    return true;
  }
  return false;
}

void LinkShare::forget(uint64_t function) {
  const uint32_t at = find(function);
  if (at == kNone) return;
  Function& f = functions_[at];
  if (waits(f)) leave(at);
  while (f.small.head != kNone) unlink(f.small, kNone, f.small.head);
  while (f.large.head != kNone) unlink(f.large, kNone, f.large.head);
  f.named = false;
  for (Hurry& hurry : hurries_)
    if (hurry.function == at) hurry = {};
}

// Almost always behind the last; copies of a stream that stood behind another one may be older.
void LinkShare::enqueue(Queue& queue, const LinkClaim& claim) {
  uint32_t at = free_waiting_;
  if (at == kNone) {
    at = static_cast<uint32_t>(waiting_.size());
    waiting_.emplace_back();
  } else {
    free_waiting_ = waiting_[at].next;
  }
  uint32_t before = queue.tail;
  if (before != kNone && waiting_[before].claim.arrived_ns > claim.arrived_ns) {
    before = kNone;
    for (uint32_t i = queue.head; waiting_[i].claim.arrived_ns <= claim.arrived_ns;
         i = waiting_[i].next)
      before = i;
  }
  uint32_t& link = before == kNone ? queue.head : waiting_[before].next;
  waiting_[at] = {claim, claim.bytes, ++adds_, link};
  link = at;
  if (queue.tail == before) queue.tail = at;
}

void LinkShare::unlink(Queue& queue, uint32_t before, uint32_t at) {
  (before == kNone ? queue.head : waiting_[before].next) = waiting_[at].next;
  if (queue.tail == at) queue.tail = before;
  waiting_[at].next = free_waiting_;
  free_waiting_ = at;
}

bool LinkShare::drop(Function& f, Queue& queue, uint64_t copy) {
  uint32_t before = kNone;
  for (uint32_t at = queue.head; at != kNone; before = at, at = waiting_[at].next) {
    if (waiting_[at].claim.copy != copy) continue;
    f.pending -= waiting_[at].left;
    unlink(queue, before, at);
    return true;
  }
  return false;
}

// What a function left unused while it was away is its credit, within bounds; so is what it had
// more than its share.
void LinkShare::join(uint32_t at, const LinkClaim& claim) {
  Function& f = functions_[at];
  f.tag = std::clamp(f.tag, virtual_ - credit_, virtual_ + credit_);
  f.hungry_since_ns = std::max(claim.arrived_ns, now_ns_);
  f.joined = turns_ + 1;
  f.served = turns_;
  f.small_lead = 0;
  active_.push_back(at);
}

void LinkShare::leave(uint32_t at) {
  auto place = std::find(active_.begin(), active_.end(), at);
  *place = active_.back();
  active_.pop_back();
  functions_[at].pending = 0;
  if (block_of_ == at) block_of_ = kNone;
}

// Which copy a function's next turn is for: the oldest. By deadlines a small one goes before large
// ones of the same function, which get a turn for every small copy's worth of bytes.
const LinkShare::Queue& LinkShare::front_queue(const Function& f) const {
  if (f.small.head == kNone) return f.large;
  if (f.large.head == kNone) return f.small;
  const bool first = options_.order == LinkOrder::kDeadlines
                         ? f.small_lead < options_.chunk_alone
                         : waiting_[f.small.head].came() < waiting_[f.large.head].came();
  return first ? f.small : f.large;
}

// ---- Bursts: rates and deadlines.

// The time that a request's copies have; 0: the function has no SLO.
uint64_t LinkShare::budget_ns(const Function& f) const {
  return std::max(since(f.needs.slo_ns, f.needs.infer_ns), f.needs.slo_ns / kLeastBudgetPart);
}

uint64_t LinkShare::expected(const Function& f) const {
  const uint64_t said = f.needs.request_bytes != 0 ? f.needs.request_bytes : f.burst.learnt;
  return std::max(said, f.burst.sent + f.pending);
}

uint64_t LinkShare::deadline_ns(const Function& f) const {
  return f.needs.slo_ns == 0 ? kNoDeadline : f.burst.begin_ns + budget_ns(f);
}

// Bytes sent, as a part of those that the rate asks for by now. Below 1: behind.
double LinkShare::progress(const Function& f, uint64_t now_ns) const {
  const double elapsed = static_cast<double>(since(now_ns, f.burst.begin_ns));
  // At the beginning whatever was sent is ahead.
  const double due = static_cast<double>(expected(f)) * elapsed;
  const double sent = static_cast<double>(f.burst.sent) * static_cast<double>(budget_ns(f));
  return due == 0 ? sent : sent / due;
}

// A new burst begins behind a long gap, or when the present one's time is over.
void LinkShare::begin_burst(Function& f, const LinkClaim& claim) {
  Burst& burst = f.burst;
  if (f.needs.slo_ns == 0) return;
  const bool over = claim.arrived_ns >= deadline_ns(f);
  const bool gap = !waits(f) && since(claim.arrived_ns, burst.last_ns) > budget_ns(f) / kGapPart;
  if (burst.begun && !over && !gap) return;
  if (burst.sent != 0) burst.learnt = std::max(burst.sent, burst.learnt - burst.learnt / 8);
  burst = {claim.arrived_ns, claim.arrived_ns, 0, burst.learnt, true};
}

// ---- Whose turn.

std::optional<LinkShare::Turn> LinkShare::next(uint64_t now_ns) {
  now_ns_ = now_ns;
  if (active_.empty()) return std::nullopt;
  if (rests(now_ns)) rested_ns_ = now_ns;
  return serve(choose(now_ns), now_ns);
}

bool LinkShare::may_send(uint32_t chunks, uint64_t bytes, uint64_t now_ns) const {
  if (chunks == 0 || rests(now_ns)) return chunks == 0;
  if (chunks < kKeepsBusy) return true;
  if (chunks >= kMostChunks || options_.order != LinkOrder::kDeadlines) return false;
  const uint64_t large = chunk(active_.size() == 1 ? active_.front() : kNone, now_ns);
  return bytes + (last_bytes_ != 0 ? last_bytes_ : large) <= 2 * large;
}

uint32_t LinkShare::choose(uint64_t now_ns) {
  switch (options_.order) {
    case LinkOrder::kArrival: return first_come();
    case LinkOrder::kRoundRobin:
    case LinkOrder::kRates: return of_batch(now_ns);
    case LinkOrder::kDeadlines: return by_deadlines(now_ns);
  }
  return active_.front();
}

// The active function with the smallest key.
template <class Key>
uint32_t LinkShare::least(const Key& key) const {
  return *std::min_element(active_.begin(), active_.end(), [&](uint32_t a, uint32_t b) {
    return key(functions_[a]) < key(functions_[b]);
  });
}

uint32_t LinkShare::first_come() const {
  return least([&](const Function& f) { return front(f).came(); });
}

// A block once begun is filled up with the same function's copies; a batch once begun is used up
// among those that were there when it began.
uint32_t LinkShare::of_batch(uint64_t now_ns) {
  if (block_of_ != kNone && block_left_ != 0) return block_of_;
  if (batch_left_ == 0 || longest_unserved() == kNone) {
    batch_left_ = options_.batch;
    batch_began_ = turns_ + 1;
  }
  --batch_left_;
  block_left_ = options_.block;
  block_of_ = options_.order == LinkOrder::kRates ? by_rates(now_ns) : longest_unserved();
  return block_of_;
}

uint32_t LinkShare::longest_unserved() const {
  const uint32_t at = least([&](const Function& f) { return std::pair(!admitted(f), f.served); });
  return admitted(functions_[at]) ? at : kNone;
}

uint32_t LinkShare::hungriest() const {
  return least([](const Function& f) { return f.hungry_since_ns; });
}

uint32_t LinkShare::by_rates(uint64_t now_ns) const {
  const uint32_t hungry = hungriest();
  if (since(now_ns, functions_[hungry].hungry_since_ns) >= options_.patience_ns) return hungry;
  uint32_t behind_most = kNone, tightest = kNone;
  double least = 1;
  for (uint32_t at : active_) {
    const Function& f = functions_[at];
    if (f.needs.slo_ns == 0 || !admitted(f)) continue;
    const double part = progress(f, now_ns);
    if (part < least) least = part, behind_most = at;
    if (tightest == kNone || f.needs.slo_ns < functions_[tightest].needs.slo_ns) tightest = at;
  }
  if (behind_most != kNone) return behind_most;
  return tightest != kNone ? tightest : longest_unserved();
}

uint32_t LinkShare::by_deadlines(uint64_t now_ns) {
  virtual_ = std::max(virtual_, functions_[least([](const Function& f) { return f.tag; })].tag);

  const uint32_t hungry = hungriest();
  if (since(now_ns, functions_[hungry].hungry_since_ns) >= options_.patience_ns) return hungry;
  const uint32_t fair = fairest();
  uint64_t urgent_bytes = 0;
  const uint32_t urgent = most_urgent(now_ns, &urgent_bytes);
  if (urgent == kNone) return fair;
  const Waiting& copy = front(functions_[fair]);
  if (!has_credit(functions_[fair], copy.claim, copy.left)) return urgent;
  const double slack_s = 1e-9 * double(since(deadline_ns(functions_[urgent]), now_ns));
  const double bytes = double(urgent_bytes) + double(copy.left);
  return bytes <= slack_s * double(options_.bytes_per_s) ? fair : urgent;
}

uint32_t LinkShare::fairest() const {
  return least([&](const Function& f) { return std::pair(rank(f), f.served); });
}

// `*urgent_bytes`: what all that are behind have yet to send, as far as it is known.
uint32_t LinkShare::most_urgent(uint64_t now_ns, uint64_t* urgent_bytes) const {
  uint32_t best = kNone;
  for (uint32_t at : active_) {
    const Function& f = functions_[at];
    if (!behind(f, now_ns)) continue;
    *urgent_bytes += expected(f) - f.burst.sent;
    if (best == kNone || deadline_ns(f) < deadline_ns(functions_[best])) best = at;
  }
  return best;
}

// A burst of unknown size may be larger than what waits of it, so it is behind until its deadline.
// A deadline that has passed hurries nobody: what cannot be kept must not make others miss theirs.
bool LinkShare::behind(const Function& f, uint64_t now_ns) const {
  if (f.needs.slo_ns == 0 || now_ns >= deadline_ns(f)) return false;
  if (f.needs.request_bytes == 0 && f.burst.learnt == 0) return true;
  return progress(f, now_ns) * (kMarginPart - 1) <= kMarginPart;
}

int64_t LinkShare::rank(const Function& f) const {
  return small(front(f).claim) ? f.tag : std::max(f.tag, virtual_);
}

// The copy fits into what its function has left unused of its share.
bool LinkShare::has_credit(const Function& f, const LinkClaim& claim, uint64_t left) const {
  return small(claim) && f.tag + static_cast<int64_t>(left) <= virtual_;
}

// ---- A turn.

void LinkShare::note_hurry(uint32_t at, const LinkClaim& claim) {
  const Function& f = functions_[at];
  if (f.needs.slo_ns == 0 && !has_credit(f, claim, claim.bytes)) return;
  const bool second = hurries_[1].function == at ||
                      (hurries_[0].function != at && hurries_[1].until_ns < hurries_[0].until_ns);
  hurries_[second ? 1 : 0] = {at, claim.arrived_ns + options_.hurry_ns, claim.bytes};
}

uint64_t LinkShare::chunk(uint32_t at, uint64_t now_ns) const {
  switch (options_.order) {
    case LinkOrder::kArrival: return options_.chunk_alone;
    case LinkOrder::kRoundRobin:
    case LinkOrder::kRates: return block_left_;
    case LinkOrder::kDeadlines: break;
  }
  uint64_t most = active_.size() == 1 ? options_.chunk_alone : options_.chunk_company;
  for (const Hurry& hurry : hurries_) {
    if (hurry.function == kNone || hurry.function == at || now_ns >= hurry.until_ns) continue;
    const bool tiny = hurry.bytes < options_.chunk_hurry / 4;
    most = std::min(most, tiny ? options_.chunk_tiny : options_.chunk_hurry);
  }
  return most;
}

LinkShare::Turn LinkShare::serve(uint32_t at, uint64_t now_ns) {
  Function& f = functions_[at];
  Queue& queue = &front_queue(f) == &f.small ? f.small : f.large;
  Waiting& copy = waiting_[queue.head];
  Turn turn{copy.claim.copy, copy.claim.bytes - copy.left, std::min(copy.left, chunk(at, now_ns)),
            false};
  last_bytes_ = turn.bytes;
  charge(f, copy, turn.bytes);
  copy.left -= turn.bytes;
  turn.last = copy.left == 0;
  f.served = ++turns_;
  f.hungry_since_ns = now_ns;
  count(f, copy.claim, turn, now_ns);
  if (turn.last) unlink(queue, kNone, queue.head);
  if (!waits(f)) leave(at);
  return turn;
}

// What is sent for a deadline's sake counts, too, but not without end: nobody pays it back for
// long.
void LinkShare::charge(Function& f, const Waiting& copy, uint64_t bytes) {
  f.tag = std::min(rank(f) + static_cast<int64_t>(bytes), virtual_ + credit_);
  if (small(copy.claim) && f.large.head != kNone) f.small_lead += bytes;
  else f.small_lead -= std::min(f.small_lead, bytes);
  f.pending -= bytes;
  f.burst.sent += bytes;
  block_left_ -= std::min(block_left_, bytes);
}

void LinkShare::count(Function& f, const LinkClaim& claim, const Turn& turn, uint64_t now_ns) {
  const uint64_t stood_ns = since(now_ns, claim.arrived_ns);
  f.burst.last_ns = now_ns;
  f.use.bytes += turn.bytes;
  f.use.turns += 1;
  if (turn.offset == 0 && !claim.part) {
    f.use.waited_ns += stood_ns;
    f.use.longest_ns = std::max(f.use.longest_ns, stood_ns);
  }
  if (turn.last && !claim.part) {
    f.use.copies += 1;
    f.use.lasted_ns += stood_ns;
  }
  if (f.use.turns == 1) f.window_begin_ns = now_ns;
  const uint64_t window_ns = since(now_ns, f.window_begin_ns);
  if (window_ns >= kRateWindowNs) {
    f.use.bytes_per_s = per_second(f.window_bytes, window_ns);
    f.window_begin_ns = now_ns;
    f.window_bytes = 0;
  }
  f.window_bytes += turn.bytes;
}

uint64_t LinkShare::needed_bytes_per_s() const {
  uint64_t needed = 0;
  for (const Function& f : functions_)
    if (f.named && f.needs.slo_ns != 0) needed += per_second(expected(f), budget_ns(f));
  return needed;
}

LinkUse LinkShare::use(uint64_t function, uint64_t now_ns) const {
  const uint32_t at = find(function);
  if (at == kNone) return {};
  const Function& f = functions_[at];
  LinkUse use = f.use;
  const uint64_t window_ns = since(now_ns, f.window_begin_ns);
  if (window_ns >= kRateWindowNs) use.bytes_per_s = per_second(f.window_bytes, window_ns);
  use.slo_ns = f.needs.slo_ns;
  use.infer_ns = f.needs.infer_ns;
  if (f.needs.slo_ns != 0) use.needed_bytes_per_s = per_second(expected(f), budget_ns(f));
  return use;
}

}  // namespace tube::policies
