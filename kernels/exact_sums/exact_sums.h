// The exact sums of the elements of one channel: count, sum and sum of squares, from which every statistic of exact-4
// is rounded once (kernels/exact_sums/nearest_moments.h). The sums of parts can be merged in any order and any
// grouping: the sums of N workers are those of one large batch, bit for bit. In the path: kernels/cpu/exact_sums.h
// fills them from tensors, kernels/exact_sums/group_sums.h has those of a whole call. Plain values of a fixed size,
// thread-compatible.
#ifndef NORMD_KERNELS_EXACT_SUMS_EXACT_SUMS_H_
#define NORMD_KERNELS_EXACT_SUMS_EXACT_SUMS_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "absl/status/status.h"
#include "kernels/exact_sums/fixed_point.h"
#include "kernels/slow_road/dyadic.h"

namespace normd {

// The most elements that sums may be of: f64 holds every count up to this one.
inline constexpr uint64_t kMaxSummed = uint64_t{1} << 53;

// Elements that are not finite. They are counted, but are in no sum.
struct NonFinite {
  bool nan = false, positive_infinity = false, negative_infinity = false;

  bool Any() const { return nan || positive_infinity || negative_infinity; }
  void Include(const NonFinite& other) {
    nan |= other.nan;
    positive_infinity |= other.positive_infinity;
    negative_infinity |= other.negative_infinity;
  }
  // What IEEE addition makes of them. REQUIRES: Any().
  double Sum() const {
    if (nan || (positive_infinity && negative_infinity)) return std::numeric_limits<double>::quiet_NaN();
    return positive_infinity ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }
  friend bool operator==(const NonFinite&, const NonFinite&) = default;
};

// The sums as numbers, which no longer depend on the type of the elements.
struct ExactTotals {
  uint64_t count = 0;
  NonFinite non_finite;
  slow_road::Dyadic sum, squares;  // of the finite elements
};

// Elements of f32, f16 and bf16 are multiples of 2^-149 under 2^128. 2^53 of them and of their squares are summed.
struct NarrowRange {
  using Element = float;
  using Sum = FixedPoint<-192, 6>;
  using Squares = FixedPoint<-320, 10>;
  static constexpr int kGrid = -149, kTop = 128;

  static void AddSquare(double x, Squares* squares) { squares->Add(x * x); }  // 48 bits, exact
};
// Those of f64 are multiples of 2^-1074 under 2^1024.
struct WideRange {
  using Element = double;
  using Sum = FixedPoint<-1088, 34>;
  using Squares = FixedPoint<-2176, 67>;
  static constexpr int kGrid = -1074, kTop = 1024;

  static void AddSquare(double x, Squares* squares) { squares->AddSquare(x); }
};

// Equal multisets of elements have equal sums, whatever was added when.
//
//   NarrowExactSums ours, theirs;
//   for (float x : {1e30f, 1.0f}) ours.Add(x);
//   for (float x : {-1e30f, 2.0f}) theirs.Add(x);
//   NORMD_RETURN_IF_ERROR(ours.Merge(theirs));
//   ours.Totals();  // count 4, sum 3
template <typename Range>
class ExactSums {
 public:
  // Adds an element. REQUIRES: it is one of the range's types, and count() is below kMaxSummed.
  void Add(double element) {
    ++count_;
    if (!std::isfinite(element)) return Mark(element);
    sum_.Add(element);
    Range::AddSquare(element, &squares_);
  }
  // Adds n elements at x, an address that need not be aligned, the fastest way for any exponents: about 10 ns an
  // element. REQUIRES: as for Add.
  void AddAll(const typename Range::Element* x, int64_t n);
  // Adds `count` finite elements by parts of their sum and of the sum of their squares: what kernels sum exactly in
  // f64. REQUIRES: the parts add up to these sums, and count() stays within kMaxSummed.
  void AddParts(uint64_t count, std::initializer_list<double> sum, std::initializer_list<double> squares) {
    count_ += count;
    for (const double part : sum) sum_.Add(part);
    for (const double part : squares) squares_.Add(part);
  }
  // Adds the elements of `other`. INVALID_ARGUMENT, and nothing is changed, if there would be more than kMaxSummed.
  absl::Status Merge(const ExactSums& other);

  uint64_t count() const { return count_; }
  const NonFinite& non_finite() const { return non_finite_; }
  ExactTotals Totals() const { return {count_, non_finite_, sum_.Value(), squares_.Value()}; }

  // The parts, for kernels/exact_sums/bytes.h. FromParts takes on trust that some elements have these sums.
  const typename Range::Sum& sum() const { return sum_; }
  const typename Range::Squares& squares() const { return squares_; }
  static ExactSums FromParts(uint64_t count, const NonFinite& non_finite, const typename Range::Sum& sum,
                             const typename Range::Squares& squares) {
    ExactSums sums;
    sums.count_ = count;
    sums.non_finite_ = non_finite;
    sums.sum_ = sum;
    sums.squares_ = squares;
    return sums;
  }
  friend bool operator==(const ExactSums&, const ExactSums&) = default;

 private:
  void Mark(double element) {
    non_finite_.nan |= std::isnan(element);
    non_finite_.positive_infinity |= element > 0;
    non_finite_.negative_infinity |= element < 0;
  }

  uint64_t count_ = 0;
  NonFinite non_finite_;
  typename Range::Sum sum_;
  typename Range::Squares squares_;
};

using NarrowExactSums = ExactSums<NarrowRange>;
using WideExactSums = ExactSums<WideRange>;

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_EXACT_SUMS_H_
