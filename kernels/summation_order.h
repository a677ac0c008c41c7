// The fixed order of every sum: a function of a plan's extents and of nothing else, so that bits do not depend on
// threads, batching, instruction set or device. Every backend includes this file and no other states an order.
// Standard headers only: device code reads it, too.
//
// Rows: a statistics group is a list of contiguous segments, each cut into chunks of kRowChunk elements. In a chunk
// element i goes to partial i % kPartials (FAST: kFastPartials), in rising i; the partials are folded by halves (p[i]
// += p[i + width / 2]). The chunks of the group, numbered through its segments, are folded pairwise by index. Columns:
// positions are cut into blocks of kColumnBlock, summed in rising position; blocks are folded pairwise by index; where
// one group owns several columns (channels-last groups) its columns are then folded pairwise by index.
#ifndef NORMD_KERNELS_SUMMATION_ORDER_H_
#define NORMD_KERNELS_SUMMATION_ORDER_H_

#include <cstdint>

namespace normd::order {

inline constexpr int64_t kRowChunk = 4096;  // elements
inline constexpr int64_t kPartials = 32;    // interleaved f64 partial sums
// FAST: interleaved f32 partial sums of runs within a chunk; the folded runs are added pairwise by index in f64. A
// partial sums the elements of a step in rising order, then the steps in theirs, so that seven additions follow each
// other at most.
inline constexpr int64_t kFastPartials = 64;
inline constexpr int64_t kFastRowStep = 256;  // elements
inline constexpr int64_t kFastRowRun = 1024;  // elements
inline constexpr int64_t kColumnBlock = 128;  // positions
// FAST: positions of a block that are counted, in rising order; so many are summed in f32, those in even and in odd
// places apart, then added in f64.
inline constexpr int64_t kFastColumnRun = 8;
// FAST: the first so many positions say where the sums of columns begin. A mean that far off is 5 deviations away.
inline constexpr int64_t kFastColumnSample = 32;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

constexpr int64_t RowChunks(int64_t segment_length) { return CeilDiv(segment_length, kRowChunk); }
constexpr int64_t ColumnBlocks(int64_t positions) { return CeilDiv(positions, kColumnBlock); }

// Folds items[0], items[stride], ... (n of them) pairwise by index into items[0]: level by level, item 2i with item
// 2i + 1, an odd last one carried up. `add(a, b)` makes a hold a + b. n = 0 does nothing.
template <typename T, typename Add>
constexpr void PairwiseFold(T* items, int64_t n, int64_t stride, Add add) {
  while (n > 1) {
    const int64_t pairs = n / 2;
    for (int64_t i = 0; i < pairs; ++i) {
      items[i * stride] = items[2 * i * stride];
      add(items[i * stride], items[(2 * i + 1) * stride]);
    }
    if (n % 2 != 0) items[pairs * stride] = items[(n - 1) * stride];
    n = pairs + n % 2;
  }
}

}  // namespace normd::order

#endif  // NORMD_KERNELS_SUMMATION_ORDER_H_
