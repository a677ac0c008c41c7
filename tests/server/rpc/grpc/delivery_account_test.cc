#include "server/rpc/grpc/delivery_account.h"

#include "gtest/gtest.h"
#include "server/base/steady_time.h"
#include "tests/support/constants.h"

namespace normd::rpc {
namespace {

class DeliveryAccountTest : public testing::Test {
 protected:
  void Receive(int64_t bytes) { received_ += bytes; }
  // A message of so many bytes that comes in frames of 16 KiB.
  void ReceiveWhole(int64_t bytes, int64_t bytes_per_record = 0) {
    Receive(bytes + 5 + (9 + bytes_per_record) * (bytes / 16'384 + 1) + 40);
    account_.Deliver(bytes);
  }
  void Pass(absl::Duration time) { now_ += time; }
  DeliveryAccount::Bounds Undelivered() { return account_.Undelivered(received_, now_); }

  DeliveryAccount account_;
  int64_t received_ = 0;
  absl::Time now_ = SteadyNow();
};

TEST_F(DeliveryAccountTest, CountsTheReceivedPartOfAMessage) {
  Receive(1000);  // settings
  EXPECT_EQ(Undelivered().at_most, 0);
  account_.Begin();
  Receive(5 * kMiB);
  EXPECT_EQ(Undelivered().at_least, 5 * kMiB);
  EXPECT_EQ(Undelivered().at_most, 5 * kMiB);
  account_.Deliver(5 * kMiB);
  EXPECT_LE(Undelivered().at_most, 0);
}

// Frame headers and metadata must not become a debt of whoever sends much and never pauses.
TEST_F(DeliveryAccountTest, AnHonestPeerNeverRunsUpADebt) {
  account_.Begin();
  for (int i = 0; i < 10'000; ++i) {
    account_.Begin();
    ReceiveWhole(i % 7 * kMiB / 2 + 3);
    account_.End(/*complete=*/true, now_);
    ASSERT_LT(Undelivered().at_most, 1000) << i;
  }
}

TEST_F(DeliveryAccountTest, TheRecordsOfTlsAreNoDebtEither) {
  account_.Begin();
  for (int i = 0; i < 10'000; ++i) {
    account_.Begin();
    ReceiveWhole(i % 7 * kMiB / 2 + 3, /*bytes_per_record=*/29);
    account_.End(/*complete=*/true, now_);
    ASSERT_LT(Undelivered().at_most, 1000) << i;
  }
}

TEST_F(DeliveryAccountTest, WhatWasRefusedIsNobodysUntilMemoryTells) {
  account_.Begin();
  Receive(2 * kMiB);
  account_.Lose(now_);  // another call
  Receive(60 * kMiB);   // of which this came, a part of it later
  EXPECT_EQ(Undelivered().at_least, 0);
  EXPECT_EQ(Undelivered().at_most, 62 * kMiB);
  Pass(absl::Seconds(2));
  Receive(kMiB);
  EXPECT_EQ(Undelivered().at_least, kMiB);
  EXPECT_EQ(Undelivered().at_most, 63 * kMiB);
  EXPECT_TRUE(account_.End(/*complete=*/false, now_));
  EXPECT_EQ(Undelivered().at_most, 0) << "nothing is on its way";
  account_.Begin();
  Receive(kMiB);
  EXPECT_EQ(Undelivered().at_most, kMiB);
}

TEST_F(DeliveryAccountTest, SettlesBetweenMessagesNowAndThen) {
  account_.Begin();
  EXPECT_TRUE(account_.End(/*complete=*/true, now_));
  account_.Settle(received_, now_);
  account_.Begin();
  EXPECT_FALSE(account_.End(/*complete=*/true, now_)) << "each costs a system call";
  Pass(absl::Seconds(1));
  account_.Begin();
  account_.Begin();
  EXPECT_FALSE(account_.End(/*complete=*/true, now_)) << "one is left";
  EXPECT_TRUE(account_.End(/*complete=*/true, now_));
}

}  // namespace
}  // namespace normd::rpc
