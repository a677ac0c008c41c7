// Servers whose own clocks differ, over one PostgreSQL.
#include <memory>

#include "gtest/gtest.h"
#include "server/wiring/make_store.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/postgres_fixture.h"
#include "tests/server/wiring/small_store_config.h"

namespace normd {
namespace {

using OpenSharedStoreTest = PostgresTest;

// A server that is a day ahead would delete whatever the others have just made.
TEST_F(OpenSharedStoreTest, SessionsEndByTheDatabasesClock) {
  Config config = SmallStoreConfig();
  config.session_store = url_;
  session_test::ManualClock behind, ahead;
  ahead.Advance(absl::Hours(24 * 365 * 10));
  const auto first = OpenSessionStore(config, {}, &behind);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = OpenSessionStore(config, {}, &ahead);
  ASSERT_TRUE(second.ok()) << second.status();
  Session session = session_test::NewSession("a", session_test::BatchSpec(), 3);
  session.ttl = absl::Minutes(5);
  ASSERT_TRUE(session_test::Create(**first, session).ok());
  EXPECT_TRUE(session_test::Get(**second, "a").ok());
  session.id = "b";
  ASSERT_TRUE(session_test::Create(**second, session).ok());
  EXPECT_TRUE(session_test::Get(**first, "b").ok());
  const absl::StatusOr<ListPage> page = session_test::ListOf(**second, {});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->sessions.size(), 2);
}

}  // namespace
}  // namespace normd
