#include "server/session/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/running_state.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/oracle_state.h"

namespace normd {
namespace {

using oracle::SampleHistory;
using session_test::BatchSpec;
using session_test::CountingSpec;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Moment MomentOf(const std::vector<double>& samples, double weight = 1) {
  Moment moment;
  for (const double sample : samples) moment = Merge(moment, {.count = weight, .mean = sample, .m2 = 0});
  return moment;
}

// A state of one channel that has seen `steps`.
RunningState After(const NormSpec& spec, const std::vector<std::vector<double>>& steps) {
  RunningState state = InitialState(spec, 1);
  for (const std::vector<double>& step : steps) EXPECT_TRUE(ApplyStep(spec, 1, {MomentOf(step)}, &state).ok());
  return state;
}

absl::Status Refusal(const Moments& moments, const SampleDetails& details = {}, int64_t channels = 2) {
  const NormSpec spec = CountingSpec();
  RunningState state = InitialState(spec, channels);
  const RunningState before = state;
  const absl::Status status = ApplyStep(spec, channels, moments, &state, details).status();
  EXPECT_EQ(state.mean, before.mean);
  EXPECT_EQ(state.count, before.count);
  EXPECT_EQ(state.num_batches, 0);
  return status;
}

std::string RefusedField(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field : "";
}

TEST(SampleStatisticsTest, CountEachSampleOnce) {
  const RunningState biased = After(CountingSpec(), {{1, 3}, {5, 9}});
  EXPECT_THAT(biased.count, ElementsAre(4));
  EXPECT_THAT(biased.mean, ElementsAre(4.5));
  EXPECT_THAT(biased.var, ElementsAre(8.75));
  EXPECT_EQ(biased.num_batches, 2);
  const NormSpec unbiased = CountingSpec({}, RunningVariance::kUnbiased);
  EXPECT_THAT(After(unbiased, {{1, 3}, {5, 9}}).var, ElementsAre(DoubleEq(35.0 / 3)));
}

TEST(SampleStatisticsTest, BeginWithThePrior) {
  const NormSpec spec = CountingSpec({.prior_count = 1e-4});
  const RunningState state = After(spec, {{0, 2}, {0, 2}});
  EXPECT_THAT(state.count, ElementsAre(DoubleEq(4.0001)));
  EXPECT_THAT(state.mean, ElementsAre(DoubleEq(0.9999750006249843)));
  EXPECT_THAT(state.var, ElementsAre(DoubleEq(1.000024998750047)));
}

TEST(SampleStatisticsTest, ReadThePriorWhileNothingWasSeen) {
  const NormSpec spec = CountingSpec({.prior_mean = 7, .prior_variance = 3}, RunningVariance::kUnbiased);
  const RunningState state = InitialState(spec, 1);
  EXPECT_THAT(state.count, ElementsAre(0));
  EXPECT_THAT(state.mean, ElementsAre(7));
  EXPECT_THAT(state.var, ElementsAre(3));
  EXPECT_THAT(state.min, ElementsAre(kInfinity));
  EXPECT_THAT(state.max, ElementsAre(-kInfinity));
  EXPECT_THAT(After(spec, {{5}}).mean, ElementsAre(5)) << "a prior of no weight is forgotten";
  EXPECT_THAT(After(spec, {{5}}).var, ElementsAre(3)) << "one sample has no unbiased variance";
}

TEST(SampleStatisticsTest, WeighLaterSamplesMoreWithDecay) {
  const RunningState state = After(CountingSpec({.decay = 0.5}), {{0}, {0}, {8}});
  EXPECT_THAT(state.count, ElementsAre(1.75));
  EXPECT_THAT(state.mean, ElementsAre(DoubleEq(8 / 1.75)));
}

// Batches as a client merges them before it sends them.
struct Contribution {
  Moment moment;
  double samples = 0;

  void Add(const std::vector<double>& batch, double decay) {
    const double fading = std::pow(decay, static_cast<double>(batch.size()));
    moment = Merge({.count = moment.count * fading, .mean = moment.mean, .m2 = moment.m2 * fading}, MomentOf(batch));
    samples += static_cast<double>(batch.size());
  }
  void Send(const NormSpec& spec, RunningState* state) const {
    ASSERT_TRUE(ApplyStep(spec, 1, {moment}, state, {.extremes = {}, .samples = {samples}}).ok());
  }
};

TEST(SampleStatisticsTest, DecayDoesNotDependOnHowBatchesAreSent) {
  const NormSpec spec = CountingSpec({.decay = 0.5});
  RunningState state = InitialState(spec, 1);
  Contribution all;
  for (const double value : {0.0, 0.0, 8.0}) all.Add({value}, 0.5);
  all.Send(spec, &state);
  EXPECT_THAT(state.count, ElementsAre(1.75));
  EXPECT_THAT(state.mean, ElementsAre(DoubleEq(8 / 1.75)));
  Contribution more;
  for (const double value : {1.0, 1.0}) more.Add({value}, 0.5);
  more.Send(spec, &state);
  EXPECT_EQ(state.count, After(spec, {{0}, {0}, {8}, {1}, {1}}).count) << "the earlier ones fade by the samples";
}

TEST(SampleStatisticsTest, DecayIsThatOfTheOracleHoweverBatchesAreSent) {
  std::mt19937_64 random(20261128);
  for (const double decay : {0.5, 0.9, 0.9999}) {
    for (const size_t most_batches : {1, 2, 7, 300}) {
      const NormSpec spec = CountingSpec({.prior_count = 1, .decay = decay});
      RunningState state = InitialState(spec, 1);
      SampleHistory history({.count = 1, .mean = 0, .variance = 1}, decay);
      Contribution contribution;
      size_t batches = 0;
      for (int step = 0; step < 300; ++step) {
        std::vector<double> batch(1 + random() % 5);
        for (double& value : batch) value = std::normal_distribution<double>(3, 2)(random);
        history.Add(batch);
        contribution.Add(batch, decay);
        if (++batches % most_batches != 0) continue;
        contribution.Send(spec, &state);
        contribution = {};
      }
      if (contribution.samples > 0) contribution.Send(spec, &state);
      const SampleHistory::Statistics truth = history.Now();
      const auto near = [](oracle::Wide value, double tolerance) {
        const auto rounded = static_cast<double>(value);
        return ::testing::DoubleNear(rounded, tolerance * std::abs(rounded));
      };
      EXPECT_THAT(state.count, ElementsAre(near(truth.count, 1e-13))) << decay << ' ' << most_batches;
      EXPECT_THAT(state.mean, ElementsAre(near(truth.mean, 1e-13))) << decay << ' ' << most_batches;
      EXPECT_THAT(state.m2, ElementsAre(near(truth.m2, 1e-12))) << decay << ' ' << most_batches;
    }
  }
}

TEST(SampleStatisticsTest, FewerSamplesThanTheirWeightsAreRefused) {
  const Moment good = MomentOf({1, 3});
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{}, {2, 1.5}})), "moments.samples[1]");
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{}, {kNan, 2}})), "moments.samples[0]");
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{}, {2, 2e18}})), "moments.samples[1]");
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{}, {2}})), "moments.samples");
  RunningState state = InitialState(BatchSpec(), 1);
  EXPECT_EQ(RefusedField(ApplyStep(BatchSpec(), 1, {good}, &state, {{}, {2}}).status()), "moments.samples");
  const NormSpec spec = CountingSpec({.decay = 0.5});
  state = InitialState(spec, 2);
  const Moment none = {};
  EXPECT_TRUE(ApplyStep(spec, 2, {good, none}, &state, {{}, {2, kNan}}).ok()) << "a channel without samples";
  EXPECT_THAT(state.count, ElementsAre(2, 0));
}

TEST(SampleStatisticsTest, DoNotDependOnHowSamplesAreGrouped) {
  const RunningState one_by_one = After(CountingSpec(), {{1}, {3}, {5}, {9}});
  const RunningState at_once = After(CountingSpec(), {{1, 3, 5, 9}});
  EXPECT_EQ(one_by_one.count, at_once.count);
  EXPECT_EQ(one_by_one.mean, at_once.mean);
  EXPECT_EQ(one_by_one.m2, at_once.m2);
}

// Steps of random lengths and weights, far from 0 and near it, with every kind of prior.
TEST(SampleStatisticsTest, AreThoseOfAllSamplesToTheOracle) {
  std::mt19937_64 random(20261127);
  for (const double decay : {1.0, 0.999, 0.5}) {
    for (const double offset : {0.0, 1e8}) {
      const SampleSpec samples = {.prior_count = 1e-4, .prior_mean = 2, .prior_variance = 3, .decay = decay};
      const NormSpec spec = CountingSpec(samples);
      SampleHistory history({.count = 1e-4, .mean = 2, .variance = 3}, decay);
      RunningState state = InitialState(spec, 1);
      for (int step = 0; step < 60; ++step) {
        std::vector<double> values(random() % 9);
        for (double& value : values) value = offset + std::normal_distribution<double>(3, 2)(random);
        const double weight = step % 3 == 0 ? 0.25 : 1;
        history.Add(values, weight);
        ASSERT_TRUE(ApplyStep(spec, 1, {MomentOf(values, weight)}, &state).ok());
      }
      const SampleHistory::Statistics truth = history.Now();
      const auto near = [](oracle::Wide value, double tolerance) {
        const auto rounded = static_cast<double>(value);
        return ::testing::DoubleNear(rounded, tolerance * std::abs(rounded));
      };
      EXPECT_THAT(state.count, ElementsAre(near(truth.count, 1e-14))) << decay << ' ' << offset;
      EXPECT_THAT(state.mean, ElementsAre(near(truth.mean, 1e-14))) << decay << ' ' << offset;
      EXPECT_THAT(state.m2, ElementsAre(near(truth.m2, offset == 0 ? 1e-13 : 1e-7))) << decay << ' ' << offset;
    }
  }
}

// Steps of three channels, far from 0 and near it, and their exact statistics.
struct RandomSteps {
  static constexpr double kCentres[] = {0, 5, 1e6};

  RandomSteps(size_t count, std::mt19937_64* random) : steps(count) {
    for (Moments& step : steps) {
      const size_t samples = 1 + (*random)() % 30;
      for (const double centre : kCentres) {
        std::vector<double> values(samples);
        for (double& value : values) value = std::normal_distribution<double>(centre, 2)(*random);
        step.push_back(MomentOf(values));
      }
    }
  }
  SampleHistory::Statistics Truth(size_t c) const {
    std::vector<oracle::KnownMoment> sets;
    for (const Moments& step : steps) sets.push_back({step[c].count, step[c].mean, step[c].m2});
    return oracle::UnionOf(sets);
  }
  RunningState Committed() const {
    RunningState state = InitialState(CountingSpec(), std::size(kCentres));
    for (const Moments& step : steps) EXPECT_TRUE(ApplyStep(CountingSpec(), 3, step, &state).ok());
    return state;
  }

  std::vector<Moments> steps;
};

// What is shown is the exact value rounded once; only a value halfway between two f64, to 2^-100, could be rounded
// otherwise in another order. Before there were low parts, 200 steps were off by 1.4e-15 and 3.2e-15, and as many more
// as the root of their number.
void ExpectExactInAnyOrder(size_t steps, int orders) {
  std::mt19937_64 random(1);
  RandomSteps contributions(steps, &random);
  std::vector<SampleHistory::Statistics> truths;
  for (size_t c = 0; c < std::size(RandomSteps::kCentres); ++c) truths.push_back(contributions.Truth(c));
  for (int order = 0; order < orders; ++order) {
    const RunningState state = contributions.Committed();
    for (size_t c = 0; c < truths.size(); ++c) {
      EXPECT_EQ(state.count[c], static_cast<double>(truths[c].count));
      EXPECT_EQ(state.mean[c], static_cast<double>(truths[c].mean)) << order << ' ' << c;
      EXPECT_EQ(state.m2[c], static_cast<double>(truths[c].m2)) << order << ' ' << c;
      EXPECT_EQ(state.var[c], state.m2[c] / state.count[c]) << "what a reader of the two finds";
    }
    std::shuffle(contributions.steps.begin(), contributions.steps.end(), random);
  }
}

TEST(SampleStatisticsTest, DoNotDependOnTheOrderOfSteps) { ExpectExactInAnyOrder(/*steps=*/200, /*orders=*/50); }

TEST(SampleStatisticsTest, DoNotDependOnTheOrderOfTenThousandSteps) {
  ExpectExactInAnyOrder(/*steps=*/10'000, /*orders=*/5);
}

// Counts that are not whole, as weights give them, are not exact in f64.
TEST(SampleStatisticsTest, CountsThatAreNotWholeDoNotDependOnTheOrderEither) {
  std::mt19937_64 random(2);
  std::vector<Moment> steps(1000);
  for (Moment& step : steps) {
    step = {.count = std::exponential_distribution<double>()(random),
            .mean = std::normal_distribution<double>(3, 2)(random),
            .m2 = std::exponential_distribution<double>()(random)};
  }
  std::vector<oracle::KnownMoment> sets = {{1e-4, 0.1, 1e-4}};
  for (const Moment& step : steps) sets.push_back({step.count, step.mean, step.m2});
  const SampleHistory::Statistics truth = oracle::UnionOf(sets);
  const NormSpec spec = CountingSpec({.prior_count = 1e-4, .prior_mean = 0.1});
  for (int order = 0; order < 10; ++order) {
    RunningState state = InitialState(spec, 1);
    for (const Moment& step : steps) ASSERT_TRUE(ApplyStep(spec, 1, {step}, &state).ok());
    EXPECT_THAT(state.count, ElementsAre(static_cast<double>(truth.count)));
    EXPECT_THAT(state.mean, ElementsAre(static_cast<double>(truth.mean)));
    EXPECT_THAT(state.m2, ElementsAre(static_cast<double>(truth.m2)));
    std::shuffle(steps.begin(), steps.end(), random);
  }
}

// A state that another server wrote, or that a caller gave, has no low parts.
TEST(SampleStatisticsTest, AStateWithoutLowPartsGoesOnFromWhatItShows) {
  const RunningState before = After(CountingSpec(), {{0.1, 0.7}, {0.4}});
  RunningState state = before;
  state.count_low = state.mean_low = state.m2_low = {};
  ASSERT_TRUE(ApplyStep(CountingSpec(), 1, {MomentOf({2.3})}, &state).ok());
  const SampleHistory::Statistics truth = oracle::UnionOf({{3, before.mean[0], before.m2[0]}, {1, 2.3, 0}});
  EXPECT_THAT(state.mean, ElementsAre(static_cast<double>(truth.mean)));
  EXPECT_THAT(state.m2, ElementsAre(static_cast<double>(truth.m2)));
}

TEST(SampleStatisticsTest, WhatOverflowsIsInfiniteAndNoNan) {
  const NormSpec spec = CountingSpec({.prior_count = 1});
  RunningState state = InitialState(spec, 1);
  state.mean = {1e300};
  ASSERT_TRUE(ApplyStep(spec, 1, {MomentOf({1, 2})}, &state).ok());
  EXPECT_THAT(state.m2, ElementsAre(kInfinity));
  EXPECT_THAT(state.var, ElementsAre(kInfinity));
  EXPECT_TRUE(CheckLowValues(state, 1).ok());
}

TEST(SampleStatisticsTest, LowPartsThatNoRoundingLeavesAreRefused) {
  RunningState state = InitialState(CountingSpec(), 2);
  EXPECT_TRUE(CheckLowValues(state, 2).ok());
  state.mean = {1, 2};
  state.mean_low = {1e-17, 0.5};
  EXPECT_EQ(RefusedField(CheckLowValues(state, 2)), "state.mean_low[1]");
  state.mean_low = {1e-17, kNan};
  EXPECT_EQ(RefusedField(CheckLowValues(state, 2)), "state.mean_low[1]");
  state.mean_low = {1e-17, 5e-324};
  EXPECT_EQ(RefusedField(CheckLowValues(state, 2)), "state.mean_low[1]") << "exact merges would span a thousand digits";
  state.mean_low = {1e-17};
  EXPECT_EQ(RefusedField(CheckLowValues(state, 2)), "state.mean_low");
  state.mean_low = {1e-17, 0};
  EXPECT_EQ(RefusedField(CheckLowValues(state, 0)), "state.mean_low") << "of a session that counts no samples";
}

// The exact rest of the mean is a little more than half a unit, and rounds to half of one.
TEST(SampleStatisticsTest, LowPartsOfExactStepsCanBeReadAgain) {
  for (const std::vector<float>& values :
       {std::vector<float>{1, 0x1p-53F, 1e-38F, 0}, std::vector<float>{0x1p+53F, 1, 1e-20F, 0}}) {
    std::vector<NarrowExactSums> sums(1);
    for (const float value : values) sums[0].Add(value);
    const auto exact = std::make_shared<GroupSums>(std::move(sums));
    RunningState state = InitialState(CountingSpec(), 1);
    MergeSamples(CountingSpec().running(), exact->NearestMoments(), {.exact = exact}, &state);
    EXPECT_TRUE(CheckLowValues(state, 1).ok()) << CheckLowValues(state, 1);
    EXPECT_EQ(state.mean[0], exact->NearestMoments()[0].mean);
  }
  const SampleSpec tiny = {.prior_count = 0x1.23456789p-499, .prior_variance = 0x1.3456789abp-522};
  EXPECT_TRUE(CheckLowValues(InitialState(CountingSpec(tiny), 1), 1).ok());
}

TEST(SampleStatisticsTest, MeansThatCancelAreZeroInEveryOrder) {
  for (std::vector<double> values : {std::vector<double>{-2, 1, 1}, {-3, 1, 2}, {-3, 0, 1, 1, 1}, {-2, -1, 0, 1, 2}}) {
    do {
      RunningState state = InitialState(CountingSpec(), 1);
      for (const double value : values) ASSERT_TRUE(ApplyStep(CountingSpec(), 1, {MomentOf({value})}, &state).ok());
      ASSERT_THAT(state.mean, ElementsAre(0));
    } while (std::next_permutation(values.begin(), values.end()));
  }
}

TEST(SampleStatisticsTest, ChannelsHaveCountsOfTheirOwn) {
  RunningState state = InitialState(CountingSpec(), 3);
  ASSERT_TRUE(ApplyStep(CountingSpec(), 3,
                        {MomentOf({1, 3}), {.count = 0, .mean = kNan, .m2 = kNan}, MomentOf({4}, 0.5)}, &state)
                  .ok());
  EXPECT_THAT(state.count, ElementsAre(2, 0, 0.5));
  EXPECT_THAT(state.mean, ElementsAre(2, 0, 4));
  EXPECT_THAT(state.var, ElementsAre(1, 1, 0));
}

TEST(SampleStatisticsTest, ChannelsThatAreNotFiniteStayAsTheyWere) {
  RunningState state = InitialState(CountingSpec(), 4);
  const Moment good = MomentOf({1, 3});
  ASSERT_TRUE(ApplyStep(CountingSpec(), 4, {good, good, good, good}, &state).ok());
  const Moments moments = {MomentOf({5, 9}),
                           {.count = 2, .mean = kNan, .m2 = 1},
                           {.count = 2, .mean = 1, .m2 = kInfinity},
                           {.count = 2, .mean = 1e131, .m2 = 0}};
  EXPECT_THAT(SkippedChannels(moments), ElementsAre(1, 2, 3));
  EXPECT_EQ(*ApplyStep(CountingSpec(), 4, moments, &state), Reason::kApplied);
  EXPECT_THAT(state.count, ElementsAre(4, 2, 2, 2));
  EXPECT_THAT(state.mean, ElementsAre(4.5, 2, 2, 2));
}

TEST(SampleStatisticsTest, AStepOfNothingFiniteIsNotApplied) {
  RunningState state = InitialState(CountingSpec(), 2);
  const Moments moments = {{.count = 2, .mean = kNan, .m2 = 1}, {.count = 0, .mean = 0, .m2 = 0}};
  EXPECT_EQ(*ApplyStep(CountingSpec(), 2, moments, &state), Reason::kNonFinite);
  EXPECT_EQ(state.num_batches, 0);
}

TEST(SampleStatisticsTest, AChannelThatHasReachedMaxCountMovesNoMore) {
  const RunningState state = After(CountingSpec({.max_count = 3}), {{1}, {3}, {5, 7}, {100}, {100}});
  EXPECT_THAT(state.count, ElementsAre(4));
  EXPECT_THAT(state.mean, ElementsAre(4));
}

TEST(SampleStatisticsTest, ExtremesAreThoseOfAllSteps) {
  RunningState state = InitialState(CountingSpec(), 2);
  const Moments moments = {MomentOf({1, 3}), MomentOf({1, 3})};
  ASSERT_TRUE(ApplyStep(CountingSpec(), 2, moments, &state, {{.min = {1, 1}, .max = {3, 3}}, {}}).ok());
  ASSERT_TRUE(ApplyStep(CountingSpec(), 2, moments, &state, {{.min = {-1, kNan}, .max = {2, kNan}}, {}}).ok());
  EXPECT_THAT(state.min, ElementsAre(-1, ::testing::IsNan()));
  EXPECT_THAT(state.max, ElementsAre(3, ::testing::IsNan()));
  ASSERT_TRUE(ApplyStep(CountingSpec(), 2, moments, &state).ok()) << "without extremes";
  EXPECT_THAT(state.min, ElementsAre(::testing::IsNan(), ::testing::IsNan()));
}

TEST(SampleStatisticsTest, MomentsThatNoSamplesHaveAreRefused) {
  const Moment good = MomentOf({1, 3});
  EXPECT_EQ(RefusedField(Refusal({good})), "moments");
  EXPECT_EQ(RefusedField(Refusal({good, {.count = -1, .mean = 0, .m2 = 0}})), "moments.count[1]");
  EXPECT_EQ(RefusedField(Refusal({good, {.count = kNan, .mean = 0, .m2 = 0}})), "moments.count[1]");
  EXPECT_EQ(RefusedField(Refusal({good, {.count = kInfinity, .mean = 0, .m2 = 0}})), "moments.count[1]");
  EXPECT_EQ(RefusedField(Refusal({{.count = 2, .mean = 0, .m2 = -1}, good})), "moments.m2[0]");
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{.min = {1, 4}, .max = {3, 3}}, {}})), "moments.min[1]");
  EXPECT_EQ(RefusedField(Refusal({good, good}, {{.min = {1}, .max = {3}}, {}})), "moments.min");
}

TEST(SampleStatisticsTest, ExtremesAreRefusedWhereStepsAreWeighed) {
  RunningState state = InitialState(BatchSpec(), 1);
  const absl::Status status =
      ApplyStep(BatchSpec(), 1, {MomentOf({1, 3})}, &state, {{.min = {1}, .max = {3}}, {}}).status();
  EXPECT_EQ(RefusedField(status), "moments.min");
}

TEST(SampleStatisticsTest, TheHashTellsExtremesApart) {
  const Moments moments = {MomentOf({1, 3})};
  EXPECT_EQ(HashMoments(moments), HashMoments(moments, {}));
  EXPECT_NE(HashMoments(moments), HashMoments(moments, {{.min = {1}, .max = {3}}, {}}));
  EXPECT_NE(HashMoments(moments, {{.min = {1}, .max = {3}}, {}}), HashMoments(moments, {{.min = {1}, .max = {4}}, {}}));
  EXPECT_NE(HashMoments(moments, {{}, {2}}), HashMoments(moments, {{}, {3}}));
}

TEST(SampleStatisticsTest, FieldsOfTheOtherWeightingAreRefused) {
  const auto field = [](const NormSpec& spec) { return RefusedField(ValidateSpec(spec)); };
  EXPECT_EQ(field(BatchSpec({.weighting = Weighting::kSamples, .momentum = 0.1})), "batch_norm.running.momentum");
  EXPECT_EQ(field(BatchSpec({.weighting = Weighting::kSamples, .momentum_of = MomentumOf::kOld})),
            "batch_norm.running.momentum_of");
  EXPECT_EQ(field(BatchSpec({.weighting = Weighting::kSamples, .cumulative = true})), "batch_norm.running.cumulative");
  EXPECT_EQ(field(BatchSpec({.weighting = Weighting::kSamples, .single_value = SingleValue::kZeroVariance})),
            "batch_norm.running.single_value");
  EXPECT_EQ(field(BatchSpec({.weighting = Weighting::kSamples, .accept_non_finite = true})),
            "batch_norm.running.accept_non_finite");
  EXPECT_EQ(field(BatchSpec({.samples = {.prior_count = 1}})), "batch_norm.running.prior_count");
  EXPECT_EQ(field(BatchSpec({.samples = {.decay = 0.5}})), "batch_norm.running.decay");
  EXPECT_EQ(field(BatchSpec({.samples = {.max_count = 5}})), "batch_norm.running.max_count");
  EXPECT_EQ(field(BatchSpec({.normalize_with = NormalizeWith::kRunning})), "batch_norm.running.normalize_with");
  EXPECT_EQ(field(BatchSpec({.nan_policy = NanPolicy::kSkip})), "batch_norm.running.nan_policy");
  NormSpec instance = {.attributes = InstanceNormSpec{.layout = Layout::kChannelsFirst,
                                                      .track_running_statistics = true,
                                                      .running = {.weighting = Weighting::kSamples}}};
  EXPECT_EQ(field(instance), "instance_norm.running.weighting");
}

TEST(SampleStatisticsTest, NanIsLeftOutOnlyOfWhatIsNormalisedAfterTheStep) {
  RunningSpec running = CountingSpec().running();
  running.nan_policy = NanPolicy::kSkip;
  running.normalize_with = NormalizeWith::kBatch;
  EXPECT_EQ(RefusedField(ValidateSpec(BatchSpec(running))), "batch_norm.running.nan_policy");
  running.normalize_with = NormalizeWith::kRunning;
  EXPECT_TRUE(ValidateSpec(BatchSpec(running)).ok());
}

TEST(SampleStatisticsTest, AClipIsAboveZeroAndFinite) {
  const auto text = [](double clip) { return std::string(ValidateSpec(BatchSpec({.clip = clip})).message()); };
  EXPECT_THAT(text(0), HasSubstr("batch_norm.running.clip is 0; it must be above 0 and finite"));
  EXPECT_THAT(text(-1), HasSubstr("clip is -1"));
  EXPECT_THAT(text(kInfinity), HasSubstr("clip is inf"));
  EXPECT_THAT(text(kNan), HasSubstr("clip is nan"));
  EXPECT_THAT(text(1e-300), IsEmpty());
}

TEST(SampleStatisticsTest, NumbersOutOfRangeAreRefused) {
  const auto text = [](const SampleSpec& samples) {
    return std::string(ValidateSpec(CountingSpec(samples)).message());
  };
  EXPECT_THAT(text({.prior_count = -1}), HasSubstr("running.prior_count is -1; it must be between 0 and 1e+18"));
  EXPECT_THAT(text({.prior_mean = kNan}), HasSubstr("running.prior_mean is nan"));
  EXPECT_THAT(text({.prior_variance = -2}), HasSubstr("running.prior_variance is -2"));
  EXPECT_THAT(text({.decay = 0}), HasSubstr("running.decay is 0; it must be above 0 and at most 1"));
  EXPECT_THAT(text({.decay = 1.5}), HasSubstr("running.decay is 1.5"));
  EXPECT_THAT(text({.max_count = 0}), HasSubstr("running.max_count is 0; it must be above 0"));
  EXPECT_THAT(text({.prior_count = 1, .prior_mean = -3, .prior_variance = 0, .decay = 1, .max_count = 0.5}), IsEmpty());
}

}  // namespace
}  // namespace normd
