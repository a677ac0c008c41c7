// Kills crash_child again and again while it trains on a store, and checks what the next one finds there.
// In the path: crash_parent's; the ledger gets what the child reports. Threads: the main thread's.
#ifndef NORMD_TESTS_CRASH_CHILD_ROUNDS_H_
#define NORMD_TESTS_CRASH_CHILD_ROUNDS_H_

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "tests/crash/ledger.h"
#include "tests/crash/postgres_control.h"
#include "tests/crash/process.h"
#include "tests/crash/report.h"

namespace normd::crash {

struct ChildOptions {
  std::string program;
  std::string store;  // sqlite, memory or postgres
  std::string at;     // its folder or URL
  std::string level;
  bool acknowledge_early = false;
  int64_t kills = 0;
  // PostgreSQL, and how often to kill it in the middle of a round.
  PostgresControl postgres;
  int64_t postmaster_kills = 0;
};

class ChildRounds {
 public:
  // Borrows `random` and `ledger`.
  ChildRounds(ChildOptions options, std::mt19937_64* random, Ledger* ledger);

  // Ends after the kills that were asked for, or with the first violation. Returns how many there were.
  int64_t Run();
  int64_t postmaster_kills() const { return postmaster_kills_; }

 private:
  void RunRound(bool kill_postmaster);
  // A child that only tells what it finds.
  void CheckOnce();
  std::vector<std::string> Arguments() const;
  // Follows the child until `deadline`, or `ready`: until it trains. False: it ended.
  bool Follow(Process* child, absl::Time deadline, bool until_ready);
  void Take(std::string_view bytes);
  void TakeReport(const Report& report);
  void KillPostmaster(Process* child);

  const ChildOptions options_;
  std::mt19937_64* const random_;
  Ledger* const ledger_;
  int64_t postmaster_kills_ = 0;

  // Of the child that runs.
  std::string pending_;          // read and not yet a whole report
  uint64_t snapshot_bytes_ = 0;  // the next so many are the record of snapshot_session_
  int snapshot_session_ = 0;
  std::vector<bool> found_;  // sessions it has told of
  bool ready_ = false;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_CHILD_ROUNDS_H_
