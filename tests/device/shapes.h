// Shapes at which a device changes how it works, beside the one case list, which is of small tensors: rows from those
// that several share a block to those that no block holds, groups and images, segments and columns of every number,
// groups of many parts, residual streams. Read by the tests of the emulated and of the real CUDA backend. Pure; built
// anew by every call.
#ifndef NORMD_TESTS_DEVICE_SHAPES_H_
#define NORMD_TESTS_DEVICE_SHAPES_H_

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/plan.h"
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
  for (const int64_t n : {63,    64,    65,    128,   129,   1023,  1025,  2049,  4097,   8191,   8193,  9217,
                          16384, 16385, 20001, 32768, 32771, 40003, 65537, 98305, 131073, 262144, 262147}) {
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

// GroupNorm with channels last: groups that a block of threads can have alone, or a cluster of them, up to the bounds,
// and groups of an odd number of channels, of too many elements, of too many columns, of too few, and too many groups
// (on a device of four multiprocessors).
inline std::vector<Case> ChannelsLastGroups() {
  std::vector<Case> all;
  const Layout last = Layout::kChannelsLast;
  for (const auto& [n, channels, groups, positions] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {2, 16, 2, 1},       // one position
           {2, 24, 2, 31},      // less than a block of positions
           {1, 48, 4, 33},      // a block of positions, and one more
           {1, 80, 2, 64},      // threads without columns
           {1, 80, 1, 400},     // nearly as many elements as a block has
           {2, 8, 1, 3000},     // many blocks of positions
           {1, 10, 1, 4096},    // clusters of eight, and pieces of 4 or 8 bytes
           {2, 20, 2, 300},     // clusters of two, the last block with fewer blocks of positions
           {2, 28, 1, 520},     // clusters of two or four, of which one block has nothing
           {1, 132, 1, 70},     // as many columns as one fold of a warp has, and more
           {1, 1024, 1, 32},    // as many columns as a block has, and as many elements
           {1, 1026, 1, 3},     // more columns
           {1, 80, 1, 410},     // more elements
           {1, 48, 1, 2060},    // more than a cluster has
           {2, 8, 4, 100},      // too few columns
           {5, 24, 1, 9},       // too many groups
           {2, 26, 2, 100}}) {  // an odd number of channels
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        for (const Data data : {Data::kNormal, Data::kOutliers, Data::kFarMean, Data::kHuge, Data::kTiny, Data::kInf,
                                Data::kNan, Data::kZeros}) {
          Case c = cases::With(cases::On(cases::Group(groups, last), {n, positions, channels}), dtype, data);
          c.options.precision = precision;
          all.push_back(cases::Affine(c, DType::kF32, DType::kF32));
          if (data != Data::kNormal || positions > 100) continue;
          all.push_back(c);
          all.push_back(cases::Affine(c, DType::kF64, DType::kF64));
          c.weight = DType::kF32;
          all.push_back(c);
          std::swap(c.weight, c.bias);
          all.push_back(c);
          c.residual = ResidualCase{.dtype = dtype};
          all.push_back(c);
          Case per_group = cases::With(cases::On(cases::Group(groups, last, true), {n, positions, channels}), dtype);
          per_group.options.precision = precision;
          all.push_back(cases::Affine(per_group, DType::kF32, DType::kF32));
        }
      }
    }
  }
  return all;
}

// Groups of several segments of which a chunk has several, or parts of one: one segment less than a chunk has, as many,
// and more. Segments that are aligned to vectors, and others.
inline std::vector<Case> ShortSegments() {
  std::vector<Case> all;
  const auto add = [&](const Case& base) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        if (dtype == DType::kF64 && precision == Precision::kFast) continue;
        for (const Data data : {Data::kNormal, Data::kFarMean, Data::kOutliers}) {
          Case c = cases::With(base, dtype, data);
          c.options.precision = precision;
          all.push_back(cases::Affine(c, DType::kF32, DType::kF32));
        }
      }
    }
  };
  for (const auto& [n, height, width] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 7, 7},   {19, 7, 7},  {20, 7, 7},  {21, 7, 7},  {45, 7, 7},  {300, 2, 2}, {115, 3, 3},
           {65, 4, 4},  {5, 15, 17}, {21, 8, 8},  {11, 8, 16}, {9, 12, 12}, {9, 14, 14}, {5, 16, 16},
           {7, 18, 18}, {3, 16, 32}, {3, 19, 27}, {3, 28, 28}, {2, 33, 32}, {2, 56, 56}}) {
    Case c = cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {n, 3, height, width});
    add(c);
    c.mask = Mask::kSome;
    add(c);
  }
  // Adjacent groups whose segments are summed together: less than a block has, as many, and more.
  for (const auto& [n, channels, side] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 8, 7}, {19, 16, 7}, {45, 40, 7}, {18, 24, 6}}) {
    add(cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {n, channels, side, side}));
    add(cases::On(cases::LpOver(1, {0, 2}), {n, channels, side * side}));
  }
  for (const auto& [n, length] :
       std::vector<std::pair<int64_t, int64_t>>{{21, 49}, {45, 49}, {3, 300}, {3, 1027}, {3, 2056}}) {
    for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
      add(cases::On(cases::Axes(method, {0, 2}), {n, 2, length}));
    }
    for (const double p : {1.0, 2.0, 3.0}) add(cases::On(cases::LpOver(p, {0, 2}), {n, 2, length}));
  }
  return all;
}

// Adds `c` with no w and b, with both in f64, and with either.
inline void AddParameters(Case c, std::vector<Case>* all) {
  all->push_back(c);
  all->push_back(cases::Affine(c, DType::kF64, DType::kF64));
  c.weight = DType::kF32;
  all->push_back(c);
  std::swap(c.weight, c.bias);
  all->push_back(c);
}

// Groups of several segments that a block of threads or a cluster of 2, 4 or 8 has on chip: one channel or several,
// chunks of several segments and segments of several chunks, few chunks and many, with elements in every way that they
// are calculated.
inline std::vector<Case> Tiles() {
  std::vector<Case> all;
  for (const auto& [n, channels, height, width] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
           {2, 16, 14, 14},       // few segments
           {50, 8, 7, 7},         // channels of which every other one is at an odd place
           {13, 64, 2, 4},        // short pieces
           {9, 16, 2, 2},         // several channels in a vector
           {5, 8, 15, 17},        // odd segments of several steps
           {50, 2, 28, 28},       // so many chunks that they are folded twice
           {17, 2, 40, 40},       // segments of several chunks
           {5, 3, 56, 56},        // a short last chunk
           {70, 2, 14, 14},       // several channels in several blocks
           {300, 2, 14, 14},      // and many chunks
           {16, 2, 160, 160}}) {  // as much as eight blocks have
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        for (const Data data : {Data::kNormal, Data::kOutliers, Data::kFarMean, Data::kHuge, Data::kTiny, Data::kInf,
                                Data::kNan, Data::kZeros}) {
          const bool large = n * channels * height * width > 50000;
          if (large && data != Data::kNormal && data != Data::kOutliers) continue;
          Case c = cases::With(
              cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {n, channels, height, width}), dtype,
              data);
          c.options.precision = precision;
          all.push_back(cases::Affine(c, DType::kF32, DType::kF32));
          if (large || (data != Data::kNormal && data != Data::kFarMean)) continue;
          AddParameters(c, &all);
        }
      }
    }
  }
  return all;
}

// GroupNorm with channels first of few large groups, which blocks of threads share: one channel or many to a group,
// whole chunks and others, groups that end where a block or a channel does and that do not.
inline std::vector<Case> LargeGroups() {
  std::vector<Case> all;
  for (const auto& [n, channels, groups, height, width] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>{
           {1, 80, 2, 8, 8},        // one block
           {2, 20, 2, 16, 16},      // short last chunk
           {1, 12, 1, 24, 40},      // channels that are no whole chunks
           {1, 20, 2, 64, 64},      // as many blocks as multiprocessors ask for
           {1, 2, 2, 96, 112},      // a channel to a group
           {1, 3, 1, 200, 296}}) {  // as much as eight blocks have
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        for (const Data data : {Data::kNormal, Data::kOutliers, Data::kFarMean, Data::kHuge, Data::kTiny, Data::kInf,
                                Data::kNan, Data::kZeros}) {
          const bool large = channels * height * width > 30000;
          if (large && data != Data::kNormal && data != Data::kOutliers) continue;
          Case c = cases::With(cases::On(cases::Group(groups, Layout::kChannelsFirst), {n, channels, height, width}),
                               dtype, data);
          c.options.precision = precision;
          all.push_back(cases::Affine(c, DType::kF32, DType::kF32));
          if (large || (data != Data::kNormal && data != Data::kFarMean)) continue;
          AddParameters(c, &all);
          Case per_group = cases::With(
              cases::On(cases::Group(groups, Layout::kChannelsFirst, true), {n, channels, height, width}), dtype, data);
          per_group.options.precision = precision;
          all.push_back(cases::Affine(per_group, DType::kF32, DType::kF32));
        }
      }
    }
  }
  return all;
}

// Elements in every way of kernels/group_statistics.h: with parameters of each element, of each channel or none, that
// are f32 or are not, about means that are f32 or are not.
inline std::vector<Case> Elements() {
  std::vector<Case> all;
  const auto add = [&](const Case& base) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        // Means that are f32 or 0; that are not; far ones; elements that f32 does not hold; NaN.
        for (const Data data : {Data::kSteps, Data::kNormal, Data::kFarMean, Data::kHuge, Data::kTiny, Data::kConstant,
                                Data::kZeros, Data::kSomeZeros, Data::kInf}) {
          Case c = cases::With(base, dtype, data);
          c.options.precision = precision;
          all.push_back(c);
          for (const DType parameters : {DType::kF32, DType::kF64}) {
            all.push_back(cases::Affine(c, parameters, parameters));
            Case one = c;
            if (cases::TakesWeight(c.spec)) one.weight = parameters;
            all.push_back(one);
          }
        }
      }
    }
  };
  for (const int64_t n : {64, 1024, 1025, 4100}) {
    add(cases::On(cases::Over({n}), {3, n}));
    add(cases::On(cases::Of(Method::kRmsNorm), {3, n}));
    add(cases::On(cases::Of(Method::kScaleNorm), {3, n}));
  }
  for (const Layout layout : cases::kLayouts) {
    const cases::Dims shape = cases::Nchw(layout, 3, 8, {4, 16});
    add(cases::On(cases::Of(Method::kBatchNorm, layout), shape));
    add(cases::On(cases::Of(Method::kBatchNorm, layout), shape, true));
    add(cases::On(cases::Of(Method::kInstanceNorm, layout), shape));
    add(cases::On(cases::Group(2, layout), shape));
  }
  return all;
}

// Rows of 16-bit elements about zero, whose squares f32 has exactly.
inline std::vector<Case> AboutZero(const std::vector<Case>& all) {
  std::vector<Case> found;
  for (const Case& c : all) {
    const absl::StatusOr<NormPlan> plan = MakePlan(c.spec, c.dtype, c.shape, c.options);
    if (!plan.ok() || plan->pattern != Pattern::kRows || SizeOf(c.dtype) != 2) continue;
    if (plan->statistic != Statistic::kMeanVariance && !SumsPowers(plan->statistic)) found.push_back(c);
  }
  return found;
}

// Columns of so many positions that a thread, a warp or a block of threads takes several blocks of them.
inline std::vector<Case> ManyPositions() {
  std::vector<Case> all;
  for (const auto& [positions, channels] :
       std::vector<std::pair<int64_t, int64_t>>{{2179, 256}, {1061, 256}, {1056, 130}, {33, 512}, {9001, 3}}) {
    for (const Data data : {Data::kNormal, Data::kOutliers}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          for (const Mask mask : {Mask::kNone, Mask::kSome}) {
            Case c = cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {positions, channels});
            c = cases::Affine(cases::With(c, dtype, data), DType::kF32, DType::kF32);
            c.options.precision = precision;
            c.mask = mask;
            all.push_back(c);
          }
        }
      }
    }
    all.push_back(cases::Affine(cases::On(cases::Power(1), {positions, channels})));
  }
  return all;
}

// Groups of so many parts that a block of threads folds those of one group, in rows and in columns, of one column and
// of several; and sums them again where the first sums do not do.
inline std::vector<Case> ManyParts() {
  std::vector<Case> all;
  const Layout last = Layout::kChannelsLast;
  for (const Case& base : {cases::On(cases::Of(Method::kBatchNorm, last), {33001, 3}),
                           cases::On(cases::Group(4, last), cases::Nchw(last, 2, 40, {64, 65})),
                           cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {2, 2, 400, 401})}) {
    for (const Data data : {Data::kNormal, Data::kOutliers, Data::kFarMean, Data::kTiny}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Precision precision : {Precision::kExact, Precision::kFast}) {
          Case c = cases::Affine(cases::With(base, dtype, data), DType::kF32, DType::kF32);
          c.options.precision = precision;
          all.push_back(c);
        }
      }
    }
  }
  return all;
}

// Columns of which one block of threads folds as many blocks of positions as any does, where the device is small: one
// part that is full, and one that is not.
inline std::vector<Case> FoldedColumns() {
  std::vector<Case> all;
  for (const Data data : {Data::kNormal, Data::kOutliers}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        Case c = cases::With(cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {4200, 512}), dtype, data);
        c = cases::Affine(c, DType::kF32, DType::kF32);
        c.options.precision = precision;
        all.push_back(c);
      }
    }
  }
  // Given statistics: several windows of columns, of which the last has threads without columns, and several turns of a
  // block, some of them with elements that are not finite.
  for (const Data data : {Data::kFarMean, Data::kNan}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        const Case given = cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {1050, 520}, true);
        Case c = cases::Affine(cases::With(given, dtype, data), DType::kF32, DType::kF32);
        c.options.precision = precision;
        all.push_back(c);
      }
    }
  }
  return all;
}

// Images whose channels no access holds a whole number of, of values for which sums have to be taken again.
inline std::vector<Case> HardImages() {
  std::vector<Case> all;
  for (const Layout layout : cases::kLayouts) {
    for (const auto& [n, c, side] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {2, 6, 37}, {1, 3, 130}, {3, 10, 7}, {2, 4, 14}, {2, 16, 9}}) {
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
  for (const int64_t n : {5, 130, 4097, 4160, 40000}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      for (const DType residual : {dtype, DType::kF32}) {
        for (const double scale : {1.0, -0.3}) {
          Case c = cases::Affine(cases::With(cases::On(cases::Over({n}), {3, n}), dtype));
          c.residual = ResidualCase{.dtype = residual, .scale = scale};
          all.push_back(c);
          c.residual->rounding = ResidualRounding::kKeepWide;
          all.push_back(c);
          if (scale != 1 || residual != dtype) continue;
          for (const Data data : {Data::kNormal, Data::kHuge, Data::kOutliers}) {
            for (Case rows : {cases::On(cases::Over({n}), {3, n}), cases::On(cases::Of(Method::kRmsNorm), {3, n})}) {
              rows = cases::Affine(cases::With(rows, dtype, data));
              rows.options.precision = Precision::kFast;
              rows.residual = ResidualCase{.dtype = residual};
              all.push_back(rows);
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace normd::shapes

#endif  // NORMD_TESTS_DEVICE_SHAPES_H_
