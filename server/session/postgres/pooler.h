// Tells a pooler between this server and PostgreSQL (PgBouncer, pgcat, Odyssey and others) that lends a connection for
// one transaction from one that lends it for the whole session. The former cannot be served: settings and prepared
// statements of a session would be left on connections that other programs use next. Looks before anything is set, so
// that nothing is left behind.
// In the path: PostgresConnection asks on each connect. Threads: as libpq's, one at a time.
#ifndef NORMD_SERVER_SESSION_POSTGRES_POOLER_H_
#define NORMD_SERVER_SESSION_POSTGRES_POOLER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

// What to do about a pooler that lends connections for one transaction.
absl::Status TransactionPoolingError();

// Whether two connections share backends, which they do only behind a pooler that lends them for one transaction. `one`
// and `other` are the process ids of the backends that served the transactions of each, in turn.
bool ShareBackends(const std::vector<int64_t>& one, const std::vector<int64_t>& other);

// Runs transactions on two connections in turn; each function runs one and returns the process id of its backend.
using BackendPid = absl::FunctionRef<absl::StatusOr<int64_t>()>;
absl::Status CheckPooling(BackendPid one, BackendPid other);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_POSTGRES_POOLER_H_
