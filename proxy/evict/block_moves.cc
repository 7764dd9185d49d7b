#include "proxy/evict/block_moves.h"

#include <chrono>
#include <utility>

#include "protocol/driver_table.gen.h"
#include "proxy/copy/copy_engine.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::microseconds kNap{50};  // between looks at the end of the last pieces

std::vector<HostCopy::Piece> pieces_of(std::span<const HostCopy* const> copies) {
  std::vector<HostCopy::Piece> pieces;
  for (const HostCopy* copy : copies)
    pieces.insert(pieces.end(), copy->pieces().begin(), copy->pieces().end());
  return pieces;
}

}  // namespace

BlockMoves::~BlockMoves() {
  while (!moves_.empty()) (void)finish_oldest();
  if (stream_ != nullptr) (void)driver_.cuStreamDestroy_v2(stream_);
}

CUresult BlockMoves::on_stream(Move& move, std::span<const HostCopy* const> copies, bool to_gpu) {
  CUresult error = CUDA_SUCCESS;
  if (stream_ == nullptr) error = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  if (error == CUDA_SUCCESS) error = driver_.cuEventCreate(&move.end, CU_EVENT_DISABLE_TIMING);
  uint64_t at = move.block.address;
  for (const HostCopy::Piece& piece : pieces_of(copies)) {
    if (error != CUDA_SUCCESS) break;
    error = to_gpu ? driver_.cuMemcpyHtoDAsync_v2(at, reinterpret_cast<void*>(piece.address),
                                                  piece.bytes, stream_)
                   : driver_.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(piece.address), at,
                                                  piece.bytes, stream_);
    at += piece.bytes;
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
  if (engine_ == nullptr) {
    if (CUresult error = on_stream(move, copies, to_gpu); error != CUDA_SUCCESS) return error;
    moves_.push_back(std::move(move));
    return CUDA_SUCCESS;
  }
  move.link = &engine_->link(gpu, to_gpu);
  uint64_t at = block.address;
  for (const HostCopy::Piece& piece : pieces_of(copies)) {
    LaneCopy part;
    part.dst = to_gpu ? at : piece.address;
    part.src = to_gpu ? piece.address : at;
    part.bytes = piece.bytes;
    part.function = share_of(session_);
    part.told = [told = told_] {
      std::lock_guard lock(told->mutex);
      ++told->count;
      told->changed.notify_all();
    };
    move.jobs.push_back(move.link->add(std::move(part)));
    at += piece.bytes;
  }
  moves_.push_back(std::move(move));
  if (engine_->wake()) return CUDA_SUCCESS;
  // Nobody would send them.
  Move& last = moves_.back();
  for (const auto& job : last.jobs) last.link->take_back(*job);
  const CUresult error = on_stream(last, copies, to_gpu);
  last.jobs.clear();
  if (error != CUDA_SUCCESS) moves_.pop_back();
  return error;
}

// False: it has ended, or failed, and nothing of it is in flight.
bool BlockMoves::job_waits(Move& move, LaneJob& job) {
  if (!job.over()) return true;
  if (job.error() != CUDA_SUCCESS) {
    if (!move.link->quiet(job)) return true;
    if (move.error == CUDA_SUCCESS) move.error = job.error();
    return false;
  }
  if (job.end() == nullptr) return false;
  const CUresult error = driver_.cuEventQuery(job.end());
  if (error == CUDA_ERROR_NOT_READY) return true;
  if (move.error == CUDA_SUCCESS) move.error = error;
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
  while (!move.jobs.empty()) {
    if (job_waits(move, *move.jobs.back())) return true;
    move.jobs.pop_back();
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
