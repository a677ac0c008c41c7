// The CUDA backend with its kernels emulated on the CPU: every byte is that of the CPU backend, EXACT and FAST, in any
// order of threads and blocks, on every architecture, from the shortest rows to those that no block can hold. The CPU
// backend is judged by the oracle, so these are, too.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/methods.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

using cases::Affine;
using cases::Axes;
using cases::Group;
using cases::Lp;
using cases::Of;
using cases::On;
using cases::Over;
using cases::PartialP;
using cases::With;

class DeviceAgreementTest : public testing::TestWithParam<Method> {
 protected:
  DeviceAgreementTest() { cuda_on_cpu::Reset(); }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

TEST_P(DeviceAgreementTest, BytesOfEveryCaseAreThoseOfTheCpu) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend(cpu_.get());
  uint64_t seed = 0;
  int64_t launches = 0;
  for (const Case& c : cases::AllOf(GetParam())) {
    cuda_on_cpu::SetSeed(seed++);
    const CaseData data = DataOf(c);
    EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), Execute(*cpu_, c, data)), "") << c.Name();
    if (!data.x.empty()) {
      EXPECT_GT(cuda_on_cpu::Launches(), launches) << c.Name();
    }
    launches = cuda_on_cpu::Launches();
  }
}

TEST_P(DeviceAgreementTest, AlignmentOfHostTensorsDoesNotMatter) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend(cpu_.get());
  const std::vector<Case> all = cases::AllOf(GetParam());
  for (size_t i = 0; i < all.size(); i += 7) {
    const CaseData data = DataOf(all[i]);
    EXPECT_EQ(DifferenceOf(Execute(*cuda, all[i], data, 1 + static_cast<int>(i % 60)), Execute(*cpu_, all[i], data)),
              "")
        << all[i].Name();
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceAgreementTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

// Lengths around every change of how rows are cut, with and without what makes sums be taken again.
std::vector<Case> LongRows() {
  std::vector<Case> all;
  const auto add = [&](Case c) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        c.options.precision = precision;
        c.dtype = dtype;
        all.push_back(Affine(c, DType::kF32, DType::kF32));
      }
    }
  };
  for (const int64_t n : {63, 64, 65, 128, 129, 2049, 8191, 8193, 16384, 20001, 32768, 32771, 40003, 65537, 98305,
                          131073, 262144, 262147}) {
    const int64_t rows = n < 300 ? 37 : 2;
    add(With(On(Over({n}), {rows, n}), DType::kF32, n % 2 == 0 ? Data::kFarMean : Data::kNormal));
    if (n > 100000) continue;
    add(With(On(Over({n}), {rows, n}), DType::kF32, Data::kOutliers));
    add(With(On(Over({n}), {1, n}), DType::kF32, Data::kNan));
    add(With(On(Of(Method::kRmsNorm), {rows, n}), DType::kF32, n % 2 == 0 ? Data::kHuge : Data::kTiny));
    add(With(On(PartialP(0.3), {rows, n}), DType::kF32));
    add(With(On(Lp(1), {rows, n}), DType::kF32));
  }
  return all;
}

// Groups and images that fit on chip and that do not, channels of every size.
std::vector<Case> Images() {
  std::vector<Case> all;
  for (const Layout layout : cases::kLayouts) {
    for (const auto& [n, c, side] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {2, 64, 16}, {3, 8, 7}, {1, 4, 96}, {2, 24, 33}, {1, 2, 260}, {40, 16, 4}}) {
      const cases::Dims shape = cases::Nchw(layout, n, c, {side, side});
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          for (Case one : {On(Of(Method::kBatchNorm, layout), shape), On(Of(Method::kBatchNorm, layout), shape, true),
                           On(Group(2, layout), shape), On(Of(Method::kInstanceNorm, layout), shape)}) {
            one.options.precision = precision;
            all.push_back(Affine(With(one, dtype), DType::kF32, DType::kF32));
          }
        }
      }
    }
  }
  return all;
}

std::vector<Case> Residuals() {
  std::vector<Case> all;
  for (const int64_t n : {5, 130, 4097, 40000}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      for (const DType residual : {dtype, DType::kF32}) {
        for (const double scale : {1.0, -0.3}) {
          Case c = Affine(With(On(Over({n}), {3, n}), dtype));
          c.residual = ResidualCase{.dtype = residual, .scale = scale};
          all.push_back(c);
          c.residual->rounding = ResidualRounding::kKeepWide;
          all.push_back(c);
        }
      }
    }
  }
  return all;
}

class DeviceShapesTest : public testing::TestWithParam<cuda_on_cpu::Device> {
 protected:
  DeviceShapesTest() {
    cuda_on_cpu::Reset();
    cuda_on_cpu::SetDevice(GetParam());
  }
  void ExpectBytesOfTheCpu(const std::vector<Case>& all) {
    const std::unique_ptr<Backend> cuda = EmulatedCudaBackend(cpu_.get());
    uint64_t seed = 0;
    for (const Case& c : all) {
      cuda_on_cpu::SetSeed(seed++);
      const CaseData data = DataOf(c);
      EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), Execute(*cpu_, c, data)), "") << c.Name();
    }
  }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

TEST_P(DeviceShapesTest, LongRowsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(LongRows()); }
TEST_P(DeviceShapesTest, ImagesHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(Images()); }
TEST_P(DeviceShapesTest, ResidualStreamsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(Residuals()); }

INSTANTIATE_TEST_SUITE_P(Architectures, DeviceShapesTest, testing::Values(kSm80, kSm89, kSm90), [](const auto& device) {
  return "sm_" + std::to_string(device.param.major) + std::to_string(device.param.minor);
});

}  // namespace
}  // namespace normd
