// Copies of the sqlite store: --backup makes one while a server runs, --restore puts one in the store's place.
// In the path: beside it; main runs both, and no server is in this process. Threads: called from one thread.
#ifndef NORMD_SERVER_WIRING_STORE_COPIES_H_
#define NORMD_SERVER_WIRING_STORE_COPIES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/options/config.h"

namespace normd {

// Copies the sqlite store of `config` into the new file config.backup and checks every record of the copy. Returns the
// number of records, or DATA_LOSS naming the number of damaged ones; the copy is kept in either case.
absl::StatusOr<int64_t> BackupSessionStore(const Config& config);

// What a restore has done.
struct RestoredStore {
  int64_t records = 0;
  std::string before;  // where the files of the store before are now; empty: there were none
};

// Makes the backup config.restore the sqlite store of `config`, after every record of it was checked. The files of the
// store before are kept under another name, which `now` is part of. A restore that is cut short leaves either the store
// before, or one that CheckRestored refuses until a restore is done. FAILED_PRECONDITION if a server has the store or
// the file is no backup, DATA_LOSS if it is damaged; then nothing was changed.
absl::StatusOr<RestoredStore> RestoreSessionStore(const Config& config, absl::Time now);

// FAILED_PRECONDITION if a restore of the store at `path` was cut short.
absl::Status CheckRestored(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_STORE_COPIES_H_
