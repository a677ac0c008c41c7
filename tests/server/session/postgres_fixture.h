// A schema of its own for every test on the PostgreSQL server that NORMD_TEST_POSTGRES names, and tables there. Tests
// skip without one.
#ifndef NORMD_TESTS_SERVER_SESSION_POSTGRES_FIXTURE_H_
#define NORMD_TESTS_SERVER_SESSION_POSTGRES_FIXTURE_H_

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "server/session/postgres/postgres_connection.h"
#include "server/session/postgres/postgres_table.h"

namespace normd {

class PostgresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const url = std::getenv("NORMD_TEST_POSTGRES");
    if (url == nullptr) {
      GTEST_SKIP() << "NORMD_TEST_POSTGRES is not set: start one with tests/support/postgres.sh";
    }
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    schema_ = Concat("normd_", getpid(), "_", test.substr(0, 40));
    std::transform(schema_.begin(), schema_.end(), schema_.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string separator = std::string_view(url).find('?') == std::string_view::npos ? "?" : "&";
    url_ = Concat(url, separator, "options=-csearch_path%3D", schema_);
    admin_ = std::make_unique<PostgresConnection>(PostgresConnectionOptions{.url = url_});
    Admin("BEGIN READ WRITE; CREATE SCHEMA " + schema_ + "; COMMIT");
  }

  void TearDown() override {
    if (admin_ == nullptr) return;
    Admin("BEGIN READ WRITE; SET LOCAL client_min_messages = error; DROP SCHEMA " + schema_ + " CASCADE; COMMIT");
  }

  PostgresResult Admin(const std::string& sql) {
    EXPECT_TRUE(admin_->Connect().ok());
    absl::StatusOr<PostgresResult> result = admin_->Execute(sql);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : PostgresResult(nullptr);
  }

  std::string schema_;
  std::string url_;  // with search_path set to schema_
  std::unique_ptr<PostgresConnection> admin_;
};

inline const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

inline RowChange Insert(std::string id, std::string state = "state", std::map<std::string, std::string> labels = {}) {
  const std::string head = "head of " + id;
  return {.kind = RowChange::Kind::kInsert,
          .id = id,
          .head = head,
          .state = state,
          .labels = LabelText(labels),
          .bytes = 10};
}

inline RowChange State(std::string id, RowVersion expected, std::string state) {
  return {.kind = RowChange::Kind::kState, .id = id, .expected = expected, .state = state};
}

inline std::vector<std::string> Ids(const std::vector<SessionRow>& rows) {
  std::vector<std::string> ids;
  for (const SessionRow& row : rows) ids.push_back(row.id);
  return ids;
}

class PostgresTableTest : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    options_.url = url_;
  }

  std::unique_ptr<PostgresTable> Open() {
    absl::StatusOr<std::unique_ptr<PostgresTable>> table = PostgresTable::Open(options_);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *std::move(table) : nullptr;
  }

  static std::vector<std::optional<RowVersion>> Write(PostgresTable& table, const std::vector<RowChange>& changes) {
    absl::StatusOr<std::vector<std::optional<RowVersion>>> versions = table.Write(changes);
    EXPECT_TRUE(versions.ok()) << versions.status();
    return versions.ok() ? *versions : std::vector<std::optional<RowVersion>>(changes.size());
  }

  static SessionRow LoadOne(PostgresTable& table, std::string id, RowVersion known = {}) {
    const std::vector<RowRequest> requests = {{.id = id, .known = known}};
    absl::StatusOr<std::vector<SessionRow>> rows = table.Load(requests, 1 << 30);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() && rows->size() == 1 ? rows->front() : SessionRow();
  }

  static std::vector<std::string> PageIds(PostgresTable& table, const ListQuery& query) {
    absl::StatusOr<std::vector<SessionRow>> rows = table.Page(query, kNow);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? Ids(*rows) : std::vector<std::string>();
  }

  // Ends every backend that works in this test's schema but the one that asks.
  void TerminateBackends() {
    Admin(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        "application_name = '" +
        schema_ + "'");
  }

  PostgresOptions options_;
};

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_SESSION_POSTGRES_FIXTURE_H_
