#include "server/engine/concurrency_limiter.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/caller_key.h"

namespace normd {
namespace {

class FakeClock : public Clock {
 public:
  absl::Time Now() override { return now; }
  absl::Time now = absl::UnixEpoch();
};

// Who was started, in order: "a", or "a!" when it was refused.
class ConcurrencyLimiterTest : public testing::Test {
 protected:
  void EnterOf(ConcurrencyLimiter& limiter, uint64_t caller, const std::string& name) {
    limiter.Enter({.start = [this, name](const absl::Status& status) { log_ += name + (status.ok() ? " " : "! "); },
                   .caller = caller});
  }
  void Enter(ConcurrencyLimiter& limiter, const std::string& name, bool must_run = false) {
    limiter.Enter({.start = [this, name](const absl::Status& status) { log_ += name + (status.ok() ? " " : "! "); },
                   .gone = [this, name] { return gone_ == name; },
                   .must_run = must_run});
  }

  FakeClock clock_;
  std::string gone_;  // who went away
  std::string log_;
};

TEST_F(ConcurrencyLimiterTest, LetsInAsManyAsMayRunAndTheRestInOrder) {
  ConcurrencyLimiter limiter(2, absl::Seconds(1), &clock_);
  for (const char* name : {"a", "b", "c", "d"}) Enter(limiter, name);
  EXPECT_EQ(log_, "a b ");
  EXPECT_EQ(limiter.waiting(), 2);
  limiter.Leave();
  EXPECT_EQ(log_, "a b c ");
  limiter.Leave();
  EXPECT_EQ(log_, "a b c d ");
  limiter.Leave();
  limiter.Leave();
  Enter(limiter, "e");
  EXPECT_EQ(log_, "a b c d e ");
}

TEST_F(ConcurrencyLimiterTest, TenantsTakeTurnsHoweverManyConnectionsOneOfThemHas) {
  ConcurrencyLimiter limiter(1, absl::Seconds(1), &clock_);
  // Three connections of one tenant, one of another, and two of nobody in particular.
  const auto enter = [&](const char* tenant, uint64_t connection, const std::string& name) {
    EnterOf(limiter, CallerKey(tenant, connection << 40), name);
  };
  enter("big", 1, "running");
  for (uint64_t connection : {1, 2, 3}) {
    for (const char* call : {"x", "y"}) enter("big", connection, "b" + std::to_string(connection) + call);
  }
  for (const char* name : {"s1", "s2", "s3"}) enter("small", 9, name);
  for (uint64_t connection : {1, 2}) enter("", connection, "n" + std::to_string(connection));
  for (int i = 0; i < 12; ++i) limiter.Leave();
  EXPECT_EQ(log_, "running b1x s1 n1 b2x s2 n2 b3x s3 b1y b2y b3y ");
  EXPECT_EQ(limiter.waiting(), 0);
}

TEST_F(ConcurrencyLimiterTest, CallersTakeTurnsEvenIfOneQueuesMany) {
  ConcurrencyLimiter limiter(1, absl::Seconds(1), &clock_);
  for (const char* name : {"a1", "a2", "a3", "a4"}) EnterOf(limiter, 1, name);
  for (const char* name : {"b1", "b2"}) EnterOf(limiter, 2, name);
  EnterOf(limiter, 3, "c1");
  for (int i = 0; i < 6; ++i) limiter.Leave();
  EXPECT_EQ(log_, "a1 a2 b1 c1 a3 b2 a4 ");
  EXPECT_EQ(limiter.waiting(), 0);
}

TEST_F(ConcurrencyLimiterTest, AFloodOfOneCallerDoesNotMakeOthersWaitTooLong) {
  ConcurrencyLimiter limiter(1, absl::Milliseconds(500), &clock_);
  for (int i = 0; i < 100; ++i) EnterOf(limiter, 1, "flood");
  EnterOf(limiter, 2, "other");
  for (int i = 0; i < 2; ++i) {  // each computation takes 100 ms
    clock_.now += absl::Milliseconds(100);
    limiter.Leave();
  }
  EXPECT_EQ(log_, "flood flood other ");
}

TEST_F(ConcurrencyLimiterTest, ACancelledEntryTakesNoRoom) {
  ConcurrencyLimiter limiter(1, absl::Seconds(1), &clock_);
  gone_ = "a";
  Enter(limiter, "a");
  Enter(limiter, "b");
  EXPECT_EQ(log_, "a! b ");
}

TEST_F(ConcurrencyLimiterTest, RefusesEntriesThatHaveWaitedTooLong) {
  ConcurrencyLimiter limiter(1, absl::Seconds(1), &clock_);
  Enter(limiter, "a");
  Enter(limiter, "b");
  Enter(limiter, "c", /*must_run=*/true);
  clock_.now += absl::Milliseconds(900);
  Enter(limiter, "d");
  clock_.now += absl::Milliseconds(200);
  limiter.Leave();
  EXPECT_EQ(log_, "a b! c ");
  limiter.Leave();
  EXPECT_EQ(log_, "a b! c d ");
}

TEST_F(ConcurrencyLimiterTest, DropsWhoseCallerIsGone) {
  ConcurrencyLimiter limiter(1, absl::Seconds(1), &clock_);
  for (const char* name : {"a", "b", "c"}) Enter(limiter, name);
  gone_ = "b";
  limiter.Leave();
  EXPECT_EQ(log_, "a b! c ");
}

// Each once took a level of the stack.
TEST_F(ConcurrencyLimiterTest, DropsAnyNumberOfCancelledEntries) {
  ConcurrencyLimiter limiter(1, absl::InfiniteDuration(), &clock_);
  Enter(limiter, "a");
  bool all_gone = false;
  for (int i = 0; i < 300000; ++i) {
    limiter.Enter({.start = [](const absl::Status& status) { EXPECT_FALSE(status.ok()); },
                   .gone = [&all_gone] { return all_gone; }});
  }
  all_gone = true;
  limiter.Leave();
  Enter(limiter, "c");
  EXPECT_EQ(log_, "a c ");
}

TEST_F(ConcurrencyLimiterTest, SaysWhyItRefuses) {
  ConcurrencyLimiter limiter(1, absl::Milliseconds(500), &clock_);
  Enter(limiter, "a");
  absl::Status refused;
  limiter.Enter({.start = [&](absl::Status status) { refused = std::move(status); }});
  clock_.now += absl::Seconds(2);
  limiter.Leave();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(refused.message().find("queue_age"), absl::string_view::npos) << refused;
  EXPECT_NE(refused.message().find("500ms"), absl::string_view::npos) << refused;
}

TEST_F(ConcurrencyLimiterTest, ServesSeveralThreads) {
  SystemClock clock;
  ConcurrencyLimiter limiter(2, absl::InfiniteDuration(), &clock);
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        limiter.Enter({.start = [&](const absl::Status& status) {
          ASSERT_TRUE(status.ok());
          EXPECT_LE(++inside, 2);
          --inside;
          ++done;
        }});
        limiter.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 2000);
  EXPECT_EQ(limiter.waiting(), 0);
}

TEST_F(ConcurrencyLimiterTest, SaysHowLongTheOldestHasWaited) {
  ConcurrencyLimiter limiter(1, absl::Seconds(10), &clock_);
  EnterOf(limiter, 1, "runs");
  EXPECT_EQ(limiter.wait_stats().waiting, 0);
  EXPECT_EQ(limiter.wait_stats().oldest, absl::ZeroDuration());
  EnterOf(limiter, 2, "a");
  clock_.now += absl::Seconds(1);
  EnterOf(limiter, 3, "b");
  clock_.now += absl::Seconds(2);
  EXPECT_EQ(limiter.wait_stats().waiting, 2);
  EXPECT_EQ(limiter.wait_stats().oldest, absl::Seconds(3));
  limiter.Leave();
  EXPECT_EQ(limiter.wait_stats().oldest, absl::Seconds(2));
}

}  // namespace
}  // namespace normd
