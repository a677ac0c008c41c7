#include "server/security/content_memory.h"

#include <gtest/gtest.h>

#include "tests/server/security/fake_settling.h"

namespace normd {
namespace {

TEST(ContentMemory, SeesWhenAContentHasSettled) {
  ContentMemory memory;
  absl::Time now = absl::UnixEpoch();
  EXPECT_FALSE(memory.See("", now)) << "nothing was read before";
  EXPECT_FALSE(memory.See("", now + kSettleTime / 2)) << "two threads may look at nearly the same time";
  EXPECT_TRUE(memory.See("", now + kSettleTime));
  now += absl::Seconds(1);
  EXPECT_FALSE(memory.See("half", now));
  EXPECT_FALSE(memory.See("whole", now + kSettleTime));
  EXPECT_TRUE(memory.See("whole", now + 2 * kSettleTime));
  EXPECT_FALSE(memory.See("half", now + 3 * kSettleTime)) << "only the looks right before count";
}

TEST(ContentMemory, KnowsAContentThatKeepsChanging) {
  ContentMemory memory;
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < kMaxUnsettledLooks; ++i) {
    EXPECT_FALSE(memory.KeepsChanging());
    memory.See(std::to_string(i), now);
    memory.See(std::to_string(i), now);  // a look that is too early says nothing
    now += kSettleTime;
  }
  EXPECT_TRUE(memory.KeepsChanging());
  EXPECT_TRUE(memory.See(std::to_string(kMaxUnsettledLooks - 1), now));
  EXPECT_FALSE(memory.KeepsChanging());
}

TEST(ContentMemory, ReportsEachContentOnceUntilItChanges) {
  ContentMemory memory;
  EXPECT_TRUE(memory.Note("bad"));
  EXPECT_FALSE(memory.Note("bad"));
  EXPECT_FALSE(memory.See("good", absl::UnixEpoch())) << "a look alone is no reason to tell anew";
  EXPECT_FALSE(memory.Note("bad"));
  EXPECT_TRUE(memory.Note("good"));
  EXPECT_TRUE(memory.Note("bad"));
}

TEST(LookUntilSettled, LooksAgainAfterAWaitButNotForEver) {
  FakeSettling fake;
  int looks = 0;
  EXPECT_TRUE(LookUntilSettled(fake.settling(), [&looks] { return ++looks == 3; }));
  EXPECT_EQ(fake.slept, 2 * kSettleTime);
  looks = 0;
  EXPECT_FALSE(LookUntilSettled(fake.settling(), [&looks] { return ++looks > kMaxUnsettledLooks; }));
  EXPECT_EQ(looks, kMaxUnsettledLooks);
}

}  // namespace
}  // namespace normd
