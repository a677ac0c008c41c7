// What a backend wrote beside the exact oracle, bit for bit. Pure functions; REQUIRES: inside a GoogleTest test.
#ifndef NORMD_TESTS_SUPPORT_JUDGE_NEAREST_H_
#define NORMD_TESTS_SUPPORT_JUDGE_NEAREST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/plan.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/case.h"
#include "tests/support/nearest.h"
#include "tests/support/run_case.h"

namespace normd {

// "" or the first element of y that is not the nearest value: "element 3: bits 3f800000 instead of 3f800001".
std::string NotNearest(oracle::Type type, const std::string& y, const std::vector<uint64_t>& want);
// The same of MEAN, INV_STD and the moments.
std::string NotNearest(const Case& c, const Outputs& got, const std::vector<oracle::NearestStatistics>& want);

// Whether kernels/README.md promises the nearest value: not for every order of LpNorm.
bool HasNearest(const Case& c, const NormPlan& plan);

// The rows that a backend gets wrong, each with its first wrong element. The rows have a hundred elements at the
// middles, so that a bound that is too small rounds one of them to the wrong side.
std::vector<std::string> WrongRows(Backend& backend, const std::vector<BoundaryRow>& rows);

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_JUDGE_NEAREST_H_
