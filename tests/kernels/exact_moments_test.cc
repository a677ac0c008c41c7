// Jobs that want exact sums, beside GMP: the sums, the bytes and the moments of every statistics group, whatever the
// layout, the mask and the number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/base/errors.h"
#include "kernels/cpu/backend.h"
#include "kernels/exact_sums/bytes.h"
#include "kernels/exact_sums/group_sums.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/exact_totals.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using cases::Pack;
using cases::Unpack;
using cases::Values;
using ::testing::ElementsAreArray;

constexpr DType kExactDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};

// A tensor, and which group each element is of; -1: none.
struct ExactCase {
  NormSpec spec;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> group_of;
  Values x = {};
  std::vector<uint8_t> mask = {};
};

struct ExactReduced {
  Moments moments;
  GroupSums exact;
  std::vector<double> min, max;
};

absl::StatusOr<ExactReduced> ReduceExactly(const ExactCase& c, int threads, int64_t grain) {
  const absl::StatusOr<NormPlan> plan = MakePlan(c.spec, c.dtype, c.shape, {.exact_sums = true});
  if (!plan.ok()) return plan.status();
  const auto groups = static_cast<size_t>(plan->StatisticsGroups());
  ExactReduced reduced = {.moments = Moments(groups), .exact = {}, .min = Values(groups), .max = Values(groups)};
  const std::string x = Pack(c.dtype, c.x);
  Job job = {.plan = &*plan, .x = x.data(), .moments = reduced.moments.data()};
  job.exact = &reduced.exact;
  if (plan->counts_samples) {
    job.min = reduced.min.data();
    job.max = reduced.max.data();
  }
  if (!c.mask.empty()) job.mask = c.mask.data();
  const auto backend = MakeCpuBackend({.threads = threads, .grain_elements = grain});
  std::promise<absl::Status> done;
  backend->Submit({job}, [&done](absl::Status status) { done.set_value(std::move(status)); });
  EXPECT_TRUE(done.get_future().get().ok());
  return reduced;
}

// What a group should have. REQUIRES: finite elements.
void ExpectGroup(const ExactReduced& reduced, size_t group, const Values& elements, bool about_zero) {
  const oracle::Totals totals = oracle::TotalsOf(elements);
  const ExactTotals got = reduced.exact.Totals(group);
  EXPECT_EQ(got.count, elements.size());
  WideRange::Sum sum;
  WideRange::Squares squares;
  sum.Add(got.sum);
  squares.Add(got.squares);
  EXPECT_THAT(sum.words(), ElementsAreArray(WordsOf(totals.sum, WideRange::Sum::kLowestBit, 34)));
  EXPECT_THAT(squares.words(), ElementsAreArray(WordsOf(totals.squares, WideRange::Squares::kLowestBit, 67)));
  const Moment& moment = reduced.moments[group];
  EXPECT_EQ(moment.count, static_cast<double>(elements.size()));
  if (elements.empty()) {
    EXPECT_EQ(moment.mean, 0);
    EXPECT_EQ(moment.m2, 0);
    return;
  }
  const oracle::SampleStatistics want = oracle::MomentsOf(totals);
  EXPECT_EQ(moment.mean, about_zero ? 0 : want.mean);
  EXPECT_EQ(moment.m2, about_zero ? NearestQuotient(totals.squares, oracle::Dyadic{1}) : want.m2);
}

// Fills c.x, in the dtype, with ordinary numbers of which some are far from the others.
void FillWith(Random& random, ExactCase* c) {
  for (int64_t i = 0; i < ElementCount(c->shape); ++i) {
    const double v = 3 + random.Normal();
    c->x.push_back(random.Below(50) == 0 ? std::ldexp(v, static_cast<int>(random.Below(24)) - 12) : v);
  }
  c->x = Unpack(c->dtype, Pack(c->dtype, c->x));
}

void ExpectExact(const ExactCase& c, bool about_zero = false) {
  std::optional<std::string> bytes;
  for (const auto& [threads, grain] : {std::pair(1, 1 << 20), std::pair(3, 64)}) {
    const absl::StatusOr<ExactReduced> reduced = ReduceExactly(c, threads, grain);
    ASSERT_TRUE(reduced.ok()) << reduced.status();
    std::vector<Values> groups(reduced->moments.size());
    for (size_t i = 0; i < c.x.size(); ++i) {
      if (c.group_of[i] >= 0) groups[static_cast<size_t>(c.group_of[i])].push_back(c.x[i]);
    }
    ASSERT_EQ(reduced->exact.size(), groups.size());
    EXPECT_EQ(reduced->exact.is_wide(), c.dtype == DType::kF64);
    for (size_t g = 0; g < groups.size(); ++g) ExpectGroup(*reduced, g, groups[g], about_zero);
    if (!bytes.has_value()) bytes = reduced->exact.Encode();
    EXPECT_EQ(reduced->exact.Encode(), *bytes);
  }
}

NormSpec BatchOver(Layout layout) { return {.attributes = BatchNormSpec{.layout = layout}}; }

// BatchNorm of `channels`, each element with its channel, and masked ones with none.
ExactCase BatchCase(DType dtype, Layout layout, std::vector<int64_t> shape, bool masked, Random& random) {
  const bool last = layout == Layout::kChannelsLast;
  ExactCase c = {.spec = BatchOver(layout), .dtype = dtype, .shape = std::move(shape), .group_of = {}};
  const int64_t channels = last ? c.shape.back() : c.shape[1];
  const int64_t elements = ElementCount(c.shape);
  const int64_t inner = last ? 1 : elements / (c.shape[0] * channels);
  if (masked) {
    for (int64_t p = 0; p < elements / channels; ++p) c.mask.push_back(random.Below(4) != 0 ? 255 : 0);
  }
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t position = i / (inner * channels) * inner + i % inner;
    const bool counts = !masked || c.mask[static_cast<size_t>(position)] != 0;
    c.group_of.push_back(counts ? i / inner % channels : -1);
  }
  FillWith(random, &c);
  return c;
}

TEST(ExactMomentsTest, AreTheSumsOfEachChannelInBothLayoutsAndUnderMasks) {
  Random random(TestSeed() + 1);
  for (const DType dtype : kExactDTypes) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(std::string(Name(dtype)) + (masked ? " masked" : ""));
      ExpectExact(BatchCase(dtype, Layout::kChannelsFirst, {40, 7}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsFirst, {3, 5, 11, 30}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsFirst, {1, 2, 4000}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsLast, {3, 11, 30, 5}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsLast, {30, 300}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsLast, {1200, 3}, masked, random));
      ExpectExact(BatchCase(dtype, Layout::kChannelsLast, {2000, 1}, masked, random));
    }
  }
}

ExactCase RowCase(const NormSpec& spec, DType dtype, std::vector<int64_t> shape, int64_t row, Random& random) {
  ExactCase c = {.spec = spec, .dtype = dtype, .shape = std::move(shape), .group_of = {}};
  for (int64_t i = 0; i < ElementCount(c.shape); ++i) c.group_of.push_back(i / row);
  FillWith(random, &c);
  return c;
}

TEST(ExactMomentsTest, AreTheSumsOfRowsGroupsAndPermutedAxes) {
  Random random(TestSeed() + 2);
  const NormSpec layer = {.attributes = LayerNormSpec{.normalized_shape = {50}}};
  const NormSpec group = {.attributes = GroupNormSpec{.layout = Layout::kChannelsFirst, .num_groups = 3}};
  const NormSpec instance = {.attributes = InstanceNormSpec{.layout = Layout::kChannelsLast}};
  for (const DType dtype : kExactDTypes) {
    SCOPED_TRACE(Name(dtype));
    ExpectExact(RowCase(layer, dtype, {300, 50}, 50, random));
    ExpectExact(RowCase({.attributes = LayerNormSpec{.normalized_shape = {5000}}}, dtype, {2, 5000}, 5000, random));
    ExpectExact(RowCase(group, dtype, {4, 6, 35}, 70, random));
    ExpectExact(RowCase({.attributes = RmsNormSpec{}}, dtype, {3, 500}, 500, random), /*about_zero=*/true);
    ExactCase last = RowCase(instance, dtype, {3, 40, 6}, 1, random);  // a group for each (n, c)
    for (size_t i = 0; i < last.group_of.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      last.group_of[i] = at / 240 * 6 + at % 6;
    }
    ExpectExact(last);
    ExactCase axes = RowCase({.attributes = LayerNormSpec{.axes = {0, 2}}}, dtype, {5, 4, 9, 7}, 1, random);
    for (size_t i = 0; i < axes.group_of.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      axes.group_of[i] = at / 63 % 4 * 7 + at % 7;
    }
    ExpectExact(axes);
    ExactCase partial = RowCase({.attributes = PRmsNormSpec{.k = 3}}, dtype, {4, 10}, 10, random);
    for (size_t i = 0; i < partial.group_of.size(); ++i) {
      if (i % 10 >= 3) partial.group_of[i] = -1;
    }
    ExpectExact(partial, /*about_zero=*/true);
  }
}

TEST(ExactMomentsTest, ANanIsNoSampleWhereItIsSkipped) {
  Random random(TestSeed() + 3);
  for (const DType dtype : kExactDTypes) {
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      ExactCase c = BatchCase(dtype, layout, {40, 7}, true, random);
      RunningSpec& running = std::get<BatchNormSpec>(c.spec.attributes).running;
      running.weighting = Weighting::kSamples;
      running.nan_policy = NanPolicy::kSkip;
      running.normalize_with = NormalizeWith::kRunning;
      for (size_t i = 0; i < c.x.size(); ++i) {
        if (i % 7 == 0 || random.Below(5) != 0) continue;
        c.x[i] = kNan;
        c.group_of[i] = -1;
      }
      ExpectExact(c);
    }
  }
}

TEST(ExactMomentsTest, WhatIsNotFiniteIsToldByTheMomentsAndTheSums) {
  Random random(TestSeed() + 4);
  ExactCase c = BatchCase(DType::kF32, Layout::kChannelsLast, {5, 3}, false, random);
  c.x[1] = kInf;
  c.x[5] = kNan;
  const absl::StatusOr<ExactReduced> reduced = ReduceExactly(c, 1, 64);
  ASSERT_TRUE(reduced.ok());
  EXPECT_TRUE(std::isfinite(reduced->moments[0].m2));
  EXPECT_EQ(reduced->moments[1].mean, kInf);
  EXPECT_TRUE(std::isnan(reduced->moments[1].m2));
  EXPECT_TRUE(std::isnan(reduced->moments[2].mean));
  EXPECT_EQ(reduced->moments[2].count, 5);
  EXPECT_TRUE(reduced->exact.Totals(2).non_finite.nan);
}

TEST(ExactMomentsTest, AnEmptyBatchHasSumsOfNothing) {
  const ExactCase c = {.spec = BatchOver(Layout::kChannelsLast), .shape = {0, 3}, .group_of = {}};
  const absl::StatusOr<ExactReduced> reduced = ReduceExactly(c, 1, 64);
  ASSERT_TRUE(reduced.ok());
  EXPECT_EQ(reduced->exact, GroupSums(DType::kF32, 3));
  EXPECT_EQ(reduced->moments[2].count, 0);
}

TEST(ExactMomentsTest, PlansOfExactSumsRunOnTheCpuAlone) {
  const auto plan = [](bool exact) {
    return MakePlan(BatchOver(Layout::kChannelsLast), DType::kF32, {4, 3}, {.exact_sums = exact});
  };
  EXPECT_TRUE(plan(true)->RunsOnCpuAlone());
  EXPECT_FALSE(plan(false)->RunsOnCpuAlone());
}

// The moments that a training step makes beside its y, where y is rounded to the nearest value, too; y may be x.
TEST(ExactMomentsTest, StepsToTheNearestValueHaveTheNearestMoments) {
  Random random(TestSeed() + 6);
  for (const DType dtype : kExactDTypes) {
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      SCOPED_TRACE(Name(dtype));
      const ExactCase c = BatchCase(dtype, layout, {40, 7}, true, random);
      const absl::StatusOr<NormPlan> plan = MakePlan(c.spec, dtype, c.shape, {.mode = Mode::kTraining});
      ASSERT_TRUE(plan.ok()) << plan.status();
      Moments moments(7);
      std::string x = Pack(dtype, c.x);
      Job job = {.plan = &*plan, .x = x.data(), .mask = c.mask.data(), .y = x.data(), .moments = moments.data()};
      const auto backend = MakeCpuBackend({.threads = 1});
      std::promise<absl::Status> done;
      backend->Submit({job}, [&done](absl::Status status) { done.set_value(std::move(status)); });
      ASSERT_TRUE(done.get_future().get().ok());
      for (int64_t channel = 0; channel < 7; ++channel) {
        Values elements;
        for (size_t i = 0; i < c.x.size(); ++i) {
          if (c.group_of[i] == channel) elements.push_back(c.x[i]);
        }
        const oracle::SampleStatistics want = oracle::MomentsOf(oracle::TotalsOf(elements));
        const Moment& got = moments[static_cast<size_t>(channel)];
        EXPECT_EQ(got.count, want.count);
        EXPECT_EQ(got.mean, want.mean);
        EXPECT_EQ(got.m2, want.m2);
      }
    }
  }
}

// So many groups that their sums would take more memory than a job may: the slow road has their moments.
TEST(ExactMomentsTest, MomentsOfManyGroupsAreTheNearest) {
  constexpr int64_t kRows = 8000;
  Random random(TestSeed() + 8);
  const NormSpec spec = {.attributes = LayerNormSpec{.normalized_shape = {2}}};
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const absl::StatusOr<NormPlan> plan = MakePlan(spec, dtype, {kRows, 2}, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    Values values;
    for (int64_t i = 0; i < 2 * kRows; ++i) values.push_back(static_cast<float>(random.Normal()));
    const std::string x = Pack(dtype, values);
    Moments moments(kRows);
    std::promise<absl::Status> done;
    MakeCpuBackend({.threads = 1})
        ->Submit({{.plan = &*plan, .x = x.data(), .moments = moments.data()}},
                 [&done](absl::Status status) { done.set_value(std::move(status)); });
    ASSERT_TRUE(done.get_future().get().ok());
    for (size_t row = 0; row < kRows; row += 37) {
      const Values elements = {values[2 * row], values[2 * row + 1]};
      const oracle::SampleStatistics want = oracle::MomentsOf(oracle::TotalsOf(elements));
      EXPECT_EQ(moments[row].mean, want.mean);
      EXPECT_EQ(moments[row].m2, want.m2);
    }
  }
}

// ---- Groups of sums ----

GroupSums SumsOfParts(const std::vector<Values>& groups, bool wide) {
  GroupSums sums(wide ? DType::kF64 : DType::kF32, groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const double x : groups[g]) wide ? sums.wide()[g].Add(x) : sums.narrow()[g].Add(x);
  }
  return sums;
}

TEST(GroupSumsTest, AreTheSameBytesInAnyOrderAndOfBothRanges) {
  Random random(TestSeed() + 5);
  for (int round = 0; round < 50; ++round) {
    std::vector<GroupSums> parts;
    std::vector<Values> all(2);
    for (int part = 0; part < 5; ++part) {
      std::vector<Values> groups(2);
      for (Values& group : groups) {
        for (int64_t i = random.Below(20); i >= 0; --i) group.push_back(static_cast<float>(random.Normal() * 1e20));
      }
      for (size_t g = 0; g < 2; ++g) all[g].insert(all[g].end(), groups[g].begin(), groups[g].end());
      parts.push_back(SumsOfParts(groups, round % 2 == 0 && random.Below(2) == 0));
    }
    const bool any_wide = std::any_of(parts.begin(), parts.end(), [](const GroupSums& p) { return p.is_wide(); });
    const GroupSums want = SumsOfParts(all, any_wide);
    for (int order = 0; order < 5; ++order) {
      for (size_t i = 4; i > 0; --i) std::swap(parts[i], parts[static_cast<size_t>(random.Below(int64_t(i) + 1))]);
      GroupSums merged = parts[0];
      for (size_t i = 1; i < 5; ++i) ASSERT_TRUE(merged.Merge(parts[i]).ok());
      EXPECT_EQ(merged, want);
      EXPECT_EQ(merged.Encode(), want.Encode());
    }
    const absl::StatusOr<GroupSums> same = GroupSums::Decode(want.Encode());
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(*same, want);
    EXPECT_EQ(same->NearestMoments()[1].mean, oracle::MomentsOf(oracle::TotalsOf(all[1])).mean);
  }
}

TEST(GroupSumsTest, AreAppendedAndPutInOrder) {
  GroupSums sums = SumsOfParts({{1}, {2}}, false);
  sums.Append(SumsOfParts({{3}}, false));
  EXPECT_EQ(sums, SumsOfParts({{1}, {2}, {3}}, false));
  EXPECT_EQ(sums.InOrder({2, 0, 1}), SumsOfParts({{3}, {1}, {2}}, false));
  sums.Append(SumsOfParts({{0.1}}, true));
  EXPECT_EQ(sums, SumsOfParts({{1}, {2}, {3}, {0.1}}, true));
  sums.Append(SumsOfParts({{5}}, false));
  EXPECT_EQ(sums.size(), 5);
  EXPECT_EQ(sums.NearestMoments()[4].mean, 5);
}

TEST(GroupSumsTest, SayWhichGroupHasTooManyElements) {
  const auto of = [](uint64_t count) {
    return GroupSums(GroupSums::Narrow{{}, NarrowExactSums::FromParts(count, {}, {}, {})});
  };
  GroupSums sums = of(kMaxSummed);
  EXPECT_TRUE(sums.Merge(of(0)).ok());
  EXPECT_EQ(GetErrorDetail(sums.Merge(of(1)))->field, "channels[1].count");
}

TEST(GroupSumsTest, UnknownRangesAreRefused) {
  std::string bytes = SumsOfParts({{1}}, false).Encode();
  bytes[1] = 3;
  EXPECT_EQ(GroupSums::Decode(bytes).status().message(), "exact.range is 3; it must be 1 (f32, f16, bf16) or 2 (f64)");
}

}  // namespace
}  // namespace normd
