#include "server/base/periodic_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace normd {
namespace {

TEST(PeriodicThreadTest, RunsAgainAndAgain) {
  std::atomic<int> runs{0};
  const PeriodicThread thread(absl::Milliseconds(1), [&runs] { ++runs; });
  while (runs < 3) std::this_thread::yield();
}

TEST(PeriodicThreadTest, EndsWithoutWaitingForTheNextRun) {
  std::atomic<int> runs{0};
  {
    const PeriodicThread thread(absl::Hours(24), [&runs] { ++runs; });
  }
  EXPECT_EQ(runs, 0);
}

}  // namespace
}  // namespace normd
