// The judge judged: the oracle's rounding against the machine's, its methods against published worked examples, its
// state against numbers worked by hand.
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/oracle.h"
#include "tests/support/oracle_state.h"
#include "tests/support/random.h"
#include "tests/support/wide.h"

namespace normd::oracle {
namespace {

using Json = nlohmann::json;

double AsDouble(uint64_t bits) {
  double v;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}

uint64_t AsBits(double v) {
  uint64_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

uint64_t AsBits(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

TEST(WideTest, EveryNumberOfTheNarrowTypesSurvivesDecodingAndEncoding) {
  for (const Type type : {Type::kF16, Type::kBF16}) {
    for (uint64_t bits = 0; bits < 0x10000; ++bits) {
      const Wide v = Decode(type, bits);
      if (IsNan(v)) {
        EXPECT_TRUE(IsNan(Decode(type, Encode(type, v)))) << bits;
      } else {
        EXPECT_EQ(Encode(type, v), bits);
      }
    }
  }
}

TEST(WideTest, RoundingToF32AndF64IsTheMachines) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    // All exponents around f32's range, subnormals and overflow among them.
    const double v = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(300)) - 160);
    EXPECT_EQ(Encode(Type::kF32, -v), AsBits(static_cast<float>(-v))) << v;
    const double any = AsDouble(random.Bits());
    if (std::isnan(any)) continue;
    EXPECT_EQ(Encode(Type::kF64, any), AsBits(any));
    EXPECT_EQ(Encode(Type::kF64, Wide(any) * any), AsBits(static_cast<double>(Wide(any) * any)));
  }
}

// Halfway between neighbours goes to the even one, anything more or less to the nearer.
TEST(WideTest, TiesGoToEvenInEveryTypeAndRange) {
  for (const Type type : {Type::kF16, Type::kBF16, Type::kF32, Type::kF64}) {
    Random random(2);
    const uint64_t infinity = FormatOf(type).infinity();
    for (int i = 0; i < 20000; ++i) {
      const uint64_t bits = i < 200 ? static_cast<uint64_t>(i) : random.Bits() % (infinity - 1);
      const Wide low = Decode(type, bits), high = Decode(type, bits + 1);
      const Wide middle = (low + high) / 2, little = (high - low) * PowerOfTwo(-40);
      EXPECT_EQ(Encode(type, middle), bits + (bits & 1)) << bits;
      EXPECT_EQ(Encode(type, middle - little), bits);
      EXPECT_EQ(Encode(type, middle + little), bits + 1);
    }
  }
}

TEST(WideTest, OverflowGivesInf) {
  EXPECT_EQ(Encode(Type::kF16, 65519.99), 0x7bffu);
  EXPECT_EQ(Encode(Type::kF16, 65520), 0x7c00u);
  EXPECT_EQ(Encode(Type::kF16, -1e30), 0xfc00u);
  EXPECT_EQ(Encode(Type::kBF16, 3.4e38), 0x7f80u);
  EXPECT_EQ(Encode(Type::kF32, PowerOfTwo(5000)), 0x7f800000u);
  EXPECT_EQ(Encode(Type::kF64, -Infinity()), 0xfff0000000000000u);
}

TEST(WideTest, SumsRoundToOddSoThatALaterRoundingIsRight) {
  // 1 + 2^-11 is a tie of f16; a far smaller addend decides it, even where 113 bits do not hold it.
  const Wide tie = Wide(1) + PowerOfTwo(-11);
  EXPECT_EQ(Encode(Type::kF16, AddToOdd(tie, 0)), 0x3c00u);
  EXPECT_EQ(Encode(Type::kF16, AddToOdd(tie, PowerOfTwo(-500))), 0x3c01u);
  EXPECT_EQ(Encode(Type::kF16, AddToOdd(tie, -PowerOfTwo(-500))), 0x3c00u);
  EXPECT_EQ(Encode(Type::kF16, tie + PowerOfTwo(-500)), 0x3c00u) << "without it the addend is lost";
  Random random(3);
  for (int i = 0; i < 100000; ++i) {
    const double x = random.Normal(), r = std::ldexp(random.Normal(), static_cast<int>(random.Below(200)) - 100);
    const double scale = random.Uniform();
    EXPECT_EQ(Encode(Type::kF64, AddToOdd(x, Wide(scale) * r)), AsBits(std::fma(scale, r, x)));
  }
}

TEST(WideTest, RootsAreRight) {
  EXPECT_EQ(Sqrt(Wide(144)), 12);
  EXPECT_EQ(Sqrt(PowerOfTwo(-2000)), PowerOfTwo(-1000));
  Random random(4);
  for (int i = 0; i < 1000; ++i) {
    const Wide v = Wide(random.Uniform()) * PowerOfTwo(static_cast<int>(random.Below(4000)) - 2000);
    const Wide root = Sqrt(v);
    EXPECT_TRUE(Abs(root * root - v) <= v * PowerOfTwo(-110));
  }
  EXPECT_TRUE(IsNan(Sqrt(Wide(-1))));
  EXPECT_TRUE(IsInf(Sqrt(Infinity())));
}

// A number to 113 bits, as f64 parts that Python's decimal module made.
Wide Parts(double first, double second, double third) { return Wide(first) + second + third; }

bool AgreeTo(int log2, Wide a, Wide b) { return Abs(a - b) <= PowerOfTwo(log2) * Abs(b); }

TEST(WideTest, LogarithmsAndPowersOfTwoAreRight) {
  for (const int exponent : {-12000, -1074, -1, 0, 1, 53, 12000}) {
    EXPECT_TRUE(Log2(PowerOfTwo(exponent)) == exponent);
    EXPECT_TRUE(Exp2(exponent) == PowerOfTwo(exponent));
  }
  EXPECT_TRUE(AgreeTo(-110, Log2(3), Parts(0x1.95c01a39fbd68p+0, 0x1.e7e802c48281ap-54, 0x1.75ba249e7cd47p-109)));
  const Wide above_one = Parts(0x1.71547652b82fbp-50, 0x1.a67722d34d6eep-105, -0x1.580c8d421384ep-161);
  EXPECT_TRUE(AgreeTo(-110, Log2(1 + PowerOfTwo(-50)), above_one));
  EXPECT_TRUE(AgreeTo(-110, Exp2(0.3), Parts(0x1.3b2c47bff8329p+0, -0x1.497d7d4b14dddp-55, -0x1.177d6fbec646dp-109)));
  EXPECT_TRUE(Exp2(Wide(-1e303)) == 0);
  Random random(5);
  for (int i = 0; i < 1000; ++i) {
    const Wide a = random.Uniform(-500, 500), b = random.Uniform(-500, 500);
    EXPECT_TRUE(AgreeTo(-109, Exp2(a) * Exp2(b), Exp2(a + b)));
    EXPECT_TRUE(Abs(Log2(Exp2(a)) - a) <= PowerOfTwo(-110) * (1 + Abs(a)));
  }
}

TEST(OracleTest, NormsOfKnownValues) {
  const Wide infinity = Infinity();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(LpNormOf({3, -4, 12}, 2) == 13);
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({3, 4, -5}, 3), 6));
  EXPECT_TRUE(LpNormOf({1, -2, 4}, 1) == 7);
  EXPECT_TRUE(LpNormOf({1, -7, 4}, kInfinity) == 7);
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({1, -2, 3}, 1.5),
                      Parts(0x1.156a760d0e2dcp+2, 0x1.b2e369bbfbef6p-52, 0x1.8abad79b23713p-106)));
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({0.1, 7, -3}, 2.5),
                      Parts(0x1.d4d20de173ab7p+2, -0x1.ba52b1124a379p-52, -0x1.d2797f7ef46fcp-110)));
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({1e300, 1e-300, -2e300}, 10),
                      Parts(0x1.7e4d55eb94a7ap+997, -0x1.18aa2236eaa86p+942, -0x1.0379c20faf669p+887)));
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({1, 1, 0.999999}, 1e6),
                      Parts(0x1.00000e763da22p+0, -0x1.633e9f5b680b3p-54, -0x1.05c7b0e8d93acp-109)));
  EXPECT_TRUE(AgreeTo(-110, LpNormOf({7, -7, 3}, 1e300), 7));
  for (const double p : {1.0, 1.5, 2.0, 1e300, kInfinity}) {
    EXPECT_TRUE(LpNormOf({}, p) == 0);
    EXPECT_TRUE(LpNormOf({0, -Wide(0)}, p) == 0);
    EXPECT_TRUE(LpNormOf({1, -infinity, 2}, p) == infinity);
    EXPECT_TRUE(IsNan(LpNormOf({infinity, infinity - infinity, 2}, p)));
  }
}

TEST(OracleTest, NormsOfSmallOrdersAreRootsOfSumsOfPowers) {
  Random random(6);
  for (int i = 0; i < 200; ++i) {
    std::vector<Wide> x;
    Wide squares = 0, cubes = 0, fourth = 0;
    for (int j = 0; j < 20; ++j) {
      const Wide v = Wide(random.Normal()) * PowerOfTwo(static_cast<int>(random.Below(400)) - 200);
      x.push_back(v);
      squares += v * v;
      cubes += Abs(v * v * v);
      fourth += v * v * v * v;
    }
    const Wide two = LpNormOf(x, 2), three = LpNormOf(x, 3), four = LpNormOf(x, 4);
    EXPECT_TRUE(AgreeTo(-107, two * two, squares));
    EXPECT_TRUE(AgreeTo(-107, three * three * three, cubes));
    EXPECT_TRUE(AgreeTo(-107, four * four * four * four, fourth));
  }
}

TEST(OracleTest, LpNormDividesByTheNormOverItsAxes) {
  Input input;
  input.type = Type::kF64;
  input.shape = {3, 2, 1};
  input.x = {3, 1, -4, 0, 5, -Wide(0)};
  Spec spec;
  spec.method = Method::kLp;
  spec.p = 3;
  spec.axes = {0};
  Result result = Compute(spec, input);
  ASSERT_EQ(result.groups.size(), 2u);
  EXPECT_TRUE(AgreeTo(-110, result.groups[0].m2, 6) && result.groups[1].m2 == 1);
  EXPECT_TRUE(AgreeTo(-110, result.y[2], Wide(-2) / 3));
  EXPECT_TRUE(result.y[5] == 0 && IsNegative(result.y[5]));
  spec.axes = {0, -1, 1};
  spec.p = std::numeric_limits<double>::infinity();
  spec.eps = 1;
  result = Compute(spec, input);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_TRUE(result.groups[0].m2 == 5 && result.y[0] == Wide(3) / 6);
  spec.eps_mode = EpsMode::kClampRoot;
  EXPECT_TRUE(Compute(spec, input).y[0] == Wide(3) / 5);
  spec.eps = 30;
  EXPECT_TRUE(Compute(spec, input).y[0] == Wide(3) / 30);
}

TEST(OracleTest, PartialLengthReadsTheDecimal) {
  EXPECT_EQ(PartialLength(0.07, 100, false), 7);
  EXPECT_EQ(PartialLength(0.29, 100, false), 29);
  EXPECT_EQ(PartialLength(0.29, 100, true), 29);
  EXPECT_EQ(PartialLength(0.333, 100, false), 34);
  EXPECT_EQ(PartialLength(0.333, 100, true), 33);
  EXPECT_EQ(PartialLength(1, 4096, false), 4096);
  EXPECT_EQ(PartialLength(1e-9, 7, false), 1);
  EXPECT_EQ(PartialLength(6.25e-2, 768, false), 48);
}

// ---- Worked examples ----

void Flatten(const Json& json, std::vector<Wide>& values) {
  if (!json.is_array()) {
    values.push_back(json.get<double>());
    return;
  }
  for (const Json& item : json) Flatten(item, values);
}

std::vector<Wide> Values(const Json& json) {
  std::vector<Wide> values;
  Flatten(json, values);
  return values;
}

Json Examples() {
  std::ifstream file(NORMD_SOURCE_DIR "/client/normctl/data/worked-examples.json");
  EXPECT_TRUE(file.is_open());
  return Json::parse(file)["examples"];
}

Spec SpecOf(const Json& example) {
  const Json& attributes = example["attributes"];
  const std::string method = example["method"];
  const auto rank = static_cast<int64_t>(example["input_shape"].size());
  Spec spec;
  spec.method = method == "BATCH_NORM"      ? Method::kBatch
                : method == "LAYER_NORM"    ? Method::kLayer
                : method == "INSTANCE_NORM" ? Method::kInstance
                : method == "GROUP_NORM"    ? Method::kGroup
                : method == "RMS_NORM"      ? Method::kRms
                                            : Method::kScale;
  if (attributes.contains("eps")) spec.eps = attributes["eps"].get<double>();
  const std::string mode = attributes.value("eps_mode", "INSIDE_SQRT");
  spec.eps_mode = mode == "ADD_TO_ROOT" ? EpsMode::kAddToRoot : EpsMode::kInsideSqrt;
  spec.num_groups = attributes.value("num_groups", int64_t{2});
  if (spec.method == Method::kLayer) spec.axes = {rank - 1};
  return spec;
}

TEST(OracleTest, AgreesWithThePublishedWorkedExamples) {
  int outputs = 0;
  for (const Json& example : Examples()) {
    const std::string what = example["what"];
    if (example["method"] == "STATISTIC" || what.find("after the step") != std::string::npos) continue;
    Input input;
    input.shape = example["input_shape"].get<std::vector<int64_t>>();
    for (const Wide v : Values(example["input"])) input.x.push_back(Round(Type::kF32, v));
    for (const auto& [name, values] : example["params"].items()) {
      if (name == "gamma" || name == "g") input.weight = Values(values);
      if (name == "beta") input.bias = Values(values);
    }
    const Result result = Compute(SpecOf(example), input);
    const std::vector<Wide> want = Values(example["recomputed_output"]);
    ASSERT_EQ(result.y.size(), want.size()) << example["id"];
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(Abs(result.y[i] - want[i]) <= Ulp(Type::kF32, want[i]))
          << example["id"] << "[" << i << "] " << static_cast<double>(result.y[i]);
    }
    ++outputs;
  }
  EXPECT_EQ(outputs, 17);
}

// What the example names of one group; false where it is a statistic of an output, which is no result of Compute.
bool StatisticOf(const std::string& name, bool biased, const GroupStatistics& group, Wide* value) {
  const Wide variance = group.m2 / (biased ? group.count : group.count - 1);
  if (name.find("output") != std::string::npos || name.find("normalized") != std::string::npos) return false;
  if (name.find("mean") == 0) {
    *value = group.mean;
  } else if (name.find("variance") == 0) {
    *value = variance;
  } else if (name.find("std") == 0 || name.find("rms") == 0) {
    *value = Sqrt(variance);
  } else if (name.find("l2") == 0) {
    *value = Sqrt(group.m2);
  } else {
    return false;
  }
  return true;
}

TEST(OracleTest, AgreesWithThePublishedStatistics) {
  int compared = 0;
  for (const Json& example : Examples()) {
    if (example["method"] != "STATISTIC") continue;
    const Json& attributes = example["attributes"];
    const std::string name = attributes["stat"];
    Input input;
    input.shape = example["input_shape"].get<std::vector<int64_t>>();
    input.x = Values(example["input"]);
    Spec spec;
    spec.method = name.find("rms") == 0 || name.find("l2") == 0 ? Method::kRms : Method::kLayer;
    if (attributes.contains("num_groups")) {
      spec.method = Method::kGroup;
      spec.num_groups = attributes["num_groups"];
    }
    const Json axis = attributes.value("axis", Json(-1));
    spec.axes = axis.is_array() ? axis.get<std::vector<int64_t>>() : std::vector<int64_t>{axis.get<int64_t>()};
    const Result result = Compute(spec, input);
    const std::vector<Wide> want = Values(example["recomputed_output"]);
    ASSERT_EQ(result.groups.size(), want.size()) << example["id"];
    for (size_t s = 0; s < want.size(); ++s) {
      Wide got = 0;
      if (!StatisticOf(name, attributes.value("biased", true), result.groups[s], &got)) continue;
      EXPECT_TRUE(Abs(got - want[s]) <= 4 * Ulp(Type::kF64, want[s]))
          << example["id"] << " " << static_cast<double>(got);
      ++compared;
    }
  }
  EXPECT_GT(compared, 30);
}

// The state after one step from the start: inputs of the example "bn-train-running-*".
TEST(OracleStateTest, OneStepAgreesWithTheWorkedExamples) {
  int compared = 0;
  for (const Json& example : Examples()) {
    const std::string id = example["id"];
    if (id.find("bn-train-running") != 0) continue;
    Spec spec;
    spec.method = Method::kBatch;
    Input input;
    input.shape = {2, 3};
    input.x = Values(example["input"]);
    std::vector<BatchStatistics> batch;
    for (const GroupStatistics& group : Compute(spec, input).groups)
      batch.push_back({group.count, group.mean, group.m2 / group.count});
    RunningRule rule;
    rule.biased = id.find("-biased") != std::string::npos;
    RunningValues state = RunningValues::Initial(3);
    ASSERT_TRUE(StepBatchNorm(rule, batch, state));
    const std::vector<Wide>& got = id.find("mean") != std::string::npos ? state.mean : state.var;
    const std::vector<Wide> want = Values(example["recomputed_output"]);
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(static_cast<double>(got[c]), static_cast<double>(want[c]), 1e-14) << id;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST(OracleStateTest, CumulativeAveragesPerBatchValuesAndOldMomentumIsItsComplement) {
  RunningRule cumulative;
  cumulative.cumulative = true;
  RunningValues state = RunningValues::Initial(1);
  ASSERT_TRUE(StepBatchNorm(cumulative, {{4, 2, 3}}, state));
  EXPECT_NEAR(static_cast<double>(state.mean[0]), 2, 1e-30);
  EXPECT_NEAR(static_cast<double>(state.var[0]), 4, 1e-30);
  ASSERT_TRUE(StepBatchNorm(cumulative, {{4, 5, 6}}, state));
  EXPECT_NEAR(static_cast<double>(state.mean[0]), 3.5, 1e-30);
  EXPECT_NEAR(static_cast<double>(state.var[0]), 6, 1e-30);

  RunningRule keras;
  keras.momentum = 0.75;
  keras.momentum_of_old = true;
  keras.biased = true;
  state = RunningValues::Initial(1);
  ASSERT_TRUE(StepBatchNorm(keras, {{4, 2, 3}}, state));
  EXPECT_NEAR(static_cast<double>(state.mean[0]), 0.5, 1e-30);
  EXPECT_NEAR(static_cast<double>(state.var[0]), 1.5, 1e-30);
}

TEST(OracleStateTest, CornersOfAStep) {
  RunningRule rule;
  rule.momentum = 0.5;
  RunningValues state = RunningValues::Initial(2);
  EXPECT_FALSE(StepBatchNorm(rule, {{3, 1, 1}, {3, Infinity(), 1}}, state)) << "not finite";
  EXPECT_EQ(state.version, 0u);
  EXPECT_TRUE(StepBatchNorm(rule, {{0, 0, 0}, {0, 0, 0}}, state)) << "empty";
  EXPECT_EQ(state.num_batches, 1u);
  EXPECT_EQ(state.version, 1u);
  EXPECT_TRUE(state.mean[0] == 0 && state.var[0] == 1);
  EXPECT_TRUE(StepBatchNorm(rule, {{1, 8, 0}, {1, 4, 0}}, state)) << "one value";
  EXPECT_TRUE(state.mean[0] == 4 && state.mean[1] == 2);
  EXPECT_TRUE(state.var[0] == 1) << "no unbiased variance of one value";
  // Two instances of two channels: means of means, unbiased variances averaged.
  state = RunningValues::Initial(2);
  EXPECT_TRUE(StepInstanceNorm(rule, {{2, 1, 1}, {2, 3, 2}, {2, 5, 3}, {2, 7, 4}}, state));
  EXPECT_TRUE(state.mean[0] == 1.5 && state.mean[1] == 2.5);
  EXPECT_TRUE(state.var[0] == 2.5 && state.var[1] == 3.5);
}

TEST(OracleStateTest, PowerNormFollowsTheGoldenNumbers) {
  const std::vector<std::vector<Wide>> inputs = {{1, 2, 3, 4}, {2, 1, 0, 5}, {-1, 3, 2, 2}};
  const double want_y[3][4] = {{0.845146, 1.054088, 1.133884, 0.942807},
                               {1.414205, 0.577347, 0, 1.290989},
                               {-0.585201, 1.127465, 1.308548, 0.840363}};
  const double want_phi[3][2] = {{0.55999891, 1.43999629}, {0.5839987, 1.4159965}, {0.58559869, 1.41439654}};
  PowerRule rule;
  rule.warmup_iters = 2;
  PowerValues state = PowerValues::Initial(2);
  Spec spec;
  spec.method = Method::kPower;
  Input input;
  input.shape = {2, 2};
  for (size_t step = 0; step < 3; ++step) {
    input.x = inputs[step];
    input.given_variance.clear();
    const Result statistics = Compute(spec, input);
    const std::vector<Wide> v = {statistics.groups[0].m2 / 2, statistics.groups[1].m2 / 2};
    const PowerStep result = StepPowerNorm(rule, 2, v, state);
    ASSERT_TRUE(result.applied);
    input.given_variance = result.divisor;
    const Result output = Compute(spec, input);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(output.y[i]), want_y[step][i], 6e-7);
    for (size_t c = 0; c < 2; ++c) EXPECT_NEAR(static_cast<double>(state.phi[c]), want_phi[step][c], 6e-8);
  }
  input.x = inputs[0];
  input.given_variance = state.phi;
  const double inference[4] = {0.826467, 1.063584, 1.108823, 0.9513};
  const Result output = Compute(spec, input);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(output.y[i]), inference[i], 6e-7);
}

}  // namespace
}  // namespace normd::oracle
