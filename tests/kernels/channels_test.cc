// Channels that are taken together have the bits of channels that are taken one by one, whose statistics are scalars:
// ReduceChannels, and with it whole jobs of BatchNorm and InstanceNorm, of ordinary channels and of those at which a
// formula turns, on each instruction set.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/targets.h"
#include "kernels/summation_order.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

// x of [segments, channels, n]. Of `rare` channels many are far from 0, huge, tiny, equal, whole numbers or not finite.
cases::Values MakeChannels(int64_t segments, int64_t channels, int64_t n, bool rare, Random* random) {
  constexpr double kScales[] = {0, 0x1p-140, 0x1p-63, 0x1p-60, 0x1p-50, 0x1p+15, 0x1p+59, 0x1p+62, 0x1p+101, 0x1p+126};
  cases::Values values(static_cast<size_t>(segments * channels * n));
  for (int64_t c = 0; c < channels; ++c) {
    const auto is_rare = [&] { return rare && random->Below(4) == 0; };
    const double scale = is_rare() ? kScales[random->Below(std::size(kScales))] : 1;
    // About where the mean is too far for FAST (1 deviation), or for EXACT (8); and far beyond.
    const double offset = is_rare() ? random->Uniform(-2, 2) * std::exp2(3 * random->Below(4)) : 0.1;
    const bool whole = is_rare();
    const auto at = [&](int64_t s, int64_t i) -> double& { return values[((s * channels) + c) * n + i]; };
    for (int64_t s = 0; s < segments; ++s) {
      for (int64_t i = 0; i < n; ++i) {
        const double value = random->Uniform(-1.7, 1.7) + offset;
        at(s, i) = (whole ? std::round(value) : value) * scale;
      }
    }
    if (rare && random->Below(16) == 0) {
      at(random->Below(static_cast<int>(segments)), random->Below(static_cast<int>(n))) =
          random->Below(2) == 0 ? kInf : std::nan("");
    }
  }
  return values;
}

cpu::RowChunks ChunksOf(const cpu::ChannelBlock& block, int64_t c) {
  return {.x = block.x.At(c * block.n), .n = block.n, .segments = block.segments, .stride = block.stride};
}

// The statistics of a channel by itself, from sums about its first shift.
FinishedStatistics OneByOne(const cpu::ChannelBlock& block, int64_t c) {
  const cpu::RowChunks rows = ChunksOf(block, c);
  const double shift = cpu::FirstShift(block.precision, rows.x, block.n, false);
  const int64_t chunks = order::GroupChunks(block.segments, block.n);
  std::vector<PairSums> sums(static_cast<size_t>(chunks));
  cpu::ReduceRowChunks({Statistic::kMeanVariance, block.precision, shift}, rows, 0, chunks, sums.data());
  order::PairwiseFold(sums.data(), chunks, 1, AddPlain);
  return FinishNarrow(Statistic::kMeanVariance, block.rule, sums[0], static_cast<double>(block.segments * block.n),
                      shift, block.precision);
}

// Compares the settled channels, and returns their number.
int64_t CheckChannels(const cpu::ChannelBlock& block) {
  cpu::ChannelStatistics got;
  cpu::ReduceChannels(block, &got);
  const auto expect_same_bits = [](double a, double b) {
    EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b));
  };
  int64_t settled = 0;
  for (int64_t c = 0; c < block.channels; ++c) {
    if (!got.settled[c]) continue;
    SCOPED_TRACE(Concat("channel ", c));
    ++settled;
    const FinishedStatistics want = OneByOne(block, c);
    EXPECT_FALSE(want.shift_too_far || want.out_of_fast_range);
    EXPECT_TRUE(want.finite);
    EXPECT_EQ(want.elements_in_f32, block.precision == Precision::kFast);
    expect_same_bits(got.mean[c], want.mean);
    expect_same_bits(got.m2[c], want.m2);
    expect_same_bits(got.inverse[c], want.inverse_std);
    expect_same_bits(got.inverse[c], want.statistics.inverse.hi);
    expect_same_bits(got.shift[c], want.statistics.shift);
    EXPECT_EQ(got.delta[c], want.statistics.delta.hi);
  }
  return settled;
}

// Lengths of segments: less than a vector, around one, two and more of them, around the partial sums of either
// precision, and long ones; each with a number of segments that are one step, one chunk, and several.
constexpr int64_t kShapes[][2] = {{1, 40},  {4, 17},   {7, 33},   {8, 16},  {9, 8},   {15, 2},  {17, 5},
                                  {31, 4},  {33, 3},   {49, 8},   {49, 37}, {63, 1},  {64, 20}, {65, 9},
                                  {100, 3}, {128, 9},  {191, 5},  {196, 8}, {256, 4}, {256, 9}, {513, 3},
                                  {784, 2}, {1024, 1}, {1100, 2}, {3136, 5}};

class ChannelsTest : public ::testing::TestWithParam<std::tuple<Precision, DType, EpsMode>> {};

TEST_P(ChannelsTest, TheirStatisticsAreThoseOfOneByOne) {
  const auto [precision, dtype, mode] = GetParam();
  Random random(5);
  int64_t all = 0;
  int64_t settled_of_rare = 0;
  for (const auto& [n, segments] : kShapes) {
    ASSERT_TRUE(cpu::ChannelBlock::Takes(segments, n));
    for (const int64_t channels : {1, 3, 24}) {
      for (const bool rare : {false, true}) {
        const std::string x = cases::Pack(dtype, MakeChannels(segments, channels, n, rare, &random));
        const cpu::ChannelBlock block = {.x = {dtype, x.data()},
                                         .channels = channels,
                                         .n = n,
                                         .segments = segments,
                                         .stride = channels * n,
                                         .precision = precision,
                                         .rule = {rare ? 1e-300 : 1e-5, mode}};
        for (const CpuTarget& target : SupportedCpuTargets()) {
          ForceCpuTargetForTest(target.id);
          SCOPED_TRACE(Concat(target.name, ", ", segments, " x ", channels, " x ", n, rare ? ", rare" : ""));
          const int64_t settled = CheckChannels(block);
          if (!rare && n > 16) {  // the first shift of so many is near enough
            EXPECT_EQ(settled, channels);
          }
          if (rare) all += channels;
          if (rare) settled_of_rare += settled;
        }
        ForceCpuTargetForTest(0);
      }
    }
  }
  EXPECT_GT(settled_of_rare, all / 8);
  EXPECT_LT(settled_of_rare, all - all / 8);
}

// The jobs are FAST: nearest_columns_test.cc compares those of EXACT.
class FastChannelsTest : public ::testing::TestWithParam<std::tuple<DType, EpsMode>> {};

// Whole jobs, whose blocks have settled channels and others. Where y is streamed, each channel is run by itself.
TEST_P(FastChannelsTest, JobsHaveTheBytesOfOneByOne) {
  const auto [dtype, mode] = GetParam();
  constexpr int64_t kChannels = 70;  // more than a block
  const std::unique_ptr<Backend> by_one = MakeCpuBackend({.stream_bytes = 0});
  const std::unique_ptr<Backend> inline_blocks = MakeCpuBackend({});
  const std::unique_ptr<Backend> split_blocks =
      MakeCpuBackend({.threads = 3, .inline_elements = 0, .grain_elements = 900});
  Random random(6);
  for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm}) {
    for (const auto& [n, segments] : {std::pair<int64_t, int64_t>{4, 5}, {49, 4}, {784, 3}}) {
      for (const bool has_weight : {false, true}) {
        NormSpec spec = cases::Spec(method, 1e-5, mode);
        SetLayout(&spec, Layout::kChannelsFirst);
        cases::Call call(spec, dtype, {segments, kChannels, n}, MakeChannels(segments, kChannels, n, true, &random));
        call.c.options.mode = Mode::kTraining;
        call.In(Precision::kFast);
        cases::Values weight;
        for (int64_t c = 0; c < kChannels; ++c) weight.push_back(0.25 * static_cast<double>(c % 9));
        if (has_weight) call.Weight(weight).Bias(weight);
        const absl::StatusOr<Outputs> want = RunCase(*by_one, call.c, call.data);
        ASSERT_TRUE(want.ok()) << want.status();
        for (Backend* const backend : {inline_blocks.get(), split_blocks.get()}) {
          const absl::StatusOr<Outputs> got = RunCase(*backend, call.c, call.data);
          ASSERT_TRUE(got.ok()) << got.status();
          EXPECT_EQ(DifferenceOf(*got, *want), "") << call.c.Name();
        }
      }
    }
  }
}

// Channels last: a tile that has a channel which is not settled finishes all of them one by one; a settled channel
// beside another one is finished together with it.
TEST_P(FastChannelsTest, ColumnsHaveTheBytesOfOneByOne) {
  const auto [type, mode] = GetParam();
  const DType dtype = type;          // a lambda takes it
  constexpr int64_t kChannels = 70;  // more than are finished at once
  constexpr int64_t kPositions = 45;
  NormSpec spec = cases::Spec(Method::kBatchNorm, 1e-5, mode);
  SetLayout(&spec, Layout::kChannelsLast);
  Random random(7);
  const cases::Values settled = MakeChannels(1, 1, kPositions, false, &random);
  const auto run = [&](const std::vector<cases::Values>& channels) {
    cases::Values x;
    for (int64_t p = 0; p < kPositions; ++p) {
      for (const cases::Values& channel : channels) x.push_back(channel[static_cast<size_t>(p)]);
    }
    cases::Call call(spec, dtype, {1, kPositions, static_cast<int64_t>(channels.size())}, x);
    call.c.options.mode = Mode::kTraining;
    call.In(Precision::kFast);
    return call.Result();
  };
  const auto y_of = [&](const Outputs& outputs, size_t channel, size_t channels) {
    const auto bytes = static_cast<size_t>(SizeOf(dtype));
    std::string y;
    for (size_t p = 0; p < kPositions; ++p) y += outputs.y.substr((p * channels + channel) * bytes, bytes);
    return y;
  };
  for (const int64_t first_rare : {kChannels, cpu::ChannelBlock::kMaxChannels, int64_t{0}}) {
    std::vector<cases::Values> channels;
    for (int64_t c = 0; c < kChannels; ++c) {
      channels.push_back(MakeChannels(1, 1, kPositions, c >= first_rare, &random));
    }
    if (first_rare < kChannels) channels.back()[7] = std::numeric_limits<double>::infinity();  // never settled
    const Outputs all = run(channels);
    for (size_t c = 0; c < channels.size(); ++c) {
      SCOPED_TRACE(Concat("channel ", c, ", rare from ", first_rare, " on"));
      const Outputs two = run({channels[c], settled});
      EXPECT_EQ(y_of(all, c, channels.size()), y_of(two, 0, 2));
      EXPECT_EQ(std::bit_cast<uint64_t>(all.moments[c].mean), std::bit_cast<uint64_t>(two.moments[0].mean));
      EXPECT_EQ(std::bit_cast<uint64_t>(all.moments[c].m2), std::bit_cast<uint64_t>(two.moments[0].m2));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ChannelsTest,
                         ::testing::Combine(::testing::Values(Precision::kExact, Precision::kFast),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(EpsMode::kInsideSqrt, EpsMode::kAddToRoot,
                                                              EpsMode::kClampRoot)));
INSTANTIATE_TEST_SUITE_P(Ways, FastChannelsTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(EpsMode::kInsideSqrt, EpsMode::kAddToRoot,
                                                              EpsMode::kClampRoot)));

}  // namespace
}  // namespace normd
