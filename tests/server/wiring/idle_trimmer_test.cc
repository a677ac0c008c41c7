#include "server/wiring/idle_trimmer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "absl/base/config.h"
#include "absl/time/clock.h"
#include "server/obs/process.h"
#include "server/process_setup.h"
#include "tests/support/constants.h"

namespace normd {
namespace {

class IdleTrimmerTest : public ::testing::Test {
 protected:
  void LookTimes(int times) {
    for (int i = 0; i < times; ++i) trimmer_.Look();
  }

  int64_t in_flight_ = 0, moved_ = 0, unused_ = 30 * kMiB;
  int64_t after_trim_ = 40 * kMiB;
  int trims_ = 0;
  IdleTrimmer trimmer_{{.in_flight_bytes = [this] { return in_flight_; },
                        .moved_bytes = [this] { return moved_; },
                        .unused_bytes = [this] { return unused_; },
                        .trim =
                            [this] {
                              ++trims_;
                              unused_ = after_trim_;
                            }}};
};

TEST_F(IdleTrimmerTest, TrimsOnceWhenItHasBeenQuiet) {
  moved_ = 1000 * kMiB;
  unused_ = 500 * kMiB;
  LookTimes(1);
  LookTimes(IdleTrimmer::kQuietLooks - 1);
  EXPECT_EQ(trims_, 0);
  LookTimes(1);
  EXPECT_EQ(trims_, 1);
  LookTimes(100);
  EXPECT_EQ(trims_, 1);
}

TEST_F(IdleTrimmerTest, LeavesTheMemoryOfWorkAlone) {
  unused_ = 500 * kMiB;
  for (int i = 0; i < 100; ++i) {
    moved_ += kMiB;
    trimmer_.Look();
  }
  in_flight_ = 64 * kMiB;  // and of a request that takes its time
  LookTimes(100);
  EXPECT_EQ(trims_, 0);
}

TEST_F(IdleTrimmerTest, SmallCallsDoNotKeepTheMemoryOfABurst) {
  unused_ = 500 * kMiB;
  for (int i = 0; i < 100; ++i) {
    moved_ += 10000;
    in_flight_ = 500;
    trimmer_.Look();
  }
  EXPECT_EQ(trims_, 1);
}

TEST_F(IdleTrimmerTest, DoesNotTryAgainWithoutHope) {
  unused_ = after_trim_ = 500 * kMiB;  // in pieces between blocks that are in use
  LookTimes(100);
  EXPECT_EQ(trims_, 1);
  unused_ += 20 * kMiB;
  LookTimes(100);
  EXPECT_EQ(trims_, 1) << "little is left alone";
  unused_ += 20 * kMiB;
  LookTimes(100);
  EXPECT_EQ(trims_, 2);
  unused_ = 200 * kMiB;
  LookTimes(10);
  unused_ = 250 * kMiB;
  LookTimes(10);
  EXPECT_EQ(trims_, 3);
}

// The address and thread sanitizers bring an allocator of their own.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
TEST(PeriodicTrimmer, GivesFreedMemoryBack) {
  TuneAllocator();
  const int64_t before = ReadResidentBytes();
  std::vector<std::unique_ptr<char[]>> burst;
  for (int i = 0; i < 200; ++i) {
    burst.push_back(std::make_unique<char[]>(kMiB));
    std::memset(burst.back().get(), 1, kMiB);
  }
  const PeriodicTrimmer trimmer({.in_flight_bytes = [] { return 0; },
                                 .moved_bytes = [] { return 0; },
                                 .unused_bytes = [] { return ReadResidentBytes() - AllocatedBytes(); },
                                 .trim = TrimMemory},
                                absl::Milliseconds(20));
  absl::SleepFor(absl::Milliseconds(200));  // looked at while it is used
  EXPECT_GT(ReadResidentBytes(), before + 150 * kMiB);
  burst.clear();
  for (int i = 0; i < 3000 && ReadResidentBytes() > before + 50 * kMiB; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_LT(ReadResidentBytes(), before + 50 * kMiB);
}
#endif

}  // namespace
}  // namespace normd
