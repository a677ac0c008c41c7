// The case list: every method x dtype x layout x the edge cases of the specification, as data. Accuracy, invariance,
// golden hashes and benches read this one list. What a case is: tests/support/case.h. Pure; built anew by every call.
#ifndef NORMD_TESTS_KERNELS_CASES_H_
#define NORMD_TESTS_KERNELS_CASES_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/plan.h"
#include "kernels/tensor.h"
#include "tests/support/case.h"
#include "tests/support/spec.h"

namespace normd::cases {

using Dims = std::vector<int64_t>;

inline constexpr Layout kLayouts[] = {Layout::kChannelsFirst, Layout::kChannelsLast};

// ---- One spec a line ----

inline NormSpec Of(Method method, Layout layout = Layout::kUnspecified) { return SpecOf(method, layout); }
inline NormSpec Group(int64_t groups, Layout layout, bool per_group = false) {
  return {.attributes = GroupNormSpec{.layout = layout, .num_groups = groups, .affine_per_group = per_group}};
}
inline NormSpec Over(const Dims& normalized_shape, Method method = Method::kLayerNorm) {
  NormSpec spec = Of(method);
  SetNormalizedShape(&spec, normalized_shape);
  return spec;
}
inline NormSpec Axes(Method method, const Dims& axes) {
  NormSpec spec = Of(method);
  SetAxes(&spec, axes);
  return spec;
}
inline NormSpec PartialP(double p, KRounding rounding = KRounding::kCeil) {
  return {.attributes = PRmsNormSpec{.p = p, .k_rounding = rounding}};
}
inline NormSpec PartialK(int64_t k) { return {.attributes = PRmsNormSpec{.k = k}}; }
inline NormSpec Lp(int64_t order, int64_t axis = -1) {
  return {.attributes = LpNormSpec{.order = order, .axis = axis}};
}
// Of any power, over one axis or over several.
inline NormSpec LpOf(double p, int64_t axis = -1) { return {.attributes = LpNormSpec{.axis = axis, .p = p}}; }
inline NormSpec LpOver(double p, const Dims& axes) { return {.attributes = LpNormSpec{.p = p, .axes = axes}}; }
inline NormSpec Power(int64_t groups) { return {.attributes = PowerNormSpec{.num_groups = groups}}; }

inline bool TakesWeight(const NormSpec& spec) { return spec.method() != Method::kLpNorm; }
inline bool TakesBias(const NormSpec& spec) {
  return spec.method() != Method::kLpNorm && spec.method() != Method::kScaleNorm && spec.method() != Method::kPRmsNorm;
}
inline bool HasRunningStatistics(const NormSpec& spec) {
  return spec.method() == Method::kBatchNorm || spec.method() == Method::kPowerNorm;
}
// Whether the norm is the square root of something: EpsMode::kInsideSqrt is refused where it is not.
inline bool TakesSquareRoot(const NormSpec& spec) {
  const auto* const lp = std::get_if<LpNormSpec>(&spec.attributes);
  return lp == nullptr || lp->Power() == 2;
}

// A spec on a shape, before dtype, data and parameters are chosen.
inline Case On(NormSpec spec, Dims shape, bool given = false) {
  Case c;
  c.shape = std::move(shape);
  if (HasRunningStatistics(spec) && !given) c.options.mode = Mode::kTraining;
  c.options.given_statistics = given;
  c.spec = std::move(spec);
  return c;
}
inline Case With(Case c, DType dtype, Data data = Data::kNormal) {
  c.dtype = dtype;
  c.data = data;
  return c;
}
// With w and b where the method takes them.
inline Case Affine(Case c, DType weight, DType bias) {
  if (TakesWeight(c.spec)) c.weight = weight;
  if (TakesBias(c.spec)) c.bias = bias;
  return c;
}
inline Case Affine(const Case& c) { return Affine(c, c.dtype, c.dtype); }

// ---- Families of bases ----

inline Dims Nchw(Layout layout, int64_t n, int64_t c, Dims spatial) {
  Dims shape = {n};
  if (layout == Layout::kChannelsFirst) shape.push_back(c);
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  if (layout == Layout::kChannelsLast) shape.push_back(c);
  return shape;
}

// Every method on small shapes from 2-D to 5-D.
inline std::vector<Case> SmallBases() {
  std::vector<Case> bases;
  for (const Layout layout : kLayouts) {
    for (const Dims& spatial : {Dims{}, Dims{7}, Dims{3, 5}, Dims{2, 3, 4}}) {
      const Dims shape = Nchw(layout, 4, 6, spatial);
      bases.push_back(On(Of(Method::kBatchNorm, layout), shape));
      bases.push_back(On(Of(Method::kBatchNorm, layout), shape, true));
      bases.push_back(On(Of(Method::kInstanceNorm, layout), shape));
      for (const int64_t groups : {1, 3, 6}) bases.push_back(On(Group(groups, layout), shape));
      bases.push_back(On(Group(2, layout, true), shape));
    }
    const NormSpec tracking = {.attributes = InstanceNormSpec{.layout = layout, .track_running_statistics = true}};
    bases.push_back(On(tracking, Nchw(layout, 3, 5, {4, 3}), true));
  }
  for (const Dims& over : {Dims{5}, Dims{4, 5}, Dims{3, 4, 5}, Dims{2, 3, 4, 5}})
    bases.push_back(On(Over(over), {2, 3, 4, 5}));
  for (const Dims& over : {Dims{6}, Dims{2, 6}}) bases.push_back(On(Over(over), {3, 2, 1, 2, 6}));
  for (const Dims& over : {Dims{6}, Dims{2, 6}}) {
    bases.push_back(On(Over(over, Method::kRmsNorm), {3, 2, 1, 2, 6}));
  }
  for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
    for (const Dims& axes : {Dims{3}, Dims{-2}, Dims{0}, Dims{2, 3}, Dims{3, 2}, Dims{1, 2}, Dims{0, 2}, Dims{1, 3},
                             Dims{3, 1}, Dims{2, 0}, Dims{0, 3}, Dims{-1, 0, 2}, Dims{3, 0, 1, 2}}) {
      bases.push_back(On(Axes(method, axes), {3, 4, 5, 6}));
    }
    bases.push_back(On(Axes(method, {0, 2, 4}), {2, 3, 4, 3, 2}));  // fits no four extents: goes through a permutation
    bases.push_back(On(Axes(method, {4, 0, 2}), {2, 3, 4, 3, 2}));
    bases.push_back(On(Axes(method, {0}), {7}));
  }
  for (const Dims& shape : {Dims{9}, Dims{4, 9}, Dims{2, 3, 9}, Dims{2, 2, 2, 9}}) {
    bases.push_back(On(Of(Method::kRmsNorm), shape));
    bases.push_back(On(Of(Method::kScaleNorm), shape));
    bases.push_back(On(PartialP(0.5), shape));
    for (const int64_t order : {1, 2}) bases.push_back(On(Lp(order), shape));
  }
  for (const int64_t order : {1, 2}) {
    for (const int64_t axis : {0, 1, -2}) bases.push_back(On(Lp(order, axis), {3, 4, 5, 6}));
  }
  bases.push_back(On(PartialP(0.07), {3, 100}));
  bases.push_back(On(PartialP(0.29), {3, 100}));
  bases.push_back(On(PartialP(0.333, KRounding::kFloor), {3, 100}));
  for (const int64_t k : {1, 2, 99, 100}) bases.push_back(On(PartialK(k), {3, 100}));
  for (const int64_t groups : {1, 2, 3, 6}) {
    for (const bool given : {false, true}) {
      bases.push_back(On(Power(groups), {10, 6}, given));
      bases.push_back(On(Power(groups), {5, 4, 6}, given));
    }
  }
  return bases;
}

// One base a method and layout, big enough that every path has work: 12 odd rows or 40 columns.
inline std::vector<Case> MainBases() {
  std::vector<Case> bases;
  for (const Layout layout : kLayouts) {
    const Dims shape = Nchw(layout, 3, 6, {5, 9});
    bases.push_back(On(Of(Method::kBatchNorm, layout), shape));
    bases.push_back(On(Of(Method::kInstanceNorm, layout), shape));
    bases.push_back(On(Group(2, layout), shape));
  }
  bases.push_back(On(Over({67}), {6, 67}));
  bases.push_back(On(Axes(Method::kLayerNorm, {1}), {3, 9, 11}));
  bases.push_back(On(Of(Method::kRmsNorm), {6, 67}));
  bases.push_back(On(PartialP(0.5), {6, 67}));
  bases.push_back(On(Of(Method::kScaleNorm), {6, 67}));
  bases.push_back(On(Lp(1), {6, 67}));
  bases.push_back(On(Lp(2, 1), {3, 9, 11}));
  bases.push_back(On(Power(2), {7, 3, 6}));
  return bases;
}

// Rows and columns of odd lengths, over several chunks and several column blocks.
inline std::vector<Case> LengthBases() {
  std::vector<Case> bases;
  for (const int64_t d : {1, 2, 31, 33, 769, 4095, 4097, 12289}) {
    const int64_t rows = d < 100 ? 5 : 2;
    bases.push_back(On(Over({d}), {rows, d}));
    bases.push_back(On(Of(Method::kRmsNorm), {rows, d}));
    bases.push_back(On(Of(Method::kScaleNorm), {rows, d}));
    bases.push_back(On(PartialP(0.4), {rows, d}));
    bases.push_back(On(Lp(d % 4 < 2 ? 1 : 2), {rows, d}));
  }
  for (const int64_t c : {1, 2, 31, 33, 129}) {
    bases.push_back(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {c < 100 ? 300 : 50, c}));
    bases.push_back(On(Axes(Method::kLayerNorm, {1}), {2, 130, c}));
  }
  bases.push_back(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {3, 2, 4099}));
  // Short segments: several to a chunk, the last chunk with fewer.
  for (const Dims& shape : {Dims{150, 3, 5}, Dims{45, 2, 7, 7}, Dims{7, 2, 300}, Dims{3, 2, 600}}) {
    bases.push_back(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), shape));
  }
  bases.push_back(On(Of(Method::kInstanceNorm, Layout::kChannelsFirst), {2, 2, 65, 65}));
  bases.push_back(On(Of(Method::kInstanceNorm, Layout::kChannelsLast), {2, 17, 17, 5}));
  bases.push_back(On(Group(2, Layout::kChannelsFirst), {2, 4, 47, 45}));
  bases.push_back(On(Group(2, Layout::kChannelsLast), {2, 11, 13, 34}));
  bases.push_back(On(Group(1, Layout::kChannelsLast), {2, 260, 7}));
  bases.push_back(On(Of(Method::kRmsNorm), {1, 16 * 4096 + 3}));
  bases.push_back(On(Over({70001}), {1, 70001}));
  bases.push_back(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {2, 9001, 3}));
  bases.push_back(On(Axes(Method::kRmsNorm, {0, 2}), {3, 4, 1500}));
  bases.push_back(On(Lp(2, 0), {700, 3, 3}));
  bases.push_back(On(Power(3), {300, 33}));
  return bases;
}

// ---- The list ----

class List {
 public:
  void Add(const Case& c) {
    if (names_.insert(c.Name()).second) cases_.push_back(c);
  }
  // With the parameters that the method takes, and without any.
  void AddBoth(const Case& c) {
    Add(Affine(c));
    Add(c);
  }
  std::vector<Case> Take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
  std::set<std::string> names_;
};

inline void AddMethodsAndLengths(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : SmallBases()) list.AddBoth(With(base, dtype));
    for (const Case& base : LengthBases()) {
      list.Add(Affine(With(base, dtype)));
      if (base.shape[0] < 10) list.Add(With(base, dtype, dtype == DType::kF64 ? Data::kFarMean : Data::kNormal));
    }
  }
}

inline bool IsTiny(Data data) { return data == Data::kTiny || data == Data::kSubnormal; }

inline void AddHardData(List& list) {
  constexpr Data kHard[] = {Data::kConstant,  Data::kFarMean, Data::kOutliers, Data::kHuge,   Data::kTiny,
                            Data::kSubnormal, Data::kMixed,   Data::kSteps,    Data::kZeros,  Data::kSomeZeros,
                            Data::kNan,       Data::kInf,     Data::kMinusInf, Data::kVeryFar};
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : MainBases()) {
      for (const Data data : kHard) {
        if (dtype != DType::kF64 && (data == Data::kVeryFar || data == Data::kSubnormal)) continue;
        Case c = With(base, dtype, data);
        if (IsTiny(data)) c.spec.eps = 0;
        if (IsTiny(data) && c.spec.method() == Method::kPowerNorm) c.spec.eps = std::nullopt;
        list.AddBoth(c);
      }
    }
    // Inf where it stays Inf: beyond the first k.
    for (const Data data : {Data::kInf, Data::kMinusInf}) list.AddBoth(With(On(PartialK(20), {4, 67}), dtype, data));
    // Long rows whose first element is a bad guess at the mean.
    for (const Data data : {Data::kFarMean, Data::kOutliers, Data::kHuge, Data::kMixed}) {
      list.AddBoth(With(On(Over({4097}), {2, 4097}), dtype, data));
      list.AddBoth(With(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {997, 3}), dtype, data));
      list.Add(With(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {2, 2, 4099}), dtype, data));
      list.Add(With(On(Group(2, Layout::kChannelsLast), {2, 400, 4}), dtype, data));
    }
    list.AddBoth(With(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {4, 3, 11}, true), dtype, Data::kFarMean));
  }
}

// f64 groups that are scaled by a power of two, and what scaling must not lose: the eps where there is no deviation,
// and elements that the statistic leaves out.
inline void AddScaledSets(List& list) {
  for (const Case& base : MainBases()) {
    for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      if (base.spec.method() == Method::kPowerNorm && mode != EpsMode::kInsideSqrt) continue;
      if (!TakesSquareRoot(base.spec) && mode == EpsMode::kInsideSqrt) continue;
      for (const double eps : {1e-5, 1e-200, 1e-310, 1e200}) {
        Case c = With(base, DType::kF64, Data::kHugeConstant);
        c.spec.eps_mode = mode;
        c.spec.eps = eps;
        list.AddBoth(c);
      }
    }
  }
  for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot}) {
    for (const double eps : {0.0, 1e-300}) {
      for (Case base : {On(PartialK(20), {4, 67}), On(PartialK(2), {2, 4099}),
                        On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {5, 3, 7, 11}),
                        On(Of(Method::kBatchNorm, Layout::kChannelsLast), {5, 60, 7})}) {
        base.spec.eps_mode = mode;
        base.spec.eps = eps;
        if (base.spec.method() == Method::kBatchNorm) base.mask = Mask::kSome;
        list.AddBoth(With(base, DType::kF64, Data::kFarOutside));
      }
    }
  }
}

inline void AddEps(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : MainBases()) {
      if (base.spec.method() == Method::kPowerNorm) continue;
      for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
        if (mode == EpsMode::kInsideSqrt && !TakesSquareRoot(base.spec)) continue;
        for (const double eps : {0.0, 1e-3, 30.0}) {
          Case c = With(base, dtype);
          c.spec.eps_mode = mode;
          c.spec.eps = eps;
          list.Add(c);
        }
        Case zero = With(base, dtype, Data::kZeros);
        zero.spec.eps_mode = mode;
        zero.spec.eps = 0;
        list.Add(zero);
      }
    }
  }
}

inline void AddAffine(List& list) {
  std::vector<Case> bases = MainBases();
  for (const Layout layout : kLayouts) bases.push_back(On(Group(2, layout, true), Nchw(layout, 2, 6, {13})));
  bases.push_back(On(Axes(Method::kLayerNorm, {3, 1}), {2, 5, 3, 7}));
  bases.push_back(On(Of(Method::kBatchNorm, Layout::kChannelsLast), {9, 5}, true));
  bases.push_back(On(Power(2), {9, 6}, true));
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : bases) {
      if (!TakesWeight(base.spec)) continue;
      for (const CastOrder order : {CastOrder::kAffineThenCast, CastOrder::kCastThenAffine}) {
        Case c = With(base, dtype);
        c.spec.cast_order = order;
        list.AddBoth(c);
        c.weight = dtype;
        list.Add(c);  // w without b
        c.spec.weight_offset = 1;
        list.AddBoth(c);
        c.weight = std::nullopt;
        if (TakesBias(c.spec)) c.bias = dtype;
        list.Add(c);  // b, and an absent w with an offset
        c.spec.weight_offset = 0;
        list.Add(c);
        for (const DType parameters : kAllDTypes) {
          list.Add(Affine(c, parameters, parameters == DType::kF64 ? DType::kF32 : DType::kF64));
        }
      }
    }
  }
}

inline void AddResiduals(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const Case& base : MainBases()) {
      for (const ResidualRounding rounding : {ResidualRounding::kRoundFirst, ResidualRounding::kKeepWide}) {
        for (const double scale : {1.0, 0.5, 1.0 / 3.0}) {
          Case c = Affine(With(base, dtype));
          c.residual = ResidualCase{dtype, scale, rounding};
          list.Add(c);
        }
        Case c = With(base, dtype, Data::kFarMean);
        c.residual = ResidualCase{dtype == DType::kF32 ? DType::kBF16 : DType::kF32, 1.0 / 3.0, rounding};
        list.Add(c);
        c = With(base, dtype);
        c.residual = ResidualCase{DType::kF64, 1.0 / 3.0, rounding};
        list.Add(c);
        c = With(base, dtype, Data::kInf);  // h is Inf
        c.residual = ResidualCase{dtype, 1, rounding};
        list.Add(c);
      }
    }
    Case c = With(On(Axes(Method::kLayerNorm, {0, 2, 4}), {2, 3, 4, 3, 2}), dtype);
    c.residual = ResidualCase{dtype, 1, ResidualRounding::kKeepWide};
    list.AddBoth(c);
    c = With(On(Over({4097}), {2, 4097}), dtype, Data::kFarMean);
    c.residual = ResidualCase{dtype, 1, ResidualRounding::kKeepWide};
    list.AddBoth(c);
  }
}

inline void AddMasks(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const Mask mask : {Mask::kSome, Mask::kAll, Mask::kNanUnder}) {
      for (const Case& base :
           {On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {5, 3, 7, 11}),
            On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {40, 3}),
            On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {2, 2, 4099}),
            On(Of(Method::kBatchNorm, Layout::kChannelsLast), {5, 60, 7}), On(Power(2), {5, 60, 4})}) {
        Case c = With(base, dtype);
        c.mask = mask;
        list.AddBoth(c);
      }
      Case far = With(On(Of(Method::kBatchNorm, Layout::kChannelsFirst), {5, 3, 77}), dtype, Data::kFarMean);
      far.mask = mask;
      list.Add(far);
    }
  }
}

inline void AddEmpty(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const Layout layout : kLayouts) {
      list.AddBoth(With(On(Of(Method::kBatchNorm, layout), Nchw(layout, 0, 3, {4})), dtype));
      list.AddBoth(With(On(Of(Method::kBatchNorm, layout), Nchw(layout, 0, 3, {4}), true), dtype));
      list.AddBoth(With(On(Of(Method::kInstanceNorm, layout), Nchw(layout, 0, 3, {4})), dtype));
      list.AddBoth(With(On(Of(Method::kInstanceNorm, layout), Nchw(layout, 2, 3, {0})), dtype));
      list.AddBoth(With(On(Group(2, layout), Nchw(layout, 2, 4, {0, 3})), dtype));
    }
    list.AddBoth(With(On(Over({5}), {0, 5}), dtype));
    list.AddBoth(With(On(Over({0}), {3, 0}), dtype));
    list.AddBoth(With(On(Axes(Method::kLayerNorm, {0}), {0, 4}), dtype));
    list.AddBoth(With(On(Of(Method::kRmsNorm), {2, 0}), dtype));
    list.AddBoth(With(On(Of(Method::kScaleNorm), {0}), dtype));
    list.AddBoth(With(On(Power(1), {3, 0}), dtype));
    list.AddBoth(With(On(PartialP(0.5), {0, 8}), dtype));
    list.AddBoth(With(On(Lp(2), {0, 8}), dtype));
    list.AddBoth(With(On(Lp(1), {2, 0}), dtype));
    list.AddBoth(With(On(Power(2), {0, 3, 4}), dtype));
  }
}

// ---- LpNorm of any power and over several axes ----

inline constexpr double kMaxNorm = std::numeric_limits<double>::infinity();
inline constexpr double kPowers[] = {1.5, 3, 2.5, 10, 1e6, 1e300, kMaxNorm};

// Rows, columns and several axes, short ones and such of several chunks, with and without a permutation. The power is
// another one for each, `turn` saying where to begin.
inline std::vector<Case> LpBases(size_t turn) {
  const auto next = [&turn] { return kPowers[turn++ % std::size(kPowers)]; };
  return {On(LpOf(next()), {5, 7}),
          On(LpOf(next()), {2, 4099}),
          On(LpOf(next()), {1, 12289}),
          On(LpOf(next(), 1), {3, 9, 11}),
          On(LpOf(next(), 0), {300, 5}),
          On(LpOver(next(), {1, 2}), {3, 14, 11, 5}),
          On(LpOver(next(), {0, 2}), {3, 4, 35}),
          On(LpOver(next(), {2, 0}), {2, 2, 4099}),
          On(LpOver(next(), {-1, 1}), {2, 3, 4, 5}),
          On(LpOver(next(), {0, 2}), {4, 3, 5, 6}),
          On(LpOver(next(), {0, 1, 2}), {3, 5, 7})};
}

inline void AddLpPowers(List& list) {
  size_t turn = 0;
  for (const DType dtype : kAllDTypes) {
    for (const double p : kPowers) list.Add(With(On(LpOf(p), {6, 67}), dtype));
    for (const Case& base : LpBases(turn)) list.Add(With(base, dtype));
    turn += 2;
    list.Add(With(On(Lp(3), {4, 67}), dtype));
    // The powers that have sums of their own.
    list.Add(With(On(LpOf(1), {6, 67}), dtype));
    list.Add(With(On(LpOver(2, {0, 2}), {3, 4, 35}), dtype));
  }
  // More powers in f64, where an error of any part shows most.
  for (turn = 1; turn < std::size(kPowers); turn += 2) {
    for (const Case& base : LpBases(turn)) list.Add(With(base, DType::kF64));
  }
}

inline void AddLpHardData(List& list) {
  size_t turn = 0;
  for (const DType dtype : kAllDTypes) {
    for (const Data data : {Data::kHuge, Data::kTiny, Data::kSubnormal, Data::kMixed, Data::kZeros, Data::kSomeZeros,
                            Data::kNan, Data::kInf, Data::kMinusInf, Data::kConstant, Data::kHugeConstant}) {
      const bool is_f64 = dtype == DType::kF64;
      if (!is_f64 && (data == Data::kSubnormal || data == Data::kHugeConstant)) continue;
      ++turn;
      const double p = kPowers[turn % std::size(kPowers)], other = kPowers[(turn + 3) % std::size(kPowers)];
      if (is_f64 || turn % 2 == 0) list.Add(With(On(LpOf(p), {6, 67}), dtype, data));
      if (is_f64 || turn % 2 == 1) list.Add(With(On(LpOf(other, 1), {3, 9, 11}), dtype, data));
    }
  }
}

inline void AddLpEps(List& list) {
  for (const EpsMode mode : {EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
    for (Case base : {On(LpOf(2.5), {6, 67}), On(LpOf(kMaxNorm, 1), {3, 9, 11})}) {
      base.spec.eps_mode = mode;
      for (const DType dtype : kAllDTypes) {
        for (const double eps : {0.0, 1e-3, 30.0}) {
          base.spec.eps = eps;
          list.Add(With(base, dtype));
        }
      }
      for (const double eps : {1e-310, 1e200}) {
        base.spec.eps = eps;
        list.Add(With(base, DType::kF64, Data::kHugeConstant));
      }
      base.spec.eps = 1e-3;
      list.Add(With(base, DType::kF64, Data::kZeros));
    }
  }
}

inline void AddLpResidualsAndEmpty(List& list) {
  for (const DType dtype : kAllDTypes) {
    for (const ResidualRounding rounding : {ResidualRounding::kRoundFirst, ResidualRounding::kKeepWide}) {
      for (const Case& base : {On(LpOf(1.5), {6, 67}), On(LpOf(kMaxNorm, 1), {3, 9, 11})}) {
        Case c = With(base, dtype);
        c.residual = ResidualCase{dtype, 1.0 / 3.0, rounding};
        list.Add(c);
      }
    }
  }
  Case permuted = With(On(LpOver(3, {0, 2}), {4, 3, 5, 6}), DType::kF64);
  permuted.residual = ResidualCase{DType::kF64, 1.0 / 3.0, ResidualRounding::kKeepWide};
  list.Add(permuted);
  // Where only the largest element counts, its low half must not.
  Case steep = With(On(LpOf(1e300), {6, 67}), DType::kF64);
  steep.residual = ResidualCase{DType::kF64, 1.0 / 3.0, ResidualRounding::kKeepWide};
  list.Add(steep);
  steep.spec = Lp(std::numeric_limits<int64_t>::max(), 0);
  list.Add(steep);
  for (const double p : {3.0, kMaxNorm}) {
    list.Add(With(On(LpOf(p), {0, 8}), DType::kF32));
    list.Add(With(On(LpOf(p), {2, 0}), DType::kF64));
    list.Add(With(On(LpOf(p, 0), {0, 3}), DType::kF64));
  }
}

inline void AddLpOfAnyPower(List& list) {
  AddLpPowers(list);
  AddLpHardData(list);
  AddLpEps(list);
  AddLpResidualsAndEmpty(list);
}

// Whether FAST is more than a wish for the case.
inline bool HasFast(const Case& c) {
  PlanOptions options = c.options;
  options.precision = Precision::kFast;
  const absl::StatusOr<NormPlan> plan = MakePlan(c.spec, c.dtype, c.shape, options);
  return plan.ok() && plan->precision == Precision::kFast;
}
inline Case Fast(Case c) {
  c.options.precision = Precision::kFast;
  return c;
}

// Every case in EXACT, and in FAST where there is such a thing. What was added later comes last.
inline std::vector<Case> All() {
  List list;
  AddMethodsAndLengths(list);
  AddHardData(list);
  AddScaledSets(list);
  AddEps(list);
  AddAffine(list);
  AddResiduals(list);
  AddMasks(list);
  AddEmpty(list);
  List powers;
  AddLpOfAnyPower(powers);
  std::vector<Case> cases;
  for (List* const added : {&list, &powers}) {
    std::vector<Case> exact = added->Take();
    cases.insert(cases.end(), exact.begin(), exact.end());
    for (const Case& c : exact) {
      if (HasFast(c)) cases.push_back(Fast(c));
    }
  }
  return cases;
}

inline std::vector<Case> AllOf(Method method) {
  std::vector<Case> cases;
  for (Case& c : All()) {
    if (c.spec.method() == method) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace normd::cases

#endif  // NORMD_TESTS_KERNELS_CASES_H_
