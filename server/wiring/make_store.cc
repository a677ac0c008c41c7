#include "server/wiring/make_store.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/durable/durable_store.h"
#include "server/session/memory/memory_store.h"
#include "server/session/postgres/database_clock.h"
#include "server/session/postgres/postgres_table.h"
#include "server/session/sqlite/sqlite_table.h"
#include "server/wiring/store_copies.h"

namespace normd {
namespace {

// Whether the folder's files are in memory, and gone with the machine's power.
bool IsInMemory(const std::string& folder) {
  struct statfs info = {};
  return statfs(folder.c_str(), &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

// The durability that the store has. REQUIRES: the folder of the sqlite store exists.
Durability DurabilityOf(const Config& config) {
  const bool in_memory = config.StoreKind() == "sqlite" && IsInMemory(config.data_dir);
  return config.durability == "process" || in_memory ? Durability::kProcess : Durability::kPower;
}

std::string SqlitePath(const Config& config) { return absl::StrCat(config.data_dir, "/", kSqliteFileName); }

// Makes the folder; the process's umask keeps other users out of it.
absl::Status MakeDataDir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--data_dir: cannot make ", path, ": ", error.message()));
}

absl::Status StoreFileError(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("session store ", path, ": ", what));
}

// Explains errors of the store's files for which SQLite has only numbers. Files that are not there are made.
absl::Status CheckSqliteFiles(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    const std::string file = path + suffix;
    struct stat info = {};
    if (stat(file.c_str(), &info) != 0) {
      if (errno == ENOENT) continue;
      return StoreFileError(file, absl::StrCat("cannot be looked at: ", std::system_category().message(errno)));
    }
    if (S_ISDIR(info.st_mode)) return StoreFileError(file, "is a folder; it must be a file, or not be there");
    if (!S_ISREG(info.st_mode)) return StoreFileError(file, "is no regular file; it must be one, or not be there");
    if (access(file.c_str(), R_OK | W_OK) != 0) {
      return StoreFileError(file, absl::StrCat("cannot be read and written by uid ", static_cast<int64_t>(geteuid()),
                                               ": ", std::system_category().message(errno)));
    }
  }
  return absl::OkStatus();
}

// Adds the file and a remedy to the error, because the operator of a server that does not start has only its log.
absl::Status ExplainSqlite(const std::string& path, const absl::Status& status) {
  // SQLite needs about this much to start: a log, its index and a page or two.
  constexpr uint64_t kRoomToStartBytes = uint64_t{1} << 20;
  if (status.ok() || absl::IsFailedPrecondition(status)) return status;
  std::string text = absl::StrCat("session store ", path, ": ", status.message());
  struct statvfs disk = {};
  const std::string folder = std::filesystem::path(path).parent_path();
  const bool known = statvfs(folder.c_str(), &disk) == 0;
  const uint64_t left = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (absl::IsDataLoss(status)) {
    absl::StrAppend(&text, "; the file is damaged or none of normd's: put a backup in its place (--restore)");
  } else if (known && left < kRoomToStartBytes) {
    absl::StrAppend(&text, "; the disk of ", folder, " has ", left, " bytes left, and SQLite needs some to start");
  }
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
  NORMD_RETURN_IF_ERROR(CheckRestored(SqlitePath(config)));
  NORMD_RETURN_IF_ERROR(CheckSqliteFiles(SqlitePath(config)));
  if (config.durability == "power" && IsInMemory(config.data_dir) && observer.on_warning != nullptr) {
    observer.on_warning(absl::StrCat(config.data_dir,
                                     " is in memory (tmpfs): sessions survive a crash of normd there, "
                                     "but no power loss and no restart of the machine"));
  }
  absl::StatusOr<StoreTables> tables = OpenSqliteTables(config, observer);
  if (!tables.ok()) return ExplainSqlite(SqlitePath(config), tables.status());
  return tables;
}

absl::StatusOr<StoreTables> OpenPostgres(const Config& config, const StoreObserver& observer, DatabaseClock* clock) {
  PostgresOptions options;
  options.url = config.session_store;
  options.durability = DurabilityOf(config);
  // What PostgreSQL said last is the cause where the server does not start.
  const auto cause = std::make_shared<std::string>();
  options.log = [cause, log = observer.on_message](std::string_view text) {
    *cause = text;
    if (log != nullptr) log(text);
  };
  options.on_time = [clock](absl::Time now) { clock->Set(now); };
  StoreTables tables;
  absl::StatusOr<std::unique_ptr<PostgresTable>> writer = PostgresTable::Open(options);
  if (absl::IsUnavailable(writer.status()) && !cause->empty()) {
    return absl::Status(writer.status().code(),
                        absl::StrCat(writer.status().message(), ": ", absl::StrReplaceAll(*cause, {{"\n", " "}})));
  }
  NORMD_ASSIGN_OR_RETURN(tables.writer, std::move(writer));
  options.log = observer.on_message;
  NORMD_ASSIGN_OR_RETURN(tables.reader, PostgresTable::Open(options));
  NORMD_ASSIGN_OR_RETURN(tables.lister, PostgresTable::Open(options));
  return tables;
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

}  // namespace normd
