// The sums in pairs of a group of narrow elements. In rows, and down columns of f32, they take one pass over the group
// that costs little more than plain sums, so that large groups begin with them; for smaller ones the slow road does,
// where an element of the group asks for it.
// In the path: run_rows.cc and column_sums.cc, and nearest_group.cc and nearest_tile.cc for the slow road. Pure
// functions; safe from any thread.
#ifndef NORMD_KERNELS_CPU_PAIR_SUMS_H_
#define NORMD_KERNELS_CPU_PAIR_SUMS_H_

#include <cstdint>
#include <optional>

#include "kernels/cpu/column_pair_sums.h"
#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {

// True if SumGroupInPairs sums the groups of this run: they are narrow and contiguous but for their segments, and all
// elements count.
bool SumsInPairs(const Run& run);

// The sums of group (k0, k1) about the mean in f64, or about 0 where none is subtracted. REQUIRES: SumsInPairs(run),
// and elements that are finite.
slow_road::SumsAbout SumGroupInPairs(const Run& run, int64_t k0, int64_t k1);

// ---- f32, in one pass ----

// Turns the sums of n elements about 0 into sums about the mean. Absent where the mean lies so far from 0 that the
// digits of pairs do not suffice. With q = mean^2 / variance, and terms that took part in K additions of pairs, the sum
// of squares about the mean is off by 2^-104 (3 K + 10) (1 + q): K for the squares, and 2 K for the sum, which the mean
// multiplies. q is at most 3, and K at most 80: 41 of SumInPairs, 6 of the columns that a row is summed as, and 23 of
// 2^31 elements in segments of 256. That is less than the 1,077 additions that SlowGroup::SumWith allows.
std::optional<slow_road::SumsAbout> AboutMean(const PairSums& sums, double n);

// True if SumAllInPairs() sums the groups of this run: f32, in rows or in segments of some length.
bool SumsAllInPairs(const Run& run);
// SumGroupInPairs in one pass, shared among the threads of the pool if `split`. Absent where an element is not finite,
// and where AboutMean() is. REQUIRES: SumsAllInPairs(run).
std::optional<slow_road::SumsAbout> SumAllInPairs(const Run& run, int64_t k0, int64_t k1, bool split);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PAIR_SUMS_H_
