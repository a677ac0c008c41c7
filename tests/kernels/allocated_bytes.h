// The bytes that operator new gave out since the program began, freed or not, for tests of what something costs.
// plan_cost_test.cc has the operators that count them. Thread-safe.
//
//   const int64_t before = AllocatedBytes();
//   Work();
//   EXPECT_LE(AllocatedBytes() - before, kMost);
#ifndef NORMD_TESTS_KERNELS_ALLOCATED_BYTES_H_
#define NORMD_TESTS_KERNELS_ALLOCATED_BYTES_H_

#include <cstdint>

namespace normd {

int64_t AllocatedBytes();

}  // namespace normd

#endif  // NORMD_TESTS_KERNELS_ALLOCATED_BYTES_H_
