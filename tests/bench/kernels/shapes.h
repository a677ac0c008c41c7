// Races the list of shapes and holds the worst of each regime against its floor.
#ifndef NORMD_TESTS_BENCH_KERNELS_SHAPES_H_
#define NORMD_TESTS_BENCH_KERNELS_SHAPES_H_

#include <memory>
#include <vector>

#include "tests/bench/kernels/race.h"
#include "tests/bench/report.h"

namespace normd::bench {

// `contestants` as MakeContestants orders them: EXACT, FAST, two copies, then peers.
void MeasureShapes(const std::vector<Workload>& workloads, Buffers* buffers, const RaceOptions& options,
                   const std::vector<std::unique_ptr<Contestant>>& contestants, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_SHAPES_H_
