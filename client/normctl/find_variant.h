// Finds the definition that explains another program's tensor best: a search from the definition at hand, one choice at
// a time. In the path: normctl verify --find-variant, after the judgement of the definition that was asked for.
#ifndef NORMD_CLIENT_NORMCTL_FIND_VARIANT_H_
#define NORMD_CLIENT_NORMCTL_FIND_VARIANT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/normctl/variants.h"

namespace normd::client {

// How well a candidate fits a definition.
struct Fit {
  int64_t elements = 0, mismatches = 0, nearest = 0;
  double max_ulps = 0, mean_ulps = 0;
};

// Whether `a` explains the candidate better than `b`: fewer mismatches; then a smaller mean error, in steps of one and
// a half, as errors of the arithmetic and of the definition differ by more; then a larger share of elements that are
// the nearest, in thousandths, which tells orders of rounding apart. An order: definitions that fit alike are not
// better.
bool FitsBetter(const Fit& a, const Fit& b);

struct FoundVariant {
  Variant variant;
  Fit fit;
};

// The most definitions that a search tries beside the one that it begins with.
inline constexpr int kMostVariants = 250;

// Tries the neighbours of `given`, whose fit is known, then those of the best of them, until none is better. Returns
// what it tried, `given` included: the best first, the others by their mean error. `judge` returns nullopt for a
// definition that does not fit the input; its errors end the search.
absl::StatusOr<std::vector<FoundVariant>> FindVariant(
    const FoundVariant& given, const VariantInput& input,
    absl::FunctionRef<absl::StatusOr<std::optional<Fit>>(const Variant&)> judge);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_FIND_VARIANT_H_
