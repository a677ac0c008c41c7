#include "kernels/cpu/pair_sums.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

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

// A row is summed as positions of kRowColumns columns.
constexpr int64_t kRowColumns = 32;
constexpr int64_t kPiece = kRowColumns * FloatColumns::kMostPositions;
// Shorter segments have too few positions.
constexpr int64_t kLeastSegment = 256;
// Of AboutMean().
constexpr double kMostQ = 3;

// The sums about 0 of at most kPiece elements.
bool SumPiece(const Elements& x, int64_t n, PairSums* sum) {
  PairSums sums[kRowColumns + 1] = {};
  const auto* const data = static_cast<const float*>(x.data);
  const int64_t positions = n / kRowColumns;
  const int64_t rest = n - positions * kRowColumns;
  PairSums last[kRowColumns] = {};
  const bool is_finite = SumInPairs({data, positions, kRowColumns, kRowColumns}, sums) &&
                         SumInPairs({data + positions * kRowColumns, 1, rest, rest}, last);
  order::PairwiseFold(last, rest, 1, AddPairs);
  sums[kRowColumns] = last[0];
  order::PairwiseFold(sums, kRowColumns + 1, 1, AddPairs);
  *sum = sums[0];
  return is_finite;
}

}  // namespace

bool SumsInPairs(const Run& run) {
  const NormPlan& plan = run.plan;
  const bool is_summed = plan.statistic == Statistic::kMeanVariance || plan.statistic == Statistic::kMeanSquare ||
                         plan.statistic == Statistic::kSumSquares || plan.statistic == Statistic::kAbsSum;
  return plan.pattern == Pattern::kRows && is_summed && !plan.given_statistics && !run.wide() &&
         run.job.mask == nullptr;
}

std::optional<slow_road::SumsAbout> AboutMean(const PairSums& sums, double n) {
  const double mean = (sums.first.hi + sums.first.lo) / n;
  const DoublePair first = Add(sums.first, Negate(TwoProduct(n, mean)));
  const DoublePair of_mean = Multiply({mean, 0}, Add(sums.first, first));
  const DoublePair second = Add(sums.second, Negate(of_mean));
  if (!(mean * mean * n <= kMostQ * second.hi)) return std::nullopt;
  return slow_road::SumsAbout{mean, {first, second}};
}

bool SumsAllInPairs(const Run& run) {
  return SumsInPairs(run) && run.plan.dtype == DType::kF32 && run.plan.statistic != Statistic::kAbsSum &&
         run.plan.statistic_reduce1 >= kLeastSegment;
}

std::optional<slow_road::SumsAbout> SumAllInPairs(const Run& run, int64_t k0, int64_t k1, bool split) {
  const NormPlan& plan = run.plan;
  const int64_t pieces = order::CeilDiv(plan.statistic_reduce1, kPiece);  // of a segment
  std::vector<PairSums> sums(static_cast<size_t>(plan.reduce0 * pieces));
  std::atomic<bool> is_finite = true;
  const auto sum = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && is_finite.load(std::memory_order_relaxed); ++i) {
      const int64_t at = i % pieces * kPiece;
      const Elements x = run.GivenX(run.IndexOf(k0, i / pieces, k1, at));
      const int64_t n = std::min(kPiece, plan.statistic_reduce1 - at);
      if (!SumPiece(x, n, &sums[static_cast<size_t>(i)])) is_finite.store(false, std::memory_order_relaxed);
    }
  };
  const auto count = static_cast<int64_t>(sums.size());
  if (split) {
    run.pool.ParallelFor(count, run.Grain(std::min(kPiece, plan.statistic_reduce1)), sum);
  } else {
    sum(0, count);
  }
  if (!is_finite.load(std::memory_order_relaxed)) return std::nullopt;
  order::PairwiseFold(sums.data(), count, 1, AddPairs);
  if (plan.statistic != Statistic::kMeanVariance) return slow_road::SumsAbout{0, sums[0]};
  return AboutMean(sums[0], static_cast<double>(run.counted));
}

slow_road::SumsAbout SumGroupInPairs(const Run& run, int64_t k0, int64_t k1) {
  if (SumsAllInPairs(run)) {
    if (const auto sums = SumAllInPairs(run, k0, k1, false); sums.has_value()) return *sums;
  }
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
