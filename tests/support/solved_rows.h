// Rows of f64 whose first element has its normalised value at a middle between two f64: the last elements of a row are
// solved for the divisor that puts it there. For boundary_rows.cc, which finds rows of shorter types by trying.
#ifndef NORMD_TESTS_SUPPORT_SOLVED_ROWS_H_
#define NORMD_TESTS_SUPPORT_SOLVED_ROWS_H_

#include <cstdint>
#include <vector>

#include "tests/support/random.h"
#include "tests/support/wide.h"

namespace normd {

// What a row is normalised by: LayerNorm's, RMSNorm's and LpNorm's of order 3 with their default eps.
enum class RowDivisor : uint8_t { kDeviation, kMeanSquare, kCubes };

// 16 numbers of f64. The first, normalised, lies within 2^-48 ulp of a middle.
std::vector<oracle::Wide> SolveRow(RowDivisor by, Random& random);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_SOLVED_ROWS_H_
