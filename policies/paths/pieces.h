// The pieces of one large copy that goes over several paths at once: who carries which bytes.
//
// Paths pull: a path that is free asks for its next piece, so a slow path carries less without
// anybody having to know how slow it is. Pieces of a path that fails are handed out again, to
// whichever path asks next; a path can also be taken back, or one be added, at any time. Each byte
// is done exactly once: the end of a piece that was handed out again since is not accepted.
//
// Two rules shorten the end, when the last pieces decide: pieces become smaller with what is left
// (guided self-scheduling, Polychronopoulos and Kuck, IEEE TC 1987), and a path gets none that one
// other path would finish sooner together with all else that is left. The path that would be done
// with a piece first is never refused, so the copy always goes on.
//
// Plain values, fixed memory, no clock: one thread at a time. A call costs a pass over the paths.
#pragma once

#include <cstdint>
#include <optional>

namespace tube::policies {

class Pieces {
 public:
  static constexpr uint32_t kMaxPaths = 8;
  static constexpr uint32_t kMaxInFlight = 8;  // pieces of one path

  // A chunk of 2 MiB costs 7% of an H200's link, one of 8 MiB 2% (docs/facts.md, Copies).
  struct Options {
    uint64_t least_bytes = 2u << 20;
    uint64_t most_bytes = 8u << 20;
  };

  struct Piece {
    uint64_t number = 0;  // of all that were handed out; again a new one when handed out again
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t path = 0;
  };

  Pieces(uint64_t bytes, const Options& options);

  struct Path {
    uint64_t bytes_per_s = 1;          // expected; only the ratio to the other paths counts
    uint32_t in_flight = 2;            // keeps one link busy; hops + 1 where relays store pieces
    uint64_t most_bytes = UINT64_MAX;  // of a piece, below Options::most_bytes
  };
  // The path's number. nullopt: kMaxPaths are open, or taken back with pieces still in flight.
  std::optional<uint32_t> add_path(const Path& path);
  // Who sees what a path really carries says so: rates decide who takes the last pieces.
  void set_rate(uint32_t path, uint64_t bytes_per_s);
  // For now the path gets no further piece, and no other path leaves it one.
  void hold(uint32_t path, bool held) { paths_[path].held = held; }
  // The path gets no further piece; those in flight may still be done.
  void take_back(uint32_t path);
  // Takes the path back, and what it has in flight is handed out again. The caller makes sure that
  // nothing of it arrives later than the same bytes may change again.
  void fail(uint32_t path);

  // What a path with room shall carry now. nullopt: it has enough in flight, was taken back, or
  // nothing is left for it; ask again when a piece of any path was done or has failed.
  std::optional<Piece> next(uint32_t path);
  // False, and nothing changes: the piece is not in flight (any more).
  bool done(const Piece& piece);
  bool failed(const Piece& piece);

  bool complete() const { return done_bytes_ == bytes_; }
  // Bytes are left, and no path to carry them: add one.
  bool stuck() const;
  uint64_t done_bytes() const { return done_bytes_; }
  uint64_t carried_bytes(uint32_t path) const { return paths_[path].done_bytes; }
  uint64_t waiting_bytes() const { return bytes_ - fresh_ + again_bytes_; }

 private:
  static constexpr uint32_t kMost = kMaxPaths * kMaxInFlight;
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct State {
    bool open = false;
    bool held = false;
    bool pulls() const { return open && !held; }
    Path path;
    uint32_t in_flight = 0;
    uint64_t in_flight_bytes = 0;
    uint64_t done_bytes = 0;
    Piece pieces[kMaxInFlight];
  };

  uint64_t fresh_piece(const State& path) const;
  bool sooner_elsewhere(uint32_t path, uint64_t piece_bytes) const;
  bool drop(const Piece& piece);

  Options options_;
  uint64_t bytes_ = 0;
  uint64_t fresh_ = 0;  // the first byte that was never handed out
  uint64_t done_bytes_ = 0;
  uint64_t handed_out_ = 0;
  // Failed pieces, whole. They go before fresh ones, so they and those in flight are never more
  // than can be in flight.
  Range again_[kMost];
  uint32_t again_count_ = 0;
  uint64_t again_bytes_ = 0;
  State paths_[kMaxPaths];
};

}  // namespace tube::policies
