// A place where a session store keeps its rows, for one test: a folder, a schema of a PostgreSQL database, or nothing.
// Stores are opened on it and opened again. PostgreSQL is there when NORMD_TEST_POSTGRES holds the URL of one.
#ifndef NORMD_TESTS_SERVER_SESSION_STORE_FIXTURE_H_
#define NORMD_TESTS_SERVER_SESSION_STORE_FIXTURE_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/session/durable/durable_store.h"

namespace normd::session_test {

enum class StoreKind { kMemory, kSqlite, kPostgres };
inline constexpr StoreKind kAllStoreKinds[] = {StoreKind::kMemory, StoreKind::kSqlite, StoreKind::kPostgres};
inline constexpr StoreKind kDurableStoreKinds[] = {StoreKind::kSqlite, StoreKind::kPostgres};
inline constexpr char kNoPostgres[] =
    "NORMD_TEST_POSTGRES is not set: tests/run.sh starts a PostgreSQL (tests/support/postgres.sh)";

// For GoogleTest, which would print its bytes.
void PrintTo(StoreKind kind, std::ostream* out);
std::string StoreKindName(const ::testing::TestParamInfo<StoreKind>& info);

class StoreFixture {
 public:
  // Null: there is no PostgreSQL to use; the test skips with kNoPostgres.
  static std::unique_ptr<StoreFixture> Make(StoreKind kind);
  virtual ~StoreFixture() = default;

  // Puts something of a test's between a store and the table that it writes.
  using Wrap = std::function<std::unique_ptr<SessionTable>(std::unique_ptr<SessionTable>)>;

  // Opens a store; aborts the test program when it cannot. A memory store takes only the limits of `options`.
  virtual std::unique_ptr<SessionStore> Open(DurableStoreOptions options, Clock* clock, const Wrap& wrap = nullptr) = 0;

  // Runs SQL on the rows behind the store's back, to damage them.
  virtual void Execute(const std::string& sql) = 0;

  // --session_store and --data_dir of a normd on the same rows.
  virtual std::vector<std::string> Options() const = 0;
};

}  // namespace normd::session_test

#endif  // NORMD_TESTS_SERVER_SESSION_STORE_FIXTURE_H_
