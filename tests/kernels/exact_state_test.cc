// Moments and running statistics from exact sums beside the exact oracle.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_sums/exact_sums.h"
#include "kernels/exact_sums/nearest_moments.h"
#include "kernels/exact_sums/nearest_ratio.h"
#include "kernels/exact_sums/nearest_step.h"
#include "tests/support/constants.h"
#include "tests/support/exact_totals.h"
#include "tests/support/nearest.h"
#include "tests/support/nearest_state.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using slow_road::Dyadic;

// ---- The ratio ----

double RatioOf(uint64_t over, int64_t exponent, uint64_t under) {
  return NearestRatio(Dyadic(1, over, exponent), Dyadic::Integer(under));
}

TEST(NearestRatioTest, IsTheNearestOfAnyRatio) {
  Random random(TestSeed() + 1);
  for (int i = 0; i < 20'000; ++i) {
    // Few bits make ties, and exponents beyond the ends zeros, subnormals and infinities.
    const uint64_t over = random.Bits() >> random.Below(64),
                   under = std::max<uint64_t>(1, random.Bits() >> random.Below(64));
    const int64_t exponent = random.Below(i % 2 == 0 ? 20 : 2400) - (i % 2 == 0 ? 10 : 1200);
    const oracle::Dyadic exactly(mpz_class(static_cast<unsigned long>(over)), exponent);
    const double want =
        oracle::NearestQuotient(exactly, oracle::Dyadic(mpz_class(static_cast<unsigned long>(under)), 0));
    EXPECT_EQ(RatioOf(over, exponent, under), want) << over << " * 2^" << exponent << " / " << under;
    EXPECT_EQ(NearestRatio(Dyadic(-1, over, exponent), Dyadic::Integer(under)), -want);
  }
}

// A middle and what lies next to it, in every range of exponents.
TEST(NearestRatioTest, TellsAMiddleFromItsNeighbours) {
  Random random(TestSeed() + 2);
  for (int64_t exponent = -1130; exponent < 980; ++exponent) {
    const uint64_t m = (uint64_t{1} << 53) + static_cast<uint64_t>(random.Below(int64_t{1} << 53));
    for (const uint64_t middle : {m | 1, (uint64_t{1} << 53) + 1, (uint64_t{1} << 54) - 1, uint64_t{1}, uint64_t{3}}) {
      const Dyadic exactly(1, middle, exponent);
      const Dyadic third(1, 3 * middle, exponent);
      for (const int sign : {-1, 0, 1}) {
        // Far below all bits of the middle.
        const Dyadic beside = exactly + Dyadic(sign == 0 ? 1 : sign, sign == 0 ? 0 : 1, exponent - 2000);
        oracle::Dyadic want(mpz_class(static_cast<unsigned long>(middle)), exponent);
        want += oracle::Dyadic(mpz_class(sign), exponent - 2000);
        const double nearest = oracle::NearestQuotient(want, oracle::Dyadic{1});
        ASSERT_EQ(NearestRatio(beside, Dyadic::Integer(1)), nearest) << middle << " * 2^" << exponent << ", " << sign;
        if (sign == 0) {
          ASSERT_EQ(NearestRatio(third, Dyadic::Integer(3)), nearest);
        }
      }
    }
  }
}

TEST(NearestRatioTest, HasZerosAndInfinities) {
  EXPECT_EQ(RatioOf(0, 0, 3), 0);
  EXPECT_EQ(RatioOf(1, -1075, 1), 0) << "a tie";
  EXPECT_EQ(RatioOf(3, -1076, 1), 0x1p-1074);
  EXPECT_EQ(RatioOf(3, -1077, 1), 0);
  EXPECT_EQ(RatioOf((uint64_t{1} << 54) - 1, 970, 1), kInf) << "the middle beyond the largest is a tie";
  EXPECT_EQ(RatioOf((uint64_t{1} << 55) - 3, 969, 1), std::numeric_limits<double>::max());
  EXPECT_EQ(RatioOf(1, 5000, 1), kInf);
  EXPECT_TRUE(std::signbit(NearestRatio(Dyadic(-1, 1, -5000), Dyadic::Integer(1))));
}

// ---- Moments and steps, as channels-last batches of the oracle ----

struct Batch {
  oracle::Type type;
  int64_t instances, length, channels;
  std::vector<double> x;  // [instances, length, channels]

  oracle::Input ToInput() const {
    oracle::Input input = {.type = type, .shape = {instances, length, channels}};
    for (const double v : x) input.x.emplace_back(v);
    return input;
  }
  // Of a channel of one instance.
  ExactTotals TotalsOf(int64_t instance, int64_t channel) const {
    WideExactSums wide;
    NarrowExactSums narrow;
    for (int64_t i = 0; i < length; ++i) {
      const double v = x[static_cast<size_t>((instance * length + i) * channels + channel)];
      type == oracle::Type::kF64 ? wide.Add(v) : narrow.Add(v);
    }
    return type == oracle::Type::kF64 ? wide.Totals() : narrow.Totals();
  }
};

// Kinds of data: ordinary, far from 0, few bits, any exponent, constant.
Batch BatchOf(oracle::Type type, int64_t instances, int64_t length, Random& random, int kind) {
  Batch batch = {.type = type, .instances = instances, .length = length, .channels = 3, .x = {}};
  const int range = type == oracle::Type::kF64 ? 500 : 120;  // variances stay finite
  for (int64_t i = 0; i < instances * length * 3; ++i) {
    double v = random.Normal();
    if (kind == 1) v += 1e6;
    if (kind == 2) v = static_cast<double>(random.Below(17) - 8);
    if (kind == 3) v = std::ldexp(v, static_cast<int>(random.Below(2 * range)) - range);
    if (kind == 4) v = 0.1;
    batch.x.push_back(static_cast<double>(oracle::Round(type, v)));
  }
  return batch;
}
constexpr int kKinds = 5;
constexpr oracle::Type kTypes[] = {oracle::Type::kF32, oracle::Type::kF64, oracle::Type::kBF16};

TEST(ExactStateTest, MomentsAreTheNearest) {
  Random random(TestSeed() + 3);
  for (const oracle::Type type : kTypes) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const Batch batch = BatchOf(type, 1, 37, random, kind);
      const oracle::NearestResult want =
          Nearest({.method = oracle::Method::kBatch, .channels_last = true}, batch.ToInput());
      for (int64_t c = 0; c < batch.channels; ++c) {
        const Moment moment = NearestMoment(batch.TotalsOf(0, c));
        const oracle::NearestStatistics& group = want.groups[static_cast<size_t>(c)];
        EXPECT_EQ(moment.count, 37);
        EXPECT_EQ(moment.mean, group.moment_mean) << kind;
        EXPECT_EQ(moment.m2, group.moment_m2) << kind;
      }
    }
  }
}

TEST(ExactStateTest, MomentsAboutZeroAndOfWhatIsNotFinite) {
  NarrowExactSums sums;
  EXPECT_EQ(NearestMoment(sums.Totals()).count, 0);
  sums.Add(3);
  sums.Add(-4);
  EXPECT_EQ(NearestMomentAboutZero(sums.Totals()).m2, 25);
  EXPECT_EQ(NearestMomentAboutZero(sums.Totals()).mean, 0);
  sums.Add(-kInf);
  EXPECT_EQ(NearestMoment(sums.Totals()).mean, -kInf);
  EXPECT_TRUE(std::isnan(NearestMoment(sums.Totals()).m2));
  EXPECT_EQ(NearestMomentAboutZero(sums.Totals()).m2, kInf);
  sums.Add(kInf);
  EXPECT_TRUE(std::isnan(NearestMoment(sums.Totals()).mean));
  sums.Add(kNan);
  EXPECT_TRUE(std::isnan(NearestMomentAboutZero(sums.Totals()).m2));
  EXPECT_EQ(NearestMoment(sums.Totals()).count, 5);
}

struct Rule {
  oracle::RunningRule oracle;
  RunningSpec spec;
};
std::vector<Rule> Rules() {
  const auto rule = [](std::optional<double> momentum, bool of_old, bool cumulative, bool biased) {
    Rule both;
    both.oracle = {.momentum = momentum.value_or(of_old ? 0.9 : 0.1),
                   .momentum_of_old = of_old,
                   .cumulative = cumulative,
                   .biased = biased};
    both.spec.momentum = momentum;
    both.spec.momentum_of = of_old ? MomentumOf::kOld : MomentumOf::kNew;
    both.spec.cumulative = cumulative;
    both.spec.variance = biased ? RunningVariance::kBiased : RunningVariance::kUnbiased;
    return both;
  };
  return {rule({}, false, false, false), rule({}, true, false, true),         rule({}, false, true, false),
          rule({}, false, true, true),   rule(0.0, false, false, true),       rule(1.0, false, false, true),
          rule(0.0, true, false, false), rule(0x1p-1074, false, false, true), rule(0x1p-60, true, false, true)};
}

// Twenty steps of each rule, BatchNorm and InstanceNorm, on data of all kinds.
TEST(ExactStateTest, StepsAreTheNearest) {
  Random random(TestSeed() + 4);
  for (const Rule& rule : Rules()) {
    for (const int64_t instances : {1, 3}) {
      for (const oracle::Type type : kTypes) {
        oracle::RunningValues want = oracle::RunningValues::Initial(3);
        std::vector<double> mean(3, 0), var(3, 1);
        for (int step = 1; step <= 20; ++step) {
          const Batch batch = BatchOf(type, instances, step == 7 ? 1 : 11, random, step % kKinds);
          const oracle::Method method = instances == 1 ? oracle::Method::kBatch : oracle::Method::kInstance;
          ASSERT_TRUE(StepNearest({.method = method, .channels_last = true}, batch.ToInput(), rule.oracle, want));
          const StepWeight weight = StepWeight::Of(rule.spec, static_cast<uint64_t>(step));
          for (int64_t c = 0; c < 3; ++c) {
            StepStatistics statistics;
            for (int64_t i = 0; i < instances; ++i) statistics.Add(batch.TotalsOf(i, c));
            const auto at = static_cast<size_t>(c);
            mean[at] = statistics.NextMean(weight, mean[at]);
            var[at] = statistics.NextVariance(weight, rule.spec.variance, var[at]);
            EXPECT_TRUE(want.mean[at] == mean[at]) << step;
            EXPECT_TRUE(want.var[at] == var[at]) << step;
          }
        }
      }
    }
  }
}

TEST(ExactStateTest, StepsOfWhatIsNotFiniteAreThoseOfF64) {
  NarrowExactSums sums;
  StepStatistics none;
  const StepWeight half = {Dyadic(0.5), Dyadic(1.0)};
  EXPECT_EQ(none.NextMean(half, 3), 3);
  EXPECT_EQ(none.NextVariance(half, RunningVariance::kBiased, 3), 3);
  sums.Add(1);
  sums.Add(3);
  StepStatistics finite;
  finite.Add(sums.Totals());
  EXPECT_EQ(finite.NextMean(half, -kInf), -kInf);
  EXPECT_TRUE(std::isnan(finite.NextVariance(half, RunningVariance::kBiased, kNan)));
  sums.Add(kInf);
  StepStatistics infinite;
  infinite.Add(sums.Totals());
  EXPECT_FALSE(infinite.is_finite());
  EXPECT_EQ(infinite.NextMean(half, 5), kInf);
  EXPECT_TRUE(std::isnan(infinite.NextVariance(half, RunningVariance::kBiased, 1)));
}

// What all workers' elements give together, whoever had which and whenever they came: the claim of exact-4's state.
TEST(ExactStateTest, WorkersMergedAreOneBatch) {
  Random random(TestSeed() + 5);
  for (int kind = 0; kind < kKinds; ++kind) {
    const Batch batch = BatchOf(oracle::Type::kF32, 1, 400, random, kind);
    NarrowExactSums workers[6];
    for (int64_t i = 0; i < batch.length; ++i) workers[random.Below(6)].Add(batch.x[static_cast<size_t>(3 * i)]);
    NarrowExactSums merged;
    for (const int worker : {4, 1, 5, 0, 3, 2}) ASSERT_TRUE(merged.Merge(workers[worker]).ok());
    StepStatistics of_workers, of_batch;
    of_workers.Add(merged.Totals());
    of_batch.Add(batch.TotalsOf(0, 0));
    const StepWeight weight = StepWeight::Of({}, 1);
    EXPECT_EQ(of_workers.NextMean(weight, 0.3), of_batch.NextMean(weight, 0.3));
    EXPECT_EQ(of_workers.NextVariance(weight, RunningVariance::kUnbiased, 0.7),
              of_batch.NextVariance(weight, RunningVariance::kUnbiased, 0.7));
  }
}

// ---- Samples ----

void ExpectMerge(const Moment& before, double fading, const std::vector<double>& elements) {
  WideExactSums sums;
  for (const double x : elements) sums.Add(x);
  const oracle::SampleStatistics want =
      oracle::MergedWith({before.count, before.mean, before.m2}, fading, oracle::TotalsOf(elements));
  const PairMoment merged = NearestMerge({{before.count, 0}, {before.mean, 0}, {before.m2, 0}}, fading, sums.Totals());
  EXPECT_EQ(merged.count.hi, want.count);
  EXPECT_EQ(merged.mean.hi, want.mean);
  EXPECT_EQ(merged.m2.hi, want.m2);
}

TEST(ExactStateTest, SamplesMergeToTheNearest) {
  Random random(TestSeed() + 6);
  for (int round = 0; round < 300; ++round) {
    const Batch batch = BatchOf(round % 2 == 0 ? oracle::Type::kF32 : oracle::Type::kF64, 1, 1 + random.Below(9),
                                random, round % kKinds);
    std::vector<double> elements;
    for (int64_t i = 0; i < batch.length; ++i) elements.push_back(batch.x[static_cast<size_t>(3 * i)]);
    const double spread = round % 3 == 0 ? std::ldexp(1, static_cast<int>(random.Below(800)) - 400) : 1;
    const Moment before = {.count = std::abs(random.Normal()) * 100,
                           .mean = random.Normal() * spread,
                           .m2 = std::abs(random.Normal()) * spread};
    for (const double fading : {1.0, 0.37, 0x1p-1074, 0.0}) ExpectMerge(before, fading, elements);
    ExpectMerge({}, 1, elements);
  }
  // The ends of the range of f64.
  constexpr double kMost = std::numeric_limits<double>::max();
  ExpectMerge({.count = kMost, .mean = kMost, .m2 = kMost}, 1, {kMost, 0x1p-1074, -kMost});
  ExpectMerge({.count = 0x1p-1074, .mean = 0x1p-1074, .m2 = 0x1p-1074}, 0x1p-1074, {kMost, 0x1p-1074});
}

TEST(ExactStateTest, SamplesAreThoseOfTheExamples) {
  const auto totals = [](std::vector<double> elements) {
    NarrowExactSums sums;
    for (const double x : elements) sums.Add(x);
    return sums.Totals();
  };
  const PairMoment both = NearestMerge(NearestMerge({}, 1, totals({1, 3})), 1, totals({5, 9}));
  EXPECT_EQ(both.count.hi, 4);
  EXPECT_EQ(both.mean.hi, 4.5);
  EXPECT_EQ(both.m2.hi, 35);
  EXPECT_EQ(NearestMerge(both, 0.5, totals({})).count.hi, 4) << "no sample, no fading";
  const PairMoment of_nothing = {.count = {0, 0}, .mean = {7, 0}, .m2 = {5, 0}};
  EXPECT_EQ(NearestMerge(of_nothing, 1, totals({1, 3})).m2.hi, 2) << "no sample, no deviation";
  PairMoment decayed;
  for (const double x : {0.0, 0.0, 8.0}) decayed = NearestMerge(decayed, 0.5, totals({x}));
  EXPECT_EQ(decayed.count.hi, 1.75);
  EXPECT_EQ(decayed.mean.hi, 8 / 1.75);
}

// Without the low parts most of these have another last bit.
TEST(ExactStateTest, SamplesOfManyStepsAreThoseOfOne) {
  Random random(TestSeed() + 7);
  for (int channel = 0; channel < 50; ++channel) {
    PairMoment state;
    WideExactSums all;
    for (int step = 0; step < 100; ++step) {
      WideExactSums sums;
      for (int i = 0; i < 3; ++i) {
        const double x = 5 + random.Normal();
        sums.Add(x);
        all.Add(x);
      }
      state = NearestMerge(state, 1, sums.Totals());
    }
    const PairMoment once = NearestMerge({}, 1, all.Totals());
    EXPECT_EQ(state.count.hi, once.count.hi);
    EXPECT_EQ(state.mean.hi, once.mean.hi);
    EXPECT_EQ(state.m2.hi, once.m2.hi);
  }
}

}  // namespace
}  // namespace normd
