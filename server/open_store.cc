#include "server/open_store.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"
#include "server/session/memory_store.h"
#include "server/session/postgres_table.h"
#include "server/session/record.h"
#include "server/session/sqlite_table.h"

namespace normd {
namespace {

SessionLimits LimitsOf(const Config& config) {
  return {.max_sessions = config.max_sessions,
          .max_parameter_bytes = config.max_parameter_bytes,
          .max_total_bytes = config.max_total_bytes,
          .max_clients = config.max_clients_per_session,
          .replay_window = config.replay_window};
}

Durability DurabilityOf(const Config& config) {
  return config.durability == "process" ? Durability::kProcess : Durability::kPower;
}

std::string SqlitePath(const Config& config) { return absl::StrCat(config.data_dir, "/", kSqliteFileName); }

// The process's umask keeps others out of it.
absl::Status MakeDataDir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--data_dir: cannot make ", path, ": ", error.message()));
}

struct Tables {
  std::unique_ptr<SessionTable> writer, reader;
};

absl::StatusOr<Tables> OpenSqlite(const Config& config) {
  NORMD_RETURN_IF_ERROR(MakeDataDir(config.data_dir));
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteTable> writer,
                         SqliteTable::Open({.path = SqlitePath(config), .durability = DurabilityOf(config)}));
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteTable> reader, writer->OpenReader());
  return Tables{std::move(writer), std::move(reader)};
}

absl::StatusOr<Tables> OpenPostgres(const Config& config, const StoreObserver& observer) {
  PostgresOptions options;
  options.url = config.session_store;
  options.durability = DurabilityOf(config);
  options.log = observer.on_message;
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<PostgresTable> writer, PostgresTable::Open(options));
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<PostgresTable> reader, PostgresTable::Open(options));
  return Tables{std::move(writer), std::move(reader)};
}

// Reads all of a table, a page at a time.
absl::StatusOr<int64_t> CheckRecords(SessionTable* table) {
  int64_t damaged = 0;
  int64_t records = 0;
  ListQuery query = {.page_size = 1000, .after_id = {}, .labels = {}};
  while (true) {
    // Expired ones that are still there are as good as the others.
    NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table->Page(query, absl::UnixEpoch()));
    for (const SessionRow& row : rows) damaged += ParseHalves(row.head, row.state).ok() ? 0 : 1;
    records += static_cast<int64_t>(rows.size());
    if (rows.empty()) break;
    query.after_id = rows.back().id;
  }
  if (damaged > 0) return DataLossError(absl::StrCat(damaged, " of ", records, " records"));
  return records;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> OpenSessionStore(const Config& config, StoreObserver observer,
                                                               Clock* clock) {
  const std::string_view kind = config.StoreKind();
  if (kind == "memory") return std::make_unique<MemoryStore>(LimitsOf(config), clock);
  NORMD_ASSIGN_OR_RETURN(Tables tables, kind == "sqlite" ? OpenSqlite(config) : OpenPostgres(config, observer));
  DurableStoreOptions options;
  options.durability = DurabilityOf(config);
  options.limits = LimitsOf(config);
  options.max_resident_bytes = config.max_resident_bytes;
  options.idle_timeout = config.session_idle;
  options.observer = std::move(observer);
  return DurableStore::Open(std::move(options), std::move(tables.writer), std::move(tables.reader), clock);
}

absl::StatusOr<int64_t> BackupSessionStore(const Config& config) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteTable> table,
                         SqliteTable::Open({.path = SqlitePath(config), .read_only = true}));
  NORMD_RETURN_IF_ERROR(table->BackupTo(config.backup));
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteTable> copy,
                         SqliteTable::Open({.path = config.backup, .read_only = true}));
  return CheckRecords(copy.get());
}

}  // namespace normd
