// The oracle: what every method must compute, in 113-bit arithmetic, written straight from the formulas of the
// specification as plain loops over logical indices. Every backend is judged by it (tests/support/compare.h).
// Includes nothing of kernels/: it lowers nothing, merges no extents, shares no code. Pure functions, plain values.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_H_
#define NORMD_TESTS_SUPPORT_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/wide.h"

namespace normd::oracle {

enum class Method : uint8_t { kBatch = 1, kLayer, kInstance, kGroup, kRms, kPRms, kScale, kLp, kPower };
enum class EpsMode : uint8_t { kInsideSqrt = 1, kAddToRoot = 2, kClampRoot = 3 };

struct Spec {
  Method method = Method::kLayer;
  std::optional<double> eps;        // absent: the method's default
  std::optional<EpsMode> eps_mode;  // absent: the method's default
  bool cast_then_affine = false;
  double weight_offset = 0;
  bool channels_last = false;     // Batch, Instance, Group; Power is always channels-last
  std::vector<int64_t> axes;      // Layer, Rms, Lp, as listed, may be negative; Rms and Lp empty: the last
  int64_t num_groups = 1;         // Group, Power
  bool affine_per_group = false;  // Group
  int64_t k = 0;                  // PRms
  double p = 2;                   // Lp, at least 1; infinity: the largest |x|
};

// What a call carries. Values are those of the tensors, exactly.
struct Input {
  Type type = Type::kF32;
  std::vector<int64_t> shape;
  std::vector<Wide> x;
  std::vector<Wide> weight, bias;  // empty: absent
  std::vector<Wide> residual;      // empty: absent
  double residual_scale = 1;
  bool keep_wide = false;                        // of the residual sum; else it is rounded to `type` first
  std::vector<uint8_t> mask;                     // empty: every position counts
  std::vector<Wide> given_mean, given_variance;  // not empty: no statistics are taken. Power: phi in given_variance
};

// Per statistics group, in row-major order of the kept axes.
struct GroupStatistics {
  int64_t count = 0;
  Wide mean = 0;
  Wide mean_rest = 0;  // the mean is mean + mean_rest
  Wide m2 = 0;         // sum of squared deviations; about 0 for the methods that subtract no mean; Lp, p != 2: the norm
  Wide deviation = 0;  // sqrt of the biased variance or mean square
  Wide inverse = 0;    // 1 / D
};

struct Result {
  // Unrounded. With cast_then_affine the value before the first rounding to T, w and b not applied.
  std::vector<Wide> y;
  std::vector<Wide> weight, bias;  // that apply to each element, weight_offset added; 1 and 0 where absent
  bool has_weight = false, has_bias = false;
  std::vector<size_t> group;  // of `groups`, that normalises each element
  std::vector<Wide> h;        // x + scale * residual rounded to T; empty without residual
  std::vector<GroupStatistics> groups;
};

double DefaultEps(Method method);
EpsMode DefaultEpsMode(Method method);

// k = ceil or floor of the decimal value of p times d.
int64_t PartialLength(double p, int64_t d, bool floor);

// (sum |x|^p)^(1/p), infinity: the largest |x|. 0 of nothing; NaN where there is one, else Inf where there is one.
Wide LpNormOf(const std::vector<Wide>& x, double p);

// weight + weight_offset. An offset of 0 leaves -0 as it is.
Wide WithOffset(Wide weight, const Spec& spec);

// REQUIRES: a valid spec for the shape (the oracle refuses nothing) and tensors of the right lengths.
Result Compute(const Spec& spec, const Input& input);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_H_
