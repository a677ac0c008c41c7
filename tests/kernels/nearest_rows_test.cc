// Whole rows to the nearest value (NormaliseRowsToNearest): each row has the bytes that the slow road gives it, on each
// instruction set, in place, streamed and at any address; some of these are compared with the exact oracle, which
// shares no code with either. Rows at the middles show that the bounds are needed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

std::unique_ptr<Backend> BackendOfNearestRows(double bound_factor, int64_t stream_bytes = int64_t{1} << 40) {
  return MakeCpuBackend({.threads = 1,
                         .inline_elements = int64_t{1} << 40,
                         .grain_elements = int64_t{1} << 40,
                         .stream_bytes = stream_bytes,
                         .nearest = {.bound_factor = bound_factor}});
}

std::string YOf(Backend& backend, const cases::Call& call, int misalignment = 0) {
  const absl::StatusOr<NormPlan> plan = PlanOf(call.c);
  EXPECT_TRUE(plan.ok()) << plan.status();
  CaseRun run(backend, call.c, *plan, call.data, misalignment);
  EXPECT_TRUE(RunJobs(backend, {run.MakeJob()}).ok());
  return run.TakeOutputs().y;
}

std::string YInPlace(Backend& backend, const cases::Call& call) {
  CaseRun run(backend, call.c, *PlanOf(call.c), call.data, 0);
  Job job = run.MakeJob();
  std::string both = call.data.x;
  job.x = job.y = both.data();
  EXPECT_TRUE(RunJobs(backend, {job}).ok());
  return both;
}

// "" or the first element of y that is not what the exact oracle says.
std::string NotNearest(const cases::Call& call, const std::string& y) {
  return normd::NotNearest(OracleType(call.c.dtype), y,
                           oracle::Nearest(OracleSpec(call.c), OracleInput(call.c, call.data)).y);
}

// Rows of many kinds: usual, tiny, large, far from 0, equal, zeros, whole numbers; with zeros of both signs, and with
// elements so small beside the others that their y underflows.
cases::Values RowsOfManyKinds(int64_t rows, int64_t n, Random* random) {
  constexpr double kRowScales[] = {1, 1, 1, 0x1p-12, 0x1p-20, 0x1p+9, 0};
  cases::Values values;
  for (int64_t row = 0; row < rows; ++row) {
    const double scale = kRowScales[static_cast<size_t>(row) % std::size(kRowScales)];
    const double offset = row % 5 == 4 ? 40 : 0.2;
    const bool is_whole = row % 4 == 3;
    for (int64_t i = 0; i < n; ++i) {
      double value = random->Normal() + offset;
      if (row % 6 == 1 && value < 0.5) value = i % 2 == 0 ? 0.0 : -0.0;
      if (row % 6 == 5 && i % 5 == 3) value *= i % 2 == 0 ? 0x1p-120 : 0x1p-131;
      values.push_back((is_whole ? std::round(value) : value) * scale);
    }
  }
  return values;
}

cases::Values Numbers(int64_t n, double low, double high, Random* random) {
  cases::Values values;
  for (int64_t i = 0; i < n; ++i) values.push_back(random->Uniform(low, high));
  return values;
}

// One call for each kind of parameters.
std::vector<cases::Call> CallsOf(const NormSpec& spec, DType dtype, int64_t n) {
  constexpr int64_t kRows = 19;
  Random random(static_cast<uint64_t>(n));
  const cases::Call bare(spec, dtype, {kRows, n}, RowsOfManyKinds(kRows, n, &random));
  cases::Call weighted = bare;
  weighted.Weight(Numbers(n, 0.5, 2, &random));
  cases::Call affine = weighted;
  affine.Bias(Numbers(n, -1, 1, &random));
  cases::Values some = Numbers(n, -30, 30, &random);  // zeros of both signs among them
  for (size_t i = 0; i < some.size(); i += 9) some[i] = i % 2 == 0 ? 0.0 : -0.0;
  cases::Call pruned = bare;
  pruned.Weight(some);
  return {bare, weighted, affine, pruned};
}

class NearestRowsTest : public testing::TestWithParam<DType> {};

TEST_P(NearestRowsTest, HaveTheBytesOfTheSlowRoad) {
  const std::unique_ptr<Backend> slow = BackendOfNearestRows(kInf);
  const std::unique_ptr<Backend> usual = BackendOfNearestRows(1);
  const std::unique_ptr<Backend> streaming = BackendOfNearestRows(1, 0);
  for (const int64_t n : {33, 256, 769}) {
    const NormSpec specs[] = {{.attributes = LayerNormSpec{.normalized_shape = {n}}}, {.attributes = RmsNormSpec()}};
    for (const NormSpec& spec : specs) {
      for (const cases::Call& call : CallsOf(spec, GetParam(), n)) {
        const std::string want = YOf(*slow, call);
        if (n < 100) {
          EXPECT_EQ(NotNearest(call, want), "") << call.c.Name();
        }
        for (const CpuTarget& target : SupportedCpuTargets()) {
          ForceCpuTargetForTest(target.id);
          const std::string where = Concat(call.c.Name(), " on ", std::string(target.name));
          EXPECT_TRUE(YOf(*usual, call) == want) << where;
          EXPECT_TRUE(YOf(*usual, call, 4) == want) << where << ", misaligned";
          EXPECT_TRUE(YOf(*streaming, call) == want) << where << ", streamed";
          EXPECT_TRUE(YOf(*streaming, call, 4) == want) << where << ", streamed, misaligned";
          EXPECT_TRUE(YInPlace(*usual, call) == want) << where << ", in place";
          ForceCpuTargetForTest(0);
        }
      }
    }
  }
}

// The row x normalised, in long double.
std::vector<long double> Normalised80(const cases::Values& x, bool centred) {
  const auto n = static_cast<long double>(x.size());
  long double mean = 0, square = 0;
  for (const double value : x) mean += centred ? value / n : 0;
  for (const double value : x) square += (value - mean) * (value - mean) / n;
  std::vector<long double> normalised;
  for (const double value : x) normalised.push_back((value - mean) / std::sqrt(square + 0x1p-17L));
  return normalised;
}

// A row in which, of f32 every element, of other types one element of 64 lies as near to a middle as an f32 bias can
// bring it: the middle that n w is nearest to, less n w, is small, and f32 has many digits there. The other elements
// are a quarter of an ulp away from theirs: one doubtful element would have its neighbours looked at carefully, too.
cases::Call RowAtMiddles(bool centred, DType dtype, int64_t n, Random* random) {
  const int bits = dtype == DType::kF32 ? 24 : dtype == DType::kBF16 ? 8 : 11;
  NormSpec spec = {.eps = 0x1p-17, .attributes = RmsNormSpec()};
  if (centred) spec.attributes = LayerNormSpec{.normalized_shape = {n}};
  // In f64, sums that cancel have errors that show in few rows.
  const double mean = centred && dtype == DType::kF32 ? 7 : 0;
  cases::Values x = Numbers(n, mean - 2, mean + 2, random);
  x = cases::Unpack(dtype, cases::Pack(dtype, x));
  const std::vector<long double> normalised = Normalised80(x, centred);
  cases::Values weights, biases;
  for (const long double value : normalised) {
    const auto weight = static_cast<float>(random->Uniform(1, 2));
    const long double product = value * weight;
    const int exponent = std::ilogb(product) - bits;  // of half an ulp
    const long double middle = (2 * std::floor(std::ldexp(product, -exponent - 1)) + 1) * std::ldexp(1.0L, exponent);
    const bool is_at_middle = dtype == DType::kF32 || weights.size() % 64 == 5;
    weights.push_back(weight);
    biases.push_back(static_cast<float>(middle - product + (is_at_middle ? 0 : std::ldexp(0.5L, exponent))));
  }
  cases::Call call(spec, dtype, {1, n}, x);
  call.c.weight = call.c.bias = DType::kF32;
  call.data.weight = cases::Pack(DType::kF32, weights);
  call.data.bias = cases::Pack(DType::kF32, biases);
  return call;
}

// The bytes of the slow road with the bounds as they are, and not with bounds a 64th of that; of f32 about a mean, a
// 256th: its bound adds up the roundings of both sums, which never all go one way.
TEST_P(NearestRowsTest, AreDecidedAtTheMiddles) {
  const std::unique_ptr<Backend> slow = BackendOfNearestRows(kInf);
  const std::unique_ptr<Backend> usual = BackendOfNearestRows(1);
  Random random(4);
  for (const bool centred : {false, true}) {
    const bool cancels = centred && GetParam() == DType::kF32;
    const std::unique_ptr<Backend> canary = BackendOfNearestRows(cancels ? 0x1p-8 : 0x1p-6);
    int wrong_rows = 0;
    for (int row = 0; row < 256; ++row) {
      const cases::Call call = RowAtMiddles(centred, GetParam(), 512, &random);
      const std::string want = YOf(*slow, call);
      if (row < 4) {
        ASSERT_EQ(NotNearest(call, want), "") << "row " << row;
      }
      ASSERT_TRUE(YOf(*usual, call) == want) << "row " << row;
      wrong_rows += YOf(*canary, call) == want ? 0 : 1;
    }
    EXPECT_GT(wrong_rows, 0) << "centred: " << centred;
  }
}

// The same for rows about zero without a bias, which are calculated in pairs of floats.
TEST(NearestPairsTest, AreDecidedAtTheMiddles) {
  const std::unique_ptr<Backend> slow = BackendOfNearestRows(kInf);
  const std::unique_ptr<Backend> usual = BackendOfNearestRows(1);
  const std::unique_ptr<Backend> canary = BackendOfNearestRows(0x1p-6);
  int wrong_rows = 0;
  for (const BoundaryRow& row : BoundaryRows(1)) {
    const bool in_pairs = row.c.dtype == DType::kF32 && row.c.spec.method() == Method::kRmsNorm && !row.c.bias;
    if (!in_pairs) continue;
    const std::string want = RunCase(*slow, row.c, row.data)->y;
    EXPECT_EQ(
        normd::NotNearest(oracle::Type::kF32, want, oracle::Nearest(OracleSpec(row.c), OracleInput(row.c, row.data)).y),
        "")
        << row.Name();
    EXPECT_TRUE(RunCase(*usual, row.c, row.data)->y == want) << row.Name();
    wrong_rows += RunCase(*canary, row.c, row.data)->y == want ? 0 : 1;
  }
  EXPECT_GT(wrong_rows, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, NearestRowsTest, testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace normd
