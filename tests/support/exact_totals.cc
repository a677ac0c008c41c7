#include "tests/support/exact_totals.h"

#include <cstddef>

#include "tests/support/oracle_real.h"

namespace normd::oracle {

void Totals::Add(double x) {
  const Dyadic exactly{Wide(x)};
  ++count;
  sum += exactly;
  squares += exactly * exactly;
}

Totals TotalsOf(const std::vector<double>& elements) {
  Totals totals;
  for (const double x : elements) totals.Add(x);
  return totals;
}

std::vector<uint64_t> WordsOf(const Dyadic& number, int64_t lowest, int words) {
  mpz_class integer = number.significand()
                      << static_cast<mp_bitcnt_t>(number.IsZero() ? 0 : number.exponent() - lowest);
  if (integer < 0) integer += mpz_class(1) << static_cast<mp_bitcnt_t>(64 * words);
  std::vector<uint64_t> result(static_cast<size_t>(words));
  mpz_export(result.data(), nullptr, -1, sizeof(result[0]), 0, 0, integer.get_mpz_t());
  return result;
}

double NearestQuotient(const Dyadic& over, const Dyadic& under) {
  if (over.IsZero()) return 0;
  const Divisor divisor = {.r = under, .q = {}};
  const Real real = {.a = over, .divisor = &divisor, .b = {}};
  const Rounded rounded = RoundToNearest(Type::kF64, real, Approximate(over) / Approximate(under));
  return static_cast<double>(Decode(Type::kF64, rounded.bits));
}

SampleStatistics MomentsOf(const Totals& totals) { return MergedWith({}, 1, totals); }

SampleStatistics MergedWith(const SampleStatistics& before, double fading, const Totals& totals) {
  const Dyadic n{Wide(totals.count)}, seen = Dyadic{Wide(before.count)} * Dyadic{Wide(fading)}, all = seen + n;
  const Dyadic mean{Wide(before.mean)};
  // n times d = S / n - mean.
  const Dyadic scaled_delta = totals.sum - n * mean;
  // n T times m2 * fading + M2 + d^2 N n / T, where n M2 = n Q - S^2.
  const Dyadic kept = Dyadic{Wide(before.m2)} * Dyadic{Wide(fading)} * n * all;
  const Dyadic added = (n * totals.squares - totals.sum * totals.sum) * all;
  const Dyadic between = scaled_delta * scaled_delta * seen;
  return {.count = NearestQuotient(all, Dyadic{1}),
          .mean = NearestQuotient(mean * all + scaled_delta, all),
          .m2 = NearestQuotient(kept + added + between, n * all)};
}

}  // namespace normd::oracle
