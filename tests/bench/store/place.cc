#include "tests/bench/store/place.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <utility>

#include "server/session/postgres/postgres_table.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/bench/store/or_die.h"

namespace normd::bench {

namespace {

class SqlitePlace : public Place {
 public:
  SqlitePlace(const std::string& parent, Durability durability) : Place(durability), folder_(parent + "/store-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) Die("cannot make " + folder_);
  }
  ~SqlitePlace() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionTable> OpenWriter() const override {
    return OrDie(SqliteTable::Open({.path = Path(), .durability = durability_}));
  }
  std::unique_ptr<SessionTable> OpenReader() const override {
    return OrDie(SqliteTable::Open({.path = Path(), .durability = durability_, .read_only = true}));
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

class PostgresPlace : public Place {
 public:
  PostgresPlace(std::string server, Durability durability) : Place(durability), server_(std::move(server)) {
    static std::atomic<int> count{0};
    schema_ = "bench_" + std::to_string(getpid()) + "_" + std::to_string(++count);
    Run("CREATE SCHEMA " + schema_);
    const char separator = server_.find('?') == std::string::npos ? '?' : '&';
    url_ = server_ + separator + "options=-csearch_path%3D" + schema_;
  }
  ~PostgresPlace() override { Run("DROP SCHEMA " + schema_ + " CASCADE"); }

  std::unique_ptr<SessionTable> OpenWriter() const override {
    PostgresOptions options;
    options.url = url_;
    options.durability = durability_;
    return OrDie(PostgresTable::Open(options));
  }
  std::unique_ptr<SessionTable> OpenReader() const override { return OpenWriter(); }
  std::vector<std::unique_ptr<BareLoop>> OpenBare(BareRows* rows) const override {
    std::vector<std::unique_ptr<BareLoop>> loops;
    loops.push_back(OpenBarePostgres(url_, durability_, rows));
    loops.push_back(OpenBatchedPostgres(url_, durability_, rows));
    return loops;
  }

 private:
  void Run(const std::string& sql) const {
    PGconn* const connection = PQconnectdb(server_.c_str());
    PGresult* const result = PQexec(connection, ("SET client_min_messages = warning; " + sql).c_str());
    if (PQresultStatus(result) != PGRES_COMMAND_OK) Die(PQerrorMessage(connection));
    PQclear(result);
    PQfinish(connection);
  }

  const std::string server_;
  std::string schema_, url_;
};

}  // namespace

std::unique_ptr<DurableStore> Place::OpenStore(DurableStoreOptions options, Clock* clock) const {
  options.durability = durability_;
  StoreTables tables;
  tables.writer = OpenWriter();  // first: it makes what the others read
  tables.reader = OpenReader();
  tables.lister = OpenReader();
  return OrDie(DurableStore::Open(std::move(options), std::move(tables), clock));
}

std::unique_ptr<Place> MakeSqlitePlace(const std::string& parent, Durability durability) {
  return std::make_unique<SqlitePlace>(parent, durability);
}

std::unique_ptr<Place> MakePostgresPlace(const std::string& url, Durability durability) {
  return std::make_unique<PostgresPlace>(url, durability);
}

std::string PostgresVersion(const std::string& url) {
  PGconn* const connection = PQconnectdb(url.c_str());
  if (PQstatus(connection) != CONNECTION_OK) Die(PQerrorMessage(connection));
  std::string version = std::string("PostgreSQL ") + PQparameterStatus(connection, "server_version");
  PQfinish(connection);
  return version;
}

}  // namespace normd::bench
