#include "server/session/postgres/pooler.h"

#include <algorithm>
#include <functional>

#include "kernels/base/status_macros.h"

namespace normd {
namespace {

// A pool mostly lends the connection that came back last, and then the first two turns show it; a pool that lends them
// in turn changes the backend with each. More turns are for a pool that other programs use meanwhile.
constexpr int kTurns = 8;

}  // namespace

absl::Status TransactionPoolingError() {
  return absl::FailedPreconditionError(
      "session store: --session_store leads to a connection pooler that lends PostgreSQL's connections for one "
      "transaction; it must be PostgreSQL itself or a pool with session pooling (PgBouncer: pool_mode = session)");
}

bool ShareBackends(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  const auto changes = [](const std::vector<int64_t>& pids) {
    return std::adjacent_find(pids.begin(), pids.end(), std::not_equal_to<>()) != pids.end();
  };
  const bool met = std::find_first_of(one.begin(), one.end(), other.begin(), other.end()) != one.end();
  return met || changes(one) || changes(other);
}

absl::Status CheckPooling(BackendPid one, BackendPid other) {
  std::vector<int64_t> ones, others;
  for (int turn = 0; turn < kTurns; ++turn) {
    NORMD_ASSIGN_OR_RETURN(const int64_t first, one());
    NORMD_ASSIGN_OR_RETURN(const int64_t second, other());
    ones.push_back(first);
    others.push_back(second);
    if (ShareBackends(ones, others)) return TransactionPoolingError();
  }
  return absl::OkStatus();
}

}  // namespace normd
