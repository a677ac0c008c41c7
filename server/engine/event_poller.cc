#include "server/engine/event_poller.h"

#include <algorithm>
#include <utility>

#include "server/base/steady_time.h"

namespace normd {

EventPoller::~EventPoller() {
  std::thread thread;
  {
    MutexLock lock(mu_);
    ends_ = true;
    changed_.SignalAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void EventPoller::Wait(Entry entry) {
  const absl::Time now = SteadyNow();
  MutexLock lock(mu_);
  Insert({std::move(entry), now}, now);
  changed_.SignalAll();
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void EventPoller::Insert(Waiting waiting, absl::Time now) {
  const absl::Duration interval = std::clamp((now - waiting.since) / 8, kMinInterval, kMaxInterval);
  waiting_.emplace(now + interval, std::move(waiting));
}

bool EventPoller::TakeDue(Waiting* due) {
  MutexLock lock(mu_);
  while (!ends_) {
    if (waiting_.empty()) {
      changed_.Wait(mu_);
      continue;
    }
    const absl::Duration early = waiting_.begin()->first - SteadyNow();
    if (early <= absl::ZeroDuration()) {
      *due = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      return true;
    }
    changed_.WaitFor(mu_, early);
  }
  return false;
}

void EventPoller::Run() {
  Waiting waiting;
  while (TakeDue(&waiting)) {
    if (waiting.entry.completed()) {
      std::move(waiting.entry.start)();
      waiting = {};  // frees the objects that the entry owns now, and not with the next entry
      continue;
    }
    const absl::Time now = SteadyNow();
    MutexLock lock(mu_);
    Insert(std::move(waiting), now);
  }
}

}  // namespace normd
