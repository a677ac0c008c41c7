// Sums in pairs of adjacent columns of f32 in one pass, at little more than the cost of plain sums; a long row is
// summed as columns, too. In the path: pair_sums.cc for rows, column_sums.cc and nearest_tile.cc for columns. Pure
// functions; safe from any thread. Example, the sums of 64 elements at x:
//   PairSums sums[32];
//   if (SumInPairs({.x = x, .positions = 2, .columns = 32, .stride = 32}, sums)) ...fold them...
#ifndef NORMD_KERNELS_CPU_COLUMN_PAIR_SUMS_H_
#define NORMD_KERNELS_CPU_COLUMN_PAIR_SUMS_H_

#include <cstdint>

#include "kernels/group_statistics.h"

namespace normd::cpu {

// Adjacent columns of f32. Borrows them.
struct FloatColumns {
  static constexpr int64_t kMostPositions = 2048;

  const float* x = nullptr;  // any alignment
  int64_t positions = 0;     // at most kMostPositions
  int64_t columns = 0;
  int64_t stride = 0;  // elements from one position to the next
};
// Writes to sums[c] the sums about 0 of column c. False if an element is not finite. A term takes part in 41 additions
// of pairs at most: 16 of a part of a block, 9 of its 8 parts, and 16 blocks.
bool SumInPairs(const FloatColumns& columns, PairSums* sums);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_COLUMN_PAIR_SUMS_H_
