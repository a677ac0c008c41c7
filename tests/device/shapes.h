// Shapes at which a device changes how it works, beside the one case list, which is of small tensors: rows from those
// that several share a block to those that no block holds, groups and images, residual streams. Read by the tests of
// the emulated and of the real CUDA backend. Pure; built anew by every call.
#ifndef NORMD_TESTS_DEVICE_SHAPES_H_
#define NORMD_TESTS_DEVICE_SHAPES_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/kernels/cases.h"
#include "tests/support/case.h"

namespace normd::shapes {

// Lengths around every change of how rows are cut, with and without what makes sums be taken again.
inline std::vector<Case> LongRows() {
  std::vector<Case> all;
  const auto add = [&](Case c) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        c.options.precision = precision;
        c.dtype = dtype;
        all.push_back(cases::Affine(c, DType::kF32, DType::kF32));
      }
    }
  };
  for (const int64_t n : {63, 64, 65, 128, 129, 2049, 8191, 8193, 16384, 20001, 32768, 32771, 40003, 65537, 98305,
                          131073, 262144, 262147}) {
    const int64_t rows = n < 300 ? 37 : 2;
    add(cases::With(cases::On(cases::Over({n}), {rows, n}), DType::kF32, n % 2 == 0 ? Data::kFarMean : Data::kNormal));
    if (n > 100000) continue;
    add(cases::With(cases::On(cases::Over({n}), {rows, n}), DType::kF32, Data::kOutliers));
    add(cases::With(cases::On(cases::Over({n}), {1, n}), DType::kF32, Data::kNan));
    add(cases::With(cases::On(cases::Of(Method::kRmsNorm), {rows, n}), DType::kF32,
                    n % 2 == 0 ? Data::kHuge : Data::kTiny));
    add(cases::With(cases::On(cases::PartialP(0.3), {rows, n}), DType::kF32));
    add(cases::With(cases::On(cases::Lp(1), {rows, n}), DType::kF32));
    if (n < 40000) add(cases::With(cases::On(cases::LpOf(3), {rows, n}), DType::kF32));
  }
  return all;
}

// Groups and images that fit on chip and that do not, channels of every size.
inline std::vector<Case> Images() {
  std::vector<Case> all;
  for (const Layout layout : cases::kLayouts) {
    for (const auto& [n, c, side] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {2, 64, 16}, {3, 8, 7}, {1, 4, 96}, {2, 24, 33}, {1, 2, 260}, {40, 16, 4}}) {
      const cases::Dims shape = cases::Nchw(layout, n, c, {side, side});
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          for (Case one : {cases::On(cases::Of(Method::kBatchNorm, layout), shape),
                           cases::On(cases::Of(Method::kBatchNorm, layout), shape, true),
                           cases::On(cases::Group(2, layout), shape),
                           cases::On(cases::Of(Method::kInstanceNorm, layout), shape)}) {
            one.options.precision = precision;
            all.push_back(cases::Affine(cases::With(one, dtype), DType::kF32, DType::kF32));
          }
        }
      }
    }
  }
  return all;
}

// Images whose channels no access holds a whole number of, of values for which sums have to be taken again.
inline std::vector<Case> HardImages() {
  std::vector<Case> all;
  for (const Layout layout : cases::kLayouts) {
    for (const auto& [n, c, side] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{2, 6, 37}, {1, 3, 130}, {3, 10, 7}, {2, 4, 14}}) {
      const cases::Dims shape = cases::Nchw(layout, n, c, {side, side});
      for (const Data data : {Data::kFarMean, Data::kOutliers, Data::kTiny, Data::kNan}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          for (const Precision precision : {Precision::kExact, Precision::kFast}) {
            for (Case one : {cases::On(cases::Of(Method::kBatchNorm, layout), shape),
                             cases::On(cases::Of(Method::kBatchNorm, layout), shape, true),
                             cases::On(cases::Group(c % 3 == 0 ? 3 : 2, layout), shape)}) {
              one.options.precision = precision;
              all.push_back(cases::Affine(cases::With(one, dtype, data), DType::kF32, DType::kF32));
            }
          }
        }
      }
    }
  }
  return all;
}

inline std::vector<Case> Residuals() {
  std::vector<Case> all;
  for (const int64_t n : {5, 130, 4097, 40000}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      for (const DType residual : {dtype, DType::kF32}) {
        for (const double scale : {1.0, -0.3}) {
          Case c = cases::Affine(cases::With(cases::On(cases::Over({n}), {3, n}), dtype));
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

}  // namespace normd::shapes

#endif  // NORMD_TESTS_DEVICE_SHAPES_H_
