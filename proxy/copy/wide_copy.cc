#include "proxy/copy/wide_copy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

// Two in hardware, and a third that claims its turn beside others' copies, or makes its second hop.
constexpr uint32_t kInFlight = 3;
// One, and another one. Several links together are host memory's rate, not theirs: they lose
// little.
constexpr uint32_t kInFlightHurry = 2;
constexpr uint64_t kPieceHurry = 2u << 20;

}  // namespace

WideCopy::WideCopy(PathTools& tools, const policies::HostPlan& plan, std::shared_ptr<LaneJob> job,
                   bool hurry)
    : tools_(tools),
      plan_(plan),
      job_(std::move(job)),
      bytes_(job_->copy_.bytes),
      in_flight_(hurry ? kInFlightHurry : kInFlight),
      copy_{plan.path[0].gpu, plan.way == policies::HostWay::kUp,
            job_->copy_.dst,  job_->copy_.src,
            job_->copy_.runs, job_->copy_.function},
      pieces_(bytes_, {.most_bytes = hurry ? kPieceHurry : RelayBuffers::kBytes}) {}

// False: what its client's stream did before has not happened yet.
bool WideCopy::begin() {
  CUevent& before = job_->copy_.before;
  const bool gone = cancelled_.load(std::memory_order_relaxed);
  if (before != nullptr && !gone && tools_.driver().cuEventQuery(before) == CUDA_ERROR_NOT_READY)
    return false;
  tools_.link(copy_.gpu, copy_.to_gpu).give(std::exchange(before, nullptr));
  began_ = true;
  began_ns_ = now_ns();
  if (!gone) open_paths();
  return true;
}

void WideCopy::open_paths() {
  for (uint32_t i = 0; i < plan_.count; ++i) {
    const auto number =
        pieces_.add_path({.bytes_per_s = plan_.path[i].bytes_per_s, .in_flight = in_flight_});
    TUBE_CHECK(number.has_value());
    paths_.push_back(std::make_unique<CopyPath>(tools_, copy_, plan_.path[i].gpu, *number));
  }
}

bool WideCopy::has_more() const {
  return began_ && !stopped_ && !cancelled_.load(std::memory_order_relaxed) &&
         pieces_.waiting_bytes() != 0;
}

bool WideCopy::same_queue(const WideCopy& other) const {
  return copy_.function == other.copy_.function && copy_.gpu == other.copy_.gpu &&
         copy_.to_gpu == other.copy_.to_gpu;
}

WideCopy::State WideCopy::turn(const LendsOf& lends, Ahead ahead) {
  first_ = first_ && ahead == Ahead::kNothing;
  if (!began_ && !begin()) return State::kWaits;
  for (const auto& path : paths_)
    while (const auto end = path->look()) note(*path, *end);
  if (cancelled_.load(std::memory_order_relaxed)) stop();
  if (!stopped_) look_at_lenders(lends);
  if (!stopped_ && ahead != Ahead::kPieces) feed();
  if (!idle() || (!stopped_ && !pieces_.complete())) return State::kBusy;
  if (!stopped_ && first_ && !held_ && failed_paths_ + taken_paths_ == 0)
    took_ns_ = std::max<uint64_t>(now_ns() - began_ns_, 1);
  return State::kOver;
}

void WideCopy::note(CopyPath& path, const CopyPath::End& end) {
  if (end.error != CUDA_SUCCESS) return fail(path, end.piece, end.error);
  (void)pieces_.done(end.piece);
  compare_rates();
}

// Who takes the last pieces follows what the paths have carried so far.
void WideCopy::compare_rates() {
  for (const auto& path : paths_)
    if (pieces_.carried_bytes(path->number()) == 0) return;
  for (const auto& path : paths_)
    pieces_.set_rate(path->number(), pieces_.carried_bytes(path->number()));
}

// Which neighbours' links help no more, and which stand still for now. What a closed path still has
// to do stands back only for its own link's owner.
void WideCopy::look_at_lenders(const LendsOf& lends) {
  uint32_t later = 0, filled = 0;  // a bit for each path
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    CopyPath& path = *paths_[i];
    if (path.direct()) continue;
    const Lends lent = lends(path.over());
    if (lent == Lends::kLater) later |= 1u << i;
    if (lent == Lends::kFilled) filled |= 1u << i;
    if (path.closed() || (lent != Lends::kNo && !path.hopeless())) continue;
    ++taken_paths_;
    close(path);
  }
  uint32_t going = 0;
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    CopyPath& path = *paths_[i];
    const bool asked = ((later | filled) >> i & 1) != 0;  // to stand back
    const bool goes =
        path.direct() || (!asked && (path.closed() || later == 0 || going < plan_.beside));
    pieces_.hold(path.number(), !goes);
    path.hold(!goes);
    held_ = held_ || !goes;
    going += goes && !path.closed() ? 1 : 0;
  }
}

void WideCopy::feed() {
  for (const auto& path : paths_) {
    feed(*path);
    if (stopped_) return;
  }
}

void WideCopy::feed(CopyPath& path) {
  while (path.ready()) {
    const auto piece = pieces_.next(path.number());
    if (!piece) return;
    if (CUresult error = path.send(*piece); error != CUDA_SUCCESS) return fail(path, *piece, error);
  }
}

void WideCopy::close(CopyPath& path) {
  path.close();
  pieces_.take_back(path.number());
}

void WideCopy::fail(CopyPath& path, const policies::Pieces::Piece& piece, CUresult error) {
  (void)pieces_.failed(piece);
  if (path.direct()) {
    if (error_ == CUDA_SUCCESS) error_ = error;
    return stop();
  }
  log_debug("a copy of GPU %u goes on without the link of GPU %u: %d", copy_.gpu, path.over(),
            static_cast<int>(error));
  if (!path.closed()) ++failed_paths_;
  close(path);
}

void WideCopy::stop() {
  stopped_ = true;
  for (const auto& path : paths_) path->stop();
}

bool WideCopy::idle() const {
  return std::all_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->idle(); });
}

uint64_t WideCopy::relayed_bytes() const {
  uint64_t bytes = 0;
  for (const auto& path : paths_)
    if (!path->direct()) bytes += pieces_.carried_bytes(path->number());
  return bytes;
}

}  // namespace tube::proxy
