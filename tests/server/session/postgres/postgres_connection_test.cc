// PostgresConnection: losses, silence and errors. Most need a server: see postgres_fixture.h.
#include "server/session/postgres/postgres_connection.h"

#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/session/postgres_fixture.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using PostgresConnectionTest = PostgresTest;

TEST(PostgresErrorTest, AServerThatIsAwayIsNotTriedAllTheTime) {
  int tries = 0;
  PostgresConnectionOptions options = {.url = "postgresql:///?host=/nowhere"};
  options.log = [&](std::string_view) { ++tries; };
  PostgresConnection away(options);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(away.Connect().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(tries, 1);
  absl::SleepFor(absl::Milliseconds(250));
  EXPECT_EQ(away.Connect().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(tries, 2);
}

TEST_F(PostgresConnectionTest, ASilentServerIsGivenUp) {
  PostgresConnection connection({.url = url_, .silence_limit = absl::Milliseconds(200)});
  ASSERT_TRUE(connection.Connect().ok());
  EXPECT_EQ(connection.Execute("SELECT pg_sleep(2)").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(connection.Connect().ok());
  EXPECT_TRUE(connection.Execute("SELECT 1").ok());
}

TEST(PostgresErrorTest, MapsSqlstatesToStatusCodes) {
  EXPECT_EQ(PostgresError("53100").code(), absl::StatusCode::kResourceExhausted);
  for (const char* state :
       {"40001", "40P01", "57014", "55P03", "57P01", "57P03", "08006", "25P03", "53300", "58030", ""}) {
    EXPECT_EQ(PostgresError(state).code(), absl::StatusCode::kUnavailable) << state;
  }
  for (const char* state : {"XX001", "XX002"}) EXPECT_EQ(PostgresError(state).code(), absl::StatusCode::kDataLoss);
  for (const char* state : {"42P01", "XX000", "22021", "08P01", "23505"}) {
    EXPECT_EQ(PostgresError(state).code(), absl::StatusCode::kInternal) << state;
    EXPECT_THAT(PostgresError(state).message(), HasSubstr(state));
  }
}

}  // namespace
}  // namespace normd
