#include "tests/support/oracle_groups.h"

#include <cmath>

namespace normd::oracle {

ExactGroups::ExactGroups(const Spec& spec, const Input& input)
    : spec_(spec),
      input_(input),
      geometry_(spec, input),
      eps_(Dyadic(Wide(spec.eps.value_or(DefaultEps(spec.method))))),
      order_(spec.method == Method::kLp ? spec.p : 2),
      values_(input.x),
      groups_(static_cast<size_t>(geometry_.StatisticsGroups())) {
  TakePlaces();
  if (!input.residual.empty()) TakeResidual();
  if (IsPower() && !values_.empty()) SumSquaresToScale();
  if (!IsGiven()) Sum();
  for (size_t g = 0; g < groups_.size(); ++g) IsPower() ? FinishPower(g) : Finish(g);
}

int64_t ExactGroups::root() const { return std::isinf(order_) ? 1 : static_cast<int64_t>(order_); }

Dyadic ExactGroups::ScaledVarianceOf(size_t g) const {
  return groups_[g].scale * groups_[g].powers - Power(groups_[g].sum, 2);
}

void ExactGroups::TakePlaces() {
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
Dyadic ExactGroups::Held(size_t i) const {
  if (input_.residual.empty() || !input_.keep_wide) return Dyadic(values_[i]);
  return Dyadic(input_.x[i]) + Dyadic(Wide(input_.residual_scale)) * Dyadic(input_.residual[i]);
}

void ExactGroups::TakeResidual() {
  const Dyadic scale{Wide(input_.residual_scale)};
  for (size_t i = 0; i < values_.size(); ++i) {
    const Wide x = input_.x[i], r = input_.residual[i];
    values_[i] = AddToOdd(x, Wide(input_.residual_scale) * r);
    uint64_t bits = Encode(input_.type, values_[i]);
    if (IsFinite(x) && IsFinite(r)) {
      const Rounded rounded = RoundToNearest(input_.type, Dyadic(x) + scale * Dyadic(r));
      if (!rounded.is_zero) bits = rounded.bits;
    }
    h_.push_back(bits);
    if (!input_.keep_wide) {
      values_[i] = Decode(input_.type, bits);
    } else if (IsFinite(x) && IsFinite(r)) {
      const Rounded in_f64 = RoundToNearest(Type::kF64, Dyadic(x) + scale * Dyadic(r));
      if (!IsFinite(Decode(Type::kF64, in_f64.bits)))
        values_[i] = Decode(Type::kF64, in_f64.bits);  // Inf, as elsewhere
    }
  }
}

void ExactGroups::SumSquaresToScale() {
  scaling_.resize(static_cast<size_t>(geometry_.ScalingGroups()));
  for (size_t i = 0; i < values_.size(); ++i) {
    ScalingGroup& group = scaling_[places_[i].scaling];
    group.is_finite = group.is_finite && IsFinite(values_[i]);
    if (!IsFinite(values_[i])) group.special += values_[i] * values_[i];
    if (group.is_finite) group.squares += Power(Held(i), 2);
  }
  const Dyadic eps = Dyadic(Wide(geometry_.GroupSize())) * eps_;
  for (ScalingGroup& group : scaling_) group.squares += eps;
}

void ExactGroups::Sum() {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!places_[i].enters) continue;
    ExactGroup& group = groups_[places_[i].group];
    ++group.count;
    group.is_finite = group.is_finite && IsFinite(values_[i]);
    if (group.is_finite) IsPower() ? AddTerm(i, group) : AddPowers(i, group);
  }
}

void ExactGroups::AddPowers(size_t i, ExactGroup& group) const {
  const Dyadic x = Held(i);
  if (HasMean(spec_.method)) group.sum += x;
  if (!std::isinf(order_)) {
    group.powers += Power(Abs(x), static_cast<int64_t>(order_));
  } else if (Compare(Abs(x), group.powers) > 0) {
    group.powers = Abs(x);
  }
}

// One term of PowerNorm's v: x^2 / (mean square of the position's group + eps), rounded once to f64.
// Beside an Inf it is 0.
void ExactGroups::AddTerm(size_t i, ExactGroup& group) const {
  const ScalingGroup& position = scaling_[places_[i].scaling];
  if (!position.is_finite) {
    group.is_finite = !IsNan(position.special);
    return;
  }
  const Divisor own = {.r = position.squares, .q = {}};
  if (own.IsZero()) {
    group.is_finite = false;  // 0 / 0
    return;
  }
  const Dyadic size{Wide(geometry_.GroupSize())};
  const Real term = {.a = size * Power(Held(i), 2), .divisor = &own, .b = {}};
  const Wide estimate = values_[i] * values_[i] * geometry_.GroupSize() / Approximate(own.r);
  group.powers += Dyadic(Decode(Type::kF64, RoundToNearest(Type::kF64, term, estimate).bits));
}

void ExactGroups::AddEps(Divisor& divisor, const Dyadic& scale) const {
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

void ExactGroups::Finish(size_t g) {
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
    group.divisor.root = root();
  }
  AddEps(group.divisor, group.scale);
}

void ExactGroups::FinishPower(size_t g) {
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

bool ExactGroups::HasFiniteStatistics(size_t i) const {
  return groups_[places_[i].group].is_finite && (!IsPower() || scaling_[places_[i].scaling].is_finite);
}

Real ExactGroups::Normalised(size_t i, Divisor& own) const {
  const ExactGroup& group = groups_[places_[i].group];
  Real n = {.a = group.scale * Held(i) - group.offset, .divisor = &group.divisor, .b = {}};
  if (!IsPower()) return n;
  const Dyadic size{Wide(geometry_.GroupSize())};
  own.q = size * scaling_[places_[i].scaling].squares * group.divisor.q;
  n.a *= size;
  n.divisor = &own;
  return n;
}

}  // namespace normd::oracle
