// Reads SQLite's write-ahead log before SQLite does, to see what SQLite does not say: it takes the log as far as its
// checksums fit and silently drops what stands behind. Format: https://www.sqlite.org/fileformat2.html#walformat
// In the path: when an SQLite store is opened. Pure but for reading the file; safe from any thread.
#ifndef NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_
#define NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_

#include <cstdint>
#include <string>

namespace normd {

struct SqliteLogTail {
  int64_t frames = 0;        // whose checksums fit
  int64_t lost_commits = 0;  // commits of the same log behind them; one may be a transaction that was cut short
};

// Of no file or no log: nothing.
SqliteLogTail ReadSqliteLog(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SQLITE_SQLITE_LOG_H_
