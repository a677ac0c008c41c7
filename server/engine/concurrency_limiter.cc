#include "server/engine/concurrency_limiter.h"

#include <algorithm>
#include <utility>

#include "server/base/errors.h"

namespace normd {

ConcurrencyLimiter::ConcurrencyLimiter(int max_running, absl::Duration max_age, Clock* clock)
    : max_running_(std::max(1, max_running)), max_age_(max_age), clock_(clock) {}

void ConcurrencyLimiter::Enter(Entry entry) {
  if (!entry.must_run && entry.gone != nullptr && entry.gone()) return entry.start(CallerGoneError());
  {
    MutexLock lock(mu_);
    if (running_ == max_running_) {
      std::deque<Waiting>& of_caller = waiting_[entry.caller];
      if (of_caller.empty()) turns_.push_back(entry.caller);
      of_caller.push_back({std::move(entry), clock_->Now()});
      ++waiting_count_;
      return;
    }
    ++running_;
  }
  entry.start(absl::OkStatus());
}

void ConcurrencyLimiter::Leave() {
  // A loop, so that a thousand callers who are gone take no more stack than one.
  while (true) {
    Waiting next;
    {
      MutexLock lock(mu_);
      if (waiting_.empty()) {
        --running_;
        return;
      }
      next = TakeNext();
    }
    const absl::Status judged = Judge(next, clock_->Now());
    next.entry.start(judged);
    if (judged.ok()) return;
  }
}

ConcurrencyLimiter::Waiting ConcurrencyLimiter::TakeNext() {
  const uint64_t caller = turns_.front();
  turns_.pop_front();
  const auto found = waiting_.find(caller);
  Waiting next = std::move(found->second.front());
  found->second.pop_front();
  --waiting_count_;
  if (found->second.empty()) {
    waiting_.erase(found);
  } else {
    turns_.push_back(caller);
  }
  return next;
}

absl::Status ConcurrencyLimiter::Judge(Waiting& waiting, absl::Time now) const {
  if (waiting.entry.must_run) return absl::OkStatus();
  if (waiting.entry.gone != nullptr && waiting.entry.gone()) return CallerGoneError();
  if (now - waiting.since > max_age_) return QueueAgeError(now - waiting.since, max_age_);
  return absl::OkStatus();
}

int ConcurrencyLimiter::waiting() const {
  MutexLock lock(mu_);
  return static_cast<int>(waiting_count_);
}

}  // namespace normd
