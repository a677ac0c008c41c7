#include "tests/bench/store/database.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "kernels/base/strings.h"
#include "server/session/postgres/postgres_table.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/bench/or_die.h"
#include "tests/support/environment.h"

namespace normd::bench {

namespace {

std::string PostgresUrl() { return std::string(Environment("NORMD_TEST_POSTGRES")); }

class SqliteDatabase : public Database {
 public:
  explicit SqliteDatabase(Durability durability)
      : Database(durability), folder_(std::filesystem::temp_directory_path() / "store-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) Die("cannot make " + folder_);
  }
  ~SqliteDatabase() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionTable> OpenTable(bool read_only) const override {
    return OrDie(SqliteTable::Open({.path = Path(), .durability = durability_, .read_only = read_only}));
  }
  std::vector<std::unique_ptr<BareLoop>> OpenBare(BareRows* rows) const override {
    std::vector<std::unique_ptr<BareLoop>> loops;
    loops.push_back(OpenBareSqlite(Path(), durability_, rows));
    return loops;
  }
  int64_t FileBytes() const override {
    int64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      bytes += static_cast<int64_t>(file.file_size());
    }
    return bytes;
  }

 private:
  std::string Path() const { return folder_ + "/" + kSqliteFileName; }
  std::string folder_;
};

class PostgresDatabase : public Database {
 public:
  explicit PostgresDatabase(Durability durability)
      : Database(durability),
        schema_(Concat("bench_", getpid(), "_", absl::ToUnixNanos(absl::Now()))),
        url_(Concat(PostgresUrl(), absl::StrContains(PostgresUrl(), "?") ? "&" : "?", "options=-csearch_path%3D",
                    schema_)) {
    Query("CREATE SCHEMA " + schema_);
  }
  ~PostgresDatabase() override { Query("SET client_min_messages = warning; DROP SCHEMA " + schema_ + " CASCADE"); }

  std::unique_ptr<SessionTable> OpenTable(bool /*read_only*/) const override {
    PostgresOptions options;
    options.url = url_;
    options.durability = durability_;
    return OrDie(PostgresTable::Open(options));
  }
  std::vector<std::unique_ptr<BareLoop>> OpenBare(BareRows* rows) const override {
    std::vector<std::unique_ptr<BareLoop>> loops;
    loops.push_back(OpenBarePostgres(url_, durability_, rows));
    loops.push_back(OpenBatchedPostgres(url_, durability_, rows));
    return loops;
  }

  // The first value of the answer; empty where there is none.
  static std::string Query(const std::string& sql) {
    PGconn* const connection = PQconnectdb(PostgresUrl().c_str());
    PGresult* const result = PQexec(connection, sql.c_str());
    const ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) Die(PQerrorMessage(connection));
    const std::string value = status == PGRES_TUPLES_OK ? PQgetvalue(result, 0, 0) : "";
    PQclear(result);
    PQfinish(connection);
    return value;
  }

 private:
  const std::string schema_, url_;
};

}  // namespace

std::unique_ptr<DurableStore> Database::OpenStore(DurableStoreOptions options, Clock* clock) const {
  options.durability = durability_;
  StoreTables tables;
  tables.writer = OpenTable(false);  // first: it makes what the others read
  tables.reader = OpenTable(true);
  tables.lister = OpenTable(true);
  return OrDie(DurableStore::Open(std::move(options), std::move(tables), clock));
}

std::unique_ptr<Database> MakeSqlite(Durability durability) { return std::make_unique<SqliteDatabase>(durability); }

std::unique_ptr<Database> MakePostgres(Durability durability) { return std::make_unique<PostgresDatabase>(durability); }

std::string PostgresText() {
  return PostgresUrl().empty() ? "none" : "PostgreSQL " + PostgresDatabase::Query("SHOW server_version");
}

}  // namespace normd::bench
