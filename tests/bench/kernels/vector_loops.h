// Loops of vector instructions, the best of the machine: what a copy costs, and what a division and a root do.
#ifndef NORMD_TESTS_BENCH_KERNELS_VECTOR_LOOPS_H_
#define NORMD_TESTS_BENCH_KERNELS_VECTOR_LOOPS_H_

#include <cstddef>
#include <cstdint>

namespace normd::bench {

// REQUIRES: y aligned to 64.
void CopyVectors(const std::byte* x, int64_t bytes, std::byte* y);
// With stores that go past the caches. REQUIRES: y aligned to 64.
void CopyVectorsNonTemporal(const std::byte* x, int64_t bytes, std::byte* y);

enum class Elementwise : uint8_t {
  kDivide,          // x / 3
  kReciprocalRoot,  // 1 / sqrt(x): a root and a division
  kEstimatedRoot,   // an estimate of 1 / sqrt(x) and one Newton step
};
// REQUIRES: count a multiple of 64.
void Compute(Elementwise what, const float* x, int64_t count, float* y);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_VECTOR_LOOPS_H_
