// Copies one after the other, each waited for: in one direction, or in both at once.
#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

class Copies : public Task {
 public:
  Copies(std::vector<Path*> paths, size_t bytes, int samples)
      : paths_(std::move(paths)), bytes_(bytes), samples_(samples) {
    for (size_t i = 0; i < paths_.size(); ++i) streams_.push_back(new_stream());
  }
  ~Copies() override {
    for (CUstream stream : streams_) CU(cuStreamDestroy(stream));
  }

  void prepare() override {
    for (int i = 0; i < 2; ++i) sample();
    for (Path* path : paths_) path->spoil();
  }

  void measure(Block& block) override {
    block.bytes = bytes_ * paths_.size();
    block.begin_ns = now_ns();
    for (int i = 0; i < samples_; ++i) block.latency_ns.push_back(sample());
    block.end_ns = now_ns();
  }

  std::string verify() override {
    for (Path* path : paths_) {
      if (wrong_.empty()) wrong_ = path->wrong();
    }
    return wrong_;
  }

 private:
  // Its time; what it must bring is made before and looked at behind.
  int64_t sample() {
    for (Path* path : paths_) path->refresh(++number_);
    const int64_t begin = now_ns();
    for (size_t i = 0; i < paths_.size(); ++i) paths_[i]->start(streams_[i]);
    for (CUstream stream : streams_) CU(cuStreamSynchronize(stream));
    const int64_t took = now_ns() - begin;
    for (Path* path : paths_) {
      if (wrong_.empty()) wrong_ = path->wrong_in_samples();
    }
    return took;
  }

  std::vector<Path*> paths_;
  std::vector<CUstream> streams_;
  const size_t bytes_;
  const int samples_;
  uint64_t number_ = 0;
  std::string wrong_;
};

}  // namespace

std::unique_ptr<Task> make_copy(Client& client, std::istream& words) {
  std::string way, host;
  size_t bytes = 0;
  int samples = 0;
  words >> way >> host >> bytes >> samples;
  std::vector<Path*> paths;
  if (way == "both") {
    for (bool up : {true, false}) paths.push_back(&client.path(up, host_named(host), bytes));
  } else {
    paths.push_back(&client.path(way_named(way), host_named(host), bytes));
  }
  return std::make_unique<Copies>(std::move(paths), bytes, samples);
}

}  // namespace bench
