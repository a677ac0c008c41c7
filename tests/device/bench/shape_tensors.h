// The tensors of one shape on the device, and what is launched on them: FAST, EXACT and two copies of the same bytes.
// Threads: one. Ownership: destructors free what was taken; the shape and the stream outlive the tensors.
#ifndef NORMD_TESTS_DEVICE_BENCH_SHAPE_TENSORS_H_
#define NORMD_TESTS_DEVICE_BENCH_SHAPE_TENSORS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "kernels/cuda/arena.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/run.h"
#include "tests/device/bench/device.h"
#include "tests/device/bench/shapes.h"

namespace normd::bench {

enum Candidate { kExact, kFast, kRuntimeCopy, kOwnCopy, kCandidates };

// kCold: launches take turns over so many sets of inputs and outputs that none is in the L2 cache when it comes round
// again. kWarm: all launches use one set, which stays in the cache.
enum class CacheState { kCold, kWarm };

inline constexpr int kLeastLaunches = 20;  // of a graph

class ShapeTensors {
 public:
  ShapeTensors(const GpuFacts& gpu, const GpuShape& shape, CacheState cache, cudaStream_t stream);

  // Whether the device has room for cold tensors.
  static bool HasRoom(const GpuFacts& gpu, const GpuShape& shape);
  // Whether warm tensors are possible: half the cache holds them. It has two halves, each of which may keep a copy.
  static bool FitsCache(const GpuFacts& gpu, const GpuShape& shape);

  int64_t sets() const { return sets_; }
  // The launches of a graph that has at least so many and uses every set.
  int LaunchesOf(int least) const;
  // Runs the candidate twice and captures it.
  std::unique_ptr<GpuGraph> Capture(int candidate, int launches);

 private:
  void Launch(int candidate, int64_t i);
  cuda::DeviceJob JobOn(char* in, char* out) const;

  const GpuShape& shape_;
  const cuda::DeviceLimits limits_;
  const cudaStream_t stream_;
  const int64_t bytes_, sets_;  // bytes of the inputs, or outputs, of a set
  GpuMemory in_, out_, parameters_, parameters32_, moments_, left_;
  cuda::Arena arena_;
  NormPlan plan_;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_SHAPE_TENSORS_H_
