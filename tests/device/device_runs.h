// What the tests of the emulated CUDA backend share: the devices that are emulated and a backend on one, beside the
// runs of cases that they share with the tests of a real device. Includes the CPU's CUDA, never the toolkit's.
// REQUIRES: inside a GoogleTest test.
#ifndef NORMD_TESTS_DEVICE_DEVICE_RUNS_H_
#define NORMD_TESTS_DEVICE_DEVICE_RUNS_H_

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/case_runs.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

namespace normd {

inline constexpr cuda_on_cpu::Device kSm80 = {.major = 8, .minor = 0, .shared_optin_bytes = 163 * 1024};
inline constexpr cuda_on_cpu::Device kSm89 = {.major = 8, .minor = 9, .shared_optin_bytes = 99 * 1024};
inline constexpr cuda_on_cpu::Device kSm90 = {};

inline std::unique_ptr<Backend> EmulatedCudaBackend(const CudaBackendOptions& options = {.streams = 1}) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_DEVICE_RUNS_H_
