#include "tests/support/nearest.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "tests/support/oracle_dyadic.h"
#include "tests/support/oracle_geometry.h"
#include "tests/support/oracle_real.h"

namespace normd::oracle {
namespace {

// (scale * x - offset) / divisor is the normalised x: scale and divisor carry the count n, so that nothing is divided.
struct ExactGroup {
  int64_t count = 0;
  bool is_finite = true;  // else IEEE arithmetic says what its elements are
  Dyadic sum, powers;     // of x, of |x|^order; order infinity: the largest |x|. PowerNorm: of the terms of v
  Dyadic scale{1}, offset;
  Divisor divisor;
};

// The channels of one position that PowerNorm scales together: their squares, and eps for each.
struct ScalingGroup {
  bool is_finite = true;
  Dyadic squares;
};

double AsDouble(const Rounded& rounded) { return static_cast<double>(Decode(Type::kF64, rounded.bits)); }

class Calculation {
 public:
  Calculation(const Spec& spec, const Input& input);

  NearestResult Take();
  bool IsNearMiddle(size_t i, int log2_ulp) const;

 private:
  struct Place {
    size_t group = 0, parameter = 0, scaling = 0;
    bool enters = true;
  };

  bool IsPower() const { return spec_.method == Method::kPower; }
  // Of the powers that are summed; the largest |x| is none.
  int64_t Root() const { return std::isinf(order_) ? 1 : static_cast<int64_t>(order_); }
  bool IsGiven() const { return !input_.given_variance.empty(); }
  Dyadic Held(size_t i) const;
  void TakePlaces();
  void TakeResidual();
  void Sum();
  void SumSquaresToScale();
  void AddPowers(size_t i, ExactGroup& group) const;
  void AddTerm(size_t i, ExactGroup& group) const;
  void Finish(size_t g);
  void FinishPower(size_t g);
  void AddEps(Divisor& divisor, const Dyadic& scale) const;

  bool HasFiniteStatistics(size_t i) const;
  Real Normalised(size_t i, Divisor& own) const;
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
  const Geometry geometry_;
  const Result approximate_;  // where every search begins
  const Dyadic eps_;
  const double order_;  // of the powers that are summed
  const bool has_weight_, has_bias_;
  std::vector<Place> places_;
  std::vector<Wide> values_;  // what is normalised; a sum that is kept wide rounded to 113 bits, for its class and sign
  std::vector<ExactGroup> groups_;
  std::vector<ScalingGroup> scaling_;
  NearestResult result_;
};

Calculation::Calculation(const Spec& spec, const Input& input)
    : spec_(spec),
      input_(input),
      geometry_(spec, input),
      approximate_(Compute(spec, input)),
      eps_(Dyadic(Wide(spec.eps.value_or(DefaultEps(spec.method))))),
      order_(spec.method == Method::kLp ? spec.p : 2),
      has_weight_(!input.weight.empty()),
      has_bias_(!input.bias.empty()),
      values_(input.x),
      groups_(static_cast<size_t>(geometry_.StatisticsGroups())) {
  TakePlaces();
  if (!input.residual.empty()) TakeResidual();
  if (IsPower() && !values_.empty()) SumSquaresToScale();
  if (!IsGiven()) Sum();
  for (size_t g = 0; g < groups_.size(); ++g) IsPower() ? FinishPower(g) : Finish(g);
}

void Calculation::TakePlaces() {
  places_.resize(input_.x.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    const Geometry::Index index = geometry_.IndexOf(static_cast<int64_t>(i));
    Place& place = places_[i];
    place.group = static_cast<size_t>(geometry_.GroupOf(index));
    place.parameter = static_cast<size_t>(geometry_.ParameterOf(index));
    if (IsPower()) place.scaling = static_cast<size_t>(geometry_.ScalingGroupOf(index));
    place.enters = geometry_.Enters(index);
  }
}

// The exact h; ROUND_FIRST has rounded it.
Dyadic Calculation::Held(size_t i) const {
  if (input_.residual.empty() || !input_.keep_wide) return Dyadic(values_[i]);
  return Dyadic(input_.x[i]) + Dyadic(Wide(input_.residual_scale)) * Dyadic(input_.residual[i]);
}

void Calculation::TakeResidual() {
  const Dyadic scale{Wide(input_.residual_scale)};
  for (size_t i = 0; i < values_.size(); ++i) {
    const Wide x = input_.x[i], r = input_.residual[i];
    values_[i] = AddToOdd(x, Wide(input_.residual_scale) * r);
    uint64_t bits = Encode(input_.type, values_[i]);
    if (IsFinite(x) && IsFinite(r)) {
      const Rounded rounded = RoundToNearest(input_.type, Dyadic(x) + scale * Dyadic(r));
      if (!rounded.is_zero) bits = rounded.bits;
    }
    result_.h.push_back(bits);
    if (!input_.keep_wide) values_[i] = Decode(input_.type, bits);
  }
}

void Calculation::SumSquaresToScale() {
  scaling_.resize(static_cast<size_t>(geometry_.ScalingGroups()));
  for (size_t i = 0; i < values_.size(); ++i) {
    ScalingGroup& group = scaling_[places_[i].scaling];
    group.is_finite = group.is_finite && IsFinite(values_[i]);
    if (group.is_finite) group.squares += Power(Held(i), 2);
  }
  const Dyadic eps = Dyadic(Wide(geometry_.GroupSize())) * eps_;
  for (ScalingGroup& group : scaling_) group.squares += eps;
}

void Calculation::Sum() {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!places_[i].enters) continue;
    ExactGroup& group = groups_[places_[i].group];
    ++group.count;
    group.is_finite = group.is_finite && IsFinite(values_[i]) && (!IsPower() || scaling_[places_[i].scaling].is_finite);
    if (group.is_finite) IsPower() ? AddTerm(i, group) : AddPowers(i, group);
  }
}

void Calculation::AddPowers(size_t i, ExactGroup& group) const {
  const Dyadic x = Held(i);
  if (HasMean(spec_.method)) group.sum += x;
  if (!std::isinf(order_)) {
    group.powers += Power(Abs(x), static_cast<int64_t>(order_));
  } else if (Compare(Abs(x), group.powers) > 0) {
    group.powers = Abs(x);
  }
}

// One term of PowerNorm's v: x^2 / (mean square of the position's group + eps), rounded once to f64.
void Calculation::AddTerm(size_t i, ExactGroup& group) const {
  const Divisor own = {.r = scaling_[places_[i].scaling].squares, .q = {}};
  if (own.IsZero()) {
    group.is_finite = false;  // 0 / 0
    return;
  }
  const Dyadic size{Wide(geometry_.GroupSize())};
  const Real term = {.a = size * Power(Held(i), 2), .divisor = &own, .b = {}};
  const Wide estimate = values_[i] * values_[i] * geometry_.GroupSize() / Approximate(own.r);
  group.powers += Dyadic(Decode(Type::kF64, RoundToNearest(Type::kF64, term, estimate).bits));
}

void Calculation::AddEps(Divisor& divisor, const Dyadic& scale) const {
  const Dyadic eps = scale * eps_;
  switch (spec_.eps_mode.value_or(DefaultEpsMode(spec_.method))) {
    case EpsMode::kInsideSqrt:
      divisor.q += scale * eps;
      break;
    case EpsMode::kAddToRoot:
      divisor.r += eps;
      break;
    case EpsMode::kClampRoot:
      if (Compare(divisor.q, Power(eps, divisor.root)) < 0) divisor = {.r = eps, .q = {}};
      break;
  }
}

void Calculation::Finish(size_t g) {
  ExactGroup& group = groups_[g];
  if (IsGiven()) {
    const Wide mean = input_.given_mean.empty() ? Wide(0) : input_.given_mean[g], variance = input_.given_variance[g];
    group.is_finite = IsFinite(mean) && IsFinite(variance);
    if (!group.is_finite) return;
    group.offset = Dyadic(mean);
    group.divisor.q = Dyadic(variance);
  } else {
    group.is_finite = group.is_finite && group.count > 0;
    if (!group.is_finite) return;
    const bool divides = spec_.method != Method::kScale && spec_.method != Method::kLp;
    if (divides) group.scale = Dyadic(Wide(group.count));
    group.offset = group.sum;
    group.divisor.q = group.scale * group.powers - Power(group.sum, 2);
    group.divisor.root = Root();
  }
  AddEps(group.divisor, group.scale);
}

void Calculation::FinishPower(size_t g) {
  ExactGroup& group = groups_[g];
  Wide v = IsGiven() ? input_.given_variance[g] : Wide(0);
  if (!IsGiven()) {
    group.is_finite = group.is_finite && group.count > 0;
    if (!group.is_finite) return;
    const Divisor count = {.r = Dyadic(Wide(group.count)), .q = {}};
    const Real mean = {.a = group.powers, .divisor = &count, .b = {}};
    v = Decode(Type::kF64, RoundToNearest(Type::kF64, mean, Approximate(group.powers) / group.count).bits);
  }
  group.is_finite = IsFinite(v);
  if (group.is_finite) group.divisor.q = Dyadic(v) + eps_;
}

// Whether the statistics that normalise element i are finite.
bool Calculation::HasFiniteStatistics(size_t i) const {
  return groups_[places_[i].group].is_finite && (!IsPower() || scaling_[places_[i].scaling].is_finite);
}

// Element i before w and b. `own` is room for a divisor of its own. REQUIRES: finite statistics and a finite element.
Real Calculation::Normalised(size_t i, Divisor& own) const {
  const ExactGroup& group = groups_[places_[i].group];
  Real n = {.a = group.scale * Held(i) - group.offset, .divisor = &group.divisor, .b = {}};
  if (!IsPower()) return n;
  const Dyadic size{Wide(geometry_.GroupSize())};
  own.q = size * scaling_[places_[i].scaling].squares * group.divisor.q;
  n.a *= size;
  n.divisor = &own;
  return n;
}

Wide Calculation::WeightOf(size_t i) const {
  return has_weight_ ? input_.weight[places_[i].parameter] + Wide(spec_.weight_offset) : Wide(1);
}

Dyadic Calculation::ExactWeightOf(size_t i) const {
  return Dyadic(input_.weight[places_[i].parameter]) + Dyadic(Wide(spec_.weight_offset));
}

Wide Calculation::BiasOf(size_t i) const { return has_bias_ ? input_.bias[places_[i].parameter] : Wide(0); }

// The 0 that a normalised value of exactly 0 is.
Wide Calculation::ZeroOf(size_t i) const { return HasMean(spec_.method) ? Wide(0) : values_[i]; }

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
  result_.ties += rounded.is_tie ? 1 : 0;
  return rounded.is_zero ? Encode(input_.type, zero) : rounded.bits;
}

uint64_t Calculation::Element(size_t i) {
  const Type type = input_.type;
  if (!HasFiniteStatistics(i)) {  // 113 bits are enough for NaN, Inf, and 0 * w + b
    return spec_.cast_then_affine ? StepByStep(i, Round(type, approximate_.y[i])) : Encode(type, approximate_.y[i]);
  }
  if (!IsFinite(values_[i])) return InIeee(i, values_[i]);
  Divisor own;
  const Real n = Normalised(i, own);
  if (n.divisor->IsZero()) {
    if (spec_.method == Method::kLp) return Encode(type, values_[i]);  // a zero norm gives 0, of the sign of x
    return InIeee(i, Wide(n.a.Sign()) / Wide(0));
  }
  if (spec_.cast_then_affine) {
    const Rounded rounded = RoundToNearest(type, n, approximate_.y[i]);
    result_.ties += rounded.is_tie ? 1 : 0;
    return StepByStep(i, rounded.is_zero ? ZeroOf(i) : Decode(type, rounded.bits));
  }
  if (!IsFinite(WeightOf(i)) || !IsFinite(BiasOf(i))) {
    return InIeee(i, n.a.IsZero() ? ZeroOf(i) : Wide(n.a.Sign()));
  }
  return AtOnce(i, n);
}

bool Calculation::IsNearMiddle(size_t i, int log2_ulp) const {
  if (!HasFiniteStatistics(i) || !IsFinite(values_[i]) || !IsFinite(WeightOf(i)) || !IsFinite(BiasOf(i))) return false;
  Divisor own;
  Real n = Normalised(i, own);
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
  if (IsGiven()) return statistics;
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
    m2.a = group.scale * group.powers - Power(group.sum, 2);
  } else if (order_ != 2) {  // S^(1/p) = S / (S^(p-1))^(1/p)
    const int64_t root = Root();
    divisor = {.r = {}, .q = Power(group.powers, root - 1), .root = root};
  }
  return AsDouble(RoundToNearest(Type::kF64, m2, approximate_.groups[g].m2));
}

NearestResult Calculation::Take() {
  for (size_t i = 0; i < values_.size(); ++i) result_.y.push_back(Element(i));
  for (size_t g = 0; g < groups_.size(); ++g) result_.groups.push_back(StatisticsOf(g));
  return std::move(result_);
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
