// Kills and restarts the PostgreSQL of a run through tests/support/postgres.sh. Threads: the main thread's.
#ifndef NORMD_TESTS_CRASH_POSTGRES_CONTROL_H_
#define NORMD_TESTS_CRASH_POSTGRES_CONTROL_H_

#include <string>

#include "absl/status/status.h"

namespace normd::crash {

struct PostgresControl {
  std::string script;  // tests/support/postgres.sh
  std::string folder;  // of the cluster

  // kill -9 of it and its children, then a start; it has recovered when this returns. Nobody else is told.
  absl::Status CrashAndRestart() const;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_POSTGRES_CONTROL_H_
