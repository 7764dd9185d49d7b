// Over which NVLink paths a GPU's bytes go to another one, beside the transfers that are under way.
//
// On a mesh (DGX-V100) pairs of GPUs have two links, one or none. So a transfer goes over several
// paths: its pair's own link, and ways over relay GPUs. After FaaSTube,
// section 6.2, Algorithm 1:
//
//   direct  A pair's own link is its own: what others relay over it is moved away.
//   free    What the links have free, shortest paths first (lines 1 to 9).
//   busy    If the sender and the receiver could do more, links are taken from transfers that are
//           better off, which look for another way (lines 10 to 19).
//
// Where the paper's search takes path after path and can block itself, step "free" is exact for
// paths with at most two relays: they are a flow from the sender's links (left) to the receiver's
// links (right), in the middle the links between the relays, or nothing where both are the same
// GPU. Augmenting paths in that small graph (Edmonds and Karp, JACM 1972) find its maximum. What
// is still free then is taken path after path, with up to four relays: on an idle DGX-V100 this
// makes up the maximum flow of every pair (tests/unit/policies/gpu_paths_test.cc).
//
// Step "busy" takes only from transfers that keep more than they lose: never below what they need,
// nor below what the newcomer then has. So links go towards equal totals, and it ends.
//
// A pair without any path goes through pinned host memory. Plain values, fixed memory, no clock;
// one thread at a time. For 8 GPUs a choice costs about a microsecond (bench/links).
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxRelays = 4;
inline constexpr uint32_t kMaxGpuPaths = 8;    // of one transfer
inline constexpr uint32_t kMaxTransfers = 64;  // at once

// NVLink of a machine, as measured or as the topology says.
struct GpuLinks {
  uint32_t gpus = 0;
  uint64_t bytes_per_s[kMaxGpus][kMaxGpus] = {};  // from, to; 0: no link
  // What a GPU sends, and receives, over all its links together. 0: their sum. Behind a switch each
  // GPU reaches all others at the rate of its own ports, and relays gain nothing.
  uint64_t ports_bytes_per_s[kMaxGpus] = {};
};

struct GpuPath {
  uint32_t relays = 0;
  uint8_t relay[kMaxRelays] = {};  // in their order
  uint64_t bytes_per_s = 0;
};

struct GpuPathSet {
  uint32_t count = 0;
  GpuPath path[kMaxGpuPaths];
  uint64_t bytes_per_s = 0;  // all together
  bool through_host = false;
  // Changes whenever the paths do: transfers move when others begin and end.
  uint32_t version = 0;
};

struct GpuTransfer {
  uint64_t id = 0;
  uint32_t from = 0, to = 0;
  uint64_t wanted_bytes_per_s = UINT64_MAX;  // more is not given
  uint64_t needed_bytes_per_s = 0;  // for others than a link's own pair nothing below this is taken
};

class GpuPaths {
 public:
  struct Options {
    uint64_t least_bytes_per_s = 1'000'000'000;  // a new path with less is not worth its pieces
    uint32_t most_relays = kMaxRelays;           // of a path that takes what is left; at least 2
  };

  explicit GpuPaths(const GpuLinks& links) : GpuPaths(links, Options()) {}
  GpuPaths(const GpuLinks& links, const Options& options);

  // The transfer begins; its paths, until it ends. Null: it is not between two GPUs of the machine,
  // has the id of one that is under way, or kMaxTransfers are.
  const GpuPathSet* open(const GpuTransfer& transfer);
  // It has ended: others get what it had. False: not known.
  bool close(uint64_t id);
  // Of a transfer that is under way, else null. What a pointer shows is as of the last call.
  const GpuPathSet* paths(uint64_t id) const;

  // A link has another rate (0: it failed). Transfers that used it look for another way.
  void set_link(uint32_t from, uint32_t to, uint64_t bytes_per_s);

  uint64_t free_bytes_per_s(uint32_t from, uint32_t to) const { return free_[from][to]; }
  uint32_t under_way() const { return count_; }

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr uint32_t kAny = 0xfffffffeu;  // as one end of a link: all links of the other
  using Set = uint64_t;                          // bits: indices of entries
  struct Entry {
    GpuTransfer ask;
    GpuPathSet set;
  };
  struct Flow;   // the small graph of one transfer
  struct Reach;  // what a newcomer can have of each link

  uint32_t find(uint64_t id) const;
  uint64_t room(const Entry& e) const;
  uint64_t spare(const Entry& e, const Entry& newcomer) const;
  uint64_t free_along(const Entry& e, const GpuPath& path) const;
  void use(const Entry& e, const GpuPath& path, uint64_t bytes_per_s, bool more);
  void take(Entry& e, const GpuPath& path);
  void give_back(Entry& e, uint32_t path, uint64_t bytes_per_s);
  uint64_t give_back_link(Entry& e, uint32_t from, uint32_t to, uint64_t bytes_per_s, bool relayed);
  Set displace_relays(const Entry& newcomer);
  void fill(Entry& e);
  void fill_relays(Entry& e);
  void fill_longer(Entry& e);
  bool load_ends(const Entry& e, Flow& flow) const;
  void load_middle(const Entry& e, Flow& flow) const;
  void store(Entry& e, const Flow& flow);
  void fill_poorest_first(Set chosen);
  void balance(uint32_t newcomer);
  Set balance_once(uint32_t newcomer, uint64_t least);
  void find_reach(const Entry& newcomer, Reach& reach) const;
  Set take_links(Entry& newcomer, const GpuPath& path, const Reach& reach);
  Set all() const { return count_ == kMaxTransfers ? ~Set{0} : (Set{1} << count_) - 1; }

  Options options_;
  GpuLinks links_;
  uint64_t free_[kMaxGpus][kMaxGpus] = {};
  uint64_t free_out_[kMaxGpus] = {};
  uint64_t free_in_[kMaxGpus] = {};
  uint32_t count_ = 0;
  Entry entries_[kMaxTransfers];  // the first count_
};

}  // namespace tube::policies
