// The sums in pairs of a group of narrow elements in rows, by the vector kernels of f64: the slow road begins with them
// where an element of the group asks for it, and they take as long as two or three passes over the group.
// In the path: nearest_group.cc gives them to the slow road. Pure functions; safe from any thread.
#ifndef NORMD_KERNELS_CPU_PAIR_SUMS_H_
#define NORMD_KERNELS_CPU_PAIR_SUMS_H_

#include <cstdint>

#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {

// True if SumGroupInPairs sums the groups of this run: they are narrow and contiguous but for their segments, and all
// elements count.
bool SumsInPairs(const Run& run);

// The sums of group (k0, k1) about the mean in f64, or about 0 where none is subtracted. REQUIRES: SumsInPairs(run),
// and elements that are finite.
slow_road::SumsAbout SumGroupInPairs(const Run& run, int64_t k0, int64_t k1);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PAIR_SUMS_H_
