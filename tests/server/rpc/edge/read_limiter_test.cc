#include "server/rpc/edge/read_limiter.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/steady_time.h"
#include "tests/support/constants.h"

namespace normd::rpc {
namespace {

// A connection that reads another message already.
class BusyConnection : public Connection {
 public:
  using Connection::Connection;
  int open_messages() const override { return 1; }
};

class ReadLimiterTest : public testing::Test {
 protected:
  void TearDown() override {
    while (!tickets_.empty()) ReleaseFirst();
  }

  ReadLimiter::Start Note(int number) {
    return [this, number](ReadLimiter::Ticket ticket) {
      entered_.push_back(number);
      tickets_.push_back(std::move(ticket));
    };
  }

  // The callbacks of others add to the list while a ticket goes.
  void ReleaseFirst() {
    const ReadLimiter::Ticket first = std::move(tickets_.front());
    tickets_.erase(tickets_.begin());
  }

  Admission admission_{{.max_bytes = 10 * kMiB, .max_caller_bytes = 10 * kMiB}, nullptr};
  ReadLimiter limiter_{&admission_, {.longest = absl::Seconds(1), .max_message_bytes = 8 * kMiB}};
  BusyConnection busy_{Connection::Facts{.peer = "busy"}};
  Connection other_{{.peer = "other"}};
  std::vector<int> entered_;
  std::vector<ReadLimiter::Ticket> tickets_;
};

TEST_F(ReadLimiterTest, LetsInWhatFits) {
  limiter_.Enter(busy_, 4 * kMiB, Note(1));
  limiter_.Enter(busy_, 6 * kMiB, Note(2));
  limiter_.Enter(busy_, 1 * kMiB, Note(3));
  EXPECT_EQ(entered_, (std::vector<int>{1, 2}));
  ReleaseFirst();
  EXPECT_EQ(entered_, (std::vector<int>{1, 2, 3}));
}

TEST_F(ReadLimiterTest, OnlyWhatTheTransportMayHoldOfWaitingMessagesIsLimited) {
  Admission admission{{.max_bytes = 10 * kMiB, .max_caller_bytes = 10 * kMiB}, nullptr};
  ReadLimiter limiter{&admission,
                      {.longest = absl::Seconds(1), .max_message_bytes = 2 * kMiB, .most_held_bytes = kMiB}};
  absl::StatusOr<Reservation> held = admission.Reserve(10 * kMiB, [] { return CallerName{"a", ""}; });
  ASSERT_TRUE(held.ok());
  limiter.EnterAnnounced(2 * kMiB, 4 * kMiB, Note(1));
  limiter.EnterAnnounced(2 * kMiB, 4 * kMiB, Note(2));
  EXPECT_TRUE(entered_.empty());
  limiter.EnterAnnounced(2 * kMiB, 4 * kMiB, Note(3));
  EXPECT_EQ(entered_, (std::vector<int>{3})) << "the limit is reached";
  tickets_.clear();
  *held = Reservation();
  EXPECT_EQ(entered_, (std::vector<int>{3, 1, 2}));
  tickets_.clear();
}

TEST_F(ReadLimiterTest, BytesThatWereAdmittedCount) {
  absl::StatusOr<Reservation> held = admission_.Reserve(8 * kMiB, [] { return CallerName{"a", ""}; });
  ASSERT_TRUE(held.ok());
  limiter_.Enter(busy_, 4 * kMiB, Note(1));
  EXPECT_TRUE(entered_.empty());
  *held = Reservation();
  EXPECT_EQ(entered_, (std::vector<int>{1}));
}

TEST_F(ReadLimiterTest, SmallMessagesAndTheFirstOfAConnectionNeverWait) {
  limiter_.Enter(busy_, 10 * kMiB, Note(1));
  limiter_.Enter(busy_, 4 * kMiB, Note(2));
  limiter_.Enter(busy_, Admission::kSmallBytes, Note(3));
  limiter_.Enter(other_, 4 * kMiB, Note(4));
  EXPECT_EQ(entered_, (std::vector<int>{1, 3, 4}));
}

TEST_F(ReadLimiterTest, GoesInOrder) {
  limiter_.Enter(busy_, 10 * kMiB, Note(1));
  limiter_.Enter(busy_, 8 * kMiB, Note(2));
  limiter_.Enter(busy_, 1 * kMiB, Note(3));
  ReleaseFirst();
  EXPECT_EQ(entered_, (std::vector<int>{1, 2, 3}));
  limiter_.Enter(busy_, 5 * kMiB, Note(4));
  limiter_.Enter(busy_, kMiB / 2, Note(5));
  EXPECT_EQ(entered_, (std::vector<int>{1, 2, 3})) << "5 would fit, but 4 came first";
}

TEST_F(ReadLimiterTest, AnnouncedMessagesWaitInOrderUntilTheyFit) {
  absl::StatusOr<Reservation> held = admission_.Reserve(8 * kMiB, [] { return CallerName{"a", ""}; });
  ASSERT_TRUE(held.ok());
  limiter_.EnterAnnounced(2 * kMiB, kMiB, Note(1));
  EXPECT_EQ(entered_, (std::vector<int>{1})) << "it fits";
  limiter_.EnterAnnounced(4 * kMiB, 2 * kMiB, Note(2));
  limiter_.EnterAnnounced(kMiB, kMiB / 2, Note(3));
  limiter_.EnterAnnounced(Admission::kSmallBytes, Admission::kSmallBytes / 2, Note(4));
  EXPECT_EQ(entered_, (std::vector<int>{1, 4})) << "2 waits, 3 behind it, and small ones never do";
  *held = Reservation();
  EXPECT_EQ(entered_, (std::vector<int>{1, 4, 2, 3}));
}

TEST_F(ReadLimiterTest, AnnouncedMessagesDoNotWaitForEver) {
  const absl::StatusOr<Reservation> held = admission_.Reserve(10 * kMiB, [] { return CallerName{"a", ""}; });
  ASSERT_TRUE(held.ok());
  limiter_.EnterAnnounced(4 * kMiB, 2 * kMiB, Note(1));
  limiter_.Enter(busy_, 4 * kMiB, Note(2));
  limiter_.Expire(SteadyNow());
  EXPECT_TRUE(entered_.empty());
  limiter_.Expire(SteadyNow() + absl::Seconds(2));
  EXPECT_EQ(entered_, (std::vector<int>{1})) << "a guess refuses nobody";
}

TEST_F(ReadLimiterTest, BytesOfThoseWhoWaitAreBounded) {
  const absl::StatusOr<Reservation> held = admission_.Reserve(10 * kMiB, [] { return CallerName{"a", ""}; });
  ASSERT_TRUE(held.ok());
  limiter_.EnterAnnounced(9 * kMiB, 5 * kMiB, Note(1));
  limiter_.EnterAnnounced(9 * kMiB, 5 * kMiB, Note(2));
  limiter_.EnterAnnounced(5 * kMiB, 3 * kMiB, Note(3));
  limiter_.EnterAnnounced(11 * kMiB, 6 * kMiB, Note(4));
  EXPECT_EQ(entered_, (std::vector<int>{2, 4})) << "too many wait; and what never fits need not";
  limiter_.Expire(SteadyNow() + absl::Seconds(2));
  EXPECT_EQ(entered_, (std::vector<int>{2, 4, 1, 3}));
  limiter_.EnterAnnounced(9 * kMiB, 5 * kMiB, Note(5));
  EXPECT_EQ(entered_, (std::vector<int>{2, 4, 1, 3})) << "there is room to wait again";
}

TEST_F(ReadLimiterTest, AServerThatShutsDownLetsEverybodyIn) {
  limiter_.Enter(busy_, 10 * kMiB, Note(1));
  limiter_.Enter(busy_, 10 * kMiB, Note(2));
  limiter_.Open();
  limiter_.Enter(busy_, 10 * kMiB, Note(3));
  EXPECT_EQ(entered_, (std::vector<int>{1, 2, 3}));
}

TEST_F(ReadLimiterTest, CountsWhatWaits) {
  limiter_.Enter(busy_, 10 * kMiB, Note(1));
  EXPECT_EQ(limiter_.wait_stats().waiting, 0);
  const absl::Time before = SteadyNow();
  limiter_.Enter(busy_, 4 * kMiB, Note(2));
  limiter_.EnterAnnounced(4 * kMiB, 2 * kMiB, Note(3));
  const WaitStats stats = limiter_.wait_stats();
  EXPECT_EQ(stats.waiting, 2);
  EXPECT_GE(stats.oldest, absl::ZeroDuration());
  EXPECT_LE(stats.oldest, SteadyNow() - before);
}

}  // namespace
}  // namespace normd::rpc
