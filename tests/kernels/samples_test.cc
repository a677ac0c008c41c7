// What statistics of samples have besides the moments: extremes, NaN that is no sample, and y within limits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using cases::Call;
using cases::Pack;
using cases::Unpack;
using cases::Values;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};

NormSpec SamplesSpec(NanPolicy nan_policy, Layout layout = Layout::kChannelsFirst) {
  RunningSpec running;
  running.weighting = Weighting::kSamples;
  running.variance = RunningVariance::kBiased;
  running.normalize_with = NormalizeWith::kRunning;
  running.nan_policy = nan_policy;
  return {.attributes = BatchNormSpec{.layout = layout, .running = running}};
}

struct Samples {
  NormSpec spec = SamplesSpec(NanPolicy::kSkip);
  DType dtype = DType::kF64;
  std::vector<int64_t> shape;
  Values x;
  std::vector<uint8_t> mask;
  Values residual;  // f64, kept wide
};

struct Reduced {
  Moments moments;
  Extremes extremes;
};

Reduced Reduce(const Samples& samples) {
  const absl::StatusOr<NormPlan> plan = MakePlan(samples.spec, samples.dtype, samples.shape, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto groups = static_cast<size_t>(plan->StatisticsGroups());
  Reduced reduced = {.moments = Moments(groups), .extremes = {Values(groups), Values(groups)}};
  const std::string x = Pack(samples.dtype, samples.x);
  const std::string residual = Pack(DType::kF64, samples.residual);
  Job job = {.plan = &*plan, .x = x.data(), .moments = reduced.moments.data()};
  job.min = reduced.extremes.min.data();
  job.max = reduced.extremes.max.data();
  if (!samples.mask.empty()) job.mask = samples.mask.data();
  if (!samples.residual.empty()) {
    job.residual.dtype = DType::kF64;
    job.residual.shape = plan->shape;
    job.residual.data = residual.data();
    job.residual.size_bytes = static_cast<int64_t>(residual.size());
    job.residual_rounding = ResidualRounding::kKeepWide;
  }
  const auto backend = MakeCpuBackend({.threads = 2, .grain_elements = 64});
  std::promise<absl::Status> done;
  backend->Submit({job}, [&done](absl::Status status) { done.set_value(std::move(status)); });
  EXPECT_TRUE(done.get_future().get().ok());
  return reduced;
}

// Of normal numbers about 3, each fifth of which is NaN in every channel but the first.
Samples RandomSamples(DType dtype, Layout layout, const std::vector<int64_t>& shape, int64_t channels) {
  Samples samples = {.spec = SamplesSpec(NanPolicy::kSkip, layout), .dtype = dtype, .shape = shape};
  Random random(static_cast<uint64_t>(shape.size()) + static_cast<uint64_t>(dtype));
  const int64_t elements = ElementCount(shape);
  const int64_t inner = layout == Layout::kChannelsLast ? 1 : elements / (shape[0] * channels);
  for (int64_t i = 0; i < elements; ++i) {
    const bool is_nan = i / inner % channels != 0 && random.Below(5) == 0;
    samples.x.push_back(is_nan ? kNan : 3 + random.Normal());
  }
  samples.x = Unpack(dtype, Pack(dtype, samples.x));
  for (int64_t p = 0; p < elements / channels; ++p) samples.mask.push_back(random.Below(4) != 0);
  return samples;
}

// The samples of one channel that count and are no NaN.
Values SamplesOf(const Samples& samples, int64_t channels, int64_t channel) {
  const bool last = std::get<BatchNormSpec>(samples.spec.attributes).layout == Layout::kChannelsLast;
  const auto elements = static_cast<int64_t>(samples.x.size());
  const int64_t inner = last ? 1 : elements / (samples.shape[0] * channels);
  Values kept;
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t position = i / (inner * channels) * inner + i % inner;
    const bool counts = samples.mask.empty() || samples.mask[static_cast<size_t>(position)] != 0;
    const double value = samples.x[static_cast<size_t>(i)];
    if (i / inner % channels == channel && counts && !std::isnan(value)) kept.push_back(value);
  }
  return kept;
}

Moment DefinitionOf(const Values& values) {
  __extension__ using Wide = __float128;
  Wide sum = 0, m2 = 0;
  for (const double value : values) sum += value;
  const Wide mean = sum / static_cast<Wide>(values.size());
  for (const double value : values) m2 += (value - mean) * (value - mean);
  return {static_cast<double>(values.size()), static_cast<double>(mean), static_cast<double>(m2)};
}

void ExpectStatisticsOfTheRest(const Samples& samples, int64_t channels) {
  const Reduced reduced = Reduce(samples);
  for (int64_t c = 0; c < channels; ++c) {
    const Values kept = SamplesOf(samples, channels, c);
    const Moment want = DefinitionOf(kept);
    const auto at = static_cast<size_t>(c);
    EXPECT_EQ(reduced.moments[at].count, want.count) << c;
    EXPECT_NEAR(reduced.moments[at].mean, want.mean, 1e-14 * std::abs(want.mean)) << c;
    EXPECT_NEAR(reduced.moments[at].m2, want.m2, 1e-14 * want.m2) << c;
    EXPECT_EQ(reduced.extremes.min[at], *std::min_element(kept.begin(), kept.end())) << c;
    EXPECT_EQ(reduced.extremes.max[at], *std::max_element(kept.begin(), kept.end())) << c;
  }
}

TEST(SamplesTest, ANanIsNoSampleOfItsChannel) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(Name(dtype));
    ExpectStatisticsOfTheRest(RandomSamples(dtype, Layout::kChannelsFirst, {40, 7}, 7), 7);
    ExpectStatisticsOfTheRest(RandomSamples(dtype, Layout::kChannelsFirst, {3, 5, 11, 30}, 5), 5);
    ExpectStatisticsOfTheRest(RandomSamples(dtype, Layout::kChannelsLast, {3, 11, 30, 5}, 5), 5);
    ExpectStatisticsOfTheRest(RandomSamples(dtype, Layout::kChannelsLast, {40, 700}, 700), 700);
    ExpectStatisticsOfTheRest(RandomSamples(dtype, Layout::kChannelsFirst, {2000, 1}, 1), 1);
  }
}

TEST(SamplesTest, ChannelsWithoutANanHaveTheBitsThatTheyHaveAnyway) {
  Samples samples = RandomSamples(DType::kF32, Layout::kChannelsLast, {40, 7}, 7);
  const Moment skipping = Reduce(samples).moments[0];
  samples.spec = SamplesSpec(NanPolicy::kPropagate, Layout::kChannelsLast);
  const Reduced propagating = Reduce(samples);
  EXPECT_EQ(propagating.moments[0].mean, skipping.mean);
  EXPECT_EQ(propagating.moments[0].m2, skipping.m2);
  EXPECT_THAT(propagating.moments[1].mean, IsNan());
}

TEST(SamplesTest, AChannelOfNanAloneHasNoSampleAndNoExtremes) {
  const Reduced reduced = Reduce({.shape = {3, 2}, .x = {kNan, 1, kNan, 2, kNan, 6}});
  EXPECT_EQ(reduced.moments[0].count, 0);
  EXPECT_EQ(reduced.moments[0].mean, 0);
  EXPECT_EQ(reduced.moments[0].m2, 0);
  EXPECT_THAT(reduced.extremes.min, ElementsAre(IsNan(), 1));
  EXPECT_THAT(reduced.extremes.max, ElementsAre(IsNan(), 6));
  EXPECT_EQ(reduced.moments[1].mean, 3);
}

TEST(SamplesTest, AnInfinityIsASample) {
  const Reduced reduced = Reduce({.shape = {3, 2}, .x = {kNan, 1, kInf, kInf, 5, -kInf}});
  EXPECT_EQ(reduced.moments[0].count, 2);
  EXPECT_FALSE(std::isfinite(reduced.moments[0].mean));
  EXPECT_EQ(reduced.moments[1].count, 3);
  EXPECT_THAT(reduced.moments[1].mean, IsNan());
  EXPECT_THAT(reduced.extremes.min, ElementsAre(5, -kInf));
}

TEST(SamplesTest, AStreamThatIsKeptWideLosesItsNanAlone) {
  // x + residual is 2^60 + 1 in the first row, which no f64 holds.
  const double large = std::ldexp(1.0, 60);
  const Reduced reduced = Reduce({.shape = {4, 1}, .x = {large, large, kNan, large}, .residual = {1, 3, 1, 5}});
  EXPECT_EQ(reduced.moments[0].count, 3);
  EXPECT_EQ(reduced.moments[0].m2, 8) << "of 1, 3 and 5 about 3";
  EXPECT_EQ(reduced.extremes.min[0], large);
}

TEST(SamplesTest, NothingAtAllHasNoExtremes) {
  const Reduced reduced = Reduce({.shape = {0, 2}});
  EXPECT_EQ(reduced.moments[1].count, 0);
  EXPECT_THAT(reduced.extremes.min, Each(IsNan()));
}

// ---- clip

Values Clipped(DType dtype, double clip, const Values& x) {
  RunningSpec running;
  running.clip = clip;
  const NormSpec spec = {.attributes = BatchNormSpec{.layout = Layout::kChannelsLast, .running = running}};
  return Call(spec, dtype, {static_cast<int64_t>(x.size()), 1}, x, /*given=*/true).Given({0}, {1 - 1e-5}).Y();
}

TEST(ClipTest, LimitsEachElementAfterItIsRounded) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(Name(dtype));
    const double bound = Unpack(dtype, Pack(dtype, {2.7})).front();
    EXPECT_THAT(Clipped(dtype, 2.7, {0.5, 3, -3, kInf, -kInf, -2.5, 2.75}),
                ElementsAre(0.5, bound, -bound, bound, -bound, -2.5, bound));
    EXPECT_THAT(Clipped(dtype, 2.7, {kNan, 1}), ElementsAre(IsNan(), 1));
  }
}

TEST(ClipTest, ALimitThatTheDTypeCannotHoldIsItsNearest) {
  EXPECT_THAT(Clipped(DType::kF16, 1e6, {kInf, 65504, -kInf}), ElementsAre(kInf, 65504, -kInf));
  EXPECT_THAT(Clipped(DType::kF16, 1e-9, {1, -1}), ElementsAre(0, 0));
}

TEST(ClipTest, IsTheLastStepOfEveryWayToNormalise) {
  Random random(7);
  Values x;
  for (int i = 0; i < 3 * 4 * 50; ++i) x.push_back(random.Normal());
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const bool given : {false, true}) {
      NormSpec spec = {.attributes = BatchNormSpec{.layout = layout}};
      const auto y = [&] {
        return Call(spec, DType::kF32, {3, 4, 50}, x, given)
            .Given(Values(50, 0.25), Values(50, 0.5))
            .Weight(Values(layout == Layout::kChannelsLast ? 50 : 4, 1.5))
            .Y();
      };
      Values want = y();
      for (double& value : want) value = std::clamp(value, -1.0, 1.0);
      std::get<BatchNormSpec>(spec.attributes).running.clip = 1;
      EXPECT_EQ(y(), want);
    }
  }
}

}  // namespace
}  // namespace normd
