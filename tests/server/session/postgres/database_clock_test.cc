#include "server/session/postgres/database_clock.h"

#include "gtest/gtest.h"

namespace normd {
namespace {

TEST(DatabaseClockTest, ContinuesFromTheDatabasesTime) {
  DatabaseClock clock;
  const absl::Time said = absl::FromUnixSeconds(1'000'000);  // far from this machine's clock
  clock.Set(said);
  const absl::Time first = clock.Now();
  EXPECT_GE(first, said);
  EXPECT_LT(first, said + absl::Minutes(1));
  EXPECT_GE(clock.Now(), first);
  clock.Set(said - absl::Hours(1));
  EXPECT_LT(clock.Now(), said) << "the database decides";
}

}  // namespace
}  // namespace normd
