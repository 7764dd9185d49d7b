// Whose chunk goes next over one link: one GPU, one direction.
//
// In a shared context the hardware serves copies in the order of their submission, and a stream
// that keeps two copies in flight starves all others. So one lane per GPU and direction carries
// everybody's copies as chunks, a few in flight, and this class says whose bytes the next chunk
// holds. Four orders:
//
//   kArrival     copy after copy, as they came: what one native stream does.
//   kRoundRobin  StreamBox (USENIX ATC 24), section 7.1: blocks of 2 MiB, one of each function in
//                turn, six blocks a batch; who comes within a batch is in the next one. Small
//                copies of one function share a block.
//   kRates       FaaSTube, section 6.1: a function's least rate is data / (SLO - inference). Who is
//                behind it goes first, the one that misses most of it at the front; what is left
//                over goes to the tightest SLO. Blocks of 2 MiB, five a batch.
//   kDeadlines   ours. (1) The earliest deadline among the functions that are behind their rate.
//                (2) Otherwise the function that had the fewest bytes: each function has a tag
//                (start-time fair queueing), bytes are added to it, the lowest tag goes next. A
//                function that leaves its share unused keeps up to two large chunks of it for small
//                copies, which therefore wait for nothing but what is in flight. They also go
//                before (1), as long as all those deadlines can still be kept. A large copy has no
//                such credit: it starts beside the others.
//
// kRates and kDeadlines can be asked for more than the link has. So a function that has waited
// `patience_ns` for a turn gets one, whatever the order says.
//
// Plain values in, decisions out: one thread, no clock, no lock. A turn costs a few passes over the
// functions that have copies waiting. Memory grows to the most functions and copies there ever were
// at once; after that nothing is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tube::policies {

enum class LinkOrder : uint8_t { kArrival, kRoundRobin, kRates, kDeadlines };
inline constexpr LinkOrder kLinkOrders[] = {LinkOrder::kArrival, LinkOrder::kRoundRobin,
                                            LinkOrder::kRates, LinkOrder::kDeadlines};
// "arrival", "round-robin", "rates", "deadlines".
std::string_view link_order_name(LinkOrder order);
std::optional<LinkOrder> parse_link_order(std::string_view name);

// Between two looks at pieces in flight while two or more are: the shortest that keep a link busy
// take 20 us, and a look is a call of the driver's.
inline constexpr uint64_t kLaneLookNs = 3'000;

// While copies wait for their own streams and nothing is in flight.
inline constexpr uint64_t kLaneNapNs = 20'000;

// The thread that paces lanes looks at them every few microseconds, or at the end of its nap. Where
// it has not for so long its core is somebody else's, or asleep, or it has many lanes; who is awake
// and waits for a copy then takes the turns of that copy's lane, as often as the thread would.
inline constexpr uint64_t kLaneLeftAloneNs = 20'000;

// How long a function in a rhythm is awake for copies in a lane. One of 8 MiB takes 0.2 to 0.5 ms.
inline constexpr uint64_t kLaneWatchNs = 1'000'000;

// A copy that may go. The next copy of its stream is added when this one has had its last turn.
struct LinkClaim {
  uint64_t copy = 0;  // not among those that wait
  uint64_t function = 0;
  uint64_t bytes = 0;
  uint64_t arrived_ns = 0;  // when the program asked for it; not after now
  bool part = false;        // of a larger copy: it has no small copy's precedence
};

// What a row of a region takes of the link's time, in bytes: a copy engine makes a transfer of each
// row, so many narrow ones would else go in one turn.
inline constexpr uint64_t kLeastRowBytes = 512;
constexpr uint64_t row_claim_bytes(uint64_t width_bytes) {
  return width_bytes > kLeastRowBytes ? width_bytes : kLeastRowBytes;
}

// What a function must reach. 0: nobody said so, and the caller may set what it has learnt later.
//
// A request's copies often come one by one (300 tensors of a model), each added when the one before
// has gone. So rates and deadlines belong to bursts: copies of one function with short gaps. A
// burst is due SLO - inference after its first copy came.
struct FunctionNeeds {
  uint64_t slo_ns = 0;         // of a request; without it a function has no rate and no deadline
  uint64_t infer_ns = 0;       // the request's time without its copies
  uint64_t request_bytes = 0;  // over this link; 0: learnt here from the bursts before
};

// What a function got, since it was first named.
struct LinkUse {
  uint64_t bytes = 0;
  uint64_t copies = 0;              // that had their last turn; parts of one are none
  uint64_t turns = 0;               // chunks
  uint64_t waited_ns = 0;           // all copies together, each from its arrival to its first turn
  uint64_t longest_ns = 0;          // of these
  uint64_t lasted_ns = 0;           // all copies together, each from its arrival to its last turn
  uint64_t bytes_per_s = 0;         // lately
  uint64_t needed_bytes_per_s = 0;  // its rate; 0: none
  uint64_t slo_ns = 0, infer_ns = 0;  // as needs() said last
};

class LinkShare {
 public:
  // Chunk sizes of kDeadlines follow who is there. A function with a deadline, or with small copies
  // that fit into its unused share, is in a hurry: beside it the others' chunks are short. On an
  // H200, two in flight, 8 MiB beside saturating bulk took 0.24 ms with chunks of 2 MiB (51.8 GB/s
  // in all) and 0.41 ms with chunks of 8 MiB (54.5 GB/s); 0.165 ms alone.
  struct Options {
    LinkOrder order = LinkOrder::kDeadlines;
    uint64_t bytes_per_s = 54'000'000'000;
    uint64_t chunk_alone = 8u << 20;    // nobody else waits; a copy up to this size is a small one
    uint64_t chunk_company = 8u << 20;  // others wait, none of them in a hurry
    uint64_t chunk_hurry = 2u << 20;    // beside another function that is in a hurry
    uint64_t chunk_tiny = 1u << 20;     // and whose copy is smaller than a quarter of that
    uint64_t block = 2u << 20;          // of kRoundRobin and kRates
    uint32_t batch = 0;  // blocks; 0: what the papers say, 6 for kRoundRobin and 5 for kRates
    uint64_t hurry_ns = 1'000'000'000;  // a function is in a hurry for so long after its last copy
    uint64_t patience_ns = 100'000'000;
    uint64_t rest_ns = 2'500'000;  // how long two may be outstanding without a pause
  };

  explicit LinkShare(const Options& options);

  void needs(uint64_t function, const FunctionNeeds& needs);
  void add(const LinkClaim& claim);
  // The copy gets no further turn. False: it is not known, or had its last turn.
  bool remove(uint64_t copy);
  // The function is gone, with all its copies that wait.
  void forget(uint64_t function);

  // True when no copy waits for a turn.
  bool empty() const { return active_.empty(); }

  // The caller submits exactly these bytes of that copy, and asks again as soon as may_send().
  struct Turn {
    uint64_t copy = 0;
    uint64_t offset = 0;  // of the first byte
    uint64_t bytes = 0;
    bool last = false;  // the copy is forgotten with this turn
  };
  std::optional<Turn> next(uint64_t now_ns);

  // Copies that cannot come through the lane (a graph's nodes) are outstanding, or no longer are.
  void outsiders(bool outstanding) { outsiders_ = outstanding; }
  // Whether another chunk may go beside those that are outstanding. Two keep the link busy, a third
  // of their size costs others its time and gains nothing. Small ones are more: as many as two
  // large ones hold, if the next one is like the last, for each has a pause of its own and what
  // submits them may stand for a moment (0.3 ms in the driver's lock, where memory is mapped). One
  // leaves room for outsiders, which two would starve. Nobody may know of some (a graph's nodes),
  // so now and then it is one.
  bool may_send(uint32_t chunks, uint64_t bytes, uint64_t now_ns) const;
  // What the link gives this proxy at the moment, others' share taken off.
  void link_rate(uint64_t bytes_per_s) { options_.bytes_per_s = bytes_per_s; }
  // What the SLOs of all functions ask for together.
  uint64_t needed_bytes_per_s() const;

  // All zero for a function that was never named.
  LinkUse use(uint64_t function, uint64_t now_ns) const;

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr uint32_t kKeepsBusy = 2, kMostChunks = 8;  // outstanding
  static constexpr uint64_t kRateWindowNs = 100'000'000;
  static constexpr uint64_t kNoDeadline = UINT64_MAX;

  struct Waiting {
    LinkClaim claim;
    uint64_t left = 0;
    uint64_t number = 0;    // of all that were added
    uint32_t next = kNone;  // in its queue, or among the free ones
    std::pair<uint64_t, uint64_t> came() const { return {claim.arrived_ns, number}; }
  };
  struct Queue {  // by arrival
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };
  struct Burst {
    uint64_t begin_ns = 0;
    uint64_t last_ns = 0;  // of its turns
    uint64_t sent = 0;
    uint64_t learnt = 0;  // how many bytes bursts have; 0: none has ended yet
    bool begun = false;
  };
  struct Function {
    bool named = false;
    FunctionNeeds needs;
    Queue small, large;
    uint64_t pending = 0;     // bytes that wait
    uint64_t small_lead = 0;  // bytes of small copies that went before its own large ones
    int64_t tag = 0;
    uint64_t joined = 0;  // the number of the turn before which its first waiting copy came
    uint64_t served =
        0;  // the number of its last turn; of the one before `joined` if that is later
    uint64_t hungry_since_ns = 0;  // its last turn, or the arrival of its first waiting copy
    Burst burst;
    LinkUse use;
    uint64_t window_begin_ns = 0;
    uint64_t window_bytes = 0;
  };
  struct Hurry {
    uint32_t function = kNone;
    uint64_t until_ns = 0;
    uint64_t bytes = 0;  // of its last copy
  };

  uint32_t slot_of(uint64_t function);
  uint32_t find(uint64_t function) const;
  bool small(const LinkClaim& claim) const {
    return !claim.part && claim.bytes <= options_.chunk_alone;
  }
  bool waits(const Function& f) const { return f.small.head != kNone || f.large.head != kNone; }
  const Queue& front_queue(const Function& f) const;
  const Waiting& front(const Function& f) const { return waiting_[front_queue(f).head]; }

  void enqueue(Queue& queue, const LinkClaim& claim);
  void unlink(Queue& queue, uint32_t before, uint32_t at);
  bool drop(Function& f, Queue& queue, uint64_t copy);
  void join(uint32_t at, const LinkClaim& claim);
  void leave(uint32_t at);

  uint64_t budget_ns(const Function& f) const;
  uint64_t expected(const Function& f) const;
  uint64_t deadline_ns(const Function& f) const;
  double progress(const Function& f, uint64_t now_ns) const;
  void begin_burst(Function& f, const LinkClaim& claim);

  uint32_t choose(uint64_t now_ns);
  template <class Key>
  uint32_t least(const Key& key) const;
  uint32_t first_come() const;
  uint32_t longest_unserved() const;
  uint32_t of_batch(uint64_t now_ns);
  uint32_t by_rates(uint64_t now_ns) const;
  uint32_t by_deadlines(uint64_t now_ns);
  uint32_t fairest() const;
  uint32_t most_urgent(uint64_t now_ns, uint64_t* urgent_bytes) const;
  uint32_t hungriest() const;
  bool admitted(const Function& f) const { return f.joined <= batch_began_; }
  bool behind(const Function& f, uint64_t now_ns) const;
  int64_t rank(const Function& f) const;
  bool has_credit(const Function& f, const LinkClaim& claim, uint64_t left) const;

  void note_hurry(uint32_t at, const LinkClaim& claim);
  uint64_t chunk(uint32_t at, uint64_t now_ns) const;
  bool rests(uint64_t now_ns) const {
    return outsiders_ || now_ns - rested_ns_ >= options_.rest_ns;
  }
  Turn serve(uint32_t at, uint64_t now_ns);
  void charge(Function& f, const Waiting& copy, uint64_t bytes);
  void count(Function& f, const LinkClaim& claim, const Turn& turn, uint64_t now_ns);

  Options options_;
  int64_t credit_ = 0;  // how far a tag may be before or behind virtual_
  bool outsiders_ = false;
  std::vector<uint64_t> ids_;  // of functions_, where named
  std::vector<Function> functions_;
  std::vector<uint32_t> active_;  // those with copies that wait
  std::vector<Waiting> waiting_;
  uint32_t free_waiting_ = kNone;
  int64_t virtual_ = 0;  // the lowest tag among the active ones; never falls
  uint64_t now_ns_ = 0;  // of the last turn
  uint64_t rested_ns_ = 0;
  uint64_t adds_ = 0;
  uint64_t turns_ = 0;
  uint64_t last_bytes_ = 0;   // of the last one
  uint64_t batch_began_ = 0;  // the turn before which the batch began
  uint32_t batch_left_ = 0;   // blocks
  uint32_t block_of_ = kNone;
  uint64_t block_left_ = 0;  // bytes
  Hurry hurries_[2];         // the two functions that were in a hurry last
};

}  // namespace tube::policies
