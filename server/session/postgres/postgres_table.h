// The SessionTable that replicas share: tables in PostgreSQL 15. `sessions` has the columns that are listed and seldom
// written, `states` those that every step writes, `clients` the step ids of sessions with many clients. Their names are
// unqualified: search_path, which the URL's options may set, chooses the schema. A pooler that hands out server
// connections by transaction does not work, because settings and prepared statements belong to the connection.
// In the path: DurableStore's threads. A connection that is lost fails the call that was using it; the next call makes
// a new one.
// Threads: one at a time.
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
  // The fence: a replica that is stopped or cut off inside a transaction loses the transaction and its row locks after
  // this long. A late write of it matches no row that others have changed since, because the revision differs.
  absl::Duration idle_in_transaction_session_timeout = absl::Seconds(5);
  std::function<void(std::string_view)> log;  // full messages of libpq and the server, for the operator; may be null
  std::function<void(absl::Time)> on_time;    // given the server's time at the start and with every sweep; may be null
};

// The schema that this server writes. Older ones are migrated forward when a table is opened.
inline constexpr int kPostgresSchema = 3;

// Migrates the schema that search_path finds, or creates one, to `version`, in one transaction that only one replica
// runs at a time; does nothing if the schema has that version or a later one. FAILED_PRECONDITION if the schema is
// newer than kPostgresSchema. An error of the migration closes the connection. REQUIRES: 1 <= version <=
// kPostgresSchema, `connection` is connected.
absl::Status MigratePostgres(int version, PostgresConnection* connection);

class PostgresTable : public SessionTable {
 public:
  // Connects and migrates. INVALID_ARGUMENT if the URL is no URL of PostgreSQL. FAILED_PRECONDITION for a newer schema,
  // or a database whose encoding cannot hold every label. UNAVAILABLE if the server cannot be reached or is a standby.
  static absl::StatusOr<std::unique_ptr<PostgresTable>> Open(const PostgresOptions& options);

  bool shared() const override { return true; }
  absl::StatusOr<int64_t> Connect() override;
  absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) override;
  absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) override;
  absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) override;
  absl::StatusOr<TableTotals> Totals() override;
  using SessionTable::Write;
  // Locks rows in the order of ids, so that replicas wait for each other but never in a circle. Tries nothing again.
  // UNAVAILABLE after a lost connection: the changes may have been made.
  absl::StatusOr<Versions> Write(NextPart next) override;
  bool failed() const override { return false; }  // a failed flush ends PostgreSQL, which comes back consistent

 private:
  explicit PostgresTable(PostgresConnectionOptions options) : connection_(std::move(options)) {}

  absl::Status TellTime();

  PostgresConnection connection_;
  std::function<void(absl::Time)> on_time_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_POSTGRES_POSTGRES_TABLE_H_
