// The fixed order of every sum: a function of a plan's extents and of nothing else, so that bits do not depend on
// threads, batching, instruction set or device.
// In the path: the reduce pass of every backend includes this file, and no other file states an order.
// Standard headers only, because device code includes this file. Constants and pure functions.
//
// Rows: a statistics group is a list of contiguous segments of equal length. A segment is cut into chunks of kRowChunk
// elements; of segments that are at most half as long, a chunk has several whole ones (ChunkSegments).
// In a chunk, element i of a segment is added to partial sum i % kPartials (FAST: kFastPartials), segment by segment in
// rising i; the partial sums are then folded by halves (p[i] += p[i + width / 2]). The chunks of the group, numbered
// through its segments, are folded pairwise by index.
//
// Columns: the positions are cut into blocks of kColumnBlock, each summed in rising position, and the blocks are folded
// pairwise by index. Where one group has several columns (channels-last groups), its columns are then folded pairwise
// by index.
#ifndef NORMD_KERNELS_SUMMATION_ORDER_H_
#define NORMD_KERNELS_SUMMATION_ORDER_H_

#include <bit>
#include <cstdint>

namespace normd::order {

inline constexpr int64_t kRowChunk = 1024;  // elements
inline constexpr int64_t kPartials = 32;    // interleaved f64 partial sums
// FAST has kFastPartials interleaved f32 partial sums in a chunk, and folds the chunks in f64. A partial sum first adds
// its elements of each step in rising order, then adds the steps in rising order. A step is kFastRowStep elements, or
// what is left of a segment; of shorter segments it is several whole ones (StepSegments). So a partial sum adds at most
// four elements in a step and at most six steps, however short segments are.
inline constexpr int64_t kFastPartials = 64;
inline constexpr int64_t kFastRowStep = 256;  // elements
inline constexpr int64_t kColumnBlock = 32;   // positions
// FAST sums this many counted positions of a block, in rising order, in f32: those in even and those in odd places
// separately. The two sums are then added in f64.
inline constexpr int64_t kFastColumnRun = 8;
// FAST takes the mean of the first positions, of this many, as the shift of a column. A sample mean that is off by more
// than FAST allows (kFastGuard, one deviation) is over 5 of its own standard deviations away.
inline constexpr int64_t kFastColumnSample = 32;

// a / b, rounded up. REQUIRES: a >= 0, b > 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// The number of segments of `length` elements in which each of kFastPartials partial sums takes at most `rounds`
// elements; at least 1.
constexpr int64_t SegmentsWithin(int64_t rounds, int64_t length) {
  const int64_t of_segment = CeilDiv(length, kFastPartials);
  return of_segment > 0 && of_segment < rounds ? rounds / of_segment : 1;
}
// The number of segments of a chunk, and of a step of FAST: 1 where they are not short.
constexpr int64_t ChunkSegments(int64_t length) { return SegmentsWithin(kRowChunk / kFastPartials, length); }
constexpr int64_t StepSegments(int64_t length) { return SegmentsWithin(kFastRowStep / kFastPartials, length); }
// The number of chunks of one row of `length` elements, and of a group of `segments` such segments.
constexpr int64_t RowChunks(int64_t length) { return CeilDiv(length, kRowChunk); }
constexpr int64_t GroupChunks(int64_t segments, int64_t length) {
  return CeilDiv(segments, ChunkSegments(length)) * RowChunks(length);
}
constexpr int64_t ColumnBlocks(int64_t positions) { return CeilDiv(positions, kColumnBlock); }

// The elements of one chunk of a group: [at, at + length) of each of the segments [segment, segment + segments).
struct Chunk {
  int64_t segment = 0, segments = 1;
  int64_t at = 0, length = 0;
};
// Chunk `index` of a group of `segments` segments of `length` elements. REQUIRES: 0 <= index < GroupChunks.
constexpr Chunk ChunkAt(int64_t segments, int64_t length, int64_t index) {
  const int64_t whole = ChunkSegments(length);
  if (whole > 1) {
    const int64_t first = index * whole;
    return {first, segments - first < whole ? segments - first : whole, 0, length};
  }
  const int64_t of_segment = RowChunks(length);
  const int64_t at = index % of_segment * kRowChunk;
  return {index / of_segment, 1, at, length - at < kRowChunk ? length - at : kRowChunk};
}

// The chunk after `chunk`, without the divisions of ChunkAt. REQUIRES: there is one.
constexpr Chunk ChunkAfter(Chunk chunk, int64_t segments, int64_t length) {
  if (chunk.at + chunk.length < length) {
    chunk.at += kRowChunk;
  } else {
    chunk.at = 0;
    chunk.segment += chunk.segments;
    if (chunk.segments > segments - chunk.segment) chunk.segments = segments - chunk.segment;
  }
  chunk.length = length - chunk.at < kRowChunk ? length - chunk.at : kRowChunk;
  return chunk;
}

// Folds the n items items[0], items[stride], ... pairwise by index into items[0]: level by level, item 2i with item 2i
// + 1, and an odd last item is carried up. `add(a, b)` makes a hold a + b. Does nothing for n = 0.
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

// The same tree for items that come one after the other, of which only those are kept that wait for a later one: after
// item `index`, the last two that are kept are folded into one, as often as this says. After the last item they are
// folded, the last two first, until one is left.
constexpr int FoldsAfter(int64_t index) { return std::countr_one(static_cast<uint64_t>(index)); }

}  // namespace normd::order

#endif  // NORMD_KERNELS_SUMMATION_ORDER_H_
