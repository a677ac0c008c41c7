// Poolers between the store and PostgreSQL. The tests that need a real one: tests/support/pgbouncer.sh.
#include "server/session/postgres/pooler.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/postgres/postgres_connection.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

TEST(PoolerTest, OnlySessionsHaveABackendOfTheirOwn) {
  EXPECT_FALSE(ShareBackends({1, 1, 1}, {2, 2, 2}));
  EXPECT_TRUE(ShareBackends({1}, {1}));
  EXPECT_TRUE(ShareBackends({1, 3}, {2, 2}));  // lent in turn
  EXPECT_TRUE(ShareBackends({1, 1}, {2, 4}));
  int64_t next = 0;
  const auto own = [](int64_t pid) { return [pid]() -> absl::StatusOr<int64_t> { return pid; }; };
  EXPECT_TRUE(CheckPooling(own(1), own(2)).ok());
  const auto in_turn = [&next]() -> absl::StatusOr<int64_t> { return 100 + next++ % 20; };
  EXPECT_EQ(CheckPooling(in_turn, in_turn).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckPooling(own(1), []() -> absl::StatusOr<int64_t> { return absl::UnavailableError("gone"); }).code(),
            absl::StatusCode::kUnavailable);
}

TEST(PoolerTest, AStatementThatIsNotThereOrThereAlreadyIsAPoolersDoing) {
  for (const char* state : {"26000", "42P05"}) {
    EXPECT_EQ(PostgresError(state).code(), absl::StatusCode::kFailedPrecondition) << state;
    EXPECT_THAT(PostgresError(state).message(), HasSubstr("pool_mode = session")) << state;
  }
}

// What another program finds in the session that PgBouncer's pool `pool` lends it.
struct Found {
  std::string read_only;
  std::string statements;

  bool operator==(const Found&) const = default;
};

// A PgBouncer before the cluster of tests/support/postgres.sh, for one test.
class PgBouncerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const postgres = std::getenv("NORMD_TEST_POSTGRES");
    if (postgres == nullptr) {
      GTEST_SKIP() << "NORMD_TEST_POSTGRES is not set: start one with tests/support/postgres.sh";
    }
    const std::string url = postgres;
    const size_t host = url.find("host=") + 5, end = url.find("/socket", host);
    ASSERT_NE(end, std::string::npos) << url << " is none of tests/support/postgres.sh";
    char folder[] = "/tmp/normd-pooler-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    ASSERT_EQ(chmod(folder, 0711), 0);  // the pooler runs as a user without rights
    folder_ = folder;
    url_ = Run("start " + folder_ + "/pool " + url.substr(host, end - host));
    ASSERT_TRUE(url_.starts_with("postgresql://")) << "tests/support/pgbouncer.sh printed: " << url_;
  }

  void TearDown() override {
    if (folder_.empty()) return;
    Run("stop " + folder_ + "/pool");
    std::filesystem::remove_all(folder_);
  }

  // What tests/support/pgbouncer.sh prints, without the end of the line.
  static std::string Run(const std::string& arguments) {
    FILE* const output = popen((NORMD_SOURCE_DIR "/tests/support/pgbouncer.sh " + arguments).c_str(), "r");
    std::string text;
    for (int c = 0; (c = std::fgetc(output)) != EOF && c != '\n';) text.push_back(static_cast<char>(c));
    pclose(output);
    return text;
  }

  std::string UrlOf(const std::string& pool) const {
    std::string url = url_;
    return url.insert(url.find("///") + 3, pool);
  }

  Found Look(const std::string& pool) const {
    PGconn* const connection = PQconnectdb(UrlOf(pool).c_str());
    const auto ask = [connection](const char* sql) {
      PGresult* const result = PQexec(connection, sql);
      std::string answer = PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : PQerrorMessage(connection);
      PQclear(result);
      return answer;
    };
    const Found found = {ask("SHOW default_transaction_read_only"), ask("SELECT count(*) FROM pg_prepared_statements")};
    PQfinish(connection);
    return found;
  }

  std::string folder_;
  std::string url_;  // without a database
};

TEST_F(PgBouncerTest, APoolOfTransactionsIsRefusedAndLeftAsItWas) {
  for (const std::string pool : {"transaction", "transaction20", "statement"}) {
    PostgresConnection connection({.url = UrlOf(pool)});
    const absl::Status status = connection.Connect();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << pool;
    EXPECT_THAT(status.message(), HasSubstr("--session_store leads to a connection pooler")) << pool;
    EXPECT_EQ(Look(pool), (Found{"off", "0"})) << pool;
  }
}

// The pool does not reset a session that has ended (server_reset_query is empty).
TEST_F(PgBouncerTest, APoolOfSessionsServesAndGetsThemBackAsTheyWere) {
  {
    PostgresConnection connection({.url = UrlOf("session")});
    ASSERT_TRUE(connection.Connect().ok());
    const absl::StatusOr<PostgresResult> read_only = connection.Execute("SHOW default_transaction_read_only");
    ASSERT_TRUE(read_only.ok()) << read_only.status();
    EXPECT_EQ(read_only->Bytes(0, 0), "on");
  }
  EXPECT_EQ(Look("session"), (Found{"off", "0"}));
}

}  // namespace
}  // namespace normd
