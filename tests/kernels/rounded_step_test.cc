// Training steps and pools of moments that came as f64, beside whole numbers: one rounding, whatever the numbers.
#include "kernels/exact_sums/rounded_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/constants.h"
#include "tests/support/exact_totals.h"
#include "tests/support/oracle_dyadic.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using slow_road::Dyadic;

// How a running value moves: with momentum, or as number `batches` of a mean of all.
struct StepRule {
  double momentum = 0.1;
  uint64_t batches = 0;

  StepWeight Weight() const {
    RunningSpec running;
    running.momentum = momentum;
    running.cumulative = batches > 0;
    return StepWeight::Of(running, std::max<uint64_t>(1, batches));
  }
};

// (1 - a) * old + a * (sum of values) / divisor in whole numbers, rounded once.
double WantStep(const StepRule& rule, double old, const std::vector<double>& values, uint64_t divisor) {
  const auto whole = [](uint64_t n) { return oracle::Dyadic(mpz_class(static_cast<unsigned long>(n)), 0); };
  const oracle::Dyadic over = rule.batches > 0 ? whole(1) : oracle::Dyadic(oracle::Wide(rule.momentum));
  const oracle::Dyadic under = whole(std::max<uint64_t>(1, rule.batches));
  oracle::Dyadic sum;
  for (const double v : values) sum += oracle::Dyadic(oracle::Wide(v));
  const oracle::Dyadic kept = (under - over) * whole(divisor) * oracle::Dyadic(oracle::Wide(old));
  return NearestQuotient(kept + over * sum, under * whole(divisor));
}

// A step of one channel whose instances have these values.
double StepOf(const RoundedStep& step, double old, const std::vector<double>& values) {
  Moments moments;
  for (const double value : values) moments.push_back({1, value, 0});
  std::vector<double> running = {old};
  step.Apply(moments, &Moment::mean, &running);
  return running.front();
}

void ExpectStep(const StepRule& rule, double old, const std::vector<double>& values, uint64_t divisor) {
  EXPECT_EQ(StepOf(RoundedStep(rule.Weight(), Dyadic::Integer(divisor)), old, values),
            WantStep(rule, old, values, divisor))
      << rule.momentum << " or 1/" << rule.batches << ", " << old;
}

constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kSmallest = 0x1p-1074;

std::vector<StepRule> StepRules() {
  return {{0.1}, {0.5}, {0.0}, {1.0}, {kSmallest}, {1 - 0x1p-53}, {0, 1}, {0, 3}, {0, 1'000'003}};
}

TEST(RoundedStepTest, IsTheNearestOfOrdinaryNumbers) {
  Random random(TestSeed() + 11);
  for (const StepRule& rule : StepRules()) {
    for (int round = 0; round < 2000; ++round) {
      const double spread = std::ldexp(1, static_cast<int>(random.Below(40)) - 20);
      std::vector<double> values;
      for (int64_t i = round % 500 == 0 ? 3000 : round % 5; i >= 0; --i) values.push_back(spread * random.Normal());
      ExpectStep(rule, random.Normal(), values, 1 + static_cast<uint64_t>(random.Below(round % 2 == 0 ? 8 : 1 << 30)));
    }
  }
}

TEST(RoundedStepTest, IsTheNearestOfAnyNumbers) {
  Random random(TestSeed() + 12);
  const auto any = [&] { return std::ldexp(random.Normal(), static_cast<int>(random.Below(2090)) - 1070); };
  for (const StepRule& rule : StepRules()) {
    for (int round = 0; round < 500; ++round) ExpectStep(rule, any(), {any(), any()}, 7);
    for (const double old : {0.0, kSmallest, kMost, -kMost}) {
      ExpectStep(rule, old, {0}, 3);
      ExpectStep(rule, old, {kMost, kMost, -kMost}, 3);
      ExpectStep(rule, old, {kSmallest}, 2);
      ExpectStep(rule, old, {kMost, kMost}, 1);
    }
  }
}

// Pairs of f64 do not tell a middle from its neighbours; the sums do not, either, where almost all of them cancels.
TEST(RoundedStepTest, TellsMiddlesFromTheirNeighbours) {
  Random random(TestSeed() + 13);
  for (int round = 0; round < 2000; ++round) {
    const double value = 1 + std::ldexp(static_cast<double>(random.Below(int64_t{1} << 52)), -52);
    const double half = 0x1p-53, beside = std::ldexp(random.Normal(), -random.Below(900) - 110);
    ExpectStep({1.0}, 3, {value, half, round % 3 == 0 ? 0 : beside}, 1);
    ExpectStep({0.5}, value, {value, 2 * half, round % 3 == 0 ? 0 : beside}, 1);
    ExpectStep({1.0}, 3, {value, beside, -value}, 1);
  }
}

// Channels beside each other, those of a block and more, have the values that each has by itself.
TEST(RoundedStepTest, ChannelsDoNotMixInAnyNumber) {
  Random random(TestSeed() + 17);
  const StepRule rule = {0.3};
  const RoundedStep step(rule.Weight(), Dyadic::Integer(5));
  for (const size_t channels : {1, 63, 64, 65, 376}) {
    for (const size_t instances : {1, 3}) {
      Moments moments;
      for (size_t i = 0; i < channels * instances; ++i) moments.push_back({1, random.Normal(), random.Normal()});
      if (channels > 10) moments[7].m2 = kNan;
      std::vector<double> running(channels, 0.7);
      step.Apply(moments, &Moment::m2, &running);
      for (size_t c = 0; c < channels; ++c) {
        if (c == 7) {
          EXPECT_TRUE(std::isnan(running[c]));
          continue;
        }
        std::vector<double> values;
        for (size_t i = 0; i < instances; ++i) values.push_back(moments[i * channels + c].m2);
        EXPECT_EQ(running[c], WantStep(rule, 0.7, values, 5)) << c;
      }
    }
  }
}

TEST(RoundedStepTest, WhatIsNotFiniteIsThatOfF64) {
  const RoundedStep half(StepWeight{Dyadic(0.5), Dyadic(1.0)}, Dyadic(2.0));
  const auto next = [&](double old, double value) { return StepOf(half, old, {value}); };
  EXPECT_EQ(next(kInf, 1), kInf);
  EXPECT_EQ(next(0, -kInf), -kInf);
  EXPECT_TRUE(std::isnan(next(kInf, -kInf)));
  EXPECT_TRUE(std::isnan(next(kNan, 0)));
  EXPECT_TRUE(std::isnan(next(0, kNan)));
  EXPECT_FALSE(std::signbit(next(-0.0, -0.0))) << "a zero is +0";
}

TEST(RoundedStepTest, AnInfinityIsWeighedByAnyMomentumAboveZero) {
  const StepRule tiny = {kSmallest};
  EXPECT_EQ(StepOf(RoundedStep(tiny.Weight(), Dyadic::Integer(1'000)), 0, {kInf}), kInf);
  EXPECT_EQ(StepOf(RoundedStep(tiny.Weight(), Dyadic::Integer(1'000)), 1, {-kInf, 1}), -kInf);
}

// One store's writer makes the steps of all sessions: integers of any size are for numbers that no data has.
TEST(RoundedStepTest, UnluckyNumbersNeedNoIntegersOfAnySize) {
  Random random(TestSeed() + 21);
  const auto decided = [&](const StepRule& rule, double old, const auto& value) {
    Moments moments;
    for (int c = 0; c < 200; ++c) moments.push_back({1, value(), 0});
    std::vector<double> running(moments.size(), old);
    const RoundedStep step(rule.Weight(), Dyadic::Integer(1));
    const size_t in_general = step.Apply(moments, &Moment::mean, &running);
    for (size_t c = 0; c < running.size(); ++c) {
      EXPECT_EQ(running[c], WantStep(rule, old, {moments[c].mean}, 1)) << rule.momentum << ", " << moments[c].mean;
    }
    return in_general;
  };
  const auto ordinary = [&] { return 1.5 + random.Uniform(); };
  EXPECT_EQ(decided({0.5}, 1.5, ordinary), 0);
  EXPECT_EQ(decided({0, 2}, 1.5, ordinary), 0);
  EXPECT_EQ(decided({0x1.123456789abcdp-53}, 1.5, ordinary), 0);
  EXPECT_EQ(decided({0x1p-53}, 1.5, [&] { return 2.5; }), 0) << "a middle";
  EXPECT_EQ(decided({0x1p-53}, 1.5, [&] { return std::nextafter(2.5, 2 + random.Uniform()); }), 0);
  EXPECT_EQ(decided({0.1}, 1.7e308, [&] { return 1.1e-308 * random.Uniform(); }), 0);
  EXPECT_EQ(decided({0.1}, -1.7e308, [&] { return 1.7e308 * (random.Uniform() - 0.5); }), 0);
}

// ---- Pools ----

oracle::Dyadic Whole(double v) { return oracle::Dyadic(oracle::Wide(v)); }

Moment WantPool(const std::vector<Moment>& parts) {
  oracle::Dyadic count, sum, squares;
  for (const Moment& part : parts) {
    count += Whole(part.count);
    sum += Whole(part.count) * Whole(part.mean);
    squares += Whole(part.m2) + Whole(part.count) * Whole(part.mean) * Whole(part.mean);
  }
  return {.count = NearestQuotient(count, oracle::Dyadic{1}),
          .mean = NearestQuotient(sum, count),
          .m2 = NearestQuotient(squares * count - sum * sum, count)};
}

void ExpectPool(std::vector<Moment> parts, Random& random) {
  const Moment want = WantPool(parts);
  for (int order = 0; order < 3; ++order) {
    const Moment got = NearestPool(parts);
    EXPECT_EQ(got.count, want.count);
    EXPECT_EQ(got.mean, want.mean);
    EXPECT_EQ(got.m2, want.m2);
    for (size_t i = parts.size(); i > 1; --i) {
      std::swap(parts[i - 1], parts[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
  }
}

TEST(NearestPoolTest, IsTheNearestInAnyOrder) {
  Random random(TestSeed() + 14);
  for (int round = 0; round < 2000; ++round) {
    const double distance = std::ldexp(1, static_cast<int>(random.Below(120)) - 60);
    std::vector<Moment> parts;
    for (int64_t i = random.Below(7); i >= -1; --i) {
      // Whole counts, weights, constant channels, equal means, sums that cancel.
      const double count = round % 3 == 0 ? random.Uniform() + 0.1 : static_cast<double>(1 + random.Below(1 << 20));
      const double mean = round % 5 == 0 ? 0.1 : random.Normal() + (round % 7 == 0 ? distance : 0);
      parts.push_back({count, mean, round % 4 == 0 ? 0 : count * std::abs(random.Normal())});
    }
    if (round % 2 == 0) parts.push_back({parts[0].count, -parts[0].mean, parts[0].m2});
    ExpectPool(parts, random);
  }
}

TEST(NearestPoolTest, IsTheNearestAtTheEndsOfF64) {
  Random random(TestSeed() + 15);
  const auto any = [&] { return std::ldexp(random.Normal(), static_cast<int>(random.Below(2090)) - 1070); };
  for (int round = 0; round < 1000; ++round) {
    ExpectPool({{std::abs(any()) + kSmallest, any(), std::abs(any())}, {1, any(), std::abs(any())}, {2, any(), 0}},
               random);
  }
  ExpectPool({{2, kMost, kMost}, {2, kMost, kMost}}, random);
  ExpectPool({{1, kSmallest, 0}, {2, 2 * kSmallest, kSmallest}}, random);
  ExpectPool({{1, 1, 0}, {1, 1 + 0x1p-52, 0}, {1, 1 + 0x1p-51, 0}}, random);
}

// A part of next to no weight moves the mean of two numbers off the middle between them.
TEST(NearestPoolTest, TellsMiddlesFromTheirNeighbours) {
  Random random(TestSeed() + 16);
  for (int round = 0; round < 2000; ++round) {
    const double mean = 1 + std::ldexp(static_cast<double>(random.Below(int64_t{1} << 52)), -52);
    const double weight = std::ldexp(1, -static_cast<int>(random.Below(150)) - 50);
    const double beside = random.Below(3) == 0 ? mean + 0x1p-53 : random.Normal();
    ExpectPool({{1, mean, weight}, {1, mean + 0x1p-52, 1}, {weight, beside, 0x1p-53}}, random);
  }
}

TEST(NearestPoolTest, ItsCountIsTheNearestSum) {
  Random random(TestSeed() + 20);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> values;
    std::vector<Moment> parts;
    oracle::Dyadic want;
    for (int64_t i = random.Below(12); i >= -1; --i) {
      const double value =
          round % 3 == 0 ? 0.1 : std::ldexp(random.Uniform() + 0.5, static_cast<int>(random.Below(70)));
      values.push_back(value);
      parts.push_back({value, round % 2 == 0 ? kNan : 1.0, 0});  // a mean that is no number is no reason either
      want += Whole(value);
    }
    EXPECT_EQ(NearestSum(values), NearestQuotient(want, oracle::Dyadic{1}));
    EXPECT_EQ(NearestPool(parts).count, NearestSum(values));
  }
  EXPECT_EQ(NearestSum({}), 0);
  EXPECT_EQ(NearestSum({1, kInf}), kInf);
  EXPECT_EQ(NearestSum({kMost, kMost, -kMost}), kMost);
  EXPECT_EQ(NearestSum({1, 0x1p-53, 0x1p-1074, -1}), 0x1p-53);
}

// The first count may be that of a sum, and a sum that of its first count.
TEST(NearestPoolTest, CountsThatAbsorbOthersTakeTheirMeansInto) {
  Random random(TestSeed() + 18);
  ExpectPool({{1, 0x1p+52, 1}, {0x1p+53, 3, 1}, {1, 3, 1}}, random);
  ExpectPool({{0x1p-60, 1000, 5}, {1, 3, 2}}, random);
  ExpectPool({{0x1p-60, 1000, 5}, {1, 3, 2}, {0x1p-60, 3, 0}}, random);
}

// Products of counts with means and with squares of distances leave the range of pairs before the counts do.
TEST(NearestPoolTest, IsTheNearestOfTinyAndHugeCounts) {
  Random random(TestSeed() + 19);
  for (const int mean_exponent : {-1020, -850, -500, 0, 440, 500}) {
    for (const int count_exponent : {-199, -190, -110, -90, 60, 75, 110, 199}) {
      const double count = std::ldexp(1, count_exponent), mean = std::ldexp(1, mean_exponent);
      ExpectPool({{count, mean * (1 + 0x1p-52), 1}, {count, mean * (1 + 0x1p-52 * 3), 1}}, random);
      ExpectPool({{count, mean * (1 + 0x1p-52), 0}, {count * 3, mean * 1.5, 0}}, random);
      ExpectPool({{count, mean, mean}, {count, -mean, 0}, {1, mean / 3, 1}}, random);
      ExpectPool({{count, mean, std::ldexp(1, -1070)}, {count, mean * 7, 0}}, random);
    }
  }
}

TEST(NearestPoolTest, PartsWithoutElementsSayNothing) {
  const Moment part = {.count = 3, .mean = 0.1, .m2 = 0.7};
  const Moment nothing = {.count = 0, .mean = kNan, .m2 = 0};
  for (const std::vector<Moment>& parts : {std::vector<Moment>{part}, {nothing, part}, {part, nothing, nothing}}) {
    EXPECT_EQ(NearestPool(parts).count, 3);
    EXPECT_EQ(NearestPool(parts).mean, 0.1);
    EXPECT_EQ(NearestPool(parts).m2, 0.7);
  }
  EXPECT_EQ(NearestPool({}).count, 0);
  const Moment both = NearestPool({{2, 2, 2}, nothing, {2, 7, 8}});
  EXPECT_EQ(both.mean, 4.5);
  EXPECT_EQ(both.m2, 35);
  EXPECT_TRUE(std::isnan(NearestPool({part, {1, kNan, 0}}).mean));
  EXPECT_EQ(NearestPool({part, {1, 1, kInf}}).m2, kInf);
}

}  // namespace
}  // namespace normd
