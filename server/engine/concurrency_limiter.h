// Bounds the number of large computations that run at once, and how long one may wait. Tenants with waiting callers
// take turns, and so do the callers of one tenant; the entries of one caller start in order of arrival. So however many
// entries one caller queues, and from however many connections one tenant calls, every other one waits for at most one
// of them at each turn. An entry that has waited too long is refused instead of started, so that the
// answers that are given come in time.
// In the path: between BatchExecution (engine.cc) and the device scheduler.
// Threads: safe from any thread. `start` runs with no lock held, on a thread that calls Enter or Leave.
#ifndef NORMD_SERVER_ENGINE_CONCURRENCY_LIMITER_H_
#define NORMD_SERVER_ENGINE_CONCURRENCY_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/wait_stats.h"

namespace normd {

class ConcurrencyLimiter {
 public:
  struct Entry {
    // Called once. With OK when the computation may run; the caller then owes one Leave. With RESOURCE_EXHAUSTED if it
    // has waited longer than `max_age`, with CANCELLED if `gone` was true on entering or when its turn came.
    absl::AnyInvocable<void(absl::Status)> start;
    absl::AnyInvocable<bool()> gone;  // whether nobody waits for the result any more; null: never
    uint64_t caller = 0;              // fair-queueing key: see server/base/caller_key.h
    bool must_run = false;            // starts however long it has waited, even if `gone` is true
  };

  // REQUIRES: `max_running` >= 1. `clock` must outlive the limiter.
  ConcurrencyLimiter(int max_running, absl::Duration max_age, Clock* clock);

  // Starts `entry` now if fewer than `max_running` computations run; otherwise the entry waits.
  void Enter(Entry entry);
  // Ends one computation that was started with OK, and starts or refuses the entries whose turn it is.
  void Leave();

  // Entries that wait now.
  int waiting() const;
  // The same, and how long the oldest has waited.
  WaitStats wait_stats() const;

 private:
  struct Waiting {
    Entry entry;
    absl::Time since;
  };

  // OK if `waiting` may run; otherwise the status to start it with.
  absl::Status Judge(Waiting& waiting, absl::Time now) const;
  // Takes the first entry of the caller whose turn it is. The caller's next entry waits for the turns of the others of
  // its tenant, and the tenant's next entry for those of all other tenants.
  // REQUIRES: an entry waits.
  Waiting TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int max_running_;
  const absl::Duration max_age_;
  Clock* const clock_;
  mutable Mutex mu_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::deque<Waiting>> waiting_ ABSL_GUARDED_BY(mu_);  // by caller; no deque is empty
  // The tenants of these callers, in turn, and the callers of each tenant, in turn; no deque of callers is empty.
  std::deque<uint32_t> tenant_turns_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint32_t, std::deque<uint64_t>> caller_turns_ ABSL_GUARDED_BY(mu_);
  size_t waiting_count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CONCURRENCY_LIMITER_H_
