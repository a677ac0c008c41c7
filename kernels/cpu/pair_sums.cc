#include "kernels/cpu/pair_sums.h"

#include <algorithm>

#include "kernels/cpu/pair_tree.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Calls take(chunk, n) for the chunks of group (k0, k1): at most order::kRowChunk elements of one segment.
template <typename Take>
void ForChunks(const Run& run, int64_t k0, int64_t k1, Take take) {
  const NormPlan& plan = run.plan;
  for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
    const int64_t segment = ((k0 * plan.reduce0 + r0) * plan.keep1 + k1) * plan.reduce1;
    for (int64_t at = 0; at < plan.statistic_reduce1; at += order::kRowChunk) {
      take(run.GivenX(segment + at), std::min(order::kRowChunk, plan.statistic_reduce1 - at));
    }
  }
}

// The mean, off by some roundings of f64.
double RoughMean(const Run& run, int64_t k0, int64_t k1) {
  double sum = 0;
  ForChunks(run, k0, k1, [&](const Elements& chunk, int64_t n) {
    PairSums of_chunk;
    ReduceRowChunks({.statistic = Statistic::kMeanVariance}, {.x = chunk, .n = n}, 0, 1, &of_chunk);
    sum += of_chunk.first.hi;
  });
  return sum / static_cast<double>(run.counted);
}

}  // namespace

bool SumsInPairs(const Run& run) {
  const NormPlan& plan = run.plan;
  const bool is_summed = plan.statistic == Statistic::kMeanVariance || plan.statistic == Statistic::kMeanSquare ||
                         plan.statistic == Statistic::kSumSquares || plan.statistic == Statistic::kAbsSum;
  return plan.pattern == Pattern::kRows && is_summed && !plan.given_statistics && !run.wide() &&
         run.job.mask == nullptr;
}

slow_road::SumsAbout SumGroupInPairs(const Run& run, int64_t k0, int64_t k1) {
  const bool centred = run.plan.statistic == Statistic::kMeanVariance;
  slow_road::SumsAbout result;
  PairTree tree(1);
  if (centred) result.shift = RoughMean(run, k0, k1);
  ForChunks(run, k0, k1, [&](const Elements& chunk, int64_t n) {
    double values[order::kRowChunk];
    ConvertToF64(chunk, n, values);
    const Elements wide = {.dtype = DType::kF64, .data = values};
    PairSums of_chunk;
    ReduceRowChunks({.statistic = run.plan.statistic, .shift = result.shift}, {.x = wide, .n = n}, 0, 1, &of_chunk);
    tree.Add(&of_chunk);
  });
  result.sums = tree.Total()[0];
  return result;
}

}  // namespace normd::cpu
