#include "kernels/cpu/exact_row.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace normd::cpu {
namespace {

constexpr int64_t kAtOnce = 256;

// Calls take(values, count) for the elements in f64, piece by piece, until it returns false.
template <typename Take>
void ForPieces(const Elements& x, int64_t n, Take take) {
  double values[kAtOnce];
  for (int64_t at = 0; at < n; at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, n - at);
    ConvertToF64(x.At(at), count, values);
    if (!take(values, count)) return;
  }
}

double LargestOf(const Elements& x, int64_t n) {
  double largest = 0;
  ForPieces(x, n, [&](const double* values, int64_t count) {
    largest = std::max(largest, MeasureRow(values, nullptr, count).largest());
    return true;
  });
  return largest;
}

// Whether nothing that is calculated with a grid for elements this large overflows or underflows.
bool IsInRange(double largest) { return largest >= 0x1p-100 && largest <= 0x1p+100; }

// The grid on which elements of at most `largest` are whole numbers under 2^digits, if they are whole numbers.
double GridOf(double largest, int digits) { return std::ldexp(1.0, std::ilogb(largest) + 1 - digits); }

struct SumsOnGrid {
  bool is_whole = true;
  double sum = 0, squares = 0;  // in units of the grid, if all elements are whole numbers of it
};
SumsOnGrid SumOnGrid(const Elements& x, int64_t n, double grid) {
  const double units_of_one = 1 / grid;
  SumsOnGrid sums;
  ForPieces(x, n, [&](const double* values, int64_t count) {
    constexpr double kRounds = 0x1.8p+52;
    for (int64_t i = 0; i < count; ++i) {
      const double units = values[i] * units_of_one;
      sums.is_whole &= (units + kRounds) - kRounds == units;
      sums.sum += units;
      sums.squares += units * units;
    }
    return sums.is_whole;
  });
  return sums;
}

// True if a * b, a / b and a + b, rounded to `result`, are that number exactly.
bool IsProduct(double a, double b, double result) { return std::fma(a, b, -result) == 0; }
bool IsQuotient(double a, double b, double result) { return std::fma(result, b, -a) == 0; }
bool IsSum(double a, double b, double result) {
  const double of_b = result - a;
  return a - (result - of_b) == 0 && b - of_b == 0;
}

}  // namespace

ExactRow::ExactRow(Statistic statistic, const DivisorRule& rule, const Elements& x, int64_t n)
    : centred_(statistic == Statistic::kMeanVariance) {
  if (!centred_ && statistic != Statistic::kMeanSquare) return;
  // In units of a grid the elements are to be whole numbers under 2^digits, whose squares add up to less than 2^52.
  const int digits = (52 - std::bit_width(static_cast<uint64_t>(n))) / 2;
  // The elements of an ordinary row are not, which the first ones show: on the coarser grid of all they are not,
  // either.
  const int64_t few = std::min(n, kAtOnce);
  double largest = LargestOf(x, few);
  if (IsInRange(largest) && !SumOnGrid(x, few, GridOf(largest, digits)).is_whole) return;
  largest = LargestOf(x, n);
  if (!IsInRange(largest)) return;
  const double grid = GridOf(largest, digits);
  const auto [is_whole, sum, squares] = SumOnGrid(x, n, grid);
  if (!is_whole) return;
  const auto of = static_cast<double>(n);
  const double mean = centred_ ? sum / of : 0;
  knows_mean_ = !centred_ || IsQuotient(sum, of, mean);
  mean_ = mean * grid;
  const double square = squares / of;
  const double of_mean = mean * mean;
  const double variance = square - of_mean;
  if (!knows_mean_ || !IsQuotient(squares, of, square) || !IsProduct(mean, mean, of_mean)) return;
  if (IsSum(square, -of_mean, variance)) SetDivisor(rule, variance, grid);
}

void ExactRow::SetDivisor(const DivisorRule& rule, double mean_of_squares, double grid) {
  const double value = mean_of_squares * grid * grid;
  const double sum = value + rule.eps;
  if (rule.mode != EpsMode::kInsideSqrt || !IsSum(value, rule.eps, sum) || !(sum > 0)) return;
  const double divisor = std::sqrt(sum);
  inverse_ = 1 / divisor;
  knows_divisor_ = IsProduct(divisor, divisor, sum) && IsQuotient(1, divisor, inverse_);
}

std::optional<double> ExactRow::Y(double x, double weight, double bias) const {
  constexpr double kLeast = 0x1p-800;  // nothing that is checked underflows
  if (!knows_mean_) return std::nullopt;
  const double distance = x - mean_;
  double n = 0;  // the difference of an element that is the mean
  if (!centred_ || distance != 0) {
    n = distance * inverse_;
    if (!knows_divisor_ || !IsSum(x, -mean_, distance) || !IsProduct(distance, inverse_, n)) return std::nullopt;
  }
  const double product = n * weight;
  if (product != 0 && std::abs(product) < kLeast) return std::nullopt;
  const double y = product + bias;
  if (!IsProduct(n, weight, product) || !IsSum(product, bias, y)) return std::nullopt;
  return y;
}

}  // namespace normd::cpu
