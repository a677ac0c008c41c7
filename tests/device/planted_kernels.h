// Kernels that test the CPU's CUDA: one that lacks a barrier, its twin that has it, and what they are launched with.
// Used by tests/device alone. Threads: a launch returns when it is done. Ownership: outputs are device memory of the
// caller.
#ifndef NORMD_TESTS_DEVICE_PLANTED_KERNELS_H_
#define NORMD_TESTS_DEVICE_PLANTED_KERNELS_H_

#include <cstdint>

namespace normd {

// Each of `threads` threads puts a number into shared memory and adds up its neighbours' to the left, `rounds` times.
// `barriers`: with both barriers of a round, with the one before reading alone, with the one after alone.
enum class Barriers { kBoth, kBeforeReading, kAfterReading };

// Returns the cudaError_t. REQUIRES: out has blocks * threads elements.
int LaunchNeighbours(Barriers barriers, int blocks, int threads, int rounds, uint32_t* out);

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_PLANTED_KERNELS_H_
