// What to do (NormPlan), from what the caller wants (NormSpec) and a shape.
// In the path: the engine calls MakePlan once per request, backends trust the plan. Plain values; MakePlan is pure and
// safe from any thread.
#ifndef NORMD_KERNELS_PLAN_H_
#define NORMD_KERNELS_PLAN_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/base/types.h"
#include "kernels/spec.h"
#include "kernels/tensor.h"

namespace normd {

// What a caller asks of one execution, next to spec and tensors.
struct PlanOptions {
  Mode mode = Mode::kInference;
  // Apply alone with statistics given per channel (BatchNorm inference, tracking InstanceNorm inference, PowerNorm
  // inference): set by the engine when a session or the request holds them.
  bool given_statistics = false;
  // kFast is a wish: see NormPlan::precision.
  Precision precision = Precision::kExact;
};

// In which order a plan takes the elements of w and b as they came: parameter (i0, i1, ...) of the row-major extents is
// w[i0 * strides[0] + i1 * strides[1] + ...]. Empty: as they lie.
struct ParameterOrder {
  Shape extents;
  Shape strides;

  bool empty() const { return extents.empty(); }
};

// What to do. x is seen as [keep0, reduce0, keep1, reduce1] in memory order (after `permutation`, if any); the
// statistics group (k0, k1) holds the elements (k0, *, k1, *). Only MakePlan makes one, so a plan is valid.
//
// Parameters of (k0, r0, k1, r1): kElement w[r0 * reduce1 + r1]; kChannel w[k1 * channels_per_keep1 + r1 /
// channel_run]. PowerNorm is Columns with power_groups >= 1: reduce0 positions of keep1 = C channels, each position
// first divided per group by sqrt(mean square + eps).
struct NormPlan {
  Method method = Method::kLayerNorm;
  Mode mode = Mode::kInference;
  Statistic statistic = Statistic::kMeanVariance;
  Pattern pattern = Pattern::kRows;
  bool given_statistics = false;
  // kFast: sums and elements in f32, within 4 ulp of max(|y|, |b|, |w|, |w * n|), n = (x - mean) / D, up to a mean 1e6
  // standard deviations away. kExact where that was asked for, and for f64, PowerNorm, CAST_THEN_AFFINE and LpNorm of
  // other norms than L1 and L2. Elements may be calculated in more.
  Precision precision = Precision::kExact;

  DType dtype = DType::kF32;  // of x and y
  Shape shape;                // of x and y
  int64_t elements = 0;
  int64_t keep0 = 1, reduce0 = 1, keep1 = 1, reduce1 = 1;
  int64_t statistic_reduce1 = 1;  // the first so many of reduce1 enter the statistic (pRMSNorm's k)
  Shape permutation;  // empty: none. Else axis order whose contiguous copy has the extents above; y goes back
  int64_t power_groups = 0;

  double eps = 0;
  EpsMode eps_mode = EpsMode::kInsideSqrt;
  CastOrder cast_order = CastOrder::kAffineThenCast;
  bool zero_norm_gives_zero = false;  // LpNorm
  double p = 2;                       // of kPowerSum

  AffineIndex affine_index = AffineIndex::kElement;
  int64_t channels_per_keep1 = 0;
  int64_t channel_run = 1;
  int64_t parameter_length = 0;  // of w and b; 0 where the method takes none
  Shape parameter_shape;         // accepted beside the flat form
  // kElement with axes listed out of memory order: what makes it memory order, which ConvertParameters applies, once.
  // Else empty.
  ParameterOrder parameter_order;

  Shape statistics_shape;    // of MEAN and INV_STD: the kept extents
  int64_t num_channels = 0;  // C of methods with channels, else 0
  int64_t k = 0;             // pRMSNorm

  // Elements in one statistics group, masked ones counted.
  int64_t SetSize() const { return reduce0 * statistic_reduce1; }
  // Elements, weighted by what they cost beside RMSNorm's (0.11 us each where powers are summed, and 4 ns): what
  // decides whether a call is small.
  int64_t Work() const { return elements * WorkPerElement(); }
  int64_t WorkPerElement() const { return statistic == Statistic::kPowerSum ? 32 : 1; }
  // Statistics groups: keep0 * keep1.
  int64_t StatisticsGroups() const { return keep0 * keep1; }
  DType StatisticsDType() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
};

// Validates spec and shape once (section "Refusals" of the README: field, value, limit) and lowers them. Field paths:
// "spec.<method>.<field>" and "x". Nothing is allocated in proportion to the tensor.
absl::StatusOr<NormPlan> MakePlan(const NormSpec& spec, DType dtype, absl::Span<const int64_t> shape,
                                  const PlanOptions& options);

// The bound on k: ceil or floor of the decimal value of p times d, exactly (100 * 0.07 is 7).
int64_t PartialLength(double p, int64_t d, KRounding rounding);

// The names of the bits: raised when those of any result change. EXACT's is that of server and sessions.
inline constexpr std::string_view kNumerics = "exact-2";
inline constexpr std::string_view kFastNumerics = "fast-1";
constexpr std::string_view NumericsOf(Precision precision) {
  return precision == Precision::kFast ? kFastNumerics : kNumerics;
}

}  // namespace normd

#endif  // NORMD_KERNELS_PLAN_H_
