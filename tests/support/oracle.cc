#include "tests/support/oracle.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "tests/support/oracle_geometry.h"

namespace normd::oracle {
namespace {

// Whether m2 is the norm, not its square.
bool IsRoot(const Spec& spec) { return spec.method == Method::kLp && spec.p != 2; }

// h = x + scale * r. `held` is what is normalised, `returned` what the caller may ask for.
void AddResidual(const Input& input, std::vector<Wide>& held, std::vector<Wide>& returned) {
  for (size_t i = 0; i < input.x.size(); ++i) {
    const Wide sum = AddToOdd(input.x[i], Wide(input.residual_scale) * input.residual[i]);
    if (!input.keep_wide) {
      held[i] = Round(input.type, sum);
    } else {
      // A sum that is no f64 even when it is rounded is Inf, as any other overflow is.
      held[i] = IsFinite(Round(Type::kF64, sum)) ? sum : Round(Type::kF64, sum);
    }
    returned.push_back(Round(input.type, held[i]));
  }
}

// PowerNorm's first step: s = x / sqrt(mean over the group's channels of x^2 + eps), for each position.
void ScalePerGroup(const Geometry& geometry, Wide eps, std::vector<Wide>& x) {
  const int64_t elements = static_cast<int64_t>(x.size());
  if (elements == 0) return;
  std::vector<Wide> squares(static_cast<size_t>(geometry.ScalingGroups()), Wide(0));
  const auto group_of = [&](int64_t i) { return static_cast<size_t>(geometry.ScalingGroupOf(geometry.IndexOf(i))); };
  for (int64_t i = 0; i < elements; ++i) squares[group_of(i)] += x[i] * x[i];
  for (int64_t i = 0; i < elements; ++i) x[i] /= Sqrt(squares[group_of(i)] / geometry.GroupSize() + eps);
}

// Count, mean and M2 of every group over the elements that enter it. 113 bits of a mean are too few where the mean is
// 1e12 deviations away and an element lies next to it: `mean_rest` is what the rounding of the mean left.
void TakeStatistics(const Spec& spec, const Geometry& geometry, const std::vector<Wide>& h,
                    std::vector<GroupStatistics>& groups) {
  const int64_t elements = static_cast<int64_t>(h.size());
  struct Entry {
    Wide value;
    size_t group;
  };
  std::vector<Entry> entries;
  entries.reserve(h.size());
  std::vector<Wide> sums(groups.size(), Wide(0)), rests(groups.size(), Wide(0));
  for (int64_t i = 0; i < elements; ++i) {
    const Geometry::Index index = geometry.IndexOf(i);
    if (!geometry.Enters(index)) continue;
    const auto group = static_cast<size_t>(geometry.GroupOf(index));
    entries.push_back({h[i], group});
    groups[group].count += 1;
    sums[group] += h[i];
  }
  if (HasMean(spec.method)) {
    for (size_t s = 0; s < groups.size(); ++s) groups[s].mean = sums[s] / groups[s].count;
    for (const Entry& e : entries) rests[e.group] += e.value - groups[e.group].mean;
    for (size_t s = 0; s < groups.size(); ++s) groups[s].mean_rest = rests[s] / groups[s].count;
  }
  if (IsRoot(spec)) {
    std::vector<std::vector<Wide>> values(groups.size());
    for (const Entry& e : entries) values[e.group].push_back(e.value);
    for (size_t s = 0; s < groups.size(); ++s) groups[s].m2 = LpNormOf(values[s], spec.p);
    return;
  }
  for (const Entry& e : entries) {
    GroupStatistics& group = groups[e.group];
    const Wide d = e.value - group.mean - group.mean_rest;
    group.m2 += d * d;
  }
}

void UseGiven(const Input& input, std::vector<GroupStatistics>& groups) {
  for (size_t s = 0; s < groups.size(); ++s) {
    groups[s].count = 1;
    if (!input.given_mean.empty()) groups[s].mean = input.given_mean[s];
    groups[s].m2 = input.given_variance[s];
  }
}

// D of one group. S is the variance, mean square or sum of squares, R its root (for L1 the sum itself).
Wide DivisorOf(const Spec& spec, GroupStatistics& group, Wide& root) {
  const Wide eps = spec.eps.value_or(DefaultEps(spec.method));
  const bool is_norm = spec.method == Method::kScale || spec.method == Method::kLp;
  const Wide square = is_norm ? group.m2 : group.m2 / group.count;
  root = IsRoot(spec) ? group.m2 : Sqrt(square);
  group.deviation = Sqrt(group.m2 / group.count);
  switch (spec.eps_mode.value_or(DefaultEpsMode(spec.method))) {
    case EpsMode::kInsideSqrt:
      return Sqrt(square + eps);
    case EpsMode::kAddToRoot:
      return root + eps;
    case EpsMode::kClampRoot:
      return IsNan(root) ? root : Max(root, eps);
  }
  return root;
}

}  // namespace

double DefaultEps(Method method) {
  if (method == Method::kLp) return 0;
  return method == Method::kRms || method == Method::kPRms ? 1e-6 : 1e-5;
}

EpsMode DefaultEpsMode(Method method) {
  return method == Method::kScale || method == Method::kLp ? EpsMode::kAddToRoot : EpsMode::kInsideSqrt;
}

int64_t PartialLength(double p, int64_t d, bool floor) {
  // digits[.digits]e[+-]digits, the shortest that gives the same double.
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), p, std::chars_format::scientific).ptr;
  const std::string number(text, end);
  const size_t e = number.find('e');
  int exponent = std::stoi(number.substr(e + 1));
  __int128 digits = 0;
  for (const char c : number.substr(0, e)) {
    if (c != '.') digits = digits * 10 + (c - '0');
  }
  if (e > 2) exponent -= static_cast<int>(e) - 2;
  __int128 product = digits * d;
  bool whole = true;
  for (; exponent < 0; ++exponent) {
    whole = whole && product % 10 == 0;
    product /= 10;
  }
  return static_cast<int64_t>(product) + (whole || floor ? 0 : 1);
}

Wide LpNormOf(const std::vector<Wide>& x, double p) {
  Wide largest = 0, sum = 0;
  for (const Wide v : x) {
    if (IsNan(v)) return v;
    largest = Max(largest, Abs(v));
    sum += Abs(v);
  }
  if (p == 1) return sum;
  if (largest == 0 || IsInf(largest) || std::isinf(p)) return largest;
  // Terms relative to the largest, which stay in range. Their errors reach the root divided by p.
  sum = 0;
  for (const Wide v : x) {
    if (v != 0) sum += Exp2(p * Log2(Abs(v) / largest));
  }
  return largest * Exp2(Log2(sum) / p);
}

Wide WithOffset(Wide weight, const Spec& spec) {
  return spec.weight_offset == 0 ? weight : weight + Wide(spec.weight_offset);
}

Result Compute(const Spec& spec, const Input& input) {
  const Geometry geometry(spec, input);
  Result result;
  std::vector<Wide> h = input.x;
  if (!input.residual.empty()) AddResidual(input, h, result.h);
  if (spec.method == Method::kPower) {
    ScalePerGroup(geometry, spec.eps.value_or(DefaultEps(spec.method)), h);
  }

  const bool given = !input.given_variance.empty();
  result.groups.resize(static_cast<size_t>(geometry.StatisticsGroups()));
  if (given) {
    UseGiven(input, result.groups);
  } else {
    TakeStatistics(spec, geometry, h, result.groups);
  }
  std::vector<Wide> divisors, roots(result.groups.size());
  for (size_t s = 0; s < result.groups.size(); ++s) {
    divisors.push_back(DivisorOf(spec, result.groups[s], roots[s]));
    result.groups[s].inverse = Wide(1) / divisors[s];
  }

  result.has_weight = !input.weight.empty();
  result.has_bias = !input.bias.empty();
  for (size_t i = 0; i < h.size(); ++i) {
    const Geometry::Index index = geometry.IndexOf(static_cast<int64_t>(i));
    const auto group = static_cast<size_t>(geometry.GroupOf(index));
    const auto parameter = static_cast<size_t>(geometry.ParameterOf(index));
    const bool zero_norm = spec.method == Method::kLp && roots[group] == 0;
    // "An exactly centred element gives +0": -0 less a mean of 0 would be -0.
    const Wide difference = h[i] - result.groups[group].mean - result.groups[group].mean_rest;
    const Wide numerator = HasMean(spec.method) && difference == 0 ? Wide(0) : difference;
    const Wide normalised = zero_norm ? Wide(0) : numerator / divisors[group];
    Wide w = input.weight.empty() ? Wide(1) : WithOffset(input.weight[parameter], spec);
    if (spec.cast_then_affine) w = Round(Type::kF64, w);  // the wide type in which the offset is added
    const Wide b = input.bias.empty() ? Wide(0) : input.bias[parameter];
    Wide y = normalised;
    if (!spec.cast_then_affine && result.has_weight) y *= w;
    if (!spec.cast_then_affine && result.has_bias) y += b;
    result.y.push_back(y);
    result.group.push_back(group);
    result.weight.push_back(w);
    result.bias.push_back(b);
  }
  return result;
}

}  // namespace normd::oracle
