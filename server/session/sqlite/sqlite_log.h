// Reads SQLite's write-ahead log before SQLite does, to find lost commits: SQLite takes the log as far as its checksums
// fit and silently drops the rest. Format: https://www.sqlite.org/fileformat2.html#walformat
// In the path: called when an SQLite store is opened. Only reads the file; safe from any thread.
#ifndef NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_
#define NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_

#include <cstdint>
#include <string>

namespace normd {

struct SqliteLogTail {
  int64_t frames = 0;        // frames whose checksums fit
  int64_t lost_commits = 0;  // commits of the same log behind them; one may be a transaction that was cut short
};

// All zero if the file does not exist or is no log.
SqliteLogTail ReadSqliteLog(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_
