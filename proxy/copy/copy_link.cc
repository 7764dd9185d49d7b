#include "proxy/copy/copy_link.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "policies/link_rate.h"
#include "protocol/driver_table.gen.h"
#include "proxy/copy/wide_copies.h"
#include "sharedmem/accessors.h"

namespace tube::proxy {
namespace {

uint64_t rows_of(const CUDA_MEMCPY3D& region) { return region.Height * region.Depth; }

// Rows [row, row + rows) of a region: some of one plane, or all of several.
CUDA_MEMCPY3D part_of(const CUDA_MEMCPY3D& region, uint64_t row, uint64_t rows) {
  CUDA_MEMCPY3D part = region;
  const uint64_t plane = row / region.Height, first = row % region.Height;
  part.srcZ += plane;
  part.dstZ += plane;
  part.srcY += first;
  part.dstY += first;
  part.Height = std::min(rows, region.Height);
  part.Depth = rows / part.Height;
  return part;
}

// What a copy asks of the link.
uint64_t claim_bytes(const LaneCopy& copy) {
  if (!copy.is_region) return copy.bytes;
  return rows_of(copy.region) * policies::row_claim_bytes(copy.region.WidthInBytes);
}

}  // namespace

bool CopyLink::ended(CUevent end) const {
  return driver_.cuEventQuery(end) != CUDA_ERROR_NOT_READY;  // an error: the context is dead
}

CUevent CopyLink::event(CUresult* error) {
  std::lock_guard lock(mutex_);
  return event_locked(error);
}

CUevent CopyLink::event_locked(CUresult* error) {
  if (events_.empty()) {
    CUevent made = nullptr;
    *error = driver_.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    return *error == CUDA_SUCCESS ? made : nullptr;
  }
  CUevent event = events_.back();
  events_.pop_back();
  return event;
}

void CopyLink::give(CUevent event) {
  if (event == nullptr) return;
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

policies::CopyChoice CopyLink::ask(CUstream stream, const policies::CopyAsk& ask) {
  std::lock_guard lock(mutex_);
  if (!direct_.empty()) reap_direct();
  const policies::LinkState state{
      .lane_busy = !jobs_.empty() || !chunks_.empty(),
      .direct_busy = claims_ != 0 || !direct_.empty(),
      .own_stream = direct_stream_ == stream,
      .direct_bytes = direct_bytes_,
      .direct_copies = claims_ + static_cast<uint32_t>(direct_.size()),
  };
  const policies::CopyChoice choice = policies::copy_way(ask, state, use_);
  if (choice.way == policies::CopyWay::kDirect) {
    // What only stays on its stream beside another's copies does not take the link from that.
    if (!state.direct_busy) direct_stream_ = stream;
    direct_bytes_ += ask.bytes;
    ++claims_;
    if (is_small(ask.bytes)) {
      direct_small_ = true;
      small_came();
    }
    note_busy();
    moved(ask.bytes);
  }
  return choice;
}

void CopyLink::mark(CUstream stream, uint64_t bytes, uint32_t copies) {
  CUresult error = CUDA_SUCCESS;
  CUevent end = event(&error);
  const bool marked = end != nullptr && driver_.cuEventRecord(end, stream) == CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  claims_ -= copies;
  if (marked) {
    direct_.push_back({end, {}, bytes});
  } else {  // the context is dead, or the driver has no event: nobody can tell when it ends
    direct_bytes_ -= bytes;
    if (end != nullptr) events_.push_back(end);
    note_busy();
  }
}

void CopyLink::mark(const Word& word, uint64_t bytes, uint32_t copies) {
  std::lock_guard lock(mutex_);
  claims_ -= copies;
  direct_.push_back({nullptr, word, bytes});
}

void CopyLink::stands_behind(const Word& word) {
  std::lock_guard lock(mutex_);
  reap_words();  // nobody takes turns while no copy comes to the lane
  words_.emplace_back(word, now_ns());
}

void CopyLink::unclaim(uint64_t bytes, uint32_t copies) {
  std::lock_guard lock(mutex_);
  claims_ -= copies;
  direct_bytes_ -= bytes;
  note_busy();
}

void CopyLink::lead_out(CUstream stream) {
  if (scratch_ == 0) return;
  // A word of its own, nearly always: two streams that write one at a time would be a race.
  const uint64_t word = led_out_.fetch_add(1, std::memory_order_relaxed) % (kScratchBytes / 4);
  // An error: the context is dead.
  (void)driver_.cuMemsetD32Async(scratch_ + 4 * word, 0, 1, stream);
}

std::shared_ptr<LaneJob> CopyLink::add(LaneCopy copy) {
  if (wide_ != nullptr && !copy.part) {
    if (auto job = wide_->add(gpu_, to_gpu_, copy)) return job;
  }
  auto job = std::make_shared<LaneJob>(std::move(copy));
  std::lock_guard lock(mutex_);
  job->number_ = ++made_;
  job->arrived_ns_ = now_ns();
  jobs_.push_back(job);
  note_busy();
  return job;
}

void CopyLink::take_back(LaneJob& job) {
  if (job.wide_ != nullptr) return job.wide_->take_back(job);
  std::unique_lock lock(mutex_);
  leave_queue(job);
  changed_.wait(lock, [&] { return submitting_ != &job && job.in_flight_ == 0; });
  end_taken_back(job);
}

bool CopyLink::take_back_quiet(LaneJob& job) {
  std::lock_guard lock(mutex_);
  if (submitting_ == &job || job.in_flight_ != 0) return false;
  leave_queue(job);
  end_taken_back(job);
  return true;
}

// mutex_ held, as for the next one: no turn is for it any more.
void CopyLink::leave_queue(LaneJob& job) {
  job.copy_.told = nullptr;
  std::erase_if(jobs_, [&](const auto& each) { return each.get() == &job; });
  (void)share_.remove(job.number_);
  note_busy();
}

void CopyLink::end_taken_back(LaneJob& job) {
  went(job);
  note_busy();
  for (CUevent* event : {&job.copy_.before, &job.end_})
    if (*event != nullptr) events_.push_back(std::exchange(*event, nullptr));
  job.over_.store(true, std::memory_order_release);
}

bool CopyLink::quiet(const LaneJob& job) {
  std::lock_guard lock(mutex_);
  return submitting_ != &job && job.in_flight_ == 0;
}

uint64_t CopyLink::needed_bytes_per_s() {
  std::lock_guard lock(mutex_);
  return share_.needed_bytes_per_s();
}

void CopyLink::needs(uint64_t function, const policies::FunctionNeeds& needs) {
  std::lock_guard lock(mutex_);
  share_.needs(function, needs);
}

policies::LinkUse CopyLink::use(uint64_t function) {
  std::lock_guard lock(mutex_);
  return share_.use(function, now_ns());
}

void CopyLink::forget(uint64_t function) {
  std::lock_guard lock(mutex_);
  share_.forget(function);
  std::erase_if(direct_, [&](const Direct& direct) {
    const bool gone = direct.end == nullptr && direct.word.session == function;
    if (gone) direct_bytes_ -= direct.bytes;
    return gone;
  });
  std::erase_if(words_, [&](const auto& each) { return each.first.session == function; });
  note_busy();
}

bool CopyLink::ended(const Direct& direct) const {
  if (direct.end != nullptr) return ended(direct.end);
  return shared::load_word(*direct.word.at) >= direct.word.value;
}

bool CopyLink::reap_chunks() {
  bool some = false;
  while (!chunks_.empty() && ended(chunks_.front().end)) {
    events_.push_back(chunks_.front().end);
    --chunks_.front().job->in_flight_;
    const uint64_t bytes = chunks_.front().bytes;
    if (LaneJob& job = *chunks_.front().job; job.over() && job.in_flight_ == 0) went(job);
    chunks_.erase(chunks_.begin());
    chunk_bytes_ -= bytes;
    measure(bytes);
    changed_.notify_all();
    some = true;
  }
  return some;
}

// A piece that was in flight when the one before it ended took the time since then. Small ones
// cost more than their bytes; a sixteenth of each new value.
void CopyLink::measure(uint64_t bytes) {
  constexpr uint64_t kLeast = 1u << 20;
  const uint64_t now = now_ns();
  const uint64_t began = std::exchange(piece_ended_ns_, chunks_.empty() ? 0 : now);
  if (began == 0 || now <= began || bytes < kLeast || others_move_) return;
  const auto rate = static_cast<uint64_t>(double(bytes) * 1e9 / double(now - began));
  const uint64_t before = measured_.load(std::memory_order_relaxed);
  measured_.store(before == 0 ? rate : before - before / 16 + rate / 16, std::memory_order_relaxed);
}

void CopyLink::reap_direct() {
  while (!direct_.empty() && ended(direct_.front())) {
    if (direct_.front().end != nullptr) events_.push_back(direct_.front().end);
    direct_bytes_ -= direct_.front().bytes;
    direct_.pop_front();
  }
  note_busy();
}

void CopyLink::reap_words() {
  if (words_.empty()) return;
  const uint64_t now = now_ns();
  std::erase_if(words_, [&](const auto& each) {
    return shared::load_word(*each.first.at) >= each.first.value || now - each.second >= rest_ns_;
  });
}

void CopyLink::went(LaneJob& job) {
  if (std::exchange(job.small_, false)) --small_jobs_;
  if (!std::exchange(job.large_, false)) return;
  --large_jobs_;
  large_went_ns_.store(now_ns(), std::memory_order_relaxed);
}

// Pieces of a wide copy count as a whole where they are the link's own functions'.
bool CopyLink::is_large(const LaneCopy& copy) {
  return copy.part ? !WideCopies::is_guest(copy.function) : copy.bytes > kMostSmall;
}

void CopyLink::make_ready() {
  for (const auto& job : jobs_) {
    if (job->ready_ || (job->copy_.before != nullptr && !ended(job->copy_.before))) continue;
    share_.add({job->number_, job->copy_.function, claim_bytes(job->copy_), job->arrived_ns_,
                job->copy_.part});
    job->ready_ = true;
    job->small_ = !job->copy_.part && is_small(job->copy_.bytes);
    job->large_ = is_large(job->copy_);
    if (job->large_) ++large_jobs_;
    if (job->small_) {
      ++small_jobs_;
      small_came();
    }
    if (job->copy_.before != nullptr) events_.push_back(std::exchange(job->copy_.before, nullptr));
  }
}

// False: no copy may go. A piece of a region has whole rows; when the policy's bytes hold none, it
// has none, and the next one has them.
bool CopyLink::next(Piece* piece) {
  const auto turn = share_.next(now_ns());
  if (!turn) return false;
  const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                  [&](const auto& job) { return job->number_ == turn->copy; });
  TUBE_CHECK(found != jobs_.end());
  LaneJob& job = **found;
  *piece = {.job = *found, .offset = turn->offset, .bytes = turn->bytes, .last = turn->last};
  if (!job.copy_.is_region) return true;
  const CUDA_MEMCPY3D& region = job.copy_.region;
  const uint64_t row_bytes = policies::row_claim_bytes(region.WidthInBytes);
  const uint64_t reached = turn->last ? rows_of(region) : (turn->offset + turn->bytes) / row_bytes;
  piece->row = job.rows_;
  piece->rows = reached - job.rows_;
  job.rows_ = reached;
  return true;
}

CUresult CopyLink::submit(const Piece& piece) {
  const LaneCopy& copy = piece.job->copy_;
  if (copy.is_region) return submit_rows(piece);
  if (copy.runs != nullptr) return submit_runs(piece);
  return driver_.cuMemcpyAsync(copy.dst + piece.offset, copy.src + piece.offset, piece.bytes,
                               lane_);
}

// A piece of several driver calls, one of which failed. No event is behind the ones before, so they
// end here.
CUresult CopyLink::failed_within(CUresult error, bool sent) {
  if (sent) (void)driver_.cuStreamSynchronize(lane_);
  return error;
}

// A copy for each run that the bytes lie in.
CUresult CopyLink::submit_runs(const Piece& piece) {
  const LaneCopy& copy = piece.job->copy_;
  const bool to_gpu = copy.src == 0;
  CUdeviceptr gpu = (to_gpu ? copy.dst : copy.src) + piece.offset;
  uint64_t skip = copy.runs_from + piece.offset, left = piece.bytes;
  for (const HostRun& run : *copy.runs) {
    if (left == 0) break;
    if (skip >= run.bytes) {
      skip -= run.bytes;
      continue;
    }
    const CUdeviceptr host = run.address + skip;
    const uint64_t bytes = std::min(left, run.bytes - std::exchange(skip, 0));
    const CUresult error =
        driver_.cuMemcpyAsync(to_gpu ? gpu : host, to_gpu ? host : gpu, bytes, lane_);
    if (error != CUDA_SUCCESS) return failed_within(error, left != piece.bytes);
    gpu += bytes;
    left -= bytes;
  }
  return CUDA_SUCCESS;
}

// A copy for all whole planes, and one for each that is begun or ended elsewhere.
CUresult CopyLink::submit_rows(const Piece& piece) {
  const CUDA_MEMCPY3D& region = piece.job->copy_.region;
  uint64_t row = piece.row;
  const uint64_t end = piece.row + piece.rows;
  while (row < end) {
    const uint64_t first = row % region.Height, whole = (end - row) / region.Height;
    const uint64_t rows = first == 0 && whole != 0 ? whole * region.Height
                                                   : std::min(end - row, region.Height - first);
    const CUDA_MEMCPY3D part = part_of(region, row, rows);
    if (CUresult error = driver_.cuMemcpy3DAsync_v2(&part, lane_); error != CUDA_SUCCESS)
      return failed_within(error, row != piece.row);
    row += rows;
  }
  return CUDA_SUCCESS;
}

// Behind the last chunk, and part of it: who takes the copy back waits for this, too, since
// `done_at` may be gone afterwards.
CUresult CopyLink::finish(const Piece& piece) {
  const LaneCopy& copy = piece.job->copy_;
  if (!piece.last || copy.done_at == 0) return CUDA_SUCCESS;
  return driver_.cuStreamWriteValue64_v2(lane_, copy.done_at, copy.done_value, 0);
}

void CopyLink::take_stock(std::span<uint64_t> others) {
  constexpr uint64_t kUnseen = policies::LinkShare::Options{}.bytes_per_s;
  std::lock_guard lock(mutex_);
  const uint64_t measured = measured_bytes_per_s();
  others_move_ = std::any_of(others.begin(), others.end(), [](uint64_t rate) { return rate != 0; });
  share_.link_rate(policies::own_link_rate(measured != 0 ? measured : kUnseen, others));
  cell_.needed_bytes_per_s.store(share_.needed_bytes_per_s(), std::memory_order_relaxed);
}

CUresult CopyLink::make_lane() {
  if (lane_ != nullptr || !lane_busy()) return CUDA_SUCCESS;
  return driver_.cuStreamCreate(&lane_, CU_STREAM_NON_BLOCKING);
}

// What may throw does so before a piece is taken out of the queue.
CopyLink::Turn CopyLink::turn() {
  const std::unique_lock turning(turning_, std::try_to_lock);
  if (!turning) return Turn::kBusy;
  turned_ns_.store(now_ns(), std::memory_order_relaxed);
  Piece piece;
  CUevent chunk_end = nullptr, job_end = nullptr;
  CUresult error = make_lane();
  {
    std::lock_guard lock(mutex_);
    const bool ended = reap_chunks();
    if (wide_ != nullptr && !direct_.empty()) reap_direct();  // others may stand back for them
    note_busy();
    const Turn nothing = chunks_.size() > 1 && !ended ? Turn::kAhead : Turn::kBusy;
    if (jobs_.empty()) return chunks_.empty() ? Turn::kIdle : nothing;
    if (lane_ == nullptr && error == CUDA_SUCCESS) return Turn::kBusy;  // one came meanwhile
    reap_direct();
    reap_words();
    make_ready();
    // A direct copy may stand behind its stream's work for as long as that takes. One chunk in
    // flight leaves room for it when it comes; two would starve it.
    share_.outsiders(claims_ != 0 || !direct_.empty() || !words_.empty());
    if (!share_.may_send(static_cast<uint32_t>(chunks_.size()), chunk_bytes_, now_ns()))
      return nothing;
    chunks_.reserve(chunks_.size() + 1);
    if (!next(&piece)) return chunks_.empty() ? Turn::kWaits : nothing;
    submitting_ = piece.job.get();
    if (error == CUDA_SUCCESS) chunk_end = event_locked(&error);
    if (piece.last && error == CUDA_SUCCESS) job_end = event_locked(&error);
  }
  if (error == CUDA_SUCCESS) error = submit(piece);
  if (error == CUDA_SUCCESS) error = finish(piece);
  if (error == CUDA_SUCCESS) error = driver_.cuEventRecord(chunk_end, lane_);
  if (error == CUDA_SUCCESS && piece.last) error = driver_.cuEventRecord(job_end, lane_);
  submitted(piece, error, chunk_end, job_end);
  return Turn::kBusy;
}

void CopyLink::submitted(const Piece& piece, CUresult error, CUevent chunk_end, CUevent job_end) {
  LaneJob& job = *piece.job;
  std::function<void()> told;
  {
    std::lock_guard lock(mutex_);
    submitting_ = nullptr;
    if (error == CUDA_SUCCESS) {
      ++job.in_flight_;
      moved(piece.job->copy_.is_region ? piece.rows * piece.job->copy_.region.WidthInBytes
                                       : piece.bytes);
      chunks_.push_back({chunk_end, piece.job, piece.bytes});
      chunk_bytes_ += piece.bytes;
    } else if (chunk_end != nullptr) {
      events_.push_back(chunk_end);
    }
    if (error != CUDA_SUCCESS && job_end != nullptr)
      events_.push_back(std::exchange(job_end, nullptr));
    if (error != CUDA_SUCCESS || piece.last) {
      job.error_ = error;
      job.end_ = job_end;
      std::erase(jobs_, piece.job);
      if (job.in_flight_ == 0) went(job);
      (void)share_.remove(job.number_);
      told = std::exchange(job.copy_.told, nullptr);
      // Before the session may hear of it: take_back() finds it over, or waits for us.
      job.over_.store(true, std::memory_order_release);
      if (told) told();
    }
    changed_.notify_all();
  }
}

void CopyLink::close() {
  std::lock_guard lock(mutex_);
  for (CUevent event : events_) (void)driver_.cuEventDestroy_v2(event);
  events_.clear();
  if (lane_ != nullptr) (void)driver_.cuStreamDestroy_v2(std::exchange(lane_, nullptr));
}

}  // namespace tube::proxy
