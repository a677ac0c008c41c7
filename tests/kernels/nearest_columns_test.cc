// Columns and channels to the nearest value (ApplyNearestQuickly, and the quick look at f64): every element has the
// bytes that the slow road gives it, on each instruction set, split, streamed, in place and at any address, with many
// more undecided elements than are remembered; some of these are compared with the exact oracle, which shares no code
// with either. Tensors at the middles, compared with it too, show that the bounds are needed.
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/pair_tree.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

std::unique_ptr<Backend> BackendOfColumns(double bound_factor, int64_t stream_bytes = int64_t{1} << 40) {
  return MakeCpuBackend({.threads = 1,
                         .inline_elements = int64_t{1} << 40,
                         .grain_elements = int64_t{1} << 40,
                         .stream_bytes = stream_bytes,
                         .nearest = {.bound_factor = bound_factor}});
}

// Given statistics that are returned, and moments that come before y, take other ways.
enum class Wanted : uint8_t { kY, kYAndMoments, kAll };

void LeaveOut(Wanted wanted, Job* job) {
  if (wanted == Wanted::kY) job->moments = nullptr;
  if (wanted != Wanted::kAll) job->mean = job->inverse_std = nullptr;
}
Outputs OutputsOf(Backend& backend, const Case& c, const CaseData& data, Wanted wanted, int misalignment = 0) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  CaseRun run(backend, c, *plan, data, misalignment);
  Job job = run.MakeJob();
  LeaveOut(wanted, &job);
  EXPECT_TRUE(RunJobs(backend, {job}).ok()) << c.Name();
  return run.TakeOutputs();
}
std::string YAlone(Backend& backend, const Case& c, const CaseData& data, int misalignment = 0) {
  return OutputsOf(backend, c, data, Wanted::kY, misalignment).y;
}
std::string YInPlace(Backend& backend, const Case& c, const CaseData& data, Wanted wanted) {
  CaseRun run(backend, c, *PlanOf(c), data, 0);
  std::string tensor = data.x;
  Job job = run.MakeJob();
  job.x = job.y = tensor.data();
  LeaveOut(wanted, &job);
  EXPECT_TRUE(RunJobs(backend, {job}).ok()) << c.Name();
  return tensor;
}

// BatchNorm in training and with given statistics, and GroupNorm; channels that are usual, tiny, large, far from 0,
// equal, zeros and whole numbers. Most extents are no whole vectors.
std::vector<Case> ColumnsAndChannels(DType dtype) {
  std::vector<Case> all;
  const auto add = [&](NormSpec spec, std::vector<int64_t> shape, std::optional<DType> parameters, bool given) {
    Case c;
    c.spec = std::move(spec);
    c.shape = std::move(shape);
    c.dtype = dtype;
    c.weight = c.bias = parameters;
    c.options.given_statistics = given;
    if (c.spec.method() == Method::kBatchNorm && !given) c.options.mode = Mode::kTraining;
    all.push_back(c);
  };
  for (const bool given : {false, true}) {
    for (const std::optional<DType> parameters : {std::optional<DType>(DType::kF32), std::optional<DType>()}) {
      const auto batch = [](Layout layout) { return NormSpec{.attributes = BatchNormSpec{.layout = layout}}; };
      add(batch(Layout::kChannelsLast), {91, 75}, parameters, given);
      add(batch(Layout::kChannelsLast), {40, 7}, parameters, given);
      add(batch(Layout::kChannelsFirst), {3, 21, 7, 11}, parameters, given);
      add(batch(Layout::kChannelsFirst), {2, 21, 3, 5}, parameters, given);
    }
  }
  // Positions that lie a multiple of 4 KiB apart.
  add({.attributes = BatchNormSpec{.layout = Layout::kChannelsLast}}, {37, 4096 / SizeOf(dtype)}, DType::kF32, true);
  const auto group = [](Layout layout) {
    return NormSpec{.attributes = GroupNormSpec{.layout = layout, .num_groups = 7}};
  };
  add(group(Layout::kChannelsFirst), {2, 21, 9, 11}, DType::kF32, false);
  add(group(Layout::kChannelsLast), {2, 9, 11, 42}, DType::kF32, false);
  add({.attributes = InstanceNormSpec{.layout = Layout::kChannelsFirst}}, {2, 21, 7, 11}, DType::kF32, false);
  return all;
}

// Channels of many kinds.
CaseData DataOfManyKinds(const Case& c, uint64_t seed) {
  constexpr double kScales[] = {1, 1, 1, 0x1p-12, 0x1p-20, 0x1p+9, 0};
  CaseData data = MakeData(c, *PlanOf(c), seed);
  Random random(seed);
  const bool last = std::get_if<BatchNormSpec>(&c.spec.attributes) != nullptr
                        ? std::get<BatchNormSpec>(c.spec.attributes).layout == Layout::kChannelsLast
                        : false;
  const int64_t channels = last ? c.shape.back() : c.shape[1];
  int64_t inner = 1;
  for (size_t i = 2; i < c.shape.size(); ++i) inner *= c.shape[i];
  int64_t elements = 1;
  for (const int64_t extent : c.shape) elements *= extent;
  cases::Values x;
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t channel = last ? i % channels : i / inner % channels;
    const double value = random.Normal() + (channel % 5 == 4 ? 40 : 0.2);
    x.push_back((channel % 4 == 3 ? std::round(value) : value) * kScales[static_cast<size_t>(channel) % 7]);
  }
  data.x = cases::Pack(c.dtype, x);
  return data;
}

class NearestColumnsTest : public testing::TestWithParam<DType> {};

TEST_P(NearestColumnsTest, HasTheBytesOfTheSlowRoad) {
  const std::unique_ptr<Backend> slow = BackendOfColumns(kInf);
  const std::unique_ptr<Backend> usual = BackendOfColumns(1);
  const std::unique_ptr<Backend> streamed = BackendOfColumns(1, 0);
  const std::unique_ptr<Backend> split = MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 500});
  for (const Case& c : ColumnsAndChannels(GetParam())) {
    const CaseData data = DataOfManyKinds(c, TestSeed());
    const std::string want = YAlone(*slow, c, data);
    if (want.size() <= 2'000 * static_cast<size_t>(SizeOf(c.dtype))) {
      EXPECT_EQ(NotNearest(OracleType(c.dtype), want, oracle::Nearest(OracleSpec(c), OracleInput(c, data)).y), "")
          << c.Name();
    }
    for (const CpuTarget& target : SupportedCpuTargets()) {
      ForceCpuTargetForTest(target.id);
      EXPECT_TRUE(YAlone(*usual, c, data) == want) << c.Name() << " on " << target.name;
      EXPECT_TRUE(YAlone(*usual, c, data, 1) == want) << c.Name() << " at odd addresses on " << target.name;
      EXPECT_TRUE(YAlone(*streamed, c, data) == want) << c.Name() << " streamed on " << target.name;
      EXPECT_TRUE(YAlone(*split, c, data) == want) << c.Name() << " split on " << target.name;
      EXPECT_TRUE(OutputsOf(*usual, c, data, Wanted::kAll).y == want)
          << c.Name() << " with all outputs on " << target.name;
    }
    ForceCpuTargetForTest(0);
  }
}

// Where moments come before y, y comes from them, unless a mean is far from 0 or a number is not finite.
TEST_P(NearestColumnsTest, HasTheSameYBesideMoments) {
  const std::unique_ptr<Backend> slow = BackendOfColumns(kInf);
  const std::unique_ptr<Backend> usual = BackendOfColumns(1);
  const std::unique_ptr<Backend> wide = BackendOfColumns(0x1p+12);
  const std::unique_ptr<Backend> streamed = BackendOfColumns(1, 0);
  const std::unique_ptr<Backend> split = MakeCpuBackend({.threads = 3, .inline_elements = 0, .grain_elements = 100});
  const NormSpec first = {.attributes = BatchNormSpec{.layout = Layout::kChannelsFirst}};
  const NormSpec last = {.attributes = BatchNormSpec{.layout = Layout::kChannelsLast}};
  const std::pair<NormSpec, std::vector<int64_t>> shapes[] = {
      {first, {1, 4, 100}}, {first, {1, 1, 1000}}, {first, {2, 1, 83}},  {first, {9, 17, 49}},
      {first, {2, 3, 784}}, {last, {64, 5}},       {last, {3, 131, 70}}, {last, {2, 9}}};
  for (const auto& [spec, shape] : shapes) {
    for (const Data kind :
         {Data::kNormal, Data::kConstant, Data::kFarMean, Data::kSteps, Data::kSomeZeros, Data::kNan}) {
      for (const bool parameters : {false, true}) {
        Case c = cases::With(cases::On(spec, shape), GetParam(), kind);
        if (parameters) c.weight = c.bias = DType::kF32;
        const CaseData data = MakeData(c, *PlanOf(c), TestSeed());
        const std::string want = YAlone(*slow, c, data);
        for (Backend* const backend : {usual.get(), wide.get(), streamed.get(), split.get()}) {
          EXPECT_TRUE(OutputsOf(*backend, c, data, Wanted::kYAndMoments).y == want) << c.Name();
          EXPECT_TRUE(YInPlace(*backend, c, data, Wanted::kYAndMoments) == want) << c.Name() << " in place";
          EXPECT_TRUE(YInPlace(*backend, c, data, Wanted::kY) == want) << c.Name() << " in place, alone";
        }
      }
    }
  }
}

// MEAN and INV_STD come from the kernel's own numbers where their bounds allow it.
TEST_P(NearestColumnsTest, StoresTheStatisticsOfTheSlowRoad) {
  const std::unique_ptr<Backend> slow = BackendOfColumns(kInf);
  const std::unique_ptr<Backend> usual = BackendOfColumns(1);
  for (const Case& c : ColumnsAndChannels(GetParam())) {
    const CaseData data = DataOfManyKinds(c, TestSeed());
    const auto statistics = [&](Backend& backend) {
      CaseRun run(backend, c, *PlanOf(c), data, 0);
      Job job = run.MakeJob();
      job.moments = nullptr;
      EXPECT_TRUE(RunJobs(backend, {job}).ok());
      const Outputs outputs = run.TakeOutputs();
      return outputs.mean + outputs.inverse_std;
    };
    EXPECT_TRUE(statistics(*usual) == statistics(*slow)) << c.Name();
  }
}

// Moments of columns come from sums in pairs of many columns at once.
TEST_P(NearestColumnsTest, StoresTheMomentsOfExactIntegers) {
  const std::unique_ptr<Backend> exact = MakeCpuBackend({.threads = 1, .nearest = {.exact_first = true}});
  const std::unique_ptr<Backend> usual = BackendOfColumns(1);
  const std::unique_ptr<Backend> split = MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 500});
  for (const Case& c : ColumnsAndChannels(GetParam())) {
    if (c.options.given_statistics) continue;
    const CaseData data = DataOfManyKinds(c, TestSeed());
    const Outputs want = OutputsOf(*exact, c, data, Wanted::kAll);
    for (Backend* const backend : {usual.get(), split.get()}) {
      EXPECT_EQ(DifferenceOf(OutputsOf(*backend, c, data, Wanted::kAll), want), "") << c.Name();
    }
  }
}

// Every element of a tile is a tie or undecided: with 24,576 of them, most groups are not remembered element by
// element.
TEST_P(NearestColumnsTest, DecidesMoreElementsThanAreRemembered) {
  Case c;
  c.spec.attributes = BatchNormSpec{.layout = Layout::kChannelsLast};
  c.options.mode = Mode::kTraining;
  c.shape = {96, 256};
  c.dtype = GetParam();
  const CaseData data = MakeData(c, *PlanOf(c), TestSeed());
  const std::string want = YAlone(*BackendOfColumns(1), c, data);
  EXPECT_TRUE(YAlone(*BackendOfColumns(kInf), c, data) == want);
  const std::unique_ptr<Backend> split =
      MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 500, .nearest = {.bound_factor = kInf}});
  EXPECT_TRUE(YAlone(*split, c, data) == want);
}

INSTANTIATE_TEST_SUITE_P(DTypes, NearestColumnsTest,
                         testing::Values(DType::kF64, DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

// A tensor of BatchNorm whose elements lie at the middles, and what the exact oracle makes of it.
struct TensorAtMiddles {
  BoundaryRow row;
  std::vector<uint64_t> want;
};
std::vector<TensorAtMiddles> TensorsAtMiddles() {
  std::vector<TensorAtMiddles> tensors;
  for (const BoundaryRow& row : BoundaryRows(TestSeed())) {
    if (row.c.spec.method() != Method::kBatchNorm) continue;
    tensors.push_back({row, oracle::Nearest(OracleSpec(row.c), OracleInput(row.c, row.data)).y});
  }
  return tensors;
}

// The tensors of which a backend gets y wrong, by dtype and layout: "f16/last".
std::set<std::string> WrongTensors(const std::vector<TensorAtMiddles>& tensors, double bound_factor,
                                   Wanted wanted = Wanted::kY) {
  const std::unique_ptr<Backend> backend = BackendOfColumns(bound_factor);
  std::set<std::string> wrong;
  for (const auto& [row, want] : tensors) {
    if (NotNearest(OracleType(row.c.dtype), OutputsOf(*backend, row.c, row.data, wanted).y, want).empty()) continue;
    const bool last = std::get<BatchNormSpec>(row.c.spec.attributes).layout == Layout::kChannelsLast;
    wrong.insert(Concat(Name(row.c.dtype), last ? "/last" : "/first"));
  }
  return wrong;
}

TEST(NearestPairTreeTest, FoldsAnyNumberOfParts) {
  for (const int64_t parts : {1, 2, 3, 8, 1023, 1300}) {
    cpu::PairTree tree(2);
    for (int64_t i = 1; i <= parts; ++i) {
      const auto x = static_cast<double>(i);
      const PairSums part[] = {{{x, 0}, {0x1p+60, 0}}, {{-x, 0}, {x * 0x1p-60, 0}}};
      tree.Add(part);
    }
    const std::vector<PairSums> total = tree.Total();
    const auto n = static_cast<double>(parts);
    EXPECT_EQ(total[0].first.hi, n * (n + 1) / 2);
    EXPECT_EQ(total[0].second.hi, n * 0x1p+60);
    EXPECT_EQ(total[1].first.hi, -n * (n + 1) / 2);
    EXPECT_EQ(total[1].second.hi, n * (n + 1) / 2 * 0x1p-60);
  }
}

// A bound that is 64 times too small shows in columns and in channels of f32; of f64, whose operations count as four
// times what they err at most, one that is 1,024 times too small. Of 16-bit types those at these middles come out as
// the middle itself, which any bound but 0 finds (kernels/cpu/folded_pairs.h).
TEST(NearestColumnsBoundaryTest, NeedsTheBounds) {
  const std::vector<TensorAtMiddles> tensors = TensorsAtMiddles();
  using testing::IsSupersetOf;
  EXPECT_THAT(WrongTensors(tensors, 1), testing::IsEmpty());
  EXPECT_THAT(WrongTensors(tensors, 0x1p-6), IsSupersetOf({"f32/first", "f32/last"}));
  EXPECT_THAT(WrongTensors(tensors, 0), IsSupersetOf({"f16/first", "f16/last", "bf16/first", "bf16/last"}));
  EXPECT_THAT(WrongTensors(tensors, 0x1p-10), IsSupersetOf({"f64/first", "f64/last"}));
  EXPECT_THAT(WrongTensors(tensors, 1, Wanted::kYAndMoments), testing::IsEmpty());
  EXPECT_THAT(WrongTensors(tensors, 0x1p-6, Wanted::kYAndMoments), IsSupersetOf({"f32/first", "f32/last"}));
}

}  // namespace
}  // namespace normd
