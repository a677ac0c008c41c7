// NormPlan, the validated and lowered form of a NormSpec for one shape, and MakePlan, which makes it.
// In the path: the engine calls MakePlan when it prepares a call, and keeps the plan for later calls of the same kind;
// backends trust plans. Plain values. MakePlan is pure and safe from any thread.
#ifndef NORMD_KERNELS_PLAN_H_
#define NORMD_KERNELS_PLAN_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/base/types.h"
#include "kernels/spec.h"
#include "kernels/tensor.h"

namespace normd {

// The choices of one execution besides the spec and the tensors.
struct PlanOptions {
  Mode mode = Mode::kInference;
  // The statistics are given for each channel instead of computed, so that only the apply pass runs: inference of
  // BatchNorm, of tracking InstanceNorm, and of PowerNorm. The engine sets this if the session or the request holds the
  // statistics.
  bool given_statistics = false;
  // A request: NormPlan::precision says which one the plan uses.
  Precision precision = Precision::kExact;
  // The sums of each statistics group are kept exactly, and the moments are the nearest to them (Job::exact).
  // REQUIRES: statistics that are computed, and that moments are defined for.
  bool exact_sums = false;
};

// The order in which a plan takes the elements of w and b: parameter (i0, i1, ...) of the row-major `extents` is
// w[i0 * strides[0] + i1 * strides[1] + ...]. Empty: in the order of memory.
struct ParameterOrder {
  Shape extents;
  Shape strides;

  bool empty() const { return extents.empty(); }
};

// What a backend does with x. Only MakePlan makes plans, so a plan is valid.
//
// Geometry: x is seen as [keep0, reduce0, keep1, reduce1] in memory order, after `permutation` if there is one. The
// statistics group (k0, k1) holds the elements (k0, *, k1, *), and the groups are numbered k0 * keep1 + k1. Examples:
// LayerNorm over the last axis of [B, L, D] is [B * L, 1, 1, D]; BatchNorm of [N, C, H, W] is [1, N, C, H * W].
//
// Parameters: element (k0, r0, k1, r1) uses w[r0 * reduce1 + r1] if affine_index is kElement, and
// w[k1 * channels_per_keep1 + r1 / channel_run] if it is kChannel.
//
// PowerNorm is Pattern::kColumns with power_groups >= 1: reduce0 positions of keep1 = C channels. Each position is
// first divided, for each of its power_groups groups of channels, by sqrt(mean square + eps).
struct NormPlan {
  Method method = Method::kLayerNorm;
  Mode mode = Mode::kInference;
  Statistic statistic = Statistic::kMeanVariance;
  Pattern pattern = Pattern::kRows;
  bool given_statistics = false;
  // kFast: sums and elements may be calculated in f32; y is within 4 ulp of max(|y|, |b|, |w|, |w * n|) with
  // n = (x - mean) / D, up to a mean 1e6 standard deviations away from 0. kExact, of which y is the nearest value
  // (GivesNearest in kernels/nearest.h), is used where it was asked for, and always for f64, PowerNorm,
  // CAST_THEN_AFFINE and LpNorm of other norms than L1 and L2.
  Precision precision = Precision::kExact;

  DType dtype = DType::kF32;  // of x and y
  Shape shape;                // of x and y
  int64_t elements = 0;
  // See "Geometry" above.
  int64_t keep0 = 1, reduce0 = 1, keep1 = 1, reduce1 = 1;
  // Only the first statistic_reduce1 elements of reduce1 enter the statistic: reduce1, but k for pRMSNorm.
  int64_t statistic_reduce1 = 1;
  // The order of the axes in which a contiguous copy of x has the extents above; y is copied back to the order of x.
  // Empty: no copy.
  Shape permutation;
  int64_t power_groups = 0;

  double eps = 0;
  EpsMode eps_mode = EpsMode::kInsideSqrt;
  CastOrder cast_order = CastOrder::kAffineThenCast;
  // D = 0 gives y = 0 instead of NaN: LpNorm.
  bool zero_norm_gives_zero = false;
  double p = 2;  // the power of Statistic::kPowerSum

  // What the CPU backend alone does, and so RunsOnCpuAlone().
  std::optional<double> clip;   // y is limited to [-clip, clip], each limit rounded to dtype
  bool counts_samples = false;  // the statistics are those of samples (Weighting::kSamples), which have extremes
  bool skips_nan = false;       // NaN is no sample; counts_samples
  bool exact_sums = false;      // PlanOptions::exact_sums

  AffineIndex affine_index = AffineIndex::kElement;
  int64_t channels_per_keep1 = 0;
  int64_t channel_run = 1;
  int64_t parameter_length = 0;  // of w and b; 0 where the method takes none
  Shape parameter_shape;         // the other shape that w and b may have besides [parameter_length]
  // Brings w and b from the order in which the spec lists the axes to memory order; empty where the two are the same.
  // ConvertParameters applies it, once.
  ParameterOrder parameter_order;

  Shape statistics_shape;    // of the outputs MEAN and INV_STD: the kept extents
  int64_t num_channels = 0;  // C of methods with channels, else 0
  int64_t k = 0;             // pRMSNorm: the number of elements in the statistic; else 0

  // The number of elements in the statistic of one group, masked elements included.
  int64_t SetSize() const { return reduce0 * statistic_reduce1; }
  // The cost of the plan in elements of RMSNorm: what decides whether a call is small. An element whose power is summed
  // costs 0.11 us, an element of RMSNorm 4 ns. In EXACT, the statistics of a group cost up to 0.3 us more where they
  // are rounded to the nearest, and its exact sums 0.5 to 2 us, whatever its elements.
  int64_t Work() const {
    constexpr int64_t kWorkOfGroup = 64, kWorkOfExactSums = 512;
    const int64_t of_group = exact_sums ? kWorkOfExactSums : precision == Precision::kExact ? kWorkOfGroup : 0;
    return elements * WorkPerElement() + StatisticsGroups() * of_group;
  }
  int64_t WorkPerElement() const { return statistic == Statistic::kPowerSum ? 32 : 1; }
  bool RunsOnCpuAlone() const { return clip.has_value() || counts_samples || exact_sums; }
  // The number of statistics groups.
  int64_t StatisticsGroups() const { return keep0 * keep1; }
  // The dtype of the outputs MEAN and INV_STD.
  DType StatisticsDType() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
};

// Validates `spec` for `shape` and lowers it to a plan. INVALID_ARGUMENT with field, value and limit if anything is
// wrong (server/README.md lists the refusals); field paths begin with "spec.<method>", "mode", "parameters" or "x".
// Costs time and memory in the rank of the tensor, never in its size.
absl::StatusOr<NormPlan> MakePlan(const NormSpec& spec, DType dtype, absl::Span<const int64_t> shape,
                                  const PlanOptions& options);

// pRMSNorm's k: ceil or floor of p * d, computed on the shortest decimal that reads back as p (0.07 * 100 is 7).
// REQUIRES: 0 < p <= 1, d >= 0.
int64_t PartialLength(double p, int64_t d, KRounding rounding);

// The versions of the numerics, raised when the bits of any result change. Replies carry the version of their
// precision; Describe and sessions carry that of EXACT.
inline constexpr std::string_view kNumerics = "exact-4";
inline constexpr std::string_view kFastNumerics = "fast-3";
constexpr std::string_view NumericsOf(Precision precision) {
  return precision == Precision::kFast ? kFastNumerics : kNumerics;
}

}  // namespace normd

#endif  // NORMD_KERNELS_PLAN_H_
