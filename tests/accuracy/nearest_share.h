// The share of EXACT's results that are wrongly rounded, which is to be 0: not the number of their type that is nearest
// to the formula, as the exact oracle decides it. The accuracy report prints it and nearest_share_test.cc tests it.
#ifndef NORMD_TESTS_ACCURACY_NEAREST_SHARE_H_
#define NORMD_TESTS_ACCURACY_NEAREST_SHARE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/support/case.h"
#include "tests/support/run_case.h"

namespace normd::accuracy {

struct Share {
  int64_t wrong = 0, of = 0;
  std::string example;  // the case of the first wrong one

  void Add(const Share& other);
};

// What a call returns. Of moments, the mean and M2 count one each.
enum class Returned : uint8_t { kY, kH, kMean, kInverseStd, kMoments };
inline constexpr size_t kReturnedCount = 5;

struct Shares {
  std::array<Share, kReturnedCount> returned;

  Share& operator[](Returned what) { return returned[static_cast<size_t>(what)]; }
  const Share& operator[](Returned what) const { return returned[static_cast<size_t>(what)]; }
  void Add(const Shares& other);
};

// Of one case that ran in EXACT. LpNorm of an order that is bounded counts nothing.
Shares WronglyRounded(const Case& c, const CaseData& data, const Outputs& got);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_NEAREST_SHARE_H_
