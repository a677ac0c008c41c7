// Kills the real normd again and again while gRPC clients train on it and retry through its restarts.
// In the path: crash_parent's. Threads: the main thread's; the trainers have theirs.
#ifndef NORMD_TESTS_CRASH_SERVER_ROUNDS_H_
#define NORMD_TESTS_CRASH_SERVER_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "tests/crash/ledger.h"
#include "tests/crash/server_process.h"
#include "tests/crash/trainers.h"

namespace normd::crash {

struct ServerOptions {
  std::string program;
  std::string folder;
  std::string level;
  int64_t kills = 0;
};

class ServerRounds {
 public:
  // Borrows `random` and `ledger`.
  ServerRounds(const ServerOptions& options, std::mt19937_64* random, Ledger* ledger);

  // Ends after the kills under load that were asked for, or with the first violation. Returns how many there were.
  int64_t Run();

 private:
  bool in_memory() const { return options_.level == "memory"; }
  absl::Status RunRound();
  // The server has answered: everything of before is there, or, in memory, nothing.
  absl::Status Begin(Client& client);
  // Clients finish, the server stops as it should, and another one finds what they left.
  absl::Status End();
  absl::Status StopCleanly();
  void Kill();

  const ServerOptions options_;
  std::mt19937_64* const random_;
  Ledger* const ledger_;
  ServerProcess server_;
  std::unique_ptr<Trainers> trainers_;
  int64_t kills_ = 0;            // under load
  int64_t kills_in_flight_ = 0;  // of those, with steps on their way
  int64_t early_kills_ = 0;      // while it started
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_SERVER_ROUNDS_H_
