// The SessionTable that replicas share: tables in PostgreSQL 15. `sessions` has what is listed and seldom written,
// `states` what every step writes, `clients` the step ids of sessions with many clients. Their names are unqualified:
// search_path, which the URL's options may set, chooses the schema. Not for a pooler that hands out server connections
// by transaction: settings and prepared statements belong to the connection. In the path: DurableStore's threads. A
// lost connection fails the call that finds it lost while working, and the next call makes a new one. Threads: one at a
// time.
#ifndef NORMD_SERVER_SESSION_POSTGRES_POSTGRES_TABLE_H_
#define NORMD_SERVER_SESSION_POSTGRES_POSTGRES_TABLE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/session/postgres/postgres_connection.h"
#include "server/session/session_table.h"

namespace normd {

struct PostgresOptions {
  std::string url;  // postgresql://... or "host=... dbname=..."
  // kPower: synchronous_commit on (or the server's stronger remote_apply); less: off.
  Durability durability = Durability::kPower;
  absl::Duration statement_timeout = absl::Seconds(10);
  absl::Duration lock_timeout = absl::Seconds(5);
  // The fence: a replica that is stopped or cut off inside a transaction loses it, and its row locks, after this long;
  // its versions make a late write match nothing.
  absl::Duration idle_in_transaction_session_timeout = absl::Seconds(5);
  std::function<void(std::string_view)> log;  // full messages of libpq and the server, for the operator; may be null
  std::function<void(absl::Time)> on_time;    // told the server's time, at the start and with every sweep; may be null
};

// The schema that this server writes. Older ones are migrated forward when a table is opened.
inline constexpr int kPostgresSchema = 3;

// Makes the schema that search_path finds or begins with a `version`, in one transaction that only one replica is in at
// a time; does nothing if it is that already. FAILED_PRECONDITION: it is newer. REQUIRES: 1 <= version <=
// kPostgresSchema, `connection` is connected. An error closes the connection.
absl::Status MigratePostgres(int version, PostgresConnection* connection);

class PostgresTable : public SessionTable {
 public:
  // Connects and migrates. INVALID_ARGUMENT: not a URL. FAILED_PRECONDITION: a newer schema, or a database whose
  // encoding cannot hold every label. UNAVAILABLE: cannot be reached, or is a standby.
  static absl::StatusOr<std::unique_ptr<PostgresTable>> Open(const PostgresOptions& options);

  bool shared() const override { return true; }
  absl::StatusOr<int64_t> Connect() override;
  absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) override;
  absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) override;
  absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) override;
  absl::StatusOr<TableTotals> Totals() override;
  // Rows are locked in the order of ids, so that replicas wait for each other but never in a circle. Nothing is tried
  // again. UNAVAILABLE after a lost connection: the changes may have been made.
  absl::StatusOr<std::vector<std::optional<RowVersion>>> Write(absl::Span<const RowChange> changes) override;
  bool failed() const override { return false; }  // a failed flush ends the server, which comes back consistent

 private:
  explicit PostgresTable(PostgresConnectionOptions options) : connection_(std::move(options)) {}

  absl::Status TellTime();

  PostgresConnection connection_;
  std::function<void(absl::Time)> on_time_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_POSTGRES_POSTGRES_TABLE_H_
