#include "kernels/slow_road/exact_statistics.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace normd::slow_road {
namespace {

// The sums of an element, of its square and of powers up to LargestWholeOrder. An f64 is a multiple of 2^-1074, a
// product of two of 2^-2148, the square of that of 2^-4296; their magnitudes are under 2^1024, 2^2048 and 2^4096. The
// third power of such a product is a multiple of 2^-6444 under 2^6145, as is the sixth of an f64. 2^62 of them are
// summed.
using SumOfValues = ExactSum<-2176, 136>;
using SumOfSquares = ExactSum<-4352, 268>;
using SumOfPowers = ExactSum<-6464, 404>;

// Adds an f64 and its square to sums, without the detour over Dyadic. `sum` may be null.
void AddValue(double value, SumOfValues* sum, SumOfSquares* squares) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto biased = static_cast<int64_t>(bits >> 52 & 0x7FF);
  const uint64_t m = (bits & ((uint64_t{1} << 52) - 1)) | (biased == 0 ? 0 : uint64_t{1} << 52);
  if (m == 0) return;
  const int64_t e = std::max<int64_t>(biased, 1) - 1075;
  if (sum != nullptr) sum->Add(value < 0 ? -1 : 1, m, e);
  const auto square = static_cast<unsigned __int128>(m) * m;
  squares->Add(1, static_cast<uint64_t>(square), 2 * e);
  squares->Add(1, static_cast<uint64_t>(square >> 64), 2 * e + 64);
}

// The sums of a group, and how its divisor is made of them: S or R^order is m2 / squared.
struct Sums {
  Dyadic count = Dyadic::Integer(1), sum, m2;
  Dyadic squared = Dyadic::Integer(1);  // count^2 if a mean is subtracted
  Dyadic k = Dyadic::Integer(1);        // see Divisor
  int order = 2;
};

void SumAboutMean(const Formula& formula, ElementReader reader, Sums* s) {
  SumOfValues sum;
  SumOfSquares squares;
  reader([&](const Element* elements, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (elements[i].r == 0) {
        AddValue(elements[i].x, &sum, &squares);
        continue;
      }
      const Dyadic v = ExactValue(formula, elements[i]);
      sum.Add(v);
      squares.Add(Square(v));
    }
  });
  s->count = Dyadic::Integer(static_cast<uint64_t>(formula.counted));
  s->sum = sum.Value();
  s->m2 = s->count * squares.Value() - Square(s->sum);
}

void SumSquares(const Formula& formula, ElementReader reader, Sums* s) {
  SumOfSquares squares;
  reader([&](const Element* elements, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (elements[i].r == 0) {
        AddValue(elements[i].x, nullptr, &squares);
      } else {
        squares.Add(Square(ExactValue(formula, elements[i])));
      }
    }
  });
  s->m2 = squares.Value();
}

// Also of p = 1 and p = infinity.
void SumMagnitudes(const Formula& formula, ElementReader reader, Sums* s) {
  const int p = formula.statistic == Statistic::kPowerSum ? static_cast<int>(formula.rule.p) : 1;
  SumOfPowers sum;
  Dyadic largest;
  reader([&](const Element* elements, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const Dyadic magnitude = ExactValue(formula, elements[i]).Magnitude();
      if (magnitude.sign() == 0) continue;
      if (formula.statistic != Statistic::kMaxAbs) {
        sum.Add(Power(magnitude, p));
      } else if (Compare(magnitude, largest) > 0) {
        largest = magnitude;
      }
    }
  });
  s->m2 = formula.statistic == Statistic::kMaxAbs ? largest : sum.Value();
}

// Makes D times `count` of m2.
std::optional<Divisor> DivisorOf(const DivisorRule& rule, const Sums& s) {
  const Dyadic eps(rule.eps);
  Dyadic r, q = s.m2;
  switch (rule.mode) {
    case EpsMode::kInsideSqrt:
      q = q + s.squared * eps;
      break;
    case EpsMode::kAddToRoot:
      r = s.count * eps;
      break;
    case EpsMode::kClampRoot:
      if (rule.eps > 0 && Compare(q, s.squared * Power(eps, s.order)) < 0) {
        r = s.count * eps;
        q = Dyadic();
      }
      break;
  }
  if (r.sign() == 0 && q.sign() == 0) return std::nullopt;
  return s.order == 1 ? Divisor(r + q) : Divisor(r, q, s.k, s.order);
}

}  // namespace

Dyadic ExactValue(const Formula& formula, const Element& element) {
  if (element.r == 0) return Dyadic(element.x);
  return Dyadic(element.x) + Dyadic(formula.scale) * Dyadic(element.r);
}

ExactStatistics SumExactly(const Formula& formula, ElementReader reader) {
  Sums s;
  const Dyadic n = Dyadic::Integer(static_cast<uint64_t>(formula.counted));
  if (formula.is_given) {
    if (formula.centred()) s.sum = Dyadic(formula.given_mean);
    s.m2 = Dyadic(formula.given_variance);
  } else if (formula.centred()) {
    SumAboutMean(formula, reader, &s);
    s.squared = Square(n);
  } else if (formula.is_norm()) {
    SumMagnitudes(formula, reader, &s);
    s.order = formula.statistic == Statistic::kPowerSum ? static_cast<int>(formula.rule.p) : 1;
  } else {
    SumSquares(formula, reader, &s);
    if (formula.statistic == Statistic::kMeanSquare) s.k = s.squared = n;
  }
  return {KeptDyadic(s.count), KeptDyadic(s.sum), KeptDyadic(s.m2), DivisorOf(formula.rule, s)};
}

}  // namespace normd::slow_road
