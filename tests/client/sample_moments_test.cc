// The arithmetic of contributions, and the ledger that says what of it is sent.
#include "client/cpp/sample_moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "client/cpp/moments_ledger.h"
#include "client/cpp/tensor.h"

namespace normd::client {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

SampleMoments Of(const std::vector<double>& rows, size_t channels = 1, NonFinite policy = NonFinite::kDropsChannel) {
  return SampleMoments::Of(rows, channels, policy);
}

TEST(SampleMomentsTest, PartsMergeToTheMomentsOfTheWhole) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(1e6, 2);
  std::vector<double> rows(2 * 36);
  for (double& x : rows) x = normal(random);
  SampleMoments merged = SampleMoments::None(2);
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 12), std::pair(12, 72)}) {
    merged.Merge(Of({rows.begin() + begin, rows.begin() + end}, 2));
  }
  for (size_t c = 0; c < 2; ++c) {
    long double sum = 0, m2 = 0;
    double least = kInf, greatest = -kInf;
    for (size_t i = c; i < rows.size(); i += 2) sum += rows[i];
    for (size_t i = c; i < rows.size(); i += 2) {
      m2 += (rows[i] - sum / 36) * (rows[i] - sum / 36);
      least = std::min(least, rows[i]);
      greatest = std::max(greatest, rows[i]);
    }
    EXPECT_EQ(merged.count[c], 36);
    EXPECT_NEAR(merged.mean[c], static_cast<double>(sum / 36), 1e-9);
    EXPECT_NEAR(merged.Variance(1)[c], static_cast<double>(m2 / 36), 1e-9);
    EXPECT_EQ(merged.min[c], least);
    EXPECT_EQ(merged.max[c], greatest);
  }
}

TEST(SampleMomentsTest, DecayWeighsLaterSamplesMore) {
  SampleMoments merged = SampleMoments::None(1);
  for (const double value : {0.0, 0.0, 8.0}) merged.Merge(Of({value}), 0.5);
  EXPECT_EQ(merged.count[0], 1.75);
  EXPECT_DOUBLE_EQ(merged.mean[0], 8 / 1.75);
}

TEST(SampleMomentsTest, BatchesThatWereMergedDecayWhatCameBeforeThemAsOneByOne) {
  const std::vector<std::vector<double>> batches = {{4, 2}, {0}, {8, 1, 1}, {3}};
  SampleMoments one_by_one = SampleMoments::None(1), late = SampleMoments::None(1), together = Of(batches[0]);
  for (const std::vector<double>& batch : batches) one_by_one.Merge(Of(batch), 0.5);
  for (size_t i = 1; i < batches.size(); ++i) late.Merge(Of(batches[i]), 0.5);
  together.Merge(late, 0.5);
  EXPECT_EQ(late.samples[0], 5);
  EXPECT_EQ(late.MostSamples(), 5);
  EXPECT_DOUBLE_EQ(together.count[0], one_by_one.count[0]);
  EXPECT_DOUBLE_EQ(together.mean[0], one_by_one.mean[0]);
  EXPECT_DOUBLE_EQ(together.m2[0], one_by_one.m2[0]);
  EXPECT_EQ(Tensor::FromProto(late.ToProto().samples())->ToDoubles()[0], 5);
  EXPECT_FALSE(Of({1, 3}).ToProto().has_samples()) << "as many as the count";
}

TEST(SampleMomentsTest, AValueThatIsNotFiniteCostsItsChannelTheBatchOrItselfAlone) {
  const std::vector<double> rows = {1, 2, 3, kNan, 5, 6};
  const SampleMoments dropped = Of(rows, 2);
  EXPECT_THAT(dropped.count, ElementsAre(3, 0));
  EXPECT_THAT(dropped.mean, ElementsAre(3, 0));
  EXPECT_EQ(dropped.min[1], kInf);
  const SampleMoments kept = Of(rows, 2, NonFinite::kDropsValue);
  EXPECT_THAT(kept.count, ElementsAre(3, 2));
  EXPECT_THAT(kept.mean, ElementsAre(3, 4));
  EXPECT_THAT(kept.m2, ElementsAre(8, 8));
  EXPECT_THAT(Of({1e200, -1e200}).count, ElementsAre(0)) << "its m2 is not finite";
}

TEST(SampleMomentsTest, WhatIsNotKnownStaysUnknown) {
  SampleMoments merged = Of({1, 3});
  SampleMoments unknown = Of({2});
  unknown.min[0] = unknown.max[0] = kNan;
  merged.Merge(unknown);
  merged.Merge(Of({-9, 9}));
  EXPECT_EQ(merged.count[0], 5);
  EXPECT_THAT(merged.min, ElementsAre(IsNan()));
  EXPECT_THAT(merged.max, ElementsAre(IsNan()));
}

TEST(SampleMomentsTest, AStateIsReadAsItIsSent) {
  const SampleMoments moments = Of({1, 2, 3, kNan}, 2);
  const v1::Moments proto = moments.ToProto();
  EXPECT_THAT(Tensor::FromProto(proto.min())->ToDoubles(), ElementsAre(1, 0)) << "no infinity is sent";
  v1::RunningState state;
  *state.mutable_count() = proto.count();
  EXPECT_FALSE(SampleMoments::FromState(state).ok()) << "a state of steps has no more";
  *state.mutable_mean() = proto.mean();
  *state.mutable_m2() = proto.m2();
  *state.mutable_min() = proto.min();
  *state.mutable_max() = proto.max();
  const auto read = SampleMoments::FromState(state);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->mean, moments.mean);
  *state.mutable_max() = Tensor::F64({1}, std::vector<double>{1}).ToProto();
  EXPECT_TRUE(absl::IsInternal(SampleMoments::FromState(state).status()));
}

TEST(MomentsLedgerTest, AContributionIsShownOnceWhateverIsReadWhileItIsOnItsWay) {
  MomentsLedger ledger({SampleMoments::None(1), 0, ""}, {});
  EXPECT_TRUE(ledger.settled());
  EXPECT_EQ(ledger.Take(), nullptr);
  ledger.Add(Of({1, 3}));
  const MomentsLedger::Contribution* sent = ledger.Take();
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->sequence, 1u);
  ledger.Add(Of({5}));
  EXPECT_EQ(ledger.Take(), sent) << "one at a time, under the id of the first try";
  EXPECT_EQ(sent->samples.count[0], 2);
  EXPECT_EQ(ledger.View().count[0], 3);
  ledger.See({Of({1, 3, 100}), 2, "two"});  // a version that holds it
  EXPECT_EQ(ledger.View().count[0], 3);
  ledger.Acknowledge(KnownState{Of({1, 3}), 1, ""});
  EXPECT_EQ(ledger.known().version, 2u);
  EXPECT_EQ(ledger.View().count[0], 4);
  EXPECT_EQ(ledger.Take()->sequence, 2u);
  ledger.Acknowledge(std::nullopt);  // applied, and the server has no state any more
  EXPECT_TRUE(ledger.settled());
  EXPECT_EQ(ledger.View().count[0], 4);
  EXPECT_EQ(ledger.known().digest, "") << "no digest is that of this state";
}

TEST(MomentsLedgerTest, AnOlderVersionIsNoNews) {
  MomentsLedger ledger({Of({1, 3}), 5, ""}, {});
  ledger.See({Of({1}), 4, "four"});
  EXPECT_EQ(ledger.known().version, 5u);
  ledger.See({Of({1, 3}), 5, "five"});
  EXPECT_EQ(ledger.known().digest, "five") << "the same version, with its digest";
}

}  // namespace
}  // namespace normd::client
