// The definitions next to one: what else an implementation of the same norm may compute. normctl verify --find-variant
// tries them on a candidate that the definition at hand does not explain. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_VARIANTS_H_
#define NORMD_CLIENT_NORMCTL_VARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// A definition: a spec, and what is no part of one.
struct Variant {
  v1::NormSpec spec;
  v1::ResidualRounding residual_rounding = v1::RESIDUAL_ROUNDING_UNSPECIFIED;
  // The variance is divided by n - 1 instead of n, as torch.var does. normd has no such spec; OfUnbiased makes one.
  bool unbiased = false;
  // weight + weight_offset is rounded to the dtype of x before the product, as PaliGemma's 1 + w is in some programs.
  bool rounds_weight = false;
};

// What the input has, which decides what can differ.
struct VariantInput {
  std::vector<int64_t> shape;  // of x
  bool has_weight = false, has_bias = false, has_residual = false;
  bool given_statistics = false;  // inference of BatchNorm: no statistics of x are taken
};

// All definitions that differ from `variant` in one choice: eps (the usual values) with where it is added and with the
// divisor of the variance, the cast order, the weight offset and whether w + 1 is rounded, whether a mean is
// subtracted, the layout, the axes, the number of groups, the rounding of the residual sum. `variant` itself may be
// among them. Some may not fit the input: the server refuses these.
std::vector<Variant> Neighbours(const Variant& variant, const VariantInput& input);

inline constexpr char kAsGiven[] = "as given";

// The first of the trailing axes that `spec`, a LayerNorm or RMSNorm of a tensor of this rank, normalises; `rank` where
// its axes are others, and for other methods.
int64_t FirstTrailingAxis(const v1::NormSpec& spec, int64_t rank);

// Where `variant` differs from `given`, in words: "eps 1e-06, cast_then_affine", or kAsGiven.
std::string Differences(const Variant& variant, const Variant& given);

// `spec` with the eps, eps mode and cast order that a server applied where it left them to their defaults.
v1::NormSpec WithDefaults(v1::NormSpec spec, const v1::Applied& applied);

// The definition in normd's terms of statistics that are unbiased, over groups of `count` elements:
// sqrt(M2 / (n - 1) + eps) = c sqrt(M2 / n + eps / c^2) with c = sqrt(n / (n - 1)), so that y is what `spec` gives with
// this eps, times 1 / c before b is added. REQUIRES: count > 1, eps is set.
struct UnbiasedForm {
  v1::NormSpec spec;
  double factor = 1;  // 1 / c
};
UnbiasedForm OfUnbiased(const v1::NormSpec& spec, double count);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_VARIANTS_H_
