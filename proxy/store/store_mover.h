// The thread that moves objects of the store without being asked by anybody who waits: out of a GPU
// whose memory is about to be short, back before their turn.
//
// It is started when there is something to do for the first time, looks again every window
// (policies/memory/migration.h) while something may have to move, and sleeps otherwise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace tube::proxy {

class StoreMover {
 public:
  // `tend`: looks after everything once, on the thread; true: look again soon.
  explicit StoreMover(std::function<bool()> tend) : tend_(std::move(tend)) {}
  ~StoreMover() { stop(); }
  StoreMover(const StoreMover&) = delete;
  StoreMover& operator=(const StoreMover&) = delete;

  // Any thread. Something may have to move.
  void poke();
  // Ends the thread, behind what it does now; it is not started again.
  void stop();

 private:
  void run();

  const std::function<bool()> tend_;
  std::mutex mutex_;  // leaf: what follows
  std::condition_variable changed_;
  std::thread thread_;
  bool stopped_ = false;
  bool poked_ = false;
};

}  // namespace tube::proxy
