// Adds elements of tensors to exact sums (kernels/exact_sums/exact_sums.h): along a row, down columns, and of channels
// whose segments lie a sample apart. The sums are the same on every instruction set, and however a tensor is cut into
// calls.
// In the path: run_exact.cc calls them for jobs that want exact sums. Ownership: pointers borrow; any alignment.
// Threads: no state, safe from any thread; threads that share a channel add to sums of their own and merge them.
#ifndef NORMD_KERNELS_CPU_EXACT_SUMS_H_
#define NORMD_KERNELS_CPU_EXACT_SUMS_H_

#include <cstdint>

#include "kernels/base/types.h"
#include "kernels/exact_sums/exact_sums.h"

namespace normd::cpu {

// The elements of one channel: `segments` runs of n elements, `stride` elements apart.
struct RowToSum {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t n = 0;
  int64_t segments = 1;
  int64_t stride = 0;
  // One byte for each element, the segments `mask_stride` apart; elements whose byte is 0 are left out. Null: no mask.
  const uint8_t* mask = nullptr;
  int64_t mask_stride = 0;
};

// Positions of adjacent columns, each column being a channel. Position p begins at element p * stride.
struct ColumnsToSum {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t positions = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  const uint8_t* mask = nullptr;  // one byte for each position
};

// Adds the elements of a row to `sums`, or those of column c to sums[c]. REQUIRES: a dtype of the range of the sums,
// and no more than kMaxSummed elements in any sum.
//
//   NarrowExactSums sums;
//   AddExactly({.dtype = DType::kBF16, .data = x, .n = 4096}, &sums);
void AddExactly(const RowToSum& row, NarrowExactSums* sums);
void AddExactly(const RowToSum& row, WideExactSums* sums);
void AddExactly(const ColumnsToSum& columns, NarrowExactSums* sums);
void AddExactly(const ColumnsToSum& columns, WideExactSums* sums);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_EXACT_SUMS_H_
