#include "proxy/evict/block_moves.h"

#include <chrono>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/copy/copy_engine.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::microseconds kNap{50};  // between looks at the end of the last pieces

std::shared_ptr<const HostRuns> runs_of(std::span<const HostCopy* const> copies) {
  auto runs = std::make_shared<HostRuns>();
  for (const HostCopy* copy : copies)
    for (const HostCopy::Piece& piece : copy->pieces())
      runs->push_back({piece.address, piece.bytes});
  return runs;
}

}  // namespace

BlockMoves::~BlockMoves() {
  while (!moves_.empty()) (void)finish_oldest();
  if (stream_ != nullptr) (void)driver_.cuStreamDestroy_v2(stream_);
}

CUresult BlockMoves::on_stream(Move& move, const HostRuns& runs, bool to_gpu) {
  CUresult error = CUDA_SUCCESS;
  if (stream_ == nullptr) error = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  if (error == CUDA_SUCCESS) error = driver_.cuEventCreate(&move.end, CU_EVENT_DISABLE_TIMING);
  uint64_t at = move.block.address;
  for (const HostRun& run : runs) {
    if (error != CUDA_SUCCESS) break;
    error = to_gpu ? driver_.cuMemcpyHtoDAsync_v2(at, reinterpret_cast<void*>(run.address),
                                                  run.bytes, stream_)
                   : driver_.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(run.address), at,
                                                  run.bytes, stream_);
    at += run.bytes;
  }
  if (error == CUDA_SUCCESS) error = driver_.cuEventRecord(move.end, stream_);
  if (error == CUDA_SUCCESS) return error;
  if (stream_ != nullptr) (void)driver_.cuStreamSynchronize(stream_);  // what was begun ends
  if (move.end != nullptr) (void)driver_.cuEventDestroy_v2(std::exchange(move.end, nullptr));
  return error;
}

CUresult BlockMoves::begin(uint32_t gpu, const MemoryMap::Movable& block,
                           std::span<const HostCopy* const> copies, bool to_gpu) {
  Move move;
  move.block = block;
  if (stream_ != nullptr && stream_gpu_ != gpu)
    (void)driver_.cuStreamDestroy_v2(std::exchange(stream_, nullptr));
  stream_gpu_ = gpu;
  const std::shared_ptr<const HostRuns> runs = runs_of(copies);
  if (engine_ == nullptr) {
    if (CUresult error = on_stream(move, *runs, to_gpu); error != CUDA_SUCCESS) return error;
    moves_.push_back(std::move(move));
    return CUDA_SUCCESS;
  }
  LaneCopy copy;
  (to_gpu ? copy.dst : copy.src) = block.address;
  copy.runs = runs;
  for (const HostRun& run : *runs) copy.bytes += run.bytes;
  copy.function = share_of(session_);
  copy.told = [told = told_] {
    std::lock_guard lock(told->mutex);
    ++told->count;
    told->changed.notify_all();
  };
  move.link = &engine_->link(gpu, to_gpu);
  move.job = move.link->add(std::move(copy));
  moves_.push_back(std::move(move));
  if (engine_->wake()) return CUDA_SUCCESS;
  // Nobody would send it.
  Move& last = moves_.back();
  last.link->take_back(*std::exchange(last.job, nullptr));
  const CUresult error = on_stream(last, *runs, to_gpu);
  if (error != CUDA_SUCCESS) moves_.pop_back();
  return error;
}

// False: it has ended, or failed, and nothing of it is in flight.
bool BlockMoves::job_waits(Move& move) {
  LaneJob& job = *move.job;
  if (!job.over()) return true;
  if (job.error() != CUDA_SUCCESS) {
    if (!move.link->quiet(job)) return true;
    move.error = job.error();
    return false;
  }
  if (job.end() == nullptr) return false;
  const CUresult error = driver_.cuEventQuery(job.end());
  if (error == CUDA_ERROR_NOT_READY) return true;
  move.error = error;
  move.link->give(job.end());
  return false;
}

bool BlockMoves::waits(Move& move) {
  if (move.end != nullptr) {
    const CUresult error = driver_.cuEventQuery(move.end);
    if (error == CUDA_ERROR_NOT_READY) return true;
    move.error = error;
    (void)driver_.cuEventDestroy_v2(std::exchange(move.end, nullptr));
  }
  if (move.job != nullptr) {
    if (job_waits(move)) return true;
    move.job.reset();
  }
  return false;
}

bool BlockMoves::oldest_waits() { return waits(moves_.front()); }

void BlockMoves::nap() {
  std::unique_lock lock(told_->mutex);
  const uint64_t seen = told_->count;
  (void)told_->changed.wait_for(lock, kNap, [&] { return told_->count != seen; });
}

BlockMoves::Finished BlockMoves::finish_oldest() {
  while (oldest_waits()) nap();
  const Finished finished{moves_.front().block, moves_.front().error};
  moves_.pop_front();
  return finished;
}

}  // namespace tube::proxy
