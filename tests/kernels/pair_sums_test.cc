// Sums in pairs of columns of f32 in one pass (kernels/cpu/pair_sums.h): within their bound of the exact sums, for
// elements of near and of far exponents, on each instruction set; large groups that are summed so have the bytes of the
// slow road, and need the bounds of such sums.
#include "kernels/cpu/pair_sums.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

using Exact = __float128;  // off by 2^-113 of each addition

struct Extents {
  int64_t positions, columns, stride;
};

// Elements of 2^0 and a random power of two down to 2^-spread.
std::vector<float> FloatsOfExponents(int64_t n, int spread, uint64_t seed) {
  Random random(seed);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    const double scale = std::ldexp(1.0, -static_cast<int>(random.Uniform(0, spread + 1)));
    x.push_back(static_cast<float>((random.Normal() + 0.5) * scale));
  }
  return x;
}

void ExpectSumsWithinTheirBound(const std::vector<float>& x, const Extents& of, const std::string& name) {
  std::vector<PairSums> sums(static_cast<size_t>(of.columns));
  ASSERT_TRUE(cpu::SumInPairs({x.data(), of.positions, of.columns, of.stride}, sums.data())) << name;
  for (int64_t c = 0; c < of.columns; ++c) {
    Exact sum = 0, squares = 0, magnitudes = 0;
    for (int64_t p = 0; p < of.positions; ++p) {
      const Exact v = x[static_cast<size_t>(p * of.stride + c)];
      sum += v;
      squares += v * v;
      magnitudes += v < 0 ? -v : v;
    }
    const PairSums& got = sums[static_cast<size_t>(c)];
    const auto off = [](const DoublePair& pair, Exact exact) {
      return std::abs(static_cast<double>(Exact(pair.hi) + Exact(pair.lo) - exact));
    };
    const double bound = 41 * 0x1p-104;
    EXPECT_LE(off(got.first, sum), bound * static_cast<double>(magnitudes)) << name << ", column " << c;
    EXPECT_LE(off(got.second, squares), bound * static_cast<double>(squares)) << name << ", column " << c;
  }
}

TEST(NearestPairSumsTest, AreWithinTheirBound) {
  for (const CpuTarget& target : SupportedCpuTargets()) {
    ForceCpuTargetForTest(target.id);
    for (const Extents& of : {Extents{1, 1, 1}, Extents{129, 33, 35}, Extents{2048, 32, 32}, Extents{256, 600, 600}}) {
      for (const int spread : {0, 12, 40, 100}) {
        const std::vector<float> x = FloatsOfExponents(of.positions * of.stride, spread, TestSeed());
        ExpectSumsWithinTheirBound(x, of, std::string(target.name) + ", exponents " + std::to_string(spread));
      }
    }
  }
  ForceCpuTargetForTest(0);
}

TEST(NearestPairSumsTest, AreAbsentWhereAnElementIsNotFinite) {
  for (const CpuTarget& target : SupportedCpuTargets()) {
    ForceCpuTargetForTest(target.id);
    for (const float value : {static_cast<float>(kInf), static_cast<float>(kNan)}) {
      std::vector<float> x(static_cast<size_t>(200 * 40), 1.0f);
      x[199 * 40 + 39] = value;
      PairSums sums[40];
      EXPECT_FALSE(cpu::SumInPairs({x.data(), 200, 40, 40}, sums)) << target.name;
      EXPECT_TRUE(cpu::SumInPairs({x.data(), 199, 40, 40}, sums)) << target.name;
    }
  }
  ForceCpuTargetForTest(0);
}

TEST(NearestPairSumsTest, AreMovedToTheMeanUnlessItIsFar) {
  const std::vector<float> x = FloatsOfExponents(2048, 3, TestSeed());
  PairSums sums;
  ASSERT_TRUE(cpu::SumInPairs({x.data(), 2048, 1, 1}, &sums));
  const auto about = cpu::AboutMean(sums, 2048);
  ASSERT_TRUE(about.has_value());
  Exact first = 0, second = 0;
  for (const float v : x) {
    const Exact d = Exact(v) - Exact(about->shift);
    first += d;
    second += d * d;
  }
  EXPECT_LE(std::abs(about->sums.first.hi), 0x1p-40);
  EXPECT_LE(std::abs(static_cast<double>(Exact(about->sums.first.hi) + Exact(about->sums.first.lo) - first)), 0x1p-82);
  EXPECT_LE(std::abs(static_cast<double>(Exact(about->sums.second.hi) + Exact(about->sums.second.lo) - second)),
            0x1p-93 * static_cast<double>(second));
  EXPECT_FALSE(cpu::AboutMean({{2 * 4096.0, 0}, {4 * 4096.0 + 4096, 0}}, 4096).has_value());  // q is 4
  EXPECT_TRUE(cpu::AboutMean({{2 * 4096.0, 0}, {4 * 4096.0 + 8192, 0}}, 4096).has_value());   // q is 2
}

// ---- Large groups ----

std::unique_ptr<Backend> BackendOfLarge(NearestOptions nearest, int threads = 1) {
  return MakeCpuBackend({.threads = threads,
                         .inline_elements = threads == 1 ? int64_t{1} << 40 : 0,
                         .grain_elements = threads == 1 ? int64_t{1} << 40 : 5000,
                         .nearest = nearest});
}

std::string LargeY(Backend& backend, const Case& c, const CaseData& data) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  CaseRun run(backend, c, *plan, data, 0);
  Job job = run.MakeJob();
  job.moments = nullptr;
  job.mean = job.inverse_std = nullptr;
  EXPECT_TRUE(RunJobs(backend, {job}).ok()) << c.Name();
  return run.TakeOutputs().y;
}

std::vector<Case> LargeGroups() {
  std::vector<Case> all;
  const auto add = [&](NormSpec spec, std::vector<int64_t> shape) {
    Case c;
    c.spec = std::move(spec);
    c.shape = std::move(shape);
    c.weight = c.bias = DType::kF32;
    if (c.spec.method() == Method::kBatchNorm) c.options.mode = Mode::kTraining;
    all.push_back(c);
  };
  add({.attributes = BatchNormSpec{.layout = Layout::kChannelsLast}}, {16400, 35});
  add({.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst}}, {2, 3, 160, 210});
  add({.attributes = GroupNormSpec{.layout = Layout::kChannelsFirst, .num_groups = 2}}, {1, 6, 131, 170});
  add({.attributes = GroupNormSpec{.layout = Layout::kChannelsLast, .num_groups = 3}}, {1, 67, 65, 12});
  return all;
}

// Of small exponents, far from 0, equal, or with one element that is not finite.
enum class LargeKind { kUsual, kFar, kEqual, kInfinite };
CaseData LargeData(const Case& c, LargeKind kind) {
  CaseData data = MakeData(c, *PlanOf(c), TestSeed());
  Random random(TestSeed());
  int64_t elements = 1;
  for (const int64_t extent : c.shape) elements *= extent;
  cases::Values x;
  for (int64_t i = 0; i < elements; ++i) {
    x.push_back(kind == LargeKind::kEqual ? 0.75 : random.Normal() + (kind == LargeKind::kFar ? 40 : 0.2));
  }
  if (kind == LargeKind::kInfinite) x[static_cast<size_t>(elements / 2)] = kInf;
  data.x = cases::Pack(c.dtype, x);
  return data;
}

TEST(NearestLargeGroupsTest, HaveTheBytesOfExactIntegers) {
  const std::unique_ptr<Backend> exact = BackendOfLarge({.bound_factor = kInf, .exact_first = true});
  const std::unique_ptr<Backend> usual = BackendOfLarge({});
  // More elements are undecided than are remembered.
  const std::unique_ptr<Backend> crowded = BackendOfLarge({.bound_factor = 0x1p+22});
  const std::unique_ptr<Backend> split = BackendOfLarge({}, 2);
  for (const Case& c : LargeGroups()) {
    for (const LargeKind kind : {LargeKind::kUsual, LargeKind::kFar, LargeKind::kEqual, LargeKind::kInfinite}) {
      const CaseData data = LargeData(c, kind);
      const std::string want = LargeY(*exact, c, data);
      for (const CpuTarget& target : SupportedCpuTargets()) {
        ForceCpuTargetForTest(target.id);
        EXPECT_TRUE(LargeY(*usual, c, data) == want) << c.Name() << " on " << target.name;
        EXPECT_TRUE(LargeY(*split, c, data) == want) << c.Name() << " split on " << target.name;
        if (kind != LargeKind::kUsual) continue;
        EXPECT_TRUE(LargeY(*crowded, c, data) == want) << c.Name() << " crowded on " << target.name;
      }
      ForceCpuTargetForTest(0);
    }
  }
}

// `times` copies of runs of `run` bytes, side by side.
std::string RepeatRuns(const std::string& bytes, size_t run, int64_t times) {
  std::string all;
  for (size_t at = 0; at < bytes.size(); at += run) {
    for (int64_t i = 0; i < times; ++i) all += bytes.substr(at, run);
  }
  return all;
}

// The mean and the variance of a group are those of many copies of it, and so its elements lie at the middles, too.
int64_t WrongLargeTensors(double bound_factor) {
  static const auto* const rows = new std::vector<BoundaryRow>(BoundaryRows(TestSeed()));  // takes seconds
  const std::unique_ptr<Backend> slow = BackendOfLarge({.bound_factor = kInf});
  const std::unique_ptr<Backend> backend = BackendOfLarge({.bound_factor = bound_factor});
  int64_t wrong = 0;
  for (const BoundaryRow& row : *rows) {
    const auto* const batch = std::get_if<BatchNormSpec>(&row.c.spec.attributes);
    if (batch == nullptr || row.c.dtype != DType::kF32 || row.c.mask != Mask::kNone) continue;
    const bool last = batch->layout == Layout::kChannelsLast;
    Case large = row.c;
    CaseData data = row.data;
    const size_t run = last ? data.x.size() : static_cast<size_t>(row.c.shape.back()) * sizeof(float);
    const int64_t times = last ? 512 : 2048;
    (last ? large.shape.front() : large.shape.back()) *= times;
    data.x = RepeatRuns(data.x, run, times);
    const std::string want = RepeatRuns(LargeY(*slow, row.c, row.data), run, times);
    wrong += LargeY(*backend, large, data) == want ? 0 : 1;
  }
  return wrong;
}

TEST(NearestLargeGroupsBoundaryTest, NeedTheBounds) {
  EXPECT_EQ(WrongLargeTensors(1), 0);
  EXPECT_GT(WrongLargeTensors(0), 2);
  EXPECT_GT(WrongLargeTensors(0x1p-6), 0);
}

}  // namespace
}  // namespace normd
