#include "tests/support/compare.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdio>

namespace normd::oracle {
namespace {

constexpr double kWrong = 1e300;  // ulp: not comparable at all

Wide NumberAt(Type type, int64_t order) { return Decode(type, BitsAt(type, order)); }

// The differences of one comparison, for one message.
class Report {
 public:
  explicit Report(std::string_view name) : name_(name) {}

  void Add(std::string_view what, size_t index, double error_ulp, const std::string& got, const std::string& want) {
    ++wrong_;
    if (wrong_ > 1 && error_ulp <= worst_) return;
    worst_ = error_ulp;
    char ulp[48] = "not comparable";
    if (error_ulp < kWrong) std::snprintf(ulp, sizeof(ulp), "%.6g ulp", error_ulp);
    text_ = std::string(what) + "[" + std::to_string(index) + "]: got " + got + ", want " + want + ", error " + ulp;
  }

  std::string Text(size_t of) const {
    if (wrong_ == 0) return "";
    return name_ + ": " + std::to_string(wrong_) + " of " + std::to_string(of) + " wrong, worst " + text_;
  }

 private:
  const std::string name_;
  size_t wrong_ = 0;
  double worst_ = 0;
  std::string text_;
};

bool SubtractsMean(Method method) {
  return method == Method::kBatch || method == Method::kLayer || method == Method::kInstance ||
         method == Method::kGroup;
}

// A formula that gives exactly 0 says which 0, unless b or a negative w takes part.
bool ZeroSignAgrees(const Spec& spec, const Bound& bound, const Result& want, size_t i, Wide got) {
  if (want.y[i] != 0 || spec.method == Method::kLp || want.has_bias || want.weight[i] <= 0) return true;
  if (!bound.centre_is_exact && SubtractsMean(spec.method)) return true;
  return got != 0 || IsNegative(got) == IsNegative(want.y[i]);
}

// The error of y[i], 0 where it is as it must be; with cast_then_affine any other value counts by its distance.
double YError(const Spec& spec, const Bound& bound, Type type, const Result& want, size_t i, Wide got) {
  const Wide* w = want.has_weight ? &want.weight[i] : nullptr;
  const Wide* b = want.has_bias ? &want.bias[i] : nullptr;
  if (!spec.cast_then_affine) {
    const double error = ErrorUlp(type, got, want.y[i], BoundScale(bound, want.y[i], want.bias[i], want.weight[i]));
    return ZeroSignAgrees(spec, bound, want, i, got) ? error : kWrong;
  }
  if (ReachableStepwise(bound, type, got, want.y[i], w, b)) return 0;
  const Wide y = want.y[i] * want.weight[i] + want.bias[i];
  return std::max(bound.ulp + 1, ErrorUlp(type, got, y, BoundScale(bound, y, want.bias[i], want.weight[i])));
}

}  // namespace

Bound ExactBound(Type type) {
  if (type != Type::kF64) return {};
  return {.ulp = 4, .weight_log2 = -45};
}

Bound FastBound() {
  return {.ulp = 4,
          .weight_log2 = 0,
          .at_product = true,
          .moment_type = Type::kF32,
          .moment_deviation_log2 = 0,
          .m2_log2 = -18,
          .max_condition = 1e6,
          .centre_is_exact = false};
}

Wide BoundScale(const Bound& bound, Wide y, Wide b, Wide w) {
  const Wide scale = Max(Max(Abs(y), Abs(b)), PowerOfTwo(bound.weight_log2) * Abs(w));
  return bound.at_product ? Max(scale, Abs(y - b)) : scale;
}

bool Promised(const Bound& bound, const GroupStatistics& group) {
  return bound.max_condition == 0 || !(group.deviation > 0) ||
         !(Abs(group.mean) > Wide(bound.max_condition) * group.deviation);
}

double ErrorUlp(Type type, Wide got, Wide want, Wide scale) {
  if (IsNan(want) || IsNan(got)) return IsNan(want) && IsNan(got) ? 0 : kWrong;
  if (IsInf(want)) return got == want ? 0 : kWrong;
  if (IsInf(got)) {
    if (got == Round(type, want)) return 0;
    const Wide next = PowerOfTwo(FormatOf(type).bias() + 1);
    got = got < 0 ? -next : next;
  }
  const Wide error = Abs(got - want) / Ulp(type, scale);
  return error < Wide(kWrong) ? static_cast<double>(error) : kWrong;
}

bool ReachableStepwise(const Bound& bound, Type type, Wide got, Wide normalised, const Wide* w, const Wide* b) {
  const auto rest = [&](Wide t) {
    if (w != nullptr) t = Round(type, t * *w);
    if (b != nullptr) t = Round(type, AddToOdd(t, *b));
    return t;
  };
  if (!IsFinite(normalised)) {
    const Wide want = rest(normalised);
    return IsNan(want) ? IsNan(got) : got == want;
  }
  const Wide slack = Wide(bound.ulp) * Ulp(type, BoundScale(bound, normalised, 0, 1));
  // The first and last number of T within the bound; the rest is monotone in t, so bisect between them.
  int64_t low = OrderOf(type, Encode(type, normalised - slack));
  int64_t high = OrderOf(type, Encode(type, normalised + slack));
  if (NumberAt(type, low) < normalised - slack && low != -LastOrder(type)) ++low;
  if (NumberAt(type, high) > normalised + slack && high != LastOrder(type)) --high;
  const bool falls = w != nullptr && *w < 0;
  while (low <= high) {
    const int64_t middle = low + (high - low) / 2;
    const Wide y = rest(NumberAt(type, middle));
    if (y == got || (IsNan(y) && IsNan(got))) return true;
    if ((y < got) != falls) {
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return false;
}

std::vector<double> YErrors(const Spec& spec, const Bound& bound, Type type, const void* y, const Result& want) {
  std::vector<double> errors(want.y.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    const bool promised = want.group.empty() || Promised(bound, want.groups[want.group[i]]);
    errors[i] = promised ? YError(spec, bound, type, want, i, Load(type, y, static_cast<int64_t>(i))) : -1;
  }
  return errors;
}

std::string CompareY(std::string_view name, const Spec& spec, const Bound& bound, Type type, const void* y,
                     const Result& want) {
  Report report(name);
  const std::vector<double> errors = YErrors(spec, bound, type, y, want);
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] <= bound.ulp) continue;
    report.Add("y", i, errors[i], Print(type, Load(type, y, static_cast<int64_t>(i))), Print(Type::kF64, want.y[i]));
  }
  return report.Text(errors.size());
}

std::string CompareH(std::string_view name, Type type, const void* h, const Result& want) {
  Report report(name);
  for (size_t i = 0; i < want.h.size(); ++i) {
    const uint64_t got = LoadBits(type, h, static_cast<int64_t>(i));
    const uint64_t bits = Encode(type, want.h[i]);
    if (got == bits || (IsNan(Decode(type, got)) && IsNan(want.h[i]))) continue;
    report.Add("h", i, kWrong, Print(type, Decode(type, got)), Print(type, want.h[i]));
  }
  return report.Text(want.h.size());
}

std::string CompareStatistics(std::string_view name, const Bound& bound, Type type, const void* mean,
                              const void* inverse, const Result& want) {
  Report report(name);
  for (size_t s = 0; s < want.groups.size(); ++s) {
    const GroupStatistics& group = want.groups[s];
    if (!Promised(bound, group)) continue;
    const auto check = [&](std::string_view what, const void* values, Wide value, Wide scale) {
      const Wide got = Load(type, values, static_cast<int64_t>(s));
      const double error = ErrorUlp(type, got, value, scale);
      if (error > bound.ulp) report.Add(what, s, error, Print(type, got), Print(type, value));
    };
    check("mean", mean, group.mean, BoundScale(bound, group.mean, 0, group.deviation));
    check("inverse_std", inverse, group.inverse, Abs(group.inverse));
  }
  return report.Text(want.groups.size());
}

std::string CompareMoment(std::string_view name, const Bound& bound, const GroupStatistics& want, double count,
                          double mean, double m2) {
  if (!Promised(bound, want)) return "";
  Report report(name);
  // NaN and Inf, of `got` or of the f64 nearest to `value`, agree with themselves alone.
  const auto check = [&](std::string_view what, double got, Wide value, Wide tolerance) {
    const Wide nearest = Round(Type::kF64, value);
    const bool finite = IsFinite(nearest) && IsFinite(got);
    const bool agrees = finite ? Abs(Wide(got) - value) <= tolerance : nearest == got || (IsNan(nearest) && IsNan(got));
    if (!agrees) report.Add(what, 0, kWrong, Print(Type::kF64, got), Print(Type::kF64, value));
  };
  check("count", count, want.count, 0);
  const Wide deviation = IsFinite(want.deviation) ? PowerOfTwo(bound.moment_deviation_log2) * want.deviation : 0;
  if (want.count > 0) check("mean", mean, want.mean, 4 * Ulp(bound.moment_type, Max(Abs(want.mean), deviation)));
  check("m2", m2, want.m2, PowerOfTwo(bound.m2_log2) * want.m2 + 4 * Ulp(Type::kF64, want.m2));
  return report.Text(3);
}

std::string Print(Type type, Wide v) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*g (0x%" PRIx64 ")", type == Type::kF64 ? 17 : 9,
                static_cast<double>(Round(type, v)), Encode(type, v));
  return text;
}

}  // namespace normd::oracle
