// Numbers that many tests need.
#ifndef NORMD_TESTS_SUPPORT_CONSTANTS_H_
#define NORMD_TESTS_SUPPORT_CONSTANTS_H_

#include <cstdint>
#include <limits>

namespace normd {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_CONSTANTS_H_
