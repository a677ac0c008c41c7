#include "server/session/running_state.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "kernels/exact_sums/group_sums.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/constants.h"
#include "tests/support/oracle_state.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using session_test::BatchSpec;
using session_test::MomentsOf;
using session_test::PowerSpec;
using ::testing::DoubleEq;
using ::testing::ElementsAre;

NormSpec TrackingInstanceNorm(const RunningSpec& running = {}) {
  return {.attributes =
              InstanceNormSpec{.layout = Layout::kChannelsFirst, .track_running_statistics = true, .running = running}};
}

struct StepResult {
  RunningState state;
  bool applied = true;
  Reason reason = Reason::kApplied;
};

StepResult Apply(const NormSpec& spec, const RunningState& before, const Moments& moments) {
  const int64_t channels = static_cast<int64_t>(std::max(before.mean.size(), before.phi.size()));
  StepResult step = {.state = before};
  const absl::StatusOr<Reason> reason = ApplyStep(spec, channels, moments, &step.state);
  EXPECT_TRUE(reason.ok()) << reason.status();
  step.reason = *reason;
  step.applied = *reason == Reason::kApplied;
  return step;
}

Session Trained(const NormSpec& spec, RunningState state) {
  Session session;
  session.spec = spec;
  session.state = std::move(state);
  return session;
}

// What refuses the step; the state stays as it was.
absl::Status Refusal(const NormSpec& spec, int64_t channels, const RunningState& before, const Moments& moments) {
  RunningState state = before;
  const absl::Status status = ApplyStep(spec, channels, moments, &state).status();
  EXPECT_EQ(state.mean, before.mean);
  EXPECT_EQ(state.num_batches, before.num_batches);
  return status;
}

StepResult ApplyFirst(const NormSpec& spec, int64_t channels, const Moments& moments) {
  return Apply(spec, InitialState(spec, channels), moments);
}

std::string FieldOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field : "";
}

TEST(RunningStateTest, ANewStateHasMeanZeroVarianceOneAndPhiOne) {
  const RunningState batch = InitialState(BatchSpec(), 2);
  EXPECT_THAT(batch.mean, ElementsAre(0, 0));
  EXPECT_THAT(batch.var, ElementsAre(1, 1));
  EXPECT_TRUE(batch.phi.empty());
  EXPECT_THAT(InitialState(PowerSpec(1), 2).phi, ElementsAre(1, 1));
  const NormSpec layer = {.attributes = LayerNormSpec{.normalized_shape = {4}}};
  EXPECT_TRUE(InitialState(layer, 4).mean.empty());
}

// [1,3,5,9]: mean 4.5, variance 8.75 biased, 11.6667 unbiased (semantics of the merge example).
TEST(RunningStateTest, ABatchNormStepMixesMeanAndUnbiasedVarianceByATenth) {
  const StepResult step = ApplyFirst(BatchSpec(), 1, MomentsOf({1, 3, 5, 9}, 1));
  EXPECT_TRUE(step.applied);
  EXPECT_EQ(step.state.num_batches, 1);
  EXPECT_THAT(step.state.mean, ElementsAre(DoubleEq(0.45)));
  EXPECT_THAT(step.state.var, ElementsAre(DoubleEq(0.9 + 0.1 * 35.0 / 3.0)));
}

// Of batches whose moments are f64 as they are: a step without sums is the step with them.
TEST(RunningStateTest, AStepIsRoundedOnce) {
  Random random(TestSeed() + 1);
  const NormSpec instance = TrackingInstanceNorm({.momentum = 0.3});
  for (const NormSpec& spec : {BatchSpec({.momentum = 0.3}), BatchSpec({.cumulative = true}), instance}) {
    RunningState state = InitialState(spec, 1), want = state;
    for (int step = 0; step < 50; ++step) {
      GroupSums sums(DType::kF32, spec.method() == Method::kInstanceNorm ? 3 : 1);
      for (NarrowExactSums& group : sums.narrow()) {
        for (int i = 0; i < 8; ++i) group.Add(static_cast<double>(random.Below(1 << 10)));
      }
      const Moments moments = sums.NearestMoments();
      SampleDetails details;
      details.exact = std::make_shared<const GroupSums>(sums);
      ASSERT_TRUE(ApplyStep(spec, 1, moments, &want, details).ok());
      ASSERT_TRUE(ApplyStep(spec, 1, moments, &state).ok());
      EXPECT_EQ(state.mean, want.mean);
      EXPECT_EQ(state.var, want.var);
    }
  }
}

TEST(RunningStateTest, BiasedVarianceDividesByN) {
  const StepResult step =
      ApplyFirst(BatchSpec({.momentum = 1, .variance = RunningVariance::kBiased}), 1, MomentsOf({1, 3, 5, 9}, 1));
  EXPECT_THAT(step.state.var, ElementsAre(DoubleEq(8.75)));
}

TEST(RunningStateTest, MomentumOfOldWeighsTheOldValue) {
  const StepResult by_default =
      ApplyFirst(BatchSpec({.momentum = {}, .momentum_of = MomentumOf::kOld}), 1, MomentsOf({1, 3, 5, 9}, 1));
  EXPECT_THAT(by_default.state.mean, ElementsAre(DoubleEq((1 - 0.9) * 4.5)));
  const StepResult given =
      ApplyFirst(BatchSpec({.momentum = 0.25, .momentum_of = MomentumOf::kOld}), 1, MomentsOf({1, 3, 5, 9}, 1));
  EXPECT_THAT(given.state.mean, ElementsAre(DoubleEq(0.75 * 4.5)));
}

TEST(RunningStateTest, MomentumZeroFreezesAndOneReplaces) {
  const Moments moments = MomentsOf({1, 3, 5, 9}, 2);
  const StepResult frozen = ApplyFirst(BatchSpec({.momentum = 0}), 2, moments);
  EXPECT_THAT(frozen.state.mean, ElementsAre(0, 0));
  EXPECT_EQ(frozen.state.num_batches, 1);
  const StepResult replaced = ApplyFirst(BatchSpec({.momentum = 1}), 2, moments);
  EXPECT_THAT(replaced.state.mean, ElementsAre(4.5, 5.5));
}

TEST(RunningStateTest, CumulativeIsTheMeanOfTheBatchesValues) {
  const NormSpec spec = BatchSpec({.momentum = {}, .cumulative = true});
  RunningState state = InitialState(spec, 1);
  state = Apply(spec, state, MomentsOf({1, 3}, 1)).state;           // mean 2, variance 2
  state = Apply(spec, state, MomentsOf({5, 9}, 1)).state;           // mean 7, variance 8
  state = Apply(spec, state, MomentsOf({0, 0, 0, 0, 0}, 1)).state;  // mean 0, variance 0
  EXPECT_THAT(state.mean, ElementsAre(DoubleEq(3)));
  EXPECT_THAT(state.var, ElementsAre(DoubleEq(10.0 / 3.0)));
}

TEST(RunningStateTest, AnEmptyBatchCountsAndLeavesTheStatistics) {
  for (const NormSpec& spec : {BatchSpec(), TrackingInstanceNorm(), PowerSpec(5)}) {
    const RunningState before = InitialState(spec, 2);
    const StepResult step = Apply(spec, before, Moments(2));
    EXPECT_TRUE(step.applied);
    EXPECT_EQ(step.state.num_batches, 1);
    EXPECT_EQ(step.state.mean, before.mean);
    EXPECT_EQ(step.state.var, before.var);
    EXPECT_EQ(step.state.phi, before.phi);
  }
  // No instances at all.
  EXPECT_EQ(ApplyFirst(TrackingInstanceNorm(), 2, {}).state.num_batches, 1);
}

TEST(RunningStateTest, AnEmptyBatchCountsForCumulative) {
  const NormSpec spec = BatchSpec({.momentum = {}, .cumulative = true});
  RunningState state = Apply(spec, InitialState(spec, 1), Moments(1)).state;
  state = Apply(spec, state, MomentsOf({5, 9}, 1)).state;
  EXPECT_THAT(state.mean, ElementsAre(3.5));
}

TEST(RunningStateTest, OneValuePerChannelIsRefusedByDefault) {
  const NormSpec spec = BatchSpec();
  EXPECT_EQ(FieldOf(Refusal(spec, 1, InitialState(spec, 1), MomentsOf({3}, 1))), "x");
}

TEST(RunningStateTest, OneValuePerChannelKeepsTheUnbiasedVarianceAndZeroesTheBiased) {
  RunningSpec running = {.momentum = 0.5, .single_value = SingleValue::kZeroVariance};
  const StepResult unbiased = ApplyFirst(BatchSpec(running), 1, MomentsOf({3}, 1));
  EXPECT_THAT(unbiased.state.mean, ElementsAre(1.5));
  EXPECT_THAT(unbiased.state.var, ElementsAre(1));
  running.variance = RunningVariance::kBiased;
  EXPECT_THAT(ApplyFirst(BatchSpec(running), 1, MomentsOf({3}, 1)).state.var, ElementsAre(0.5));
}

TEST(RunningStateTest, NaNAndInfLeaveTheStateBitForBit) {
  for (const double poison : {kNan, kInf, -kInf}) {
    for (const NormSpec& spec : {BatchSpec(), TrackingInstanceNorm(), PowerSpec(5)}) {
      Moments moments = MomentsOf({1, 3, 5, 9}, 2);
      (spec.method() == Method::kPowerNorm ? moments[1].m2 : moments[1].mean) = std::abs(poison);
      const RunningState before = InitialState(spec, 2);
      const StepResult step = Apply(spec, before, moments);
      EXPECT_FALSE(step.applied);
      EXPECT_EQ(step.reason, Reason::kNonFinite);
      EXPECT_EQ(step.state.mean, before.mean);
      EXPECT_EQ(step.state.num_batches, 0);
    }
  }
}

TEST(RunningStateTest, AcceptNonFiniteLetsNaNIn) {
  Moments moments = MomentsOf({1, 3}, 2);
  moments[1].mean = kNan;
  const StepResult step = ApplyFirst(BatchSpec({.momentum = {}, .accept_non_finite = true}), 2, moments);
  EXPECT_TRUE(step.applied);
  EXPECT_DOUBLE_EQ(step.state.mean[0], 0.2);
  EXPECT_TRUE(std::isnan(step.state.mean[1]));
}

TEST(RunningStateTest, InstanceNormAveragesTheInstances) {
  // Two instances of one channel: means 2 and 7, unbiased variances 2 and 8.
  Moments moments = MomentsOf({1, 3}, 1);
  moments.push_back(MomentsOf({5, 9}, 1)[0]);
  const StepResult step = ApplyFirst(TrackingInstanceNorm({.momentum = 1}), 1, moments);
  EXPECT_THAT(step.state.mean, ElementsAre(4.5));
  EXPECT_THAT(step.state.var, ElementsAre(5));
}

TEST(RunningStateTest, InstancesAreOrderedByBatchThenChannel) {
  Moments moments = MomentsOf({1, 3}, 2);                             // n = 0: means 2, 3
  for (const Moment& m : MomentsOf({5, 9}, 2)) moments.push_back(m);  // n = 1: means 7, 8
  const StepResult step = ApplyFirst(TrackingInstanceNorm({.momentum = 1}), 2, moments);
  EXPECT_THAT(step.state.mean, ElementsAre(4.5, 5.5));
}

TEST(RunningStateTest, InstancesOfOneValueKeepTheVariance) {
  for (const RunningVariance variance : {RunningVariance::kUnbiased, RunningVariance::kBiased}) {
    const StepResult step =
        ApplyFirst(TrackingInstanceNorm({.momentum = 1, .variance = variance}), 1, MomentsOf({3}, 1));
    EXPECT_THAT(step.state.mean, ElementsAre(3));
    EXPECT_THAT(step.state.var, ElementsAre(1));
    EXPECT_EQ(step.state.num_batches, 1);
  }
}

// The group-scaled squares of the published example, per channel over two positions.
TEST(RunningStateTest, PowerNormFollowsThePublishedPhi) {
  const NormSpec spec = PowerSpec(2);
  RunningState state = InitialState(spec, 2);
  const std::vector<std::vector<std::vector<double>>> inputs = {{{1, 2}, {3, 4}}, {{2, 1}, {0, 5}}, {{-1, 3}, {2, 2}}};
  const std::vector<std::vector<double>> phis = {
      {0.55999891, 1.43999629}, {0.5839987, 1.4159965}, {0.58559869, 1.41439654}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Moments moments(2, Moment{.count = 2});
    for (const std::vector<double>& position : inputs[i]) {
      const double square = (position[0] * position[0] + position[1] * position[1]) / 2 + 1e-5;
      for (size_t c = 0; c < 2; ++c) moments[c].m2 += position[c] * position[c] / square;
    }
    state = Apply(spec, state, moments).state;
    EXPECT_NEAR(state.phi[0], phis[i][0], 1e-7) << i;
    EXPECT_NEAR(state.phi[1], phis[i][1], 1e-7) << i;
  }
  EXPECT_EQ(state.num_batches, 3);
}

// Older servers let callers give any count, and such records are read.
TEST(RunningStateTest, TheLargestCountOfStepsStays) {
  const Moments moments = {{.count = 4, .mean = 0, .m2 = 2}};
  RunningState state = InitialState(PowerSpec(2), 1);
  state.num_batches = UINT64_MAX;
  const StepResult step = Apply(PowerSpec(2), state, moments);
  EXPECT_EQ(step.state.num_batches, UINT64_MAX);
  EXPECT_THAT(step.state.phi, ElementsAre(DoubleEq(0.9 + 0.1 * 0.5)));
  state = InitialState(BatchSpec({.cumulative = true}), 1);
  state.num_batches = UINT64_MAX;
  EXPECT_EQ(Apply(BatchSpec({.cumulative = true}), state, moments).state.num_batches, UINT64_MAX);
}

TEST(RunningStateTest, PowerNormDividesByVDuringWarmUpAndByPhiAfterIt) {
  const NormSpec spec = PowerSpec(2);
  EXPECT_THAT(PowerNormDivisor(spec, 2, {0.5}, {7.0}), ElementsAre(0.5));
  EXPECT_THAT(PowerNormDivisor(spec, 3, {0.5}, {7.0}), ElementsAre(7.0));
  EXPECT_THAT(PowerNormDivisor(spec, 3, {0.5}, {}), ElementsAre());
}

TEST(RunningStateTest, VIsGivenOrThatOfTheMoments) {
  const Moments moments = {{.count = 4, .mean = 0, .m2 = 2}, {.count = 4, .mean = 0, .m2 = 6}};
  EXPECT_THAT(MeanSquaresOf(moments, {}), ElementsAre(0.5, 1.5));
  EXPECT_THAT(MeanSquaresOf(moments, {kNan, 1.25}), ElementsAre(0.5, 1.25));
}

TEST(RunningStateTest, ManyStepsAgreeWithTheOracle) {
  std::mt19937_64 random(20240501);
  std::normal_distribution<double> normal;
  const NormSpec batch = BatchSpec({.momentum = 0.3});
  const NormSpec power = PowerSpec(20);
  RunningState batch_state = InitialState(batch, 1);
  RunningState power_state = InitialState(power, 1);
  oracle::RunningValues batch_wanted = oracle::RunningValues::Initial(1);
  oracle::PowerValues power_wanted = oracle::PowerValues::Initial(1);
  for (int i = 0; i < 50; ++i) {
    const double count = 2 + i % 7;
    const Moment m = {.count = count, .mean = normal(random), .m2 = std::abs(normal(random))};
    batch_state = Apply(batch, batch_state, {m}).state;
    power_state = Apply(power, power_state, {{.count = count, .mean = 0, .m2 = m.m2}}).state;
    const oracle::Wide v = oracle::Wide(m.m2) / oracle::Wide(count);
    ASSERT_TRUE(oracle::StepBatchNorm({.momentum = 0.3}, {{static_cast<int64_t>(count), m.mean, v}}, batch_wanted));
    ASSERT_TRUE(
        oracle::StepPowerNorm({.alpha_fwd = 0.9, .warmup_iters = 20}, static_cast<int64_t>(count), {v}, power_wanted)
            .applied);
    ASSERT_NEAR(batch_state.mean[0], static_cast<double>(batch_wanted.mean[0]), 1e-14);
    ASSERT_NEAR(batch_state.var[0], static_cast<double>(batch_wanted.var[0]), 1e-14);
    ASSERT_NEAR(power_state.phi[0], static_cast<double>(power_wanted.phi[0]), 1e-14);
  }
}

TEST(RunningStateTest, MomentsThatNoBatchCanHaveAreRefused) {
  const NormSpec spec = BatchSpec();
  const RunningState before = InitialState(spec, 2);
  const auto field = [&](const Moments& moments) { return FieldOf(Refusal(spec, 2, before, moments)); };
  EXPECT_EQ(field(MomentsOf({1, 2}, 3)), "moments");
  EXPECT_EQ(field({{.count = 2, .mean = 0, .m2 = 1}, {.count = 3, .mean = 0, .m2 = 1}}), "moments.count[1]");
  EXPECT_EQ(field({{.count = -2, .mean = 0, .m2 = 1}, {.count = -2, .mean = 0, .m2 = 1}}), "moments.count[0]");
  EXPECT_EQ(field({{.count = 2.5, .mean = 0, .m2 = 1}, {.count = 2.5, .mean = 0, .m2 = 1}}), "moments.count[0]");
  EXPECT_EQ(field({{.count = kNan, .mean = 0, .m2 = 1}, {.count = 2, .mean = 0, .m2 = 1}}), "moments.count[0]");
  EXPECT_EQ(field({{.count = 2, .mean = 0, .m2 = 1}, {.count = 2, .mean = 0, .m2 = -1}}), "moments.m2[1]");
  const NormSpec instance = TrackingInstanceNorm();
  EXPECT_EQ(FieldOf(Refusal(instance, 2, InitialState(instance, 2), MomentsOf({1, 2}, 3))), "moments");
  const NormSpec layer = {.attributes = LayerNormSpec{.normalized_shape = {4}}};
  EXPECT_EQ(FieldOf(Refusal(layer, 0, {}, {})), "moments");
}

TEST(RunningStateTest, TheHashDependsOnEveryBitButNotOnTheKindOfNaN) {
  const Moments moments = MomentsOf({1, 3, 5, 9}, 3);
  const uint64_t hash = HashMoments(moments);
  for (size_t i = 0; i < moments.size(); ++i) {
    Moments other = moments;
    other[i].m2 = std::nextafter(other[i].m2, 100);
    EXPECT_NE(HashMoments(other), hash);
    other = moments;
    other[i].mean = -other[i].mean;
    EXPECT_NE(HashMoments(other), hash);
  }
  EXPECT_NE(HashMoments({moments[1], moments[0], moments[2]}), hash);
  EXPECT_NE(HashMoments({moments[0], moments[1]}), hash);
  EXPECT_NE(HashMoments(Moments(1)), HashMoments(Moments(2)));
  EXPECT_EQ(HashMoments({{.count = 1, .mean = kNan}}), HashMoments({{.count = 1, .mean = -kNan}}));
}

TEST(Drift, IsTheLargestDistanceOfAMeanInRunningStandardDeviations) {
  NormSpec spec = BatchSpec();
  spec.eps = 1.0;
  const RunningState state = {.mean = {0, 10, -4}, .var = {3, 8, 0}, .num_batches = 5};
  const Moments moments = {
      {.count = 4, .mean = 1, .m2 = 1}, {.count = 4, .mean = 4, .m2 = 1}, {.count = 4, .mean = -4.5}};
  EXPECT_THAT(DriftOf(Trained(spec, state), moments), testing::Optional(2.0)) << "(10 - 4) / sqrt(8 + 1)";
}

TEST(Drift, OfInstancesIsThatOfTheirMean) {
  NormSpec spec = TrackingInstanceNorm();
  spec.eps = 0.0;
  const RunningState state = {.mean = {1}, .var = {4}, .num_batches = 1};
  EXPECT_THAT(DriftOf(Trained(spec, state), {{.count = 9, .mean = 3}, {.count = 9, .mean = 7}}),
              testing::Optional(2.0));
}

TEST(Drift, OfAMeanThatIsNotANumberIsNotANumber) {
  const RunningState state = {.mean = {0, 0}, .var = {1, 1}, .num_batches = 1};
  const Moments moments = {{.count = 2, .mean = std::nan("")}, {.count = 2, .mean = 5}};
  EXPECT_TRUE(std::isnan(DriftOf(Trained(BatchSpec(), state), moments).value()));
}

TEST(Drift, IsNotKnownBeforeTheFirstBatchAndWithoutARunningMean) {
  const Moments moments = {{.count = 2, .mean = 5}};
  EXPECT_EQ(DriftOf(Trained(BatchSpec(), {.mean = {0}, .var = {1}, .num_batches = 0}), moments), std::nullopt);
  EXPECT_EQ(DriftOf(Trained(PowerSpec(0), {.phi = {1}, .num_batches = 3}), moments), std::nullopt);
  EXPECT_EQ(DriftOf(Trained(BatchSpec(), {.mean = {0, 0}, .var = {1, 1}, .num_batches = 3}), moments), std::nullopt);
}

}  // namespace
}  // namespace normd
