#include "server/make_store.h"

#include <sys/statvfs.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/memory/memory_store.h"
#include "server/session/postgres/database_clock.h"
#include "server/session/postgres/postgres_table.h"
#include "server/session/record/record.h"
#include "server/session/sqlite/sqlite_table.h"

namespace normd {
namespace {

Durability DurabilityOf(const Config& config) {
  return config.durability == "process" ? Durability::kProcess : Durability::kPower;
}

std::string SqlitePath(const Config& config) { return absl::StrCat(config.data_dir, "/", kSqliteFileName); }

// Makes the folder; the process's umask keeps other users out of it.
absl::Status MakeDataDir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--data_dir: cannot make ", path, ": ", error.message()));
}

// Adds the file, the free space of its disk and a remedy to the error, because the operator of a server that does not
// start has only its log.
absl::Status ExplainSqlite(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::IsFailedPrecondition(status)) return status;
  struct statvfs disk = {};
  std::string text = absl::StrCat("session store ", path, ": ", status.message());
  if (statvfs(std::filesystem::path(path).parent_path().c_str(), &disk) == 0) {
    absl::StrAppend(&text, "; its disk has ", disk.f_bavail * disk.f_frsize, " bytes left");
  }
  absl::StrAppend(&text, absl::IsDataLoss(status) ? "; the file is damaged: put a backup in its place"
                                                  : "; SQLite needs some room to start");
  return absl::Status(status.code(), text);
}

absl::StatusOr<StoreTables> OpenSqliteTables(const Config& config, const StoreObserver& observer) {
  StoreTables tables;
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteTable> writer,
                         SqliteTable::Open({.path = SqlitePath(config),
                                            .durability = DurabilityOf(config),
                                            .vfs = {},
                                            .warn = observer.on_warning,
                                            .on_checkpoint = observer.on_checkpoint}));
  NORMD_ASSIGN_OR_RETURN(tables.reader, writer->OpenReader());
  NORMD_ASSIGN_OR_RETURN(tables.lister, writer->OpenReader());
  NORMD_ASSIGN_OR_RETURN(tables.checker, writer->OpenReader());
  tables.writer = std::move(writer);
  return tables;
}

absl::StatusOr<StoreTables> OpenSqlite(const Config& config, const StoreObserver& observer) {
  NORMD_RETURN_IF_ERROR(MakeDataDir(config.data_dir));
  absl::StatusOr<StoreTables> tables = OpenSqliteTables(config, observer);
  if (!tables.ok()) return ExplainSqlite(SqlitePath(config), tables.status());
  return tables;
}

absl::StatusOr<StoreTables> OpenPostgres(const Config& config, const StoreObserver& observer, DatabaseClock* clock) {
  PostgresOptions options;
  options.url = config.session_store;
  options.durability = DurabilityOf(config);
  options.log = observer.on_message;
  options.on_time = [clock](absl::Time now) { clock->Set(now); };
  StoreTables tables;
  NORMD_ASSIGN_OR_RETURN(tables.writer, PostgresTable::Open(options));
  NORMD_ASSIGN_OR_RETURN(tables.reader, PostgresTable::Open(options));
  NORMD_ASSIGN_OR_RETURN(tables.lister, PostgresTable::Open(options));
  return tables;
}

// Limit on the bytes of records that are loaded for checking at one time.
constexpr int64_t kMaxCheckedBytes = int64_t{64} << 20;

struct CheckedRecords {
  int64_t records = 0;
  int64_t damaged = 0;
};

// Loads and checks the rows of `ids`, at most kMaxCheckedBytes at a time.
absl::Status CheckRows(SessionTable* table, std::vector<RowRequest> ids, CheckedRecords* checked) {
  while (!ids.empty()) {
    NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table->Load(ids, kMaxCheckedBytes));
    ids.clear();
    for (const SessionRow& row : rows) {
      if (row.left_out) {
        ids.push_back({row.id, {}});
        continue;
      }
      ++checked->records;
      const absl::StatusOr<StoredSession> stored = ParseParts(row.head, row.state, row.clients);
      if (!stored.ok() || stored->published->id != row.id) ++checked->damaged;
    }
  }
  return absl::OkStatus();
}

// Checks every record of a table, page by page, and returns their number.
absl::StatusOr<int64_t> CheckRecords(SessionTable* table) {
  CheckedRecords checked;
  ListQuery query = {.page_size = 1000, .after_id = {}, .labels = {}, .all_tenants = true};
  while (true) {
    // The epoch as the time of the query lets expired sessions that are still stored be checked, too.
    NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table->Page(query, absl::UnixEpoch()));
    if (rows.empty()) break;
    std::vector<RowRequest> ids;
    ids.reserve(rows.size());
    for (const SessionRow& row : rows) ids.push_back({row.id, {}});
    NORMD_RETURN_IF_ERROR(CheckRows(table, std::move(ids), &checked));
    query.after_id = rows.back().id;
  }
  if (checked.damaged > 0) return DataLossError(absl::StrCat(checked.damaged, " of ", checked.records, " records"));
  return checked.records;
}

}  // namespace

SessionLimits LimitsOf(const Config& config, TenantQuotaTable* quotas) {
  // Sessions that cannot leave memory have no more than that.
  const bool in_memory = config.StoreKind() == "memory" && config.max_resident_bytes < config.max_total_bytes;
  return {.max_sessions = config.max_sessions,
          .max_parameter_bytes = config.max_parameter_bytes,
          .max_total_bytes = in_memory ? config.max_resident_bytes : config.max_total_bytes,
          .total_bytes_option = in_memory ? "--max_resident_bytes" : "--max_total_bytes",
          .max_clients = config.max_clients_per_session,
          .replay_window = config.replay_window,
          .quotas = quotas};
}

ResidencyLimits ResidencyOf(const Config& config) {
  return {.max_bytes = config.max_resident_bytes, .idle_timeout = config.session_idle};
}

absl::StatusOr<std::unique_ptr<SessionStore>> OpenSessionStore(const Config& config, StoreObserver observer,
                                                               Clock* clock, TenantQuotaTable* quotas) {
  const std::string_view kind = config.StoreKind();
  if (kind == "memory") return std::make_unique<MemoryStore>(LimitsOf(config, quotas), clock);
  DurableStoreOptions options;
  const bool sqlite = kind == "sqlite";
  const auto shared_clock = std::make_shared<DatabaseClock>();
  NORMD_ASSIGN_OR_RETURN(StoreTables tables,
                         sqlite ? OpenSqlite(config, observer) : OpenPostgres(config, observer, shared_clock.get()));
  if (!sqlite) {
    clock = shared_clock.get();
    options.own_clock = shared_clock;
  }
  options.durability = DurabilityOf(config);
  options.limits = LimitsOf(config, quotas);
  options.residency = ResidencyOf(config);
  options.observer = std::move(observer);
  return DurableStore::Open(std::move(options), std::move(tables), clock);
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
