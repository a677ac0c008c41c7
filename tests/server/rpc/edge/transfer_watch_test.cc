#include "server/rpc/edge/transfer_watch.h"

#include <optional>

#include "gtest/gtest.h"
#include "tests/support/constants.h"

namespace normd::rpc {
namespace {

constexpr TransferLimits kLimits = {.grace = absl::Seconds(10), .bytes_per_second = kMiB};

TEST(TransferWatchTest, NobodyIsTooSlowWithinTheGrace) {
  EXPECT_FALSE(IsTooSlow(kLimits, absl::Seconds(10), 64 * kMiB, 0));
  EXPECT_FALSE(IsTooSlow(kLimits, absl::Seconds(1), 1, std::nullopt));
}

TEST(TransferWatchTest, AStalledMessageEndsSoonAfterTheGrace) {
  EXPECT_TRUE(IsTooSlow(kLimits, absl::Seconds(10) + absl::Milliseconds(100), 64 * kMiB, 0));
  EXPECT_TRUE(IsTooSlow(kLimits, absl::Seconds(12), 64 * kMiB, kMiB));
}

TEST(TransferWatchTest, AMessageThatIsFastEnoughMayTakeItsTime) {
  EXPECT_FALSE(IsTooSlow(kLimits, absl::Seconds(12), 64 * kMiB, 2 * kMiB));
  EXPECT_FALSE(IsTooSlow(kLimits, absl::Seconds(70), 64 * kMiB, 63 * kMiB));
}

TEST(TransferWatchTest, NoMessageTakesLongerThanAllOfItAtTheLeastSpeed) {
  EXPECT_TRUE(IsTooSlow(kLimits, absl::Seconds(75), 64 * kMiB, 1000 * kMiB));
  EXPECT_FALSE(IsTooSlow(kLimits, absl::Seconds(73), 64 * kMiB, std::nullopt));
  EXPECT_TRUE(IsTooSlow(kLimits, absl::Seconds(75), 64 * kMiB, std::nullopt));
}

}  // namespace
}  // namespace normd::rpc
