#include "proxy/server/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/common/contained_thread.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kLooks = 4;  // within the limit

double seconds(uint64_t since_ns) { return static_cast<double>(now_ns() - since_ns) / 1e9; }

void tell(const policies::Stall& stall, const Watchdog::Subject& subject) {
  switch (stall.news) {
    case policies::Stall::News::kBegins:
      log_warn("%s makes no progress for %.1f s: %s", subject.who.c_str(), seconds(stall.since_ns),
               subject.what.c_str());
      break;
    case policies::Stall::News::kOver:
      log_info("%s goes on after %.1f s", subject.who.c_str(), seconds(stall.since_ns));
      break;
    case policies::Stall::News::kGoesOn: break;
  }
}

}  // namespace

Watchdog::Watchdog(uint64_t limit_ns, Gather gather)
    : limit_ns_(limit_ns), gather_(std::move(gather)), functions_(limit_ns), server_(limit_ns) {}

void Watchdog::wake() {
  if (limit_ns_ == 0) return;
  {
    std::lock_guard lock(mutex_);
    awake_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) return;
  // Without it nobody tells.
  thread_ = contained_thread("tube-watchdog", "the watchdog", [this] { run(); });
}

void Watchdog::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<Watchdog::Standing> Watchdog::standing() const {
  std::lock_guard lock(mutex_);
  return standing_;
}

// Whether there is anything to watch.
bool Watchdog::look() {
  const uint64_t now = now_ns(), round = round_ns_.load(std::memory_order_relaxed);
  std::vector<Subject> subjects;
  std::vector<Standing> standing;
  const auto note = [&](const policies::Stall& stall, const Subject& subject) {
    tell(stall, subject);
    if (stall.news != policies::Stall::News::kOver)
      standing.push_back({subject.who, subject.what, stall.since_ns});
  };
  const Subject server{{0, round != 0, round}, "the server's thread", "it is in one round"};
  for (const policies::Stall& stall : server_.look({&server.progress, 1}, now)) note(stall, server);
  const bool seen = gather_(subjects);
  std::vector<policies::Progress> progress;
  progress.reserve(subjects.size());
  for (const Subject& subject : subjects) progress.push_back(subject.progress);
  if (seen) {
    for (const policies::Stall& stall : functions_.look(progress, now)) {
      note(stall, *std::find_if(subjects.begin(), subjects.end(), [&](const Subject& subject) {
             return subject.progress.id == stall.id;
           }));
    }
  }
  std::lock_guard lock(mutex_);
  standing_ = std::move(standing);
  return !seen || !subjects.empty();
}

void Watchdog::run() {
  const auto pause = std::chrono::nanoseconds(limit_ns_ / kLooks);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || awake_; });
    if (stop_) return;
    awake_ = false;
    lock.unlock();
    const bool more = look();
    lock.lock();
    awake_ = awake_ || more;
    if (more) changed_.wait_for(lock, pause, [this] { return stop_; });
  }
}

}  // namespace tube::proxy
