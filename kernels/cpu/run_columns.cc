// The walker of Pattern::kColumns (the innermost extent is kept): tiles of adjacent columns, positions in blocks.
#include <algorithm>
#include <vector>

#include "kernels/cpu/column_tile.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// The number of columns of one task: the sums and statistics of a tile stay in L2 while the rows stream through it.
constexpr int64_t kTileColumns = 1024;

// Runs the tiles of the groups [begin, end) of keep1 for every k0.
void RunTiles(const Run& run, int64_t begin, int64_t end, const PositionScale* pre, int64_t pre_stride) {
  const NormPlan& plan = run.plan;
  const int64_t groups_per_tile = std::max<int64_t>(1, kTileColumns / std::max<int64_t>(1, plan.reduce1));
  const int64_t tiles = order::CeilDiv(end - begin, groups_per_tile);
  const int64_t tasks = plan.keep0 * tiles;
  const int64_t task_elements =
      std::max<int64_t>(1, plan.reduce0 * plan.reduce1 * std::min(end - begin, groups_per_tile));
  const bool split = run.SplitsTasks(tasks, task_elements);
  const auto run_tasks = [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t from = begin + task % tiles * groups_per_tile;
      ColumnTile tile(run, task / tiles, {from, std::min(end, from + groups_per_tile)}, pre, pre_stride);
      tile.Reduce(split);
      tile.Apply(split);
    }
  };
  if (split) {
    run_tasks(0, tasks);
  } else {
    run.pool.ParallelFor(tasks, run.Grain(task_elements), run_tasks);
  }
}

}  // namespace

void RunColumns(const Run& run) { RunTiles(run, 0, run.plan.keep1, nullptr, 1); }

void RunPowerNorm(const Run& run) {
  const NormPlan& plan = run.plan;
  const int64_t groups = plan.power_groups;
  const int64_t group_size = plan.keep1 / groups;
  std::vector<PositionScale> pre(static_cast<size_t>(std::max(groups, plan.reduce0 * groups)));
  run.pool.ParallelFor(plan.reduce0 * groups, run.Grain(group_size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const FinishedStatistics group = ReduceContiguous(run, Statistic::kMeanSquare, i * group_size, group_size);
      const DoublePair& inverse = group.statistics.inverse;
      pre[static_cast<size_t>(i)] = {group.statistics.scale, inverse.hi, inverse.lo};
    }
  });
  for (int64_t g = 0; g < groups; ++g) {
    RunTiles(run, g * group_size, (g + 1) * group_size, pre.data() + g, groups);
  }
}

}  // namespace normd::cpu
