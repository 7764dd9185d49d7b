#include "policies/paths/pieces.h"

#include <algorithm>

namespace tube::policies {
namespace {

constexpr uint64_t kRound = 4096;  // pieces begin at pages

}  // namespace

Pieces::Pieces(uint64_t bytes, const Options& options) : options_(options), bytes_(bytes) {
  options_.least_bytes = std::max<uint64_t>(options_.least_bytes, 1);
  options_.most_bytes = std::max(options_.most_bytes, options_.least_bytes);
}

std::optional<uint32_t> Pieces::add_path(const Path& path) {
  for (uint32_t at = 0; at < kMaxPaths; ++at) {
    State& state = paths_[at];
    if (state.open || state.in_flight != 0) continue;
    state = State();
    state.open = true;
    state.path = path;
    state.path.in_flight = std::clamp(path.in_flight, 1u, kMaxInFlight);
    state.path.most_bytes = std::clamp(path.most_bytes, options_.least_bytes, options_.most_bytes);
    set_rate(at, path.bytes_per_s);
    return at;
  }
  return std::nullopt;
}

void Pieces::set_rate(uint32_t path, uint64_t bytes_per_s) {
  paths_[path].path.bytes_per_s = std::max<uint64_t>(bytes_per_s, 1);
}

void Pieces::take_back(uint32_t path) { paths_[path].open = false; }

void Pieces::fail(uint32_t path) {
  take_back(path);
  State& p = paths_[path];
  while (p.in_flight != 0) failed(Piece(p.pieces[p.in_flight - 1]));
}

uint64_t Pieces::fresh_piece(const State& path) const {
  const uint64_t left = bytes_ - fresh_;
  uint32_t open = 0;
  double all = 0;
  for (const State& p : paths_) {
    if (!p.pulls()) continue;
    open += 1;
    all += static_cast<double>(p.path.bytes_per_s);
  }
  const double share = static_cast<double>(path.path.bytes_per_s) / all;
  // Half of its share: the other half evens out what rates do not say. Alone there is nothing to.
  const double bytes = static_cast<double>(left) * share / (open == 1 ? 1 : 2);
  uint64_t piece =
      std::clamp(static_cast<uint64_t>(bytes), options_.least_bytes, path.path.most_bytes);
  piece = (piece + kRound - 1) / kRound * kRound;
  return left < piece + options_.least_bytes / 2 ? left : piece;
}

bool Pieces::sooner_elsewhere(uint32_t path, uint64_t piece_bytes) const {
  const auto seconds = [this](uint32_t at, uint64_t bytes) {
    return static_cast<double>(paths_[at].in_flight_bytes + bytes) /
           static_cast<double>(paths_[at].path.bytes_per_s);
  };
  const double mine = seconds(path, piece_bytes);
  const uint64_t left = waiting_bytes();
  for (uint32_t at = 0; at < kMaxPaths; ++at)
    if (at != path && paths_[at].pulls() && seconds(at, left) < mine) return true;
  return false;
}

std::optional<Pieces::Piece> Pieces::next(uint32_t path) {
  State& p = paths_[path];
  if (!p.pulls() || p.in_flight >= p.path.in_flight || waiting_bytes() == 0) return std::nullopt;
  const bool again = again_count_ != 0;
  const Range range = again ? again_[again_count_ - 1] : Range{fresh_, fresh_piece(p)};
  if (sooner_elsewhere(path, range.bytes)) return std::nullopt;
  if (again) {
    again_count_ -= 1;
    again_bytes_ -= range.bytes;
  } else {
    fresh_ += range.bytes;
  }
  const Piece piece{++handed_out_, range.offset, range.bytes, path};
  p.pieces[p.in_flight++] = piece;
  p.in_flight_bytes += piece.bytes;
  return piece;
}

// Takes it out of flight.
bool Pieces::drop(const Piece& piece) {
  if (piece.path >= kMaxPaths) return false;
  State& path = paths_[piece.path];
  for (uint32_t at = 0; at < path.in_flight; ++at) {
    if (path.pieces[at].number != piece.number) continue;
    path.in_flight_bytes -= path.pieces[at].bytes;
    path.pieces[at] = path.pieces[--path.in_flight];
    return true;
  }
  return false;
}

bool Pieces::done(const Piece& piece) {
  if (!drop(piece)) return false;
  done_bytes_ += piece.bytes;
  paths_[piece.path].done_bytes += piece.bytes;
  return true;
}

bool Pieces::failed(const Piece& piece) {
  if (!drop(piece)) return false;
  again_[again_count_++] = {piece.offset, piece.bytes};
  again_bytes_ += piece.bytes;
  return true;
}

bool Pieces::stuck() const {
  if (waiting_bytes() == 0) return false;
  return std::none_of(paths_, paths_ + kMaxPaths, [](const State& p) { return p.open; });
}

}  // namespace tube::policies
