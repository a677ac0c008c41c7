// Walks a plan whose statistics groups are summed exactly. No order of the sums is in the result, so groups, and parts
// of groups, go to whichever thread is free.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/nearest_channels.h"
#include "kernels/cpu/run.h"
#include "kernels/exact_sums/group_sums.h"
#include "kernels/exact_sums/nearest_moments.h"

namespace normd::cpu {
namespace {

// Adjacent groups that are summed together. Columns are the faster the more of them there are; the sums of so many f64
// columns are 200 KiB.
constexpr int64_t kBlockGroups = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The groups [begin, end) of those of k0.
struct GroupBlock {
  int64_t k0 = 0, begin = 0, end = 0;
};

// How the work is cut: into blocks of groups, and each of these into parts of the extent that is split.
class Cut {
 public:
  explicit Cut(const Run& run)
      : plan_(run.plan), blocks_per_k0_(CeilDiv(plan_.keep1, kBlockGroups)), blocks_(plan_.keep0 * blocks_per_k0_) {
    const int64_t threads = run.pool.threads();
    const int64_t elements = plan_.SetSize() * std::min(plan_.keep1, kBlockGroups);
    if (blocks_ >= 2 * threads) return;  // which are enough to do
    parts_ = std::max<int64_t>(1, std::min({2 * threads, CeilDiv(elements, run.Grain(1)), extent()}));
  }

  int64_t blocks() const { return blocks_; }
  int64_t parts() const { return parts_; }
  GroupBlock Block(int64_t i) const {
    const int64_t begin = i % blocks_per_k0_ * kBlockGroups;
    return {i / blocks_per_k0_, begin, std::min(plan_.keep1, begin + kBlockGroups)};
  }
  int64_t PartBegin(int64_t part) const { return extent() * part / parts_; }
  bool splits_rows() const { return plan_.reduce0 == 1; }

 private:
  // Of the elements of a row where a group is one row, else of its segments or positions.
  int64_t extent() const { return splits_rows() ? plan_.statistic_reduce1 : plan_.reduce0; }

  const NormPlan& plan_;
  const int64_t blocks_per_k0_, blocks_;
  int64_t parts_ = 1;
};

// Adds elements [begin, end) of the extent that is split, of each group of the block, to sums[group - block.begin].
template <typename Sums>
void AddBlock(const Run& run, const GroupBlock& block, bool splits_rows, int64_t begin, int64_t end, Sums* sums) {
  const NormPlan& plan = run.plan;
  const uint8_t* const mask = run.job.mask;
  if (plan.reduce1 == 1 && !splits_rows) {
    const Elements x = run.X(run.IndexOf(block.k0, begin, block.begin, 0));
    return AddExactly(ColumnsToSum{.dtype = x.dtype,
                                   .data = x.data,
                                   .positions = end - begin,
                                   .columns = block.end - block.begin,
                                   .stride = plan.keep1,
                                   .mask = mask == nullptr ? nullptr : mask + begin},
                      sums);
  }
  const int64_t r0 = splits_rows ? 0 : begin;
  const int64_t r1 = splits_rows ? begin : 0;
  for (int64_t k1 = block.begin; k1 < block.end; ++k1) {
    const Elements x = run.X(run.IndexOf(block.k0, r0, k1, r1));
    AddExactly(RowToSum{.dtype = x.dtype,
                        .data = x.data,
                        .n = splits_rows ? end - begin : plan.statistic_reduce1,
                        .segments = splits_rows ? 1 : end - begin,
                        .stride = plan.keep1 * plan.reduce1,
                        .mask = mask == nullptr ? nullptr : mask + r0 * plan.reduce1 + r1,
                        .mask_stride = plan.reduce1},
               sums + (k1 - block.begin));
  }
}

// The sums of a block of which several threads add parts.
template <typename Sums>
struct SharedBlock {
  std::mutex mu;
  std::vector<Sums> sums;
  int64_t added = 0;

  // Adds a part. True for the last one, after which `sums` are those of the block.
  bool Add(const std::vector<Sums>& part, int64_t parts) {
    const std::lock_guard<std::mutex> lock(mu);
    if (sums.empty()) sums.resize(part.size());
    // A tensor has fewer than 2^53 elements.
    for (size_t i = 0; i < part.size(); ++i) (void)sums[i].Merge(part[i]);
    return ++added == parts;
  }
};

template <typename Sums>
Moment NearestOf(Statistic statistic, const Sums& sums) {
  return statistic == Statistic::kMeanVariance ? NearestMoment(sums) : NearestMomentAboutZero(sums.Totals());
}

// Writes the sums of a block, where `all` are those of all groups, and their moments.
template <typename Sums>
void StoreBlock(const Run& run, const GroupBlock& block, std::vector<Sums>& sums, Sums* all) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t channel = block.begin + static_cast<int64_t>(i);
    if (run.plan.skips_nan && sums[i].non_finite().nan) {
      sums[i] = Sums();
      AddWithoutNan(run, channel, &sums[i]);
    }
    const int64_t group = block.k0 * run.plan.keep1 + channel;
    run.job.moments[group] = NearestOf(run.plan.statistic, sums[i]);
    all[group] = sums[i];
  }
}

template <typename Sums>
void SumAll(const Run& run, Sums* all) {
  const Cut cut(run);
  std::vector<SharedBlock<Sums>> shared(static_cast<size_t>(cut.parts() == 1 ? 0 : cut.blocks()));
  run.pool.ParallelFor(cut.blocks() * cut.parts(), 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t at = task / cut.parts();
      const int64_t part = task % cut.parts();
      const GroupBlock block = cut.Block(at);
      std::vector<Sums> sums(static_cast<size_t>(block.end - block.begin));
      AddBlock(run, block, cut.splits_rows(), cut.PartBegin(part), cut.PartBegin(part + 1), sums.data());
      if (cut.parts() == 1) {
        StoreBlock(run, block, sums, all);
        continue;
      }
      SharedBlock<Sums>& block_sums = shared[static_cast<size_t>(at)];
      if (block_sums.Add(sums, cut.parts())) StoreBlock(run, block, block_sums.sums, all);
    }
  });
}

// Whether the elements of a job may be applied with moments that are known. The walkers that take them leave other jobs
// to the usual way, too, but these are not worth the divisors of the channels.
bool TakesKnownChannels(const Job& job) {
  const NormPlan& plan = *job.plan;
  return plan.statistic == Statistic::kMeanVariance && plan.keep0 == 1 && plan.dtype != DType::kF64 &&
         plan.permutation.empty() && plan.cast_order == CastOrder::kAffineThenCast && !plan.skips_nan &&
         job.y != nullptr && job.mean == nullptr && job.inverse_std == nullptr && job.mask == nullptr &&
         !job.residual.present();
}

}  // namespace

void SumExactly(const Run& run) {
  GroupSums& exact = *run.job.exact;
  exact = GroupSums(run.x.dtype, static_cast<size_t>(run.plan.StatisticsGroups()));
  exact.is_wide() ? SumAll(run, exact.wide().data()) : SumAll(run, exact.narrow().data());
}

bool SumsMomentsExactly(const Job& job) {
  // Of the sums of all groups, which may be far larger than x. No request sets them aside.
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  const NormPlan& plan = *job.plan;
  const bool has_squares = plan.statistic == Statistic::kMeanVariance || plan.statistic == Statistic::kMeanSquare ||
                           plan.statistic == Statistic::kSumSquares;
  const bool keeps_wide = job.residual.present() && job.residual_rounding == ResidualRounding::kKeepWide;
  const bool is_plain =
      plan.power_groups == 0 && !plan.given_statistics && !keeps_wide && (job.x != nullptr || job.x_buffer != nullptr);
  const auto bytes = static_cast<int64_t>(plan.dtype == DType::kF64 ? sizeof(WideExactSums) : sizeof(NarrowExactSums));
  return job.moments != nullptr && job.exact == nullptr && has_squares && is_plain && GivesNearest(job) &&
         plan.StatisticsGroups() <= kMostBytes / bytes && CountPositions(plan, job.mask).counted > 0;
}

void RunWithExactMoments(const Job& job, WorkerPool& pool, int64_t grain_elements, const CpuBackendOptions& options) {
  const NormPlan& plan = *job.plan;
  GroupSums sums;
  Job moments = job;  // before y, which may be x
  moments.y = moments.h = moments.mean = moments.inverse_std = nullptr;
  moments.exact = &sums;
  RunJob(moments, pool, grain_elements, options);
  Job rest = job;
  rest.moments = nullptr;
  rest.min = rest.max = nullptr;
  if (job.x_buffer != nullptr) {
    rest.x = job.x_buffer;  // which holds x by now
    rest.x_buffer = nullptr;
    rest.x_segments = {};
  }
  if (rest.y == nullptr && rest.mean == nullptr && rest.inverse_std == nullptr) return;
  std::optional<KnownChannels> known;
  if (TakesKnownChannels(rest)) {
    known = ChannelsOfMoments(RuleOf(plan), {job.moments, static_cast<size_t>(plan.StatisticsGroups())});
  }
  RunJob(rest, pool, grain_elements, options, known.has_value() ? &*known : nullptr);
}

}  // namespace normd::cpu
