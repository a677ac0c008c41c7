#include "tests/support/nearest.h"

#include <cmath>
#include <cstddef>

#include "tests/support/oracle_dyadic.h"
#include "tests/support/oracle_groups.h"
#include "tests/support/oracle_real.h"

namespace normd::oracle {
namespace {

double AsDouble(const Rounded& rounded) { return static_cast<double>(Decode(Type::kF64, rounded.bits)); }

class Calculation {
 public:
  Calculation(const Spec& spec, const Input& input)
      : spec_(spec),
        input_(input),
        approximate_(Compute(spec, input)),
        groups_(spec, input),
        has_weight_(!input.weight.empty()),
        has_bias_(!input.bias.empty()) {}

  NearestResult Take();
  bool IsNearMiddle(size_t i, int log2_ulp) const;

 private:
  Wide WeightOf(size_t i) const;
  Dyadic ExactWeightOf(size_t i) const;
  Wide BiasOf(size_t i) const;
  Wide ZeroOf(size_t i) const;
  uint64_t InIeee(size_t i, Wide n) const;
  uint64_t StepByStep(size_t i, Wide t) const;
  uint64_t AtOnce(size_t i, Real n);
  uint64_t Element(size_t i);
  NearestStatistics StatisticsOf(size_t g) const;
  double MomentOf(size_t g) const;

  const Spec& spec_;
  const Input& input_;
  const Result approximate_;  // where every search begins
  const ExactGroups groups_;
  const bool has_weight_, has_bias_;
  int64_t ties_ = 0;
};

Wide Calculation::WeightOf(size_t i) const {
  return has_weight_ ? WithOffset(input_.weight[groups_.ParameterOf(i)], spec_) : Wide(1);
}

Dyadic Calculation::ExactWeightOf(size_t i) const {
  return Dyadic(input_.weight[groups_.ParameterOf(i)]) + Dyadic(Wide(spec_.weight_offset));
}

Wide Calculation::BiasOf(size_t i) const { return has_bias_ ? input_.bias[groups_.ParameterOf(i)] : Wide(0); }

// The 0 that a normalised value of exactly 0 is.
Wide Calculation::ZeroOf(size_t i) const { return HasMean(spec_.method) ? Wide(0) : groups_.ValueOf(i); }

// What w and b make of a normalised value that is NaN or infinite, or where one of them is.
uint64_t Calculation::InIeee(size_t i, Wide n) const {
  if (has_weight_) n *= WeightOf(i);
  if (has_bias_) n += BiasOf(i);
  return Encode(input_.type, n);
}

// CAST_THEN_AFFINE: multiplies t, a number of T, by w and adds b, each rounded once to T.
uint64_t Calculation::StepByStep(size_t i, Wide t) const {
  uint64_t bits = Encode(input_.type, t);
  if (has_weight_) {
    const Wide product = t * WeightOf(i);
    bits = Encode(input_.type, product);  // right where it is 0 or not finite
    if (IsFinite(product) && product != 0) {
      bits = RoundToNearest(input_.type, Dyadic(t) * ExactWeightOf(i)).bits;
    }
    t = Decode(input_.type, bits);
  }
  if (!has_bias_) return bits;
  const Wide sum = t + BiasOf(i);
  if (!IsFinite(sum) || sum == 0) return Encode(input_.type, sum);
  return RoundToNearest(input_.type, Dyadic(t) + Dyadic(BiasOf(i))).bits;
}

// AFFINE_THEN_CAST: one rounding of n * w + b. REQUIRES: finite w and b.
uint64_t Calculation::AtOnce(size_t i, Real n) {
  Wide zero = n.a.IsZero() ? ZeroOf(i) : Wide(n.a.Sign());  // of the sign that n * w + b has where it is 0
  if (has_weight_) {
    n.a *= ExactWeightOf(i);
    zero *= WeightOf(i);
  }
  if (has_bias_) {
    n.b = Dyadic(BiasOf(i));
    zero = n.a.IsZero() ? zero + BiasOf(i) : Wide(0);
  }
  const Rounded rounded = RoundToNearest(input_.type, n, approximate_.y[i]);
  ties_ += rounded.is_tie ? 1 : 0;
  return rounded.is_zero ? Encode(input_.type, zero) : rounded.bits;
}

uint64_t Calculation::Element(size_t i) {
  const Type type = input_.type;
  // PowerNorm beside an Inf divides 0 or NaN by a v of 0, of which 113 bits may have something left.
  if (!groups_.HasFiniteStatistics(i) && groups_.HasZeroDivisor(i)) return InIeee(i, Wide(0) / Wide(0));
  if (!groups_.HasFiniteStatistics(i)) {  // 113 bits are enough for NaN, Inf, and 0 * w + b
    return spec_.cast_then_affine ? StepByStep(i, Round(type, approximate_.y[i])) : Encode(type, approximate_.y[i]);
  }
  if (!IsFinite(groups_.ValueOf(i))) return InIeee(i, groups_.ValueOf(i));
  Divisor own;
  const Real n = groups_.Normalised(i, own);
  if (n.divisor->IsZero()) {
    if (spec_.method == Method::kLp) return Encode(type, groups_.ValueOf(i));  // a zero norm gives 0, of the sign of x
    return InIeee(i, Wide(n.a.Sign()) / Wide(0));
  }
  if (spec_.cast_then_affine) {
    const Rounded rounded = RoundToNearest(type, n, approximate_.y[i]);
    ties_ += rounded.is_tie ? 1 : 0;
    return StepByStep(i, rounded.is_zero ? ZeroOf(i) : Decode(type, rounded.bits));
  }
  if (!IsFinite(WeightOf(i)) || !IsFinite(BiasOf(i))) {
    return InIeee(i, n.a.IsZero() ? ZeroOf(i) : Wide(n.a.Sign()));
  }
  return AtOnce(i, n);
}

bool Calculation::IsNearMiddle(size_t i, int log2_ulp) const {
  if (!groups_.HasFiniteStatistics(i) || !IsFinite(groups_.ValueOf(i)) || !IsFinite(WeightOf(i)) ||
      !IsFinite(BiasOf(i)))
    return false;
  Divisor own;
  Real n = groups_.Normalised(i, own);
  if (n.divisor->IsZero()) return false;
  if (has_weight_ && !spec_.cast_then_affine) n.a *= ExactWeightOf(i);
  if (has_bias_ && !spec_.cast_then_affine) n.b = Dyadic(BiasOf(i));
  const uint64_t bits = RoundToNearest(input_.type, n, approximate_.y[i]).bits;
  return IsFinite(Decode(input_.type, bits)) && oracle::IsNearMiddle(input_.type, n, bits, log2_ulp);
}

NearestStatistics Calculation::StatisticsOf(size_t g) const {
  const ExactGroup& group = groups_[g];
  const GroupStatistics& approximate = approximate_.groups[g];
  const Type type = input_.type == Type::kF64 ? Type::kF64 : Type::kF32;
  NearestStatistics statistics = {.count = group.count};
  if (!group.is_finite) {
    statistics.mean = Encode(type, approximate.mean);
    statistics.inverse = Encode(type, approximate.inverse);
    statistics.moment_mean = static_cast<double>(approximate.mean);
    statistics.moment_m2 = static_cast<double>(approximate.m2);
    return statistics;
  }
  const Divisor scale = {.r = group.scale, .q = {}};
  const Real mean = {.a = group.offset, .divisor = &scale, .b = {}};
  const Real inverse = {.a = group.scale, .divisor = &group.divisor, .b = {}};
  statistics.mean = RoundToNearest(type, mean, approximate.mean).bits;
  statistics.inverse =
      group.divisor.IsZero() ? FormatOf(type).infinity() : RoundToNearest(type, inverse, approximate.inverse).bits;
  if (groups_.IsGiven()) return statistics;
  statistics.moment_mean = AsDouble(RoundToNearest(Type::kF64, mean, approximate.mean));
  statistics.moment_m2 = MomentOf(g);
  return statistics;
}

// The sum of squared deviations, the sum of squares (PowerNorm: of terms), or the norm where the order is not 2.
double Calculation::MomentOf(size_t g) const {
  const ExactGroup& group = groups_[g];
  if (group.powers.IsZero()) return 0;
  Divisor divisor = {.r = Dyadic(1), .q = {}};
  Real m2 = {.a = group.powers, .divisor = &divisor, .b = {}};
  if (HasMean(spec_.method)) {
    divisor.r = group.scale;
    m2.a = groups_.ScaledVarianceOf(g);
  } else if (groups_.order() != 2) {  // S^(1/p) = S / (S^(p-1))^(1/p)
    const int64_t root = groups_.root();
    divisor = {.r = {}, .q = Power(group.powers, root - 1), .root = root};
  }
  return AsDouble(RoundToNearest(Type::kF64, m2, approximate_.groups[g].m2));
}

NearestResult Calculation::Take() {
  NearestResult result = {.h = groups_.h()};
  for (size_t i = 0; i < groups_.elements(); ++i) result.y.push_back(Element(i));
  for (size_t g = 0; g < groups_.size(); ++g) result.groups.push_back(StatisticsOf(g));
  result.ties = ties_;
  return result;
}

}  // namespace

bool HasNearest(const Spec& spec) {
  if (spec.method != Method::kLp || std::isinf(spec.p)) return true;
  return spec.p == std::floor(spec.p) && spec.p <= kMaxNearestOrder;
}

NearestResult Nearest(const Spec& spec, const Input& input) { return Calculation(spec, input).Take(); }

std::vector<bool> NearMiddle(const Spec& spec, const Input& input, int log2_ulp) {
  const Calculation calculation(spec, input);
  std::vector<bool> near;
  for (size_t i = 0; i < input.x.size(); ++i) near.push_back(calculation.IsNearMiddle(i, log2_ulp));
  return near;
}

bool IsNearest(Type type, uint64_t bits, uint64_t nearest) {
  return bits == nearest || (IsNan(Decode(type, bits)) && IsNan(Decode(type, nearest)));
}

}  // namespace normd::oracle
