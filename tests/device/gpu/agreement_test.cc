// The CUDA backend on a real GPU has the bytes of the CPU backend, EXACT and FAST: over the one case list, and at the
// lengths where the device changes how it works. The CPU backend is judged by the oracle, so this is, too.
#include <string>

#include "kernels/methods.h"
#include "tests/device/gpu/gpu_test.h"
#include "tests/device/shapes.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

class GpuAgreementTest : public GpuTest, public testing::WithParamInterface<Method> {};

TEST_P(GpuAgreementTest, BytesOfEveryCaseAreThoseOfTheCpu) { ExpectBytesOfTheCpu(cases::AllOf(GetParam())); }

TEST_P(GpuAgreementTest, BytesOfEveryCaseInTheOtherPrecisionAreThoseOfTheCpu) {
  std::vector<Case> all = cases::AllOf(GetParam());
  for (Case& c : all) {
    c.options.precision = c.options.precision == Precision::kFast ? Precision::kExact : Precision::kFast;
  }
  ExpectBytesOfTheCpu(all);
}

TEST_P(GpuAgreementTest, AlignmentOfHostTensorsDoesNotMatter) {
  const std::vector<Case> all = cases::AllOf(GetParam());
  for (size_t i = 0; i < all.size(); i += 7) ExpectBytesOfTheCpu({all[i]}, 1 + static_cast<int>(i % 60));
}

INSTANTIATE_TEST_SUITE_P(Methods, GpuAgreementTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

// What nothing but a GPU can judge, to be run first: clusters of blocks that read one another's shared memory, blocks
// with more shared memory than a launch has by default, groups that a block sums again, and parts that many blocks
// fold.
class GpuHazardsTest : public GpuTest {};

TEST_F(GpuHazardsTest, RowsAtEveryStepOfSharingHaveTheBytesOfTheCpu) {
  for (const int64_t n : {4097, 32769, 65537, 262144}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        Case c = cases::Affine(cases::With(cases::On(cases::Over({n}), {2, n}), dtype), DType::kF32, DType::kF32);
        c.options.precision = precision;
        ExpectBytesOfTheCpu({c});
      }
    }
  }
}

TEST_F(GpuHazardsTest, GroupsThatAreSummedAgainHaveTheBytesOfTheCpu) {
  for (const Layout layout : cases::kLayouts) {
    for (const Data data : {Data::kOutliers, Data::kFarMean, Data::kTiny}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        Case c = cases::With(cases::On(cases::Of(Method::kBatchNorm, layout), cases::Nchw(layout, 5, 6, {112, 112})),
                             DType::kBF16, data);
        c.options.precision = precision;
        ExpectBytesOfTheCpu({c});
      }
    }
  }
}

class GpuShapesTest : public GpuTest {};

TEST_F(GpuShapesTest, LongRowsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::LongRows()); }
TEST_F(GpuShapesTest, ImagesHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Images()); }
TEST_F(GpuShapesTest, ChannelsLastGroupsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ChannelsLastGroups()); }
TEST_F(GpuShapesTest, ShortSegmentsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ShortSegments()); }
TEST_F(GpuShapesTest, ElementsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Elements()); }
TEST_F(GpuShapesTest, ManyPositionsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ManyPositions()); }
TEST_F(GpuShapesTest, ManyPartsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ManyParts()); }
TEST_F(GpuShapesTest, FoldedColumnsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::FoldedColumns()); }
TEST_F(GpuShapesTest, HardImagesHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::HardImages()); }
TEST_F(GpuShapesTest, ResidualStreamsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Residuals()); }

}  // namespace
}  // namespace normd
