// Steps whose moments come with exact sums, beside the exact oracle: each running value is rounded once, and no order
// of the parts is in it.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/exact_sums/group_sums.h"
#include "server/session/running_state.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/constants.h"
#include "tests/support/exact_totals.h"
#include "tests/support/nearest_state.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using session_test::BatchSpec;
using session_test::CountingSpec;
using ::testing::ElementsAre;

// A batch [instances, length, channels] of f32.
struct ExactBatch {
  int64_t instances, length, channels;
  std::vector<double> x;

  double At(int64_t instance, int64_t i, int64_t channel) const {
    return x[static_cast<size_t>((instance * length + i) * channels + channel)];
  }
  // A group for each instance and channel.
  GroupSums Sums() const {
    GroupSums sums(DType::kF32, static_cast<size_t>(instances * channels));
    for (int64_t g = 0; g < instances * channels; ++g) {
      for (int64_t i = 0; i < length; ++i) {
        sums.narrow()[static_cast<size_t>(g)].Add(At(g / channels, i, g % channels));
      }
    }
    return sums;
  }
  oracle::Input ToInput() const {
    oracle::Input input = {.type = oracle::Type::kF32, .shape = {instances, length, channels}};
    for (const double v : x) input.x.emplace_back(v);
    return input;
  }
};

ExactBatch BatchOf(int64_t instances, int64_t length, Random& random) {
  ExactBatch batch = {.instances = instances, .length = length, .channels = 3, .x = {}};
  for (int64_t i = 0; i < instances * length * 3; ++i) {
    batch.x.push_back(static_cast<float>(1e3 + std::ldexp(random.Normal(), static_cast<int>(random.Below(20)))));
  }
  return batch;
}

absl::StatusOr<Reason> StepExactly(const NormSpec& spec, const GroupSums& sums, RunningState* state) {
  const Moments moments = sums.NearestMoments();
  const auto channels = static_cast<int64_t>(state->mean.size());
  const SampleDetails details = {.extremes = {}, .samples = {}, .exact = std::make_shared<const GroupSums>(sums)};
  return ApplyStep(spec, channels, moments, state, details);
}

TEST(ExactStepsTest, StepsAreTheNearest) {
  Random random(TestSeed() + 1);
  for (const bool cumulative : {false, true}) {
    for (const bool biased : {false, true}) {
      for (const int64_t instances : {1, 4}) {
        const RunningSpec running = {
            .momentum = cumulative ? std::nullopt : std::optional<double>(0.3),
            .cumulative = cumulative,
            .variance = biased ? RunningVariance::kBiased : RunningVariance::kUnbiased,
        };
        const NormSpec instance = {.attributes = InstanceNormSpec{
                                       .layout = Layout::kChannelsLast,
                                       .track_running_statistics = true,
                                       .running = running,
                                   }};
        const NormSpec spec = instances == 1 ? BatchSpec(running) : instance;
        const oracle::RunningRule rule = {.momentum = 0.3, .cumulative = cumulative, .biased = biased};
        oracle::RunningValues want = oracle::RunningValues::Initial(3);
        RunningState state = InitialState(spec, 3);
        for (int step = 1; step <= 10; ++step) {
          const ExactBatch batch = BatchOf(instances, 13, random);
          const oracle::Method method = instances == 1 ? oracle::Method::kBatch : oracle::Method::kInstance;
          ASSERT_TRUE(StepNearest({.method = method, .channels_last = true}, batch.ToInput(), rule, want));
          const absl::StatusOr<Reason> reason = StepExactly(spec, batch.Sums(), &state);
          ASSERT_TRUE(reason.ok()) << reason.status();
          EXPECT_EQ(*reason, Reason::kApplied);
          for (size_t c = 0; c < 3; ++c) {
            EXPECT_TRUE(want.mean[c] == state.mean[c]) << step;
            EXPECT_TRUE(want.var[c] == state.var[c]) << step;
          }
        }
        EXPECT_EQ(state.num_batches, 10);
      }
    }
  }
}

TEST(ExactStepsTest, SamplesAreMergedWithOneRounding) {
  Random random(TestSeed() + 2);
  for (const double decay : {1.0, 0.999}) {
    const NormSpec spec = CountingSpec({.prior_count = 1e-4, .decay = decay});
    RunningState state = InitialState(spec, 3);
    std::vector<oracle::SampleStatistics> want(3, {.count = 1e-4, .mean = 0, .m2 = 1e-4});
    for (int step = 0; step < 10; ++step) {
      const ExactBatch batch = BatchOf(1, 7, random);
      for (auto* low : {&state.count_low, &state.mean_low, &state.m2_low}) low->clear();  // the oracle has none
      ASSERT_TRUE(StepExactly(spec, batch.Sums(), &state).ok());
      for (int64_t c = 0; c < 3; ++c) {
        std::vector<double> elements;
        for (int64_t i = 0; i < 7; ++i) elements.push_back(batch.At(0, i, c));
        const auto at = static_cast<size_t>(c);
        want[at] = MergedWith(want[at], decay == 1 ? 1 : std::pow(decay, 7), oracle::TotalsOf(elements));
        EXPECT_EQ(state.count[at], want[at].count);
        EXPECT_EQ(state.mean[at], want[at].mean);
        EXPECT_EQ(state.m2[at], want[at].m2);
        EXPECT_EQ(state.var[at], state.m2[at] / state.count[at]);
      }
    }
  }
}

TEST(ExactStepsTest, WhatIsNotFiniteIsRefusedOrSkippedAsWithoutSums) {
  GroupSums sums(DType::kF32, 2);
  sums.narrow()[0].Add(kInf);
  sums.narrow()[1].Add(5);
  sums.narrow()[0].Add(1);
  sums.narrow()[1].Add(6);
  RunningState state = InitialState(BatchSpec(), 2);
  EXPECT_EQ(*StepExactly(BatchSpec(), sums, &state), Reason::kNonFinite);
  EXPECT_THAT(state.mean, ElementsAre(0, 0));
  const NormSpec accepts = BatchSpec({.momentum = 1, .accept_non_finite = true});
  EXPECT_EQ(*StepExactly(accepts, sums, &state), Reason::kApplied);
  EXPECT_THAT(state.mean, ElementsAre(kInf, 5.5));
  RunningState counting = InitialState(CountingSpec(), 2);
  EXPECT_EQ(*StepExactly(CountingSpec(), sums, &counting), Reason::kApplied);
  EXPECT_THAT(counting.count, ElementsAre(0, 2));
}

TEST(ExactStepsTest, AnEmptyBatchLeavesTheStatistics) {
  RunningState state = InitialState(BatchSpec(), 2);
  EXPECT_EQ(*StepExactly(BatchSpec(), GroupSums(DType::kF64, 2), &state), Reason::kApplied);
  EXPECT_THAT(state.var, ElementsAre(1, 1));
  EXPECT_EQ(state.num_batches, 1);
}

TEST(ExactStepsTest, OneValueOfAnInstanceHasNoVariance) {
  const NormSpec spec = {.attributes = InstanceNormSpec{
                             .layout = Layout::kChannelsLast,
                             .track_running_statistics = true,
                             .running = {.momentum = 0.5, .variance = RunningVariance::kBiased},
                         }};
  GroupSums sums(DType::kF32, 2);
  sums.narrow()[0].Add(2);
  sums.narrow()[1].Add(4);
  RunningState state = InitialState(spec, 1);
  EXPECT_EQ(*StepExactly(spec, sums, &state), Reason::kApplied);
  EXPECT_THAT(state.mean, ElementsAre(1.5));
  EXPECT_THAT(state.var, ElementsAre(1));
}

TEST(ExactStepsTest, AStateThatIsNotFiniteStaysSo) {
  const NormSpec spec = CountingSpec();
  RunningState state = InitialState(spec, 1);
  state.count = {2};
  state.mean = {kInf};
  GroupSums sums(DType::kF32, 1);
  sums.narrow()[0].Add(3);
  ASSERT_TRUE(StepExactly(spec, sums, &state).ok());
  EXPECT_FALSE(std::isfinite(state.mean[0]));
}

TEST(ExactStepsTest, TheHashOfAStepTellsSumsApart) {
  const auto hash = [](const Moments& moments, std::shared_ptr<const GroupSums> exact) {
    return HashMoments(moments, {.extremes = {}, .samples = {}, .exact = std::move(exact)});
  };
  const auto of = [](double x) {
    GroupSums sums(DType::kF64, 1);
    sums.wide()[0].Add(x);
    return std::make_shared<const GroupSums>(sums);
  };
  const Moments moments = of(1)->NearestMoments();
  EXPECT_EQ(hash(moments, of(1)), hash(moments, of(1)));
  EXPECT_NE(hash(moments, of(1)), hash(moments, of(2)));
  EXPECT_NE(hash(moments, of(1)), hash(moments, nullptr));
  EXPECT_EQ(hash(moments, nullptr), HashMoments(moments));
}

}  // namespace
}  // namespace normd
