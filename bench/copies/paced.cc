// What others' copies must not hold up: a copy, or a function with a copy in, a kernel and a copy
// out, at every mark of a clock.
//
// The program spins to the next mark, so that its own wake-up is no part of the time. A mark that
// has gone by while the work before it ran is missed, not made up for: it would be measured while
// nothing else is due. LEAD_MS without a mark, then WARM_MS whose marks are not counted, in no arm:
// what is learnt or made once (memory registered ahead) is no part of what is measured.
#include <algorithm>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

struct Pace {
  int64_t period_ns, run_ns, lead_ns, warm_ns;
};

Pace read_pace(std::istream& words) {
  int64_t period_us = 0, run_ms = 0, lead_ms = 0, warm_ms = 0;
  words >> period_us >> run_ms >> lead_ms >> warm_ms;
  constexpr int64_t kMs = 1'000'000;
  return {std::max<int64_t>(1, period_us) * 1000, run_ms * kMs, lead_ms * kMs, warm_ms * kMs};
}

void spin_until(int64_t mark) {
  while (now_ns() < mark) {
  }
}

class Paced : public Task {
 public:
  explicit Paced(Pace pace) : pace_(pace) {}
  ~Paced() override { CU(cuStreamDestroy(stream_)); }

  void prepare() override {
    for (int i = 0; i < 3; ++i) one();
    spoil();
  }

  void measure(Block& block) override {
    block.bytes = moved();
    Block warm;
    const int64_t mark = run(now_ns() + pace_.lead_ns, pace_.warm_ns, warm);
    block.begin_ns = mark;
    (void)run(mark, pace_.run_ns, block);
    block.end_ns = now_ns();
  }

  std::string verify() override { return wrong_.empty() ? wrong_at_end() : wrong_; }

 protected:
  virtual void before(uint64_t number) = 0;
  virtual void start(CUstream stream) = 0;
  virtual std::string wrong_in_samples() = 0;
  virtual std::string wrong_at_end() = 0;
  virtual void spoil() = 0;
  virtual size_t moved() const = 0;

 private:
  // From that mark on; the first mark behind it all.
  int64_t run(int64_t mark, int64_t for_ns, Block& block) {
    const int64_t end = mark + for_ns;
    spin_until(mark);
    while (mark < end) {
      block.latency_ns.push_back(one());
      const int64_t passed = (now_ns() - mark) / pace_.period_ns;
      block.missed += passed;
      mark += (passed + 1) * pace_.period_ns;
      spin_until(mark < end ? mark : end);
    }
    return mark;
  }
  int64_t one() {
    before(++number_);
    const int64_t begin = now_ns();
    start(stream_);
    CU(cuStreamSynchronize(stream_));
    const int64_t took = now_ns() - begin;
    if (wrong_.empty()) wrong_ = wrong_in_samples();
    return took;
  }

  const Pace pace_;
  CUstream stream_ = new_stream();
  uint64_t number_ = 0;
  std::string wrong_;
};

class Victim : public Paced {
 public:
  Victim(Path& path, size_t bytes, Pace pace) : Paced(pace), path_(path), bytes_(bytes) {}

 private:
  void before(uint64_t number) override { path_.refresh(number); }
  void start(CUstream stream) override { path_.start(stream); }
  std::string wrong_in_samples() override { return path_.wrong_in_samples(); }
  std::string wrong_at_end() override { return path_.wrong(); }
  void spoil() override { path_.spoil(); }
  size_t moved() const override { return bytes_; }

  Path& path_;
  const size_t bytes_;
};

class Function : public Paced {
 public:
  Function(Client& client, size_t in, size_t out, uint32_t rounds, Pace pace)
      : Paced(pace),
        in_(client.path(true, Host::kPinned, in)),
        out_(false, Host::kPinned, out),
        in_bytes_(in),
        out_bytes_(out),
        rounds_(rounds),
        kernel_(client.kernel()) {}

 private:
  static constexpr uint32_t kThreads = 256;

  void before(uint64_t number) override {
    in_.refresh(number);
    out_.refresh(number);
  }

  void start(CUstream stream) override {
    CUdeviceptr out = out_.device(), in = in_.device();
    uint32_t rounds = rounds_;
    void* params[] = {&out, &in, &rounds};
    in_.start(stream);
    CU(cuLaunchKernel(kernel_, static_cast<uint32_t>(out_bytes_ / 4 / kThreads), 1, 1, kThreads, 1,
                      1, 0, stream, params, nullptr));
    out_.start(stream);
  }

  std::string wrong_at(size_t index) const {
    uint32_t x = reinterpret_cast<const uint32_t*>(in_.host())[index];
    for (uint32_t i = 0; i < rounds_; ++i) x = mixed(x);
    if (reinterpret_cast<const uint32_t*>(out_.host())[index] == x) return "";
    return "word " + std::to_string(index) + " of the output is wrong";
  }

  // The first word of the input has the sample's number; mixing each takes the rounds again.
  std::string wrong_in_samples() override { return wrong_at(0); }
  std::string wrong_at_end() override {
    std::string wrong;
    const size_t words = out_bytes_ / 4;
    for (size_t i = 0; i < words && wrong.empty(); i += words / 64 + 1) wrong = wrong_at(i);
    return wrong.empty() ? in_.wrong() : wrong;
  }
  void spoil() override {
    in_.spoil();
    out_.spoil();
  }
  size_t moved() const override { return in_bytes_ + out_bytes_; }

  Path& in_;
  Path out_;  // of its own: the kernel writes where others' copies come from
  const size_t in_bytes_, out_bytes_;
  const uint32_t rounds_;
  CUfunction kernel_;
};

}  // namespace

std::unique_ptr<Task> make_victim(Client& client, std::istream& words) {
  std::string way;
  size_t bytes = 0;
  words >> way >> bytes;
  Path& path = client.path(way_named(way), Host::kPinned, bytes);
  return std::make_unique<Victim>(path, bytes, read_pace(words));
}

std::unique_ptr<Task> make_function(Client& client, std::istream& words) {
  size_t in = 0, out = 0;
  uint32_t rounds = 0;
  words >> in >> out >> rounds;
  return std::make_unique<Function>(client, in, out, rounds, read_pace(words));
}

}  // namespace bench
