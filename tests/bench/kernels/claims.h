// What is said of these operations, measured: cost in proportion to bytes, what a second thread brings, and the time of
// one operation beside another's on the same bytes.
#ifndef NORMD_TESTS_BENCH_KERNELS_CLAIMS_H_
#define NORMD_TESTS_BENCH_KERNELS_CLAIMS_H_

#include <cstdint>

#include "tests/bench/kernels/race.h"
#include "tests/bench/report.h"

namespace normd::bench {

// The bytes of x and y that the functions below need when the largest of the first is `largest_bytes`.
int64_t ClaimBytes(int64_t largest_bytes);

// ns/KiB of RMSNorm over rows of 1024 f32 and of copies, from 8 KiB of x + y (one row) to `largest_bytes`, all cores.
void MeasureLinearity(int64_t largest_bytes, Buffers* buffers, const RaceOptions& options, Report* report);

// Two threads against one where neither waits for DRAM.
void MeasureThreads(Buffers* buffers, const RaceOptions& options, Report* report);

// RMSNorm beside LayerNorm, pRMSNorm and ScaleNorm beside RMSNorm, BatchNorm beside both; one thread.
void MeasureOperations(Buffers* buffers, const RaceOptions& options, Report* report);

// A reciprocal square root beside a division, in L1.
void MeasureRoots(Buffers* buffers, const RaceOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_CLAIMS_H_
