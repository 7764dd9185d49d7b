// The two sleep protocols of abi.h, checked over every interleaving.
//
// A small machine with total store order (stores wait in a per-process buffer and reach memory at
// any later time, in order; a process sees its own) runs both sides' steps in every order. In a
// final state nobody may sleep on a futex while what it waits for is there. Without the fences the
// same search must find the lost wake-up: that shows that the search can see it. Both protocols are
// one pattern: a sleeper (announce, fence, look again, sleep) and a waker (store, fence, take the
// flag, wake), so the same machine covers records (sleeper = session) and ring space (sleeper =
// client). The steps below are those of RingReader::wait / Waiter::run and sleep_on_futex and of
// RingWriter::publish, in their order. How long the spin in front of the sleep lasts is decided
// from times (policies/spin.h): here it may end after any look, the first one included.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

namespace tube::shared {
namespace {

enum Variable : uint8_t { kPosition, kFlag };

struct Store {
  uint8_t variable;
  uint8_t value;
  // NOLINTNEXTLINE(modernize-use-nullptr): a zero of the compiler's own
  auto operator<=>(const Store&) const = default;
};

struct State {
  std::array<uint8_t, 2> memory{};           // position, flag
  std::array<std::vector<Store>, 2> buffer;  // 0 sleeper, 1 waker
  uint8_t sleeper_at = 0;
  uint8_t seen = 0;  // position the sleeper has consumed
  bool on_futex = false;
  uint8_t waker_at = 0;
  uint8_t published = 0;
  uint8_t roused = 0;  // times the waker woke without a record (rouse_reader)
  // NOLINTNEXTLINE(modernize-use-nullptr): a zero of the compiler's own
  auto operator<=>(const State&) const = default;
};

class Machine {
 public:
  Machine(bool fences, uint8_t rounds, uint8_t rouses = 0)
      : fences_(fences), rounds_(rounds), rouses_(rouses) {}

  bool finds_lost_wake_up() {
    visit(State{});
    return lost_;
  }
  size_t states() const { return visited_.size(); }

 private:
  static uint8_t load(const State& s, int who, Variable v) {
    const std::vector<Store>& buffer = s.buffer[who];
    for (size_t i = buffer.size(); i-- > 0;) {
      if (buffer[i].variable == v) return buffer[i].value;
    }
    return s.memory[v];
  }
  static void store(State& s, int who, Variable v, uint8_t value) {
    s.buffer[who].push_back({v, value});
  }
  bool fence_passes(const State& s, int who) const { return !fences_ || s.buffer[who].empty(); }

  void visit(const State& s) {
    if (!visited_.insert(s).second) return;
    bool moved = false;
    for (int who = 0; who < 2; ++who) {  // a buffered store reaches memory
      if (s.buffer[who].empty()) continue;
      State next = s;
      next.memory[s.buffer[who][0].variable] = s.buffer[who][0].value;
      next.buffer[who].erase(next.buffer[who].begin());
      visit(next);
      moved = true;
    }
    moved |= step_sleeper(s);
    moved |= step_waker(s);
    if (!moved && s.on_futex && s.memory[kPosition] != s.seen) lost_ = true;
  }

  bool step_sleeper(const State& s) {
    State next = s;
    switch (s.sleeper_at) {
      case 0:  // drain
        next.seen = load(s, 0, kPosition);
        next.sleeper_at = next.seen == rounds_ ? 6 : 7;
        break;
      case 7:  // spin: sees what has come and drains it, or looks again, or has spun enough
        if (load(s, 0, kPosition) != s.seen) {
          State ends = next;  // just when it had decided to sleep
          ends.sleeper_at = 1;
          visit(ends);
          next.sleeper_at = 0;
        } else {
          next.sleeper_at = 1;
        }
        break;
      case 1:  // announce
        store(next, 0, kFlag, 1);
        next.sleeper_at = 2;
        break;
      case 2:  // fence
        if (!fence_passes(s, 0)) return false;
        next.sleeper_at = 3;
        break;
      case 3:  // look again
        next.sleeper_at = load(s, 0, kPosition) != s.seen ? 5 : 4;
        break;
      case 4:  // futex_wait: the kernel compares and sleeps in one step, on memory, its entry
               // draining the buffer
        if (s.on_futex || !s.buffer[0].empty()) return false;
        if (s.memory[kFlag] == 1) {
          next.on_futex = true;
        } else {
          next.sleeper_at = load(s, 0, kPosition) != s.seen ? 5 : 1;
        }
        break;
      case 8:  // woken, and nothing there: spin
        next.sleeper_at = load(s, 0, kPosition) != s.seen ? 5 : 1;
        break;
      case 5:  // withdraw
        store(next, 0, kFlag, 0);
        next.sleeper_at = 0;
        break;
      default: return false;
    }
    visit(next);
    return true;
  }

  bool step_waker(const State& s) {
    State next = s;
    switch (s.waker_at) {
      case 0:  // publish, or rouse, which does the same without a record
        if (s.roused < rouses_) {
          State rouses = s;
          ++rouses.roused;
          rouses.waker_at = 1;
          visit(rouses);
        }
        if (s.published == rounds_) return s.roused < rouses_;
        next.published = static_cast<uint8_t>(s.published + 1);
        store(next, 1, kPosition, next.published);
        next.waker_at = 1;
        break;
      case 1:  // fence
        if (!fence_passes(s, 1)) return false;
        next.waker_at = 2;
        break;
      case 2:  // read the flag
        next.waker_at = load(s, 1, kFlag) != 0 ? 3 : 0;
        break;
      case 3:  // exchange: a locked instruction, drains the buffer
        if (!s.buffer[1].empty()) return false;
        next.waker_at = s.memory[kFlag] != 0 ? 4 : 0;
        next.memory[kFlag] = 0;
        break;
      case 4:  // futex_wake
        if (s.on_futex) {
          next.on_futex = false;
          next.sleeper_at = load(s, 0, kPosition) != s.seen ? 5 : 8;
        }
        next.waker_at = 0;
        break;
      default: return false;
    }
    visit(next);
    return true;
  }

  bool fences_;
  uint8_t rounds_;
  uint8_t rouses_;
  bool lost_ = false;
  std::set<State> visited_;
};

TEST(SleepProtocol, LosesNoWakeUpInAnyInterleaving) {
  for (uint8_t rounds = 1; rounds <= 3; ++rounds) {
    Machine machine(true, rounds);
    EXPECT_FALSE(machine.finds_lost_wake_up())
        << int{rounds} << " records, " << machine.states() << " states";
  }
}

TEST(SleepProtocol, LosesNoWakeUpWhenRousedWithoutARecord) {
  for (uint8_t rounds = 1; rounds <= 2; ++rounds) {
    for (uint8_t rouses = 1; rouses <= 2; ++rouses) {
      Machine machine(true, rounds, rouses);
      EXPECT_FALSE(machine.finds_lost_wake_up())
          << int{rounds} << " records, " << machine.states() << " states";
    }
  }
  EXPECT_TRUE(Machine(false, 1, 1).finds_lost_wake_up());
}

TEST(SleepProtocol, TheSearchFindsTheWakeUpThatIsLostWithoutFences) {
  EXPECT_TRUE(Machine(false, 1).finds_lost_wake_up());
}

// Replies: one word decides between "asleep" (compare-exchange) and "done" (exchange), so two
// orders exist and no more.
TEST(SleepProtocol, ReplyIsEitherSeenOrWoken) {
  enum { kWaiting = 1, kAsleep = 2, kDone = 3 };
  for (const bool client_first : {true, false}) {
    int state = kWaiting;
    bool sleeps = false, wakes = false;
    const auto client = [&] {
      if (state == kWaiting) state = kAsleep;
      sleeps = state == kAsleep;
    };
    const auto proxy = [&] {
      wakes = state == kAsleep;
      state = kDone;
    };
    if (client_first) {
      client();
      proxy();
    } else {
      proxy();
      client();
    }
    EXPECT_EQ(sleeps, wakes);
  }
}

}  // namespace
}  // namespace tube::shared
