// Has functions that do nothing for a while move their memory to the host, although nobody else
// needs the room (Evictor::Options::idle_ns), on a thread of its own that looks several times in
// that while.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace tube::proxy {

class Evictor;
class Gpus;

class IdleFunctions {
 public:
  // Both outlive it.
  IdleFunctions(Gpus& gpus, Evictor& evictor) : gpus_(gpus), evictor_(evictor) {}
  ~IdleFunctions() { close(); }
  IdleFunctions(const IdleFunctions&) = delete;
  IdleFunctions& operator=(const IdleFunctions&) = delete;

  // Without the thread memory stays until others need the room; so it does where there is no such
  // while.
  void start();
  // Ends the thread.
  void close();

 private:
  void run();

  Gpus& gpus_;
  Evictor& evictor_;
  std::mutex mutex_;  // of stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tube::proxy
