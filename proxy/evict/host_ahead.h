// Makes pinned host memory for what may have to leave the GPUs, before it has to
// (policies/memory/host_ahead.h says when, and how much), on a thread of its own, chunk by chunk.
//
// The thread looks while two functions or more are there, ten times a second; with fewer it sleeps.
// It stops for the time being where the machine or the driver refuses. What it makes is the
// arena's, and goes when the arena's does.
//
// Any thread, but for what a function says. `mutex_` is a leaf.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace tube::proxy {

class Evictor;
class Gpus;
class HostBudget;
struct Driver;

class HostAhead {
 public:
  // All outlive it.
  HostAhead(const Driver& driver, Gpus& gpus, Evictor& evictor, HostBudget& host)
      : driver_(driver), gpus_(gpus), evictor_(evictor), host_(host) {}
  ~HostAhead() { close(); }  // before the GPUs close
  HostAhead(const HostAhead&) = delete;
  HostAhead& operator=(const HostAhead&) = delete;

  // Without the thread everything is made when it is needed.
  void start();
  // Ends the thread, behind the chunk in hand.
  void close();
  // Functions came or went, or memory did that decides.
  void look();

  // How much is to be there; it is, or no more can be had, when `settled`.
  struct Counts {
    uint64_t wanted_bytes = 0;
    bool settled = true;
  };
  Counts counts() const;

 private:
  void run();
  bool stopping() const;
  uint64_t wanted();
  void make(uint64_t wanted);

  const Driver& driver_;
  Gpus& gpus_;
  Evictor& evictor_;
  HostBudget& host_;
  mutable std::mutex mutex_;  // the members below
  std::condition_variable changed_;
  bool stop_ = false;
  bool news_ = false;
  Counts counts_;
  std::thread thread_;
};

}  // namespace tube::proxy
