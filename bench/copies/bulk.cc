// Copies without pause: rounds of the same bytes, two in flight, until the script says stop. Or
// allocates pinned memory in their place.
//
// What was moved in any part of the time is read off the ends of the rounds. The program sleeps
// until a round has ended: four such programs and a victim that spins need no more cores than are
// there.
#include <algorithm>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

class Bulk : public Task {
 public:
  // A round is `pieces` copies: as copies, or as the nodes of a graph. `ahead`: rounds in flight.
  Bulk(Client& client, Path& path, size_t bytes, size_t pieces, bool graph, size_t ahead)
      : client_(client), path_(path), bytes_(bytes), pieces_(pieces), ends_(ahead) {
    for (CUevent& end : ends_)
      CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (graph) capture();
  }

  ~Bulk() override {
    if (exec_ != nullptr) CU(cuGraphExecDestroy(exec_));
    for (CUevent end : ends_) CU(cuEventDestroy(end));
    CU(cuStreamDestroy(stream_));
  }

  void prepare() override {
    round();
    CU(cuStreamSynchronize(stream_));
    path_.spoil();
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    size_t number = 0;
    for (; number == 0 || !client_.lines.waiting(); ++number) {
      if (number >= ends_.size()) wait_for(number - ends_.size(), block);
      round();
      CU(cuEventRecord(ends_[number % ends_.size()], stream_));
    }
    for (size_t i = number - std::min(number, ends_.size()); i < number; ++i) wait_for(i, block);
    block.end_ns = now_ns();
    client_.lines.await("stop");
  }

  std::string verify() override { return path_.wrong(); }

 private:
  void pieces() {
    const size_t piece = bytes_ / pieces_;
    for (size_t i = 0; i < pieces_; ++i) path_.start(stream_, i * piece, piece);
  }

  void round() {
    if (exec_ != nullptr) {
      CU(cuGraphLaunch(exec_, stream_));
    } else {
      pieces();
    }
  }

  void capture() {
    CUgraph graph;
    CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    pieces();
    CU(cuStreamEndCapture(stream_, &graph));
    CU(cuGraphInstantiate(&exec_, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  void wait_for(size_t number, Block& block) {
    CU(cuEventSynchronize(ends_[number % ends_.size()]));
    block.ended_ns.push_back(now_ns());
  }

  Client& client_;
  Path& path_;
  const size_t bytes_, pieces_;
  std::vector<CUevent> ends_;
  CUstream stream_ = new_stream();
  CUgraphExec exec_ = nullptr;
};

// Allocates pinned memory, and frees what it allocated four before.
class Pins : public Task {
 public:
  Pins(Client& client, size_t bytes) : client_(client), bytes_(bytes) {}
  ~Pins() override {
    for (void* memory : kept_) CU(cuMemFreeHost(memory));
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    for (size_t number = 0; number == 0 || !client_.lines.waiting(); ++number) {
      void*& place = kept_[number % kKept];
      CU(cuMemFreeHost(place));
      place = nullptr;
      CU(cuMemHostAlloc(&place, bytes_, 0));
      block.ended_ns.push_back(now_ns());
    }
    block.end_ns = now_ns();
    client_.lines.await("stop");
  }

  std::string verify() override { return ""; }

 private:
  static constexpr size_t kKept = 4;
  Client& client_;
  const size_t bytes_;
  void* kept_[kKept] = {};
};

}  // namespace

std::unique_ptr<Task> make_bulk(Client& client, std::istream& words) {
  std::string kind;
  size_t bytes = 0, pieces = 1;
  words >> kind >> bytes >> pieces;
  if (kind == "pin") return std::make_unique<Pins>(client, bytes);
  Path& path =
      client.path(kind != "down", kind == "pageable" ? Host::kTouched : Host::kPinned, bytes);
  // A model that is loaded is waited for before the next one begins; a pageable copy returns when
  // its bytes are staged, so that another one in flight would only hide when it has ended.
  return std::make_unique<Bulk>(client, path, bytes, pieces, kind == "graph",
                                kind == "load" || kind == "pageable" ? 1 : 2);
}

}  // namespace bench
