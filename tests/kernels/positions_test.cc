// Adjacent channels of which each has given statistics (ApplySpan::statistics_per_position, and per_column where they
// come last) have the bits of channels that are applied one by one, on each instruction set, beside x and in its place.
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/factor_columns.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

// More than four vectors of columns; of those of 8 and of 16 floats, pairs, one more, and a part of one.
constexpr int64_t kChannels = 64 + 32 + 16 + 11;

// Elements near their channel's mean, and, where `rare`, many that are huge or not finite: f32 overflows on the way
// from some of these to a y that is finite.
cases::Values MakeValues(int64_t n, bool rare, Random* random) {
  const double kRare[] = {kInf, -kInf, std::nan(""), 0x1p+127, -0x1p+126, 0x1p+100, 0.0, -0.0};
  cases::Values values;
  for (int64_t i = 0; i < kChannels * n; ++i) {
    const bool is_rare = rare && random->Below(24) == 0;
    values.push_back(is_rare ? kRare[random->Below(std::size(kRare))] : random->Uniform(-9, 9));
  }
  return values;
}

// What a layer of BatchNorm gives for inference.
struct Layer {
  std::vector<double> mean, variance, weight, bias;
  std::vector<float> weight32, bias32;
  cpu::Parameters parameters;

  // With no parameters, a weight, or a weight and a bias. `zero`: some means, weights and biases are 0.
  Layer(bool zero, int parameter_count, Random* random) {
    const auto value = [&] {
      return zero && random->Below(4) == 0 ? 0.0F : static_cast<float>(random->Uniform(-4, 4));
    };
    for (int64_t c = 0; c < kChannels; ++c) {
      mean.push_back(value() * 1.1);
      variance.push_back(std::exp2(random->Uniform(-40, 40)));
      weight32.push_back(value());
      weight.push_back(weight32.back());
      bias32.push_back(value());
      bias.push_back(bias32.back());
    }
    if (parameter_count > 0) {
      parameters.weight = weight.data();
      parameters.weight32 = weight32.data();
    }
    if (parameter_count > 1) {
      parameters.bias = bias.data();
      parameters.bias32 = bias32.data();
    }
  }
};

// y of the channels, each applied by itself.
std::string OneByOne(const cpu::Elements& x, int64_t n, const cpu::GivenGroups& given, const Layer& layer) {
  const int64_t channel_bytes = n * SizeOf(x.dtype);
  std::string y(static_cast<size_t>(kChannels * channel_bytes), '\0');
  for (int64_t c = 0; c < kChannels; ++c) {
    const FinishedStatistics finished = given.At(c);
    cpu::ApplySpan span;
    span.x = x.At(c * n);
    span.y_dtype = x.dtype;
    span.y = y.data() + c * channel_bytes;
    span.columns = n;
    span.statistics = &finished.statistics;
    span.centring = CentringOf(Statistic::kMeanVariance, finished.statistics);
    span.parameters = layer.parameters.At(c);
    cpu::Apply(span);
  }
  return y;
}

// The same in one call; `y` may be x. `channels_last`: in x and y, whose channels are then columns.
void Together(const cpu::Elements& x, int64_t n, bool channels_last, const cpu::GivenGroups& given, const Layer& layer,
              void* y) {
  ColumnStatistics statistics;
  statistics.shift = given.shift.data();
  statistics.delta_hi = given.delta.data();
  statistics.inverse_hi = given.inverse.data();
  cpu::FactorColumns factors;
  factors.Fill(statistics, layer.parameters.weight, layer.parameters.bias, kChannels);
  cpu::ApplySpan span;
  span.x = x;
  span.y_dtype = x.dtype;
  span.y = y;
  span.positions = channels_last ? n : kChannels;
  span.columns = span.stride = channels_last ? kChannels : n;
  span.statistics_per_column = span.parameters_per_column = channels_last;
  span.statistics_per_position = !channels_last;
  span.column_statistics = &statistics;
  span.factors = factors.At(0);
  span.centring = given.has_delta ? Centring::kTwice : Centring::kOnce;
  span.parameters = layer.parameters;
  cpu::Apply(span);
}

// `rows` rows of `columns` elements, transposed.
std::string Transpose(const std::string& x, int64_t rows, int64_t columns) {
  const size_t bytes = x.size() / static_cast<size_t>(rows * columns);
  std::string y;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) y += x.substr(static_cast<size_t>(r * columns + c) * bytes, bytes);
  }
  return y;
}

class PositionsTest : public ::testing::TestWithParam<std::tuple<DType, int>> {};

TEST_P(PositionsTest, TogetherTheyHaveTheBitsOfOneByOne) {
  const auto [dtype, parameter_count] = GetParam();
  Random random(3);
  for (const int64_t n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 25, 31, 32, 33, 49, 64, 65, 196}) {
    for (const bool rare : {false, true}) {
      const std::string values = cases::Pack(dtype, MakeValues(n, rare, &random));
      const Layer layer(rare, parameter_count, &random);
      for (const CpuTarget& target : SupportedCpuTargets()) {
        ForceCpuTargetForTest(target.id);
        const std::string where = Concat(target.name, ", n ", n, rare ? ", rare values" : "");
        const std::optional<cpu::GivenGroups> given =
            cpu::PrepareGiven({.eps = 1e-5}, {layer.mean.data(), layer.variance.data(), kChannels}, Precision::kFast);
        ASSERT_TRUE(given.has_value() && given->in_f32) << where;
        const std::string want = OneByOne({dtype, values.data()}, n, *given, layer);
        for (const bool channels_last : {false, true}) {
          const std::string x = channels_last ? Transpose(values, kChannels, n) : values;
          const auto is_right = [&](const std::string& y) {
            return (channels_last ? Transpose(y, n, kChannels) : y) == want;
          };
          std::string apart(x.size(), '\0');
          Together({dtype, x.data()}, n, channels_last, *given, layer, apart.data());
          EXPECT_TRUE(is_right(apart)) << where << (channels_last ? ", channels last" : "");
          std::string in_place = x;
          Together({dtype, in_place.data()}, n, channels_last, *given, layer, in_place.data());
          EXPECT_TRUE(is_right(in_place)) << where << (channels_last ? ", channels last" : "") << ", in place";
        }
      }
      ForceCpuTargetForTest(0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PositionsTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(0, 1, 2)));

}  // namespace
}  // namespace normd
