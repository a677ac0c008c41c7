#include "tests/support/solved_rows.h"

#include <cmath>
#include <cstddef>

namespace normd {
namespace {

using oracle::Wide;

constexpr int64_t kLength = 16;

double F64(Wide v) { return static_cast<double>(v); }

// A number near `rough` that is midway between two f64.
Wide MiddleNear(double rough) {
  const double next = std::nextafter(rough, 10.0);
  return (Wide(rough) + Wide(next)) / 2;
}

Wide PowerOf(double v, int power) { return power == 2 ? Wide(v) * v : Wide(v) * v * v; }

// The largest multiple of `grid` (0: of every f64) whose power is surely not above `rest`, but hardly less.
double Taken(Wide rest, int power, double grid) {
  if (!(rest > 0)) return 0;
  const double root = power == 2 ? std::sqrt(F64(rest)) : std::cbrt(F64(rest));
  return grid == 0 ? root * (1 - 0x1p-49) : std::floor(root * (1 - 0x1p-52) / grid) * grid;
}

// Appends numbers whose powers add up to `rest` until the row has `length`: each takes what the ones before leave.
void TakeRest(Wide rest, int power, double grid, size_t length, std::vector<Wide>* row) {
  while (row->size() < length) {
    const double taken = Taken(rest, power, grid);
    row->push_back(taken);
    rest -= PowerOf(taken, power);
  }
}

double Snapped(double v, double grid) { return std::round(v / grid) * grid; }

// 3/4 and, on either side of it, eight deviations: the mean is exact, and so are their squares.
std::vector<Wide> SolveAboutMean(Random& random) {
  constexpr double kGrid = 0x1p-51;
  const double first = Snapped(random.Uniform(0.5, 1.5), kGrid);
  const Wide d = first / MiddleNear(first / random.Uniform(1.15, 1.25));
  std::vector<Wide> deviations = {first};
  Wide rest = (d * d - Wide(1e-5)) * (kLength / 2) - Wide(first) * first;
  for (int i = 0; i < 2; ++i) {
    const double some = Snapped(random.Uniform(1, 1.5), kGrid);
    deviations.push_back(some);
    rest -= Wide(some) * some;
  }
  TakeRest(rest, 2, kGrid, kLength / 2, &deviations);
  std::vector<Wide> row;
  for (const Wide v : deviations) {
    row.push_back(Wide(0.75) + v);
    row.push_back(Wide(0.75) - v);
  }
  return row;
}

std::vector<Wide> SolveAboutZero(int power, Random& random) {
  const bool is_square = power == 2;
  const double first = random.Uniform(0.5, 1.5);
  const Wide d = first / MiddleNear(first / random.Uniform(2.2, 2.4));
  Wide rest = is_square ? (d * d - Wide(1e-6)) * kLength : d * d * d;
  rest -= PowerOf(first, power);
  std::vector<Wide> row = {first};
  for (int i = 0; i < 8; ++i) {
    const double some = random.Uniform(0.2, 1);
    row.push_back(i % 2 == 0 ? some : -some);
    rest -= PowerOf(some, power);
  }
  TakeRest(rest, power, 0, kLength, &row);
  return row;
}

}  // namespace

std::vector<Wide> SolveRow(RowDivisor by, Random& random) {
  if (by == RowDivisor::kDeviation) return SolveAboutMean(random);
  return SolveAboutZero(by == RowDivisor::kMeanSquare ? 2 : 3, random);
}

}  // namespace normd
