#include "server/base/clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "server/base/steady_time.h"

namespace normd {
namespace {

TEST(SystemClock, IsTheWallClock) {
  SystemClock clock;
  const absl::Time before = absl::Now();
  const absl::Time now = clock.Now();
  EXPECT_GE(now, before);
  EXPECT_LE(now, absl::Now());
}

TEST(SteadyClock, IsTheSteadyOne) {
  SteadyClock clock;
  const absl::Time before = SteadyNow();
  const absl::Time now = clock.Now();
  EXPECT_GE(now, before);
  EXPECT_LE(now, SteadyNow());
}

}  // namespace
}  // namespace normd
