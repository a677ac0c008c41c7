// The slow road: the value of an element type that is nearest to y, for elements that a vector kernel cannot decide.
//
// A kernel calculates y with a proven bound of its error (kernels/certificate.h). Where the middle between two values
// of the type lies within the bound, rounding y might give the wrong one, and the element comes here. Two arithmetics
// follow one another: pairs of f64, which leave about one element in 2^40 of ordinary data, and exact integers, which
// leave none. They decide with
//
//   y - m = (A * w) / (r + sqrt(Q / k)) + b - m,   which has the sign of   U - c * sqrt(Q / k),
//   c = m - b,  U = A * w - c * r,                 found by comparing U^2 * k with c^2 * Q,
//
// where A is the centred element times a count, r, Q and k make the divisor D (all of them are dyadic numbers or
// whole), and m is the middle. Equal means a tie, which goes to the even value. Nothing is decided by "enough digits".
//
// In the path: the walkers of kernels/cpu call it for the elements that their kernels report. Ownership: a SlowGroup
// borrows the function that reads the group, which must outlive it. Threads: one at a time. Costs: the sums of the
// group in pairs when an element first needs them (about 15 ns an element of the group, or what SumWith's function
// takes), and the exact sums likewise; then 50 ns an element in pairs. An element that pairs leave takes some
// comparisons of integers, 1 to 3 us in f32 and 7 us in f64; where exponents are spread over the whole range of f64 it
// takes up to 1.6 ms.
#ifndef NORMD_KERNELS_SLOW_ROAD_GROUP_H_
#define NORMD_KERNELS_SLOW_ROAD_GROUP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/base/types.h"
#include "kernels/group_statistics.h"
#include "kernels/pairs.h"
#include "kernels/slow_road/dyadic.h"
#include "kernels/slow_road/format.h"

namespace normd::slow_road {

// An element: the number x + scale * r. `r` is -0, which leaves x as it is, unless a residual stream is kept wide.
struct Element {
  double x = 0;
  double r = -0.0;
};

// w and b of an element. The weight is the sum of two numbers, because weight + weight_offset may not fit one.
struct Affine {
  DoublePair weight = {1, 0};
  double bias = -0.0;  // -0: absent
};

// What a group computes.
struct Formula {
  Statistic statistic = Statistic::kMeanVariance;  // not kPowerSum
  DivisorRule rule;
  int64_t counted = 0;  // the elements that enter the statistic
  double scale = 1;     // of the residual
  // Statistics that are given: S (or R) is `given_variance`. Nothing is summed, and `given_mean` is subtracted where
  // the statistic has a mean.
  bool is_given = false;
  double given_mean = 0, given_variance = 0;

  bool centred() const { return statistic == Statistic::kMeanVariance; }
};

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
};

class SlowGroup {
 public:
  // Calls its argument with the elements that enter the statistic of the group, in pieces and in any order.
  using Reader = absl::FunctionRef<void(absl::FunctionRef<void(const Element* elements, int64_t n)>)>;

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
  // Overflow gives Inf. NaN if D is 0. REQUIRES: the element, w and b are finite.
  double Nearest(const Format& format, const Element& element, const Affine& affine);

  // The values nearest to the mean (0 where none is subtracted), to 1 / D (Inf if D is 0), and, in f64, to the sum of
  // squares about the mean, about 0, or the norm.
  double NearestMean(const Format& format);
  double NearestInverse(const Format& format);
  double NearestM2();

  const Rungs& rungs() const { return rungs_; }

 private:
  // y as a pair, and a bound of its error.
  struct Approximation {
    DoublePair y;
    double error = 0;
  };
  // The statistics in pairs of f64. `usable` is false where a square left the range of f64.
  struct PairStatistics {
    bool usable = false;
    DoublePair mean, inverse;
    double mean_error = 0;     // of mean / D
    double inverse_error = 0;  // of 1 / D, relative, beside that of the sums
    double m2 = 0;             // where a search begins
  };
  // The statistics as exact numbers: the centred element is (count * element - sum) / count.
  struct ExactStatistics {
    Dyadic count, sum;
    Dyadic r, q, k;  // D = r + sqrt(q / k); `r` and the root are multiplied by `count`
    Dyadic m2;       // times `count`
    bool divisor_is_zero = false;
  };

  const PairStatistics& Pairs();
  PairStatistics SumPairs() const;
  SumsAbout ReadSums(bool* has_residual) const;
  DoublePair PairMean() const;
  DoublePair PairDivisor(DoublePair value) const;
  const ExactStatistics& Exact();
  ExactStatistics SumExactly() const;
  DoublePair ValueOf(const Element& element) const;
  Dyadic Exactly(const Element& element) const;
  Approximation Approximate(const Element& element, const Affine& affine);
  // The index of the nearest value where the approximation decides it. *guess is where a search may begin.
  static std::optional<int64_t> Decide(const Format& format, const Approximation& approximation, int64_t* guess);
  double NearestExactly(const Format& format, const Element& element, const Affine& affine, int64_t guess);
  // The sign of y - m; A * w is `product`.
  int SignBeside(const Dyadic& product, const Dyadic& bias, const Dyadic& m);

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
