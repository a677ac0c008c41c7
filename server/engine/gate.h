// How many large computations run at once, and how long one may wait for its turn. Those that do not fit wait in order
// of arrival; one that has waited too long is refused instead of started, so that what is answered is answered in time.
// In the path: between a flight and the backend. Threads: safe from any thread; a Start runs with no lock held, on the
// thread that enters or on one that leaves.
#ifndef NORMD_SERVER_ENGINE_GATE_H_
#define NORMD_SERVER_ENGINE_GATE_H_

#include <deque>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace normd {

class Gate {
 public:
  struct Entry {
    // Runs once: with OK when it is its turn, and then Leave is owed; with RESOURCE_EXHAUSTED when it had waited longer
    // than `max_age`; with CANCELLED when it was `gone` by then.
    absl::AnyInvocable<void(absl::Status)> start;
    absl::AnyInvocable<bool()> gone;
    bool must_run = false;  // however long it waits, and whoever is gone
  };

  // `max_running` >= 1. `clock` must outlive the gate.
  Gate(int max_running, absl::Duration max_age, Clock* clock);

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

  const int max_running_;
  const absl::Duration max_age_;
  Clock* const clock_;
  mutable Mutex mu_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_GATE_H_
