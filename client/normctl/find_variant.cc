#include "client/normctl/find_variant.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace normd::client {
namespace {

// Equal definitions have equal keys.
std::string KeyOf(const Variant& variant) {
  return absl::StrCat(variant.spec.SerializeAsString(), "/", variant.residual_rounding, variant.unbiased,
                      variant.rounds_weight);
}

// The smaller, the better.
std::tuple<int64_t, double, int64_t> RankOf(const Fit& fit) {
  const double step = fit.mean_ulps > 0 ? std::floor(std::log(fit.mean_ulps) / std::log(1.5)) : -1e9;
  const int64_t thousandths = fit.elements > 0 ? fit.nearest * 1000 / fit.elements : 0;
  return {fit.mismatches, step, -thousandths};
}

}  // namespace

bool FitsBetter(const Fit& a, const Fit& b) { return RankOf(a) < RankOf(b); }

absl::StatusOr<std::vector<FoundVariant>> FindVariant(
    const FoundVariant& given, const VariantInput& input,
    absl::FunctionRef<absl::StatusOr<std::optional<Fit>>(const Variant&)> judge) {
  std::vector<FoundVariant> found = {given};
  std::set<std::string> tried = {KeyOf(given.variant)};
  size_t best = 0;
  for (bool improved = true; improved;) {
    improved = false;
    for (const Variant& variant : Neighbours(found[best].variant, input)) {
      if (static_cast<int>(tried.size()) > kMostVariants || !tried.insert(KeyOf(variant)).second) continue;
      const absl::StatusOr<std::optional<Fit>> fit = judge(variant);
      if (!fit.ok()) return fit.status();
      if (fit->has_value()) found.push_back({variant, **fit});
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (!FitsBetter(found[i].fit, found[best].fit)) continue;
      best = i;
      improved = true;
    }
  }
  std::swap(found[0], found[best]);
  std::stable_sort(found.begin() + 1, found.end(), [](const FoundVariant& a, const FoundVariant& b) {
    if (a.fit.mismatches != b.fit.mismatches) return a.fit.mismatches < b.fit.mismatches;
    return a.fit.mean_ulps < b.fit.mean_ulps;
  });
  return found;
}

}  // namespace normd::client
