// The clock of a database that several servers share, so that they agree on when a session ends whatever their own
// clocks say. Now adds the steady time that has passed since to what the database said last.
// In the path: a DurableStore over PostgreSQL takes its times from here. Threads: safe from any thread.
#ifndef NORMD_SERVER_SESSION_POSTGRES_DATABASE_CLOCK_H_
#define NORMD_SERVER_SESSION_POSTGRES_DATABASE_CLOCK_H_

#include <chrono>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace normd {

class DatabaseClock : public Clock {
 public:
  // REQUIRES: Set was called before.
  absl::Time Now() override;
  // The database has just said that it is `now`.
  void Set(absl::Time now);

 private:
  Mutex mu_;
  absl::Time said_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point when_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_POSTGRES_DATABASE_CLOCK_H_
