#include "tests/server/session/store_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "libpq-fe.h"
#include "server/session/memory/memory_store.h"
#include "server/session/postgres/postgres_table.h"
#include "server/session/sqlite/sqlite.h"
#include "server/session/sqlite/sqlite_table.h"

namespace normd::session_test {

namespace {

// Nothing in a test makes sense without its store.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::abort();
  }
  return *std::move(result);
}

std::unique_ptr<SessionStore> OpenOn(StoreTables tables, DurableStoreOptions options, Clock* clock,
                                     const StoreFixture::Wrap& wrap) {
  if (wrap != nullptr) tables.writer = wrap(std::move(tables.writer));
  return OrDie(DurableStore::Open(std::move(options), std::move(tables), clock));
}

class MemoryFixture : public StoreFixture {
 public:
  std::unique_ptr<SessionStore> Open(DurableStoreOptions options, Clock* clock, const Wrap& /*wrap*/) override {
    return std::make_unique<MemoryStore>(options.limits, clock);
  }
  void Execute(const std::string& /*sql*/) override {}
  std::vector<std::string> Options() const override { return {"--session_store=memory"}; }
};

class SqliteFixture : public StoreFixture {
 public:
  SqliteFixture() {
    char name[] = "/tmp/normd-store-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~SqliteFixture() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open(DurableStoreOptions options, Clock* clock, const Wrap& wrap) override {
    std::unique_ptr<SqliteTable> writer = OrDie(SqliteTable::Open({.path = Path(), .durability = options.durability}));
    StoreTables tables;
    tables.reader = OrDie(writer->OpenReader());
    tables.lister = OrDie(writer->OpenReader());
    tables.writer = std::move(writer);
    return OpenOn(std::move(tables), std::move(options), clock, wrap);
  }
  void Execute(const std::string& sql) override {
    const absl::Status status = OrDie(SqliteConnection::Open(Path(), /*read_only=*/false, ""))->Execute(sql);
    EXPECT_TRUE(status.ok()) << status;
  }
  std::vector<std::string> Options() const override { return {"--session_store=sqlite", "--data_dir=" + folder_}; }

 private:
  std::string Path() const { return folder_ + "/" + kSqliteFileName; }
  std::string folder_;
};

class PostgresFixture : public StoreFixture {
 public:
  explicit PostgresFixture(std::string url) : server_(std::move(url)) {
    static std::atomic<int> count{0};
    schema_ = "test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
    Run(server_, "CREATE SCHEMA " + schema_);
    const char separator = server_.find('?') == std::string::npos ? '?' : '&';
    url_ = server_ + separator + "options=-csearch_path%3D" + schema_;
  }
  ~PostgresFixture() override { Run(server_, "DROP SCHEMA " + schema_ + " CASCADE"); }

  std::unique_ptr<SessionStore> Open(DurableStoreOptions options, Clock* clock, const Wrap& wrap) override {
    PostgresOptions table;
    table.url = url_;
    table.durability = options.durability;
    StoreTables tables;
    for (auto* connection : {&tables.writer, &tables.reader, &tables.lister}) {
      *connection = OrDie(PostgresTable::Open(table));
    }
    return OpenOn(std::move(tables), std::move(options), clock, wrap);
  }
  void Execute(const std::string& sql) override { Run(url_, sql); }
  std::vector<std::string> Options() const override { return {"--session_store=" + url_}; }

 private:
  static void Run(const std::string& url, const std::string& sql) {
    PGconn* const connection = PQconnectdb(url.c_str());
    PGresult* const result = PQexec(connection, ("SET client_min_messages = warning; " + sql).c_str());
    EXPECT_EQ(PQresultStatus(result), PGRES_COMMAND_OK) << PQerrorMessage(connection);
    PQclear(result);
    PQfinish(connection);
  }

  const std::string server_;
  std::string schema_, url_;
};

}  // namespace

void PrintTo(StoreKind kind, std::ostream* out) {
  constexpr const char* kNames[] = {"memory", "sqlite", "postgres"};
  *out << kNames[static_cast<size_t>(kind)];
}

std::string StoreKindName(const ::testing::TestParamInfo<StoreKind>& info) {
  return ::testing::PrintToString(info.param);
}

std::unique_ptr<StoreFixture> StoreFixture::Make(StoreKind kind) {
  if (kind == StoreKind::kMemory) return std::make_unique<MemoryFixture>();
  if (kind == StoreKind::kSqlite) return std::make_unique<SqliteFixture>();
  const char* const url = getenv("NORMD_TEST_POSTGRES");
  if (url == nullptr || *url == '\0') return nullptr;
  return std::make_unique<PostgresFixture>(url);
}

}  // namespace normd::session_test
