// Tensors whose elements are as hard to round as can be: about a hundred of each lie so near the middle between two
// numbers of T that a bound on the error of a kernel that is a few times too small rounds one of them to the wrong
// side. Made for every kernel form: LayerNorm, RMSNorm, pRMSNorm and LpNorm of order 3 by rows, BatchNorm, GroupNorm
// and InstanceNorm by rows and by columns, with and without a mask, PowerNorm; w alone, b alone, both, neither.
// nearest.h says what is right. A function of the seed alone, on every machine.
#ifndef NORMD_TESTS_SUPPORT_BOUNDARY_ROWS_H_
#define NORMD_TESTS_SUPPORT_BOUNDARY_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/case.h"

namespace normd {

// Example: every element that a backend rounds to the wrong side.
//
//   for (const BoundaryRow& row : BoundaryRows(1)) {
//     const Outputs got = *RunCase(backend, row.c, row.data);
//     const oracle::NearestResult want = oracle::Nearest(OracleSpec(row.c), OracleInput(row.c, row.data));
//     ...compare got.y with want.y bit for bit...
//   }
struct BoundaryRow {
  Case c;
  CaseData data;
  // At least kBoundaryElements elements lie within 2^log2_ulp ulp of a middle: -24 for f32 and for parameters of f32,
  // -40 for f64, and -48 without parameters. -20 for 16-bit types with parameters of their own or without: they leave
  // no choice that is nearer, and arithmetic in f32 errs by 2^-14 ulp of bf16.
  int log2_ulp = -24;

  std::string Name() const { return c.Name() + "/boundary"; }
};

inline constexpr int64_t kBoundaryElements = 80;

// Takes seconds: rows without parameters are found by trying.
std::vector<BoundaryRow> BoundaryRows(uint64_t seed);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_BOUNDARY_ROWS_H_
