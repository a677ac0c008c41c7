// How many large computations run at once, and how long one may wait for its turn. Of those that do not fit, callers
// take turns, and the ones of a caller wait in order of arrival: whatever one caller piles up, the others wait for no
// more than one of its computations at each turn. One that has waited too long is refused instead of started, so that
// what is answered is answered in time.
// In the path: between a batch and the scheduler. Threads: safe from any thread; a Start runs with no lock held, on
// the thread that enters or on one that leaves.
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

namespace normd {

class ConcurrencyLimiter {
 public:
  struct Entry {
    // Runs once: with OK when it is its turn, and then Leave is owed; with RESOURCE_EXHAUSTED when it had waited longer
    // than `max_age`; with CANCELLED when it was `gone` by then, or on entering.
    absl::AnyInvocable<void(absl::Status)> start;
    absl::AnyInvocable<bool()> gone;
    uint64_t caller = 0;    // whose turn it takes
    bool must_run = false;  // however long it waits, and whoever is gone
  };

  // `max_running` >= 1. `clock` must outlive the limiter.
  ConcurrencyLimiter(int max_running, absl::Duration max_age, Clock* clock);

  void Enter(Entry entry);
  void Leave();

  // Waiting now.
  int waiting() const;

 private:
  struct Waiting {
    Entry entry;
    absl::Time since;
  };

  // OK: it is to be started.
  absl::Status Judge(Waiting& waiting, absl::Time now) const;
  // The first one of the caller whose turn it is; the caller's next one waits for all others' turns. REQUIRES: there
  // is one.
  Waiting TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int max_running_;
  const absl::Duration max_age_;
  Clock* const clock_;
  mutable Mutex mu_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, std::deque<Waiting>> waiting_ ABSL_GUARDED_BY(mu_);  // by caller, none empty
  std::deque<uint64_t> turns_ ABSL_GUARDED_BY(mu_);                                 // the callers of waiting_
  size_t waiting_count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_CONCURRENCY_LIMITER_H_
