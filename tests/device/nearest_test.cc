// EXACT on the emulated device: the nearest value, by the exact oracle, and the bytes of the CPU backend, whichever
// rung decides an element, wherever the tensors lie, whichever output replaces an input.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/nearest.h"
#include "kernels/methods.h"
#include "tests/device/device_runs.h"
#include "tests/device/shapes.h"
#include "tests/kernels/call.h"
#include "tests/kernels/cases.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"

namespace normd {

namespace {

std::unique_ptr<Backend> NearestCuda(double bound_factor = 1, bool exact_first = false) {
  return EmulatedCudaBackend({.streams = 1, .nearest = {.bound_factor = bound_factor, .exact_first = exact_first}});
}

bool IsJudged(const Case& c, int64_t most) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  return plan.ok() && plan->precision == Precision::kExact && HasNearest(c, *plan) && plan->elements <= most;
}
std::vector<Case> Judged(const std::vector<Case>& all, int64_t most) {
  std::vector<Case> chosen;
  for (const Case& c : all) {
    if (IsJudged(c, most)) chosen.push_back(c);
  }
  return chosen;
}

class DeviceNearestTest : public testing::TestWithParam<Method> {
 protected:
  DeviceNearestTest() { cuda_on_cpu::Reset(); }
  static std::vector<Case> Cases(int64_t most) { return Judged(cases::AllOf(GetParam()), most); }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

// Moments have sums of their own: see agreement_test.cc for jobs with them.
TEST_P(DeviceNearestTest, GivesTheBytesOfTheCpuWithoutMoments) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  uint64_t seed = 0;
  for (const Case& c : Cases(int64_t{1} << 40)) {
    cuda_on_cpu::SetSeed(seed++);
    const CaseData data = DataOf(c);
    EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data, 0, false), Execute(*cpu_, c, data, 0, false)), "") << c.Name();
  }
}

TEST_P(DeviceNearestTest, GivesTheNearestValue) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  size_t elements = 0;
  const std::vector<Case> all = Cases(4'000);
  for (size_t i = 0; i < all.size(); i += 2) {
    const CaseData data = MakeData(all[i], *PlanOf(all[i]), TestSeed());
    const Outputs got = Execute(*cuda, all[i], data, 0, i % 4 == 0);
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(all[i]), OracleInput(all[i], data));
    EXPECT_EQ(NotNearest(OracleType(all[i].dtype), got.y, want.y), "") << all[i].Name();
    EXPECT_EQ(NotNearest(OracleType(all[i].dtype), got.h, want.h), "") << all[i].Name() << " h";
    elements += want.y.size();
  }
  EXPECT_GT(elements, 5'000u);
}

// The host decides a million times as many elements, or all, or all of them in whole numbers.
TEST_P(DeviceNearestTest, GivesTheSameBytesWhicheverRungDecides) {
  const std::unique_ptr<Backend> others[] = {NearestCuda(1e6), NearestCuda(kInf), NearestCuda(kInf, true)};
  const std::vector<Case> all = Cases(2'000);
  for (size_t i = 0; i < all.size(); i += 3) {
    const CaseData data = DataOf(all[i]);
    const bool moments = i % 2 == 0;
    const Outputs want = Execute(*cpu_, all[i], data, 0, moments);
    for (const std::unique_ptr<Backend>& other : others) {
      EXPECT_EQ(DifferenceOf(Execute(*other, all[i], data, 0, moments), want), "") << all[i].Name();
    }
  }
}

TEST_P(DeviceNearestTest, GivesTheSameBytesInPlaceAndAtOddAddresses) {
  // With a bound that leaves something in every case.
  const std::unique_ptr<Backend> cuda = NearestCuda(1e6);
  const std::vector<Case> all = Cases(20'000);
  for (size_t i = 0; i < all.size(); i += 5) {
    const CaseData data = DataOf(all[i]);
    const Outputs want = Execute(*cpu_, all[i], data);
    EXPECT_EQ(DifferenceOf(Execute(*cuda, all[i], data, 1 + static_cast<int>(i % 60)), want), "") << all[i].Name();
    const NormPlan plan = *PlanOf(all[i]);
    CaseRun in_place(*cuda, all[i], plan, data, 0);
    Job job = in_place.MakeJob();
    std::string x = data.x;
    job.x = job.y = x.data();
    ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
    EXPECT_TRUE(x == want.y) << all[i].Name() << " in place";
  }
}

// The bytes of a tensor in memory of the device.
class OnDevice {
 public:
  explicit OnDevice(const std::string& bytes) : size_(bytes.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ + 1), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), size_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void* data() const { return data_; }
  std::string Content() const {
    std::string bytes(size_, '\0');
    EXPECT_EQ(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }

 private:
  size_t size_;
  void* data_ = nullptr;
};

// Those without a nearest value, too. FAST has the bytes of a device, and so those of tensors in memory of the host.
TEST_P(DeviceNearestTest, GivesTheSameBytesInMemoryOfTheDevice) {
  const std::unique_ptr<Backend> cuda = NearestCuda(1e6);
  std::vector<Case> all;
  for (const Case& c : cases::AllOf(GetParam())) {
    if (PlanOf(c)->elements <= 20'000) all.push_back(c);
  }
  for (size_t i = 0; i < all.size(); i += 5) {
    const CaseData data = DataOf(all[i]);
    const bool is_fast = all[i].options.precision == Precision::kFast;
    const Outputs want = Execute(is_fast ? *cuda : *cpu_, all[i], data);
    for (const bool in_place : {false, true}) {
      CaseRun run(*cuda, all[i], *PlanOf(all[i]), data, 0);
      Job job = run.MakeJob();
      const OnDevice x(data.x), residual(data.residual);
      const OnDevice y(std::string(want.y.size(), '\xA5')), h(std::string(want.h.size(), '\xA5'));
      job.x_space = job.y_space = CudaSpace(0);
      job.x = x.data();
      job.y = in_place ? x.data() : y.data();
      if (job.residual.present()) {
        job.residual.space = job.h_space = CudaSpace(0);
        job.residual.data = residual.data();
        job.h = h.data();
      }
      ASSERT_TRUE(RunJobs(*cuda, {job}).ok()) << all[i].Name();
      EXPECT_TRUE((in_place ? x : y).Content() == want.y) << all[i].Name() << (in_place ? " in place" : "");
      EXPECT_TRUE(h.Content() == want.h) << all[i].Name();
      EXPECT_TRUE(run.TakeOutputs().inverse_std == want.inverse_std) << all[i].Name();
    }
  }
}

// h in the place of x, or of the residual, which the host may have to read again.
TEST_P(DeviceNearestTest, GivesTheSameBytesWhereTheStreamReplacesAnInput) {
  const std::unique_ptr<Backend> backends[] = {NearestCuda(1e6), NearestCuda(kInf)};
  for (const Case& c : Cases(5'000)) {
    if (!c.residual.has_value()) continue;
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*cpu_, c, data);
    for (const std::unique_ptr<Backend>& cuda : backends) {
      for (const bool replaces_x : {true, false}) {
        if (!replaces_x && c.residual->dtype != c.dtype) continue;
        CaseRun run(*cuda, c, *PlanOf(c), data, 0);
        Job job = run.MakeJob();
        const OnDevice x(data.x), residual(data.residual), y(std::string(want.y.size(), '\xA5'));
        job.x_space = job.y_space = job.h_space = job.residual.space = CudaSpace(0);
        job.x = x.data();
        job.residual.data = residual.data();
        job.y = y.data();
        job.h = replaces_x ? x.data() : residual.data();
        ASSERT_TRUE(RunJobs(*cuda, {job}).ok()) << c.Name();
        Outputs got = run.TakeOutputs();
        got.y = y.Content();
        got.h = (replaces_x ? x : residual).Content();
        EXPECT_EQ(DifferenceOf(got, want), "") << c.Name() << (replaces_x ? " x" : " residual");
      }
    }
  }
}

// Groups that the host is not asked about: what it holds of y is nothing.
TEST_P(DeviceNearestTest, GivenStatisticsThatAreNotFiniteStayOnTheDevice) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  for (const Case& c : Cases(1'000)) {
    CaseData data = DataOf(c);
    if (!c.options.given_statistics || !data.residual.empty()) continue;
    for (const double variance : {kInf, kNan}) {
      data.given_variance.assign(data.given_variance.size(), variance);
      const Outputs want = Execute(*cpu_, c, data);
      CaseRun run(*cuda, c, *PlanOf(c), data, 0);
      Job job = run.MakeJob();
      const OnDevice x(data.x), y(std::string(want.y.size(), '\xA5'));
      job.x_space = job.y_space = CudaSpace(0);
      job.x = x.data();
      job.y = y.data();
      ASSERT_TRUE(RunJobs(*cuda, {job}).ok()) << c.Name();
      EXPECT_TRUE(y.Content() == want.y) << c.Name() << ", variance " << variance;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceNearestTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

class DeviceNearestShapesTest : public testing::Test {
 protected:
  DeviceNearestShapesTest() { cuda_on_cpu::Reset(); }
  void ExpectBytesOfTheCpu(const std::vector<Case>& all) {
    const std::unique_ptr<Backend> cuda = NearestCuda();
    uint64_t seed = 0;
    for (const Case& c : Judged(all, int64_t{1} << 40)) {
      cuda_on_cpu::SetSeed(seed++);
      const CaseData data = DataOf(c);
      EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data, 0, false), Execute(*cpu_, c, data, 0, false)), "") << c.Name();
    }
  }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

TEST_F(DeviceNearestShapesTest, LongRows) { ExpectBytesOfTheCpu(shapes::LongRows()); }
TEST_F(DeviceNearestShapesTest, Images) { ExpectBytesOfTheCpu(shapes::Images()); }
TEST_F(DeviceNearestShapesTest, HardImages) { ExpectBytesOfTheCpu(shapes::HardImages()); }
TEST_F(DeviceNearestShapesTest, ChannelsLastGroups) { ExpectBytesOfTheCpu(shapes::ChannelsLastGroups()); }
TEST_F(DeviceNearestShapesTest, ShortSegments) { ExpectBytesOfTheCpu(shapes::ShortSegments()); }
TEST_F(DeviceNearestShapesTest, Residuals) { ExpectBytesOfTheCpu(shapes::Residuals()); }

// Makes two elements of group 3 the mean of their group, so that they are b, and b the middle between two values, or 1.
void PutAtTheMiddle(const NormPlan& plan, bool at_the_middle, CaseData* data) {
  constexpr int64_t kGroup = 3;
  constexpr uint16_t kOne = 0x3F80, kTwo = 0x4000, kThree = 0x4040;  // of bf16
  auto* const x = reinterpret_cast<uint16_t*>(data->x.data());
  const int64_t k0 = kGroup / plan.keep1, k1 = kGroup % plan.keep1;
  for (int64_t i = 0; i < plan.reduce0 * plan.reduce1; ++i) {
    const int64_t segment = (k0 * plan.reduce0 + i / plan.reduce1) * plan.keep1 + k1;
    x[segment * plan.reduce1 + i % plan.reduce1] = i < 2 ? kTwo : i % 2 == 0 ? kOne : kThree;
  }
  auto* const bias = reinterpret_cast<float*>(data->bias.data());
  std::fill_n(bias, plan.parameter_length, 1.0f);
  if (!at_the_middle) return;
  const int64_t first = plan.affine_index == AffineIndex::kElement ? 0 : kGroup;
  bias[first] = 0x1.01p0f;
}

// The host reads the group of an element that it decides, not the tensor: channels whose elements lie apart, in short
// runs, and in long ones, and rows.
TEST_F(DeviceNearestShapesTest, TheHostReadsOneGroupForAnElement) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  const NormSpec first = cases::Of(Method::kBatchNorm, Layout::kChannelsFirst);
  const NormSpec last = cases::Of(Method::kBatchNorm, Layout::kChannelsLast);
  for (const Case& base : {cases::On(last, {4, 16, 512}), cases::On(first, {4, 512, 4, 4}),
                           cases::On(first, {2, 8, 128, 256}), cases::On(cases::Over({64}), {512, 64})}) {
    const Case c = cases::Affine(cases::With(base, DType::kBF16), DType::kF32, DType::kF32);
    const NormPlan plan = *PlanOf(c);
    int64_t bytes[2] = {};
    for (const bool at_the_middle : {false, true}) {
      CaseData data = DataOf(c);
      PutAtTheMiddle(plan, at_the_middle, &data);
      const int64_t before = cuda_on_cpu::BytesToHost();
      const Outputs got = Execute(*cuda, c, data, 0, false);
      bytes[at_the_middle ? 1 : 0] = cuda_on_cpu::BytesToHost() - before;
      EXPECT_EQ(DifferenceOf(got, Execute(*cpu_, c, data, 0, false)), "") << c.Name();
    }
    EXPECT_EQ(bytes[1] - bytes[0], plan.reduce0 * plan.reduce1 * SizeOf(c.dtype)) << c.Name();
  }
}

// Of elements that f64 leaves, but pairs of f64 decide, nothing comes to the host but y: with a bound that is far too
// large these are nearly all.
TEST_F(DeviceNearestShapesTest, RowsAreDecidedInPairsOnTheDevice) {
  UndecidedCounts counts;
  const auto careful = [&](DType dtype) {
    const double factor = dtype == DType::kF32 ? 1e6 : 1e10;
    return EmulatedCudaBackend({.streams = 1, .nearest = {.bound_factor = factor, .counts = &counts}});
  };
  const NormSpec p_rms = {.attributes = PRmsNormSpec{.p = 0.5}};
  std::vector<Case> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& base : {cases::On(cases::Over({300}), {12, 300}), cases::On(p_rms, {12, 300}),
                             cases::On(cases::Of(Method::kInstanceNorm, Layout::kChannelsFirst), {4, 3, 10, 20}),
                             cases::On(cases::Of(Method::kGroupNorm, Layout::kChannelsFirst), {12, 6, 4, 12})}) {
      Case c = cases::Affine(cases::With(base, dtype), DType::kF32, DType::kF32);
      all.push_back(c);
      c.spec.cast_order = CastOrder::kCastThenAffine;
      all.push_back(c);
    }
    all.push_back(cases::With(cases::On(cases::LpOf(1), {12, 300}), dtype));
  }
  for (const Case& c : all) {
    const CaseData data = DataOf(c);
    const std::unique_ptr<Backend> backends[] = {EmulatedCudaBackend({.streams = 1, .nearest = {.counts = &counts}}),
                                                 careful(c.dtype)};
    const std::string want = Execute(*cpu_, c, data, 0, false).y;
    int64_t bytes[2] = {}, decided[2] = {};
    for (const int i : {0, 1}) {
      const int64_t before = cuda_on_cpu::BytesToHost(), decided_before = counts.by_pairs;
      CaseRun run(*backends[i], c, *PlanOf(c), data, 0);
      Job job = run.MakeJob();
      job.mean = job.inverse_std = nullptr;
      job.moments = nullptr;
      ASSERT_TRUE(RunJobs(*backends[i], {job}).ok());
      bytes[i] = cuda_on_cpu::BytesToHost() - before;
      decided[i] = counts.by_pairs - decided_before;
      EXPECT_TRUE(run.TakeOutputs().y == want) << c.Name();
    }
    EXPECT_GT(decided[1], 10) << c.Name();
    EXPECT_EQ(bytes[1] - bytes[0], (decided[1] - decided[0]) * static_cast<int64_t>(sizeof(cuda::DecidedElement)))
        << c.Name();
  }
  EXPECT_EQ(counts.by_integers, 0);
}

// 1 + w is rounded, and y is as near to a middle as what that loses: the device does not have it.
TEST_F(DeviceNearestShapesTest, WeightsThatAreRoundedAreTheHosts) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  constexpr int64_t kRows = 6, kLength = 64;
  struct Affine {
    double weight, bias;
    float y;
  };
  for (const Affine& affine :
       {Affine{0x1p-24 + 0x1p-53 + 0x1p-60, -0x1.8p-53, 1}, Affine{0x1p-54, 0x1p-24 - 0x1p-55, 1 + 0x1p-23F}}) {
    Case c =
        cases::Affine(cases::On(cases::Over({kLength}, Method::kRmsNorm), {kRows, kLength}), DType::kF64, DType::kF64);
    c.spec.eps = 0;
    c.spec.weight_offset = 1;
    CaseData data = DataOf(c);
    data.x = cases::Pack(DType::kF32, cases::Values(kRows * kLength, 1.0));
    data.weight = cases::Pack(DType::kF64, cases::Values(kLength, affine.weight));
    data.bias = cases::Pack(DType::kF64, cases::Values(kLength, affine.bias));
    EXPECT_EQ(Execute(*cuda, c, data, 0, false).y, cases::Pack(DType::kF32, cases::Values(kRows * kLength, affine.y)));
  }
}

// What the host runs whole comes to it in parts, of which two rows fill one: statistics and elements of each are at
// their places.
TEST_F(DeviceNearestShapesTest, AJobOfTheHostComesInParts) {
  const std::unique_ptr<Backend> cuda = NearestCuda();
  Case c = cases::With(cases::On(cases::LpOf(3), {3, 1 << 20}), DType::kF32);
  c.residual = ResidualCase{.dtype = DType::kBF16, .rounding = ResidualRounding::kKeepWide};
  const CaseData data = DataOf(c);
  const Outputs want = Execute(*cpu_, c, data);
  CaseRun run(*cuda, c, *PlanOf(c), data, 0);
  Job job = run.MakeJob();
  const OnDevice x(data.x), h(std::string(want.h.size(), '\xA5'));
  job.x = x.data();
  job.h = h.data();
  job.x_space = job.h_space = CudaSpace(0);
  const int64_t before = cuda_on_cpu::BytesToHost();
  ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
  EXPECT_EQ(cuda_on_cpu::BytesToHost() - before, static_cast<int64_t>(data.x.size()));
  Outputs got = run.TakeOutputs();
  got.h = h.Content();
  EXPECT_EQ(DifferenceOf(got, want), "");
}

// More elements than the list has room for, of one job of several: the host runs that job.
TEST_F(DeviceNearestShapesTest, AListThatOverflowsIsTheHosts) {
  const std::unique_ptr<Backend> cuda = NearestCuda(kInf);
  std::vector<Case> all;
  for (const int64_t rows : {1, 60}) {
    all.push_back(cases::Affine(cases::With(cases::On(cases::Over({64}), {rows, 64}), DType::kF32)));
    all.push_back(cases::With(cases::On(cases::Of(Method::kRmsNorm), {rows, 64}), DType::kBF16));
  }
  ASSERT_GT(60 * 64, cuda::LeftToHost::kMost);
  std::vector<std::unique_ptr<CaseRun>> runs;
  std::vector<CaseData> data;
  for (const Case& c : all) data.push_back(DataOf(c));
  std::vector<Job> jobs;
  for (size_t i = 0; i < all.size(); ++i) {
    runs.push_back(std::make_unique<CaseRun>(*cuda, all[i], *PlanOf(all[i]), data[i], 0));
    jobs.push_back(runs.back()->MakeJob());
    jobs.back().moments = nullptr;
  }
  ASSERT_TRUE(RunJobs(*cuda, jobs).ok());
  for (size_t i = 0; i < all.size(); ++i) {
    const Outputs want = Execute(*cpu_, all[i], data[i], 0, false), got = runs[i]->TakeOutputs();
    EXPECT_TRUE(got.y == want.y && got.mean == want.mean && got.inverse_std == want.inverse_std) << all[i].Name();
  }
}

// A scattered x, put together where it will be read again or not, of which y may take the place; a job of the device
// and one of the host.
TEST_F(DeviceNearestShapesTest, ScatteredTensorsAreReadAgain) {
  const std::unique_ptr<Backend> cuda = NearestCuda(kInf);
  for (const Case& c : {cases::On(cases::Over({33}), {5, 33}), cases::On(cases::Power(2), {9, 6})}) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*cpu_, c, data);
    const auto* const bytes = reinterpret_cast<const std::byte*>(data.x.data());
    const std::vector<Segment> segments = {{bytes, 101}, {bytes + 101, data.x.size() - 101}};
    for (const bool in_buffer : {false, true}) {
      for (const bool in_place : {false, in_buffer}) {
        CaseRun run(*cuda, c, *PlanOf(c), data, 0);
        std::string buffer(data.x.size(), '?');
        Job job = run.MakeJob();
        job.x = nullptr;
        job.x_segments = segments;
        if (in_buffer) job.x_buffer = buffer.data();
        if (in_place) job.y = buffer.data();
        ASSERT_TRUE(RunJobs(*cuda, {job}).ok()) << c.Name();
        if (in_buffer) {
          EXPECT_TRUE(buffer == (in_place ? want.y : data.x)) << c.Name();
        }
        if (!in_place) {
          EXPECT_TRUE(run.TakeOutputs().y == want.y) << c.Name();
        }
      }
    }
  }
}

const std::vector<BoundaryRow>& DeviceBoundaryRows() {
  static const auto* const rows = new std::vector<BoundaryRow>(BoundaryRows(TestSeed()));  // takes seconds
  return *rows;
}

TEST(DeviceNearestBoundaryTest, DecidesElementsAtTheMiddles) {
  cuda_on_cpu::Reset();
  EXPECT_THAT(WrongRows(*NearestCuda(), DeviceBoundaryRows()), testing::IsEmpty());
}

// The same rows without a bound, and with one that is 64 times too small: the kernels decide, and need their bounds.
TEST(DeviceNearestBoundaryTest, FindsABoundThatIsTooSmall) {
  cuda_on_cpu::Reset();
  EXPECT_GT(WrongRows(*NearestCuda(0), DeviceBoundaryRows()).size(), 4u);
  EXPECT_GT(WrongRows(*NearestCuda(0x1p-6), DeviceBoundaryRows()).size(), 0u);
}

}  // namespace
}  // namespace normd
