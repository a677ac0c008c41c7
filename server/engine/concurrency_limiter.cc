#include "server/engine/concurrency_limiter.h"

#include <algorithm>
#include <utility>

#include "server/base/caller_key.h"
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
      if (of_caller.empty()) {
        std::deque<uint64_t>& of_tenant = caller_turns_[TenantOfCaller(entry.caller)];
        if (of_tenant.empty()) tenant_turns_.push_back(TenantOfCaller(entry.caller));
        of_tenant.push_back(entry.caller);
      }
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
  const uint32_t tenant = tenant_turns_.front();
  tenant_turns_.pop_front();
  const auto callers = caller_turns_.find(tenant);
  const uint64_t caller = callers->second.front();
  callers->second.pop_front();
  const auto found = waiting_.find(caller);
  Waiting next = std::move(found->second.front());
  found->second.pop_front();
  --waiting_count_;
  if (found->second.empty()) {
    waiting_.erase(found);
  } else {
    callers->second.push_back(caller);
  }
  if (callers->second.empty()) {
    caller_turns_.erase(callers);
  } else {
    tenant_turns_.push_back(tenant);
  }
  return next;
}

absl::Status ConcurrencyLimiter::Judge(Waiting& waiting, absl::Time now) const {
  if (waiting.entry.must_run) return absl::OkStatus();
  if (waiting.entry.gone != nullptr && waiting.entry.gone()) return CallerGoneError();
  if (now - waiting.since > max_age_) return QueueAgeError(now - waiting.since, max_age_);
  return absl::OkStatus();
}

WaitStats ConcurrencyLimiter::wait_stats() const {
  MutexLock lock(mu_);
  if (waiting_count_ == 0) return {};
  absl::Time oldest = absl::InfiniteFuture();
  for (const auto& [caller, of_caller] : waiting_) oldest = std::min(oldest, of_caller.front().since);
  return {.waiting = static_cast<int64_t>(waiting_count_), .oldest = clock_->Now() - oldest};
}

int ConcurrencyLimiter::waiting() const {
  MutexLock lock(mu_);
  return static_cast<int>(waiting_count_);
}

}  // namespace normd
