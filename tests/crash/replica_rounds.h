// Two real normd on one PostgreSQL, with clients on both. In turn one of them is stopped (SIGSTOP) with steps on their
// way, its clients send them to the other one, and it wakes up again with what it had; one is killed and started again;
// and PostgreSQL is killed under both. In the path: crash_parent's. Threads: the main thread's; the trainers have
// theirs.
#ifndef NORMD_TESTS_CRASH_REPLICA_ROUNDS_H_
#define NORMD_TESTS_CRASH_REPLICA_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "tests/crash/ledger.h"
#include "tests/crash/postgres_control.h"
#include "tests/crash/server_process.h"
#include "tests/crash/trainers.h"

namespace normd::crash {

struct ReplicaOptions {
  std::string program;
  std::string folder;
  std::string url;  // of the PostgreSQL
  PostgresControl postgres;
  int64_t pauses = 0;  // and as many kills of a replica, and of PostgreSQL
};

class ReplicaRounds {
 public:
  // Borrows `random` and `ledger`.
  ReplicaRounds(const ReplicaOptions& options, std::mt19937_64* random, Ledger* ledger);

  // Returns how many kills there were.
  int64_t Run();

 private:
  absl::Status RunAll();
  absl::Status StartBoth();
  absl::Status Pause(int which);
  absl::Status Kill(int which);
  absl::Status KillPostgres();
  // Every client has a few more steps acknowledged; then both replicas are compared with the ledger.
  absl::Status GoOn(const std::string& after);
  absl::Status CheckBoth();
  // Until both have wanted to write a session at one time, which is what all of this is about. Counted while nothing
  // fails, because failed transactions may count as conflicts, too.
  absl::Status MeetOnce();
  absl::Status End();
  // normd_store_conflicts_total of one replica.
  absl::StatusOr<int64_t> Conflicts(int which) const;

  const ReplicaOptions options_;
  std::mt19937_64* const random_;
  Ledger* const ledger_;
  ServerProcess replicas_[2];
  std::unique_ptr<Client> clients_[2];  // of the checks
  std::unique_ptr<Trainers> trainers_;
  int64_t kills_ = 0, postgres_kills_ = 0, pauses_ = 0, pauses_in_flight_ = 0, refused_ = 0, conflicts_ = 0;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_REPLICA_ROUNDS_H_
