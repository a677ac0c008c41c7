// Makes the session store that the options ask for: the only place that knows which ones there are.
// In the path: server.cc at the start; main for --backup. Called from one thread.
#ifndef NORMD_SERVER_MAKE_STORE_H_
#define NORMD_SERVER_MAKE_STORE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/config.h"
#include "server/session/durable/durable_store.h"
#include "server/session/session_store.h"

namespace normd {

// Borrows `clock`. Makes data_dir. Errors say what is wrong with the store; none names a password.
absl::StatusOr<std::unique_ptr<SessionStore>> OpenSessionStore(const Config& config, StoreObserver observer,
                                                               Clock* clock);

// Copies the sqlite store of `config` into the new file config.backup and reads every record of the copy. Returns how
// many there are; DATA_LOSS when one is damaged (the copy is kept), naming how many.
absl::StatusOr<int64_t> BackupSessionStore(const Config& config);

}  // namespace normd

#endif  // NORMD_SERVER_MAKE_STORE_H_
