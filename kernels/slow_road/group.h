// The slow road: the value of an element type that is nearest to y, for elements that a vector kernel cannot decide.
//
// A kernel calculates y with a proven bound of its error (kernels/certificate.h). Where the middle between two values
// of the type lies within the bound, rounding y might give the wrong one, and the element comes here. Two arithmetics
// follow one another: pairs of f64, which leave about one element in 2^40 of ordinary data, and exact integers, which
// leave none (kernels/slow_road/real.h). Nothing is decided by "enough digits".
//
// In the path: the walkers of kernels/cpu call it for the elements that their kernels report. Ownership: a SlowGroup
// borrows the function that reads the group, which must outlive it. Threads: one at a time. Costs: the sums of the
// group in pairs when an element first needs them (about 15 ns an element of the group, or what SumWith's function
// takes), and the exact sums likewise; then 50 ns an element in pairs. What pairs leave takes 0.4 us, a tie too, and 1
// us where exponents are spread over the whole range of f64; the worst that a stranger can make is 10 us for an element
// of 16 bytes (2-core AMD EPYC, 2026-11-28). Tests bound it in products of words.
#ifndef NORMD_KERNELS_SLOW_ROAD_GROUP_H_
#define NORMD_KERNELS_SLOW_ROAD_GROUP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/pairs.h"
#include "kernels/slow_road/exact_statistics.h"
#include "kernels/slow_road/format.h"
#include "kernels/slow_road/formula.h"
#include "kernels/slow_road/real.h"

namespace normd::slow_road {

// The value n of `format` times w, rounded to the format, plus b, rounded again: what CAST_THEN_AFFINE does with a
// normalised element.
double ApplyIn(const Format& format, double n, const Affine& affine);

// The sums of a group in pairs about `shift`, which is near the mean, or 0 where none is subtracted. With a scale of 1.
struct SumsAbout {
  double shift = 0;
  PairSums sums;
};

// Which arithmetic decided an element; for the share of each that the accuracy report shows.
struct Rungs {
  int64_t pairs = 0, exact = 0, ties = 0;
  ExactWork work;
};

class SlowGroup {
 public:
  using Reader = ElementReader;

  // Which arithmetic is asked first. Tests force the exact one, which must give the same values.
  enum class FirstRung : uint8_t { kPairs, kExact };

  // REQUIRES: the elements that `reader` gives, and the numbers of `formula`, are finite.
  SlowGroup(const Formula& formula, Reader reader, FirstRung first = FirstRung::kPairs)
      : formula_(formula), reader_(reader), first_(first) {}

  // Has the pairs begin with what `sum` returns, a vector kernel's sums, instead of reading the group. REQUIRES: no
  // statistics that are given, no kMaxAbs, elements without a residual; a term of the sums takes part in 1,077
  // additions of pairs at most.
  void SumWith(std::function<SumsAbout()> sum) { sum_ = std::move(sum); }

  // The value of `format` nearest to y = (element - mean) / D * w + b, ties to even. Zeros have the sign that IEEE
  // arithmetic gives them in that formula, except that the difference of an element that equals the mean is +0.
  // Overflow gives Inf. Where D is 0, or w or b is not finite, IEEE arithmetic says what n, which has the sign of
  // element - mean, makes of them. REQUIRES: the element is finite.
  double Nearest(const Format& format, const Element& element, const Affine& affine);

  // D is not 0.
  bool HasDivisor();
  // The values nearest to the mean (0 where none is subtracted), to 1 / D (Inf if D is 0), and, in f64, to the sum of
  // squares about the mean, about 0, or the norm.
  double NearestMean(const Format& format);
  double NearestInverse(const Format& format);
  double NearestM2();
  // The f64 nearest to (element / D)^2, a term of PowerNorm's v. REQUIRES: the statistic is kMeanSquare with
  // EpsMode::kInsideSqrt; D is not 0.
  double NearestSquare(const Element& element);

  const Rungs& rungs() const { return rungs_; }

 private:
  // y as a pair, and a bound of its error, which is infinite where a number left the range of pairs.
  struct Approximation {
    DoublePair y;
    double error = 0;
  };
  // The statistics in pairs of f64. `usable` is false where a square left the range of f64.
  struct PairStatistics {
    bool usable = false;
    DoublePair mean, inverse, m2;
    double mean_error = 0;      // of mean / D, where it is multiplied
    double own_mean_error = 0;  // of the mean itself
    double inverse_error = 0;   // of 1 / D, relative, beside that of the sums
    bool is_equal = false;      // no element differs from the mean, or from 0
    bool has_residual = false;  // elements are rounded sums, so that the statistics themselves are left undecided
  };

  const PairStatistics& Pairs();
  PairStatistics SumPairs() const;
  SumsAbout ReadSums(PairStatistics* statistics) const;
  DoublePair PairMean() const;
  DoublePair PairNorm() const;
  DoublePair PairSquares(PairStatistics* statistics) const;
  DoublePair PairDivisor(DoublePair value) const;
  const ExactStatistics& Exact();
  DoublePair ValueOf(const Element& element) const;
  Approximation Approximate(const Element& element, const Affine& affine);
  // The index of the nearest value where the approximation decides it.
  static std::optional<int64_t> Decide(const Format& format, const Approximation& approximation);
  // The same of a statistic, with its sign; nothing where pairs do not decide it.
  std::optional<double> DecideStatistic(const Format& format, DoublePair value, double error);
  // count * element - sum, or the element where nothing is subtracted.
  Dyadic CentredExactly(const Element& element);
  // The n of an element that is 0 then.
  double ZeroOf(const Element& element) const;
  // n * w + b where that is a zero, Inf or NaN whatever the magnitude of n is.
  double InIeee(const Element& element, const Affine& affine);
  double NearestExactly(const Format& format, const Element& element, const Affine& affine);
  // The divisor of an element whose channel has a variance of its own, times the group's. REQUIRES: neither is 0.
  Divisor WithVariance(double variance);

  const Formula formula_;
  const Reader reader_;
  const FirstRung first_;
  std::function<SumsAbout()> sum_;  // null: the group is read
  std::optional<PairStatistics> pairs_;
  std::optional<ExactStatistics> exact_;
  Rungs rungs_;
};

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_GROUP_H_
