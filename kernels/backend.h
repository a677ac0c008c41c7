// The contract between normd and a compute device: Job is one execution of one plan, Backend runs lists of jobs. The
// CPU backend (kernels/cpu) is always there; the CUDA backend (kernels/cuda) is there where the build and the machine
// have a device.
// In the path: the engine makes jobs from plans and tensors, server/schedule chooses a backend and queues for it, the
// backend computes. A backend trusts plans and jobs and validates neither.
// Ownership: a Job owns nothing. The plan, the parameters, the inputs and the outputs must stay alive and unmoved until
// Done has run.
// Threads: every method of a Backend is safe from any thread.
#ifndef NORMD_KERNELS_BACKEND_H_
#define NORMD_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/moments.h"
#include "kernels/parameters.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"

namespace normd {

class GroupSums;

// One execution of one plan: what to read, what to write, where it lies. The two passes over x run as follows:
//   - The reduce pass, which computes the statistics of each group, runs unless plan->given_statistics.
//   - The apply pass, which computes y from x and the statistics, runs if `y` is not null.
// Training with a session and inference from batch statistics are one job with both passes. BatchNorm inference is the
// apply pass alone, with `given_mean` and `given_variance`. ComputeMoments is the reduce pass alone, with `moments` and
// without `y`. A PowerNorm training step is two jobs, because the divisor is known only after the commit: a reduce pass
// that writes `moments`, then an apply pass with `given_variance`.
//
// A field that is null or empty is not used. Tensors are dense and row-major; host tensors may have any alignment.
// Shapes: x, residual, h and y have plan->shape; x, h and y have plan->dtype.
struct Job {
  const NormPlan* plan = nullptr;
  const PreparedParameters* parameters = nullptr;  // of this backend, by Prepare; null: w = 1, b = 0

  const void* x = nullptr;  // contiguous input; null where `x_segments` is used
  MemorySpace x_space = {};
  // Alternative to `x` for scattered input, the pieces in order; `x` is null then. If `x_buffer` is not null, the
  // backend first copies the pieces into `x_buffer`, which has the size of x and holds x afterwards. `x_buffer` may be
  // null only if AcceptsScattered(*plan) and there is no residual.
  absl::Span<const Segment> x_segments = {};
  void* x_buffer = nullptr;
  // If `residual` is present, h = x + residual_scale * residual is normalised instead of x. The residual may have any
  // dtype, and is contiguous.
  TensorView residual;
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  // One byte for each position, which is an index over all axes but the channel axis, in memory order; non-zero: the
  // position enters the statistics. Null: all positions do. The mask does not limit which elements are normalised. Host
  // memory, as everything below but y and h.
  const uint8_t* mask = nullptr;

  // Used if plan->given_statistics: keep1 values each, f64. The divisor is made from `given_variance` and eps. A null
  // `given_mean` subtracts nothing: PowerNorm, whose `given_variance` is phi, or the mean squares of the training step.
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;

  // Outputs, null where not wanted. y may be x (in place); other outputs overlap nothing. `h` is written only if there
  // is a residual. `mean` and `inverse_std` (1 / D) hold StatisticsGroups() values of plan->StatisticsDType(), in the
  // order of the kept axes, and so do the elements of `moments`, which is not written if plan->given_statistics.
  void* y = nullptr;
  MemorySpace y_space = {};
  void* h = nullptr;
  MemorySpace h_space = {};
  void* mean = nullptr;
  void* inverse_std = nullptr;
  Moment* moments = nullptr;
  // The smallest and the largest element of each group that counts and is no NaN, with the moments; NaN where there is
  // none. Of elements that are kept wide, to the nearest f64. Both or neither. REQUIRES: plan->counts_samples.
  double* min = nullptr;
  double* max = nullptr;
  // The exact sums of each group, with the moments, which are then the nearest to them. The backend sets all of it;
  // the slots need not exist. NaN that is no sample is left out. REQUIRES: plan->exact_sums, moments, no residual, and
  // no other output but min and max.
  GroupSums* exact = nullptr;

  // The one device memory that tensors of this job lie in, or the host's if all of them lie there. REQUIRES: the
  // tensors of a job lie on the host and in the memory of at most one device.
  MemorySpace space() const {
    for (const MemorySpace& space : {x_space, residual.space, y_space, h_space}) {
      if (!space.is_host()) return space;
    }
    return {};
  }
  // True if host code may dereference every pointer of the job.
  bool on_host() const { return space().is_host(); }
};

// A compute device: kernels/cpu/backend.h and kernels/cuda/backend.h make the two that ship.
class Backend {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~Backend() = default;

  // The kind of device: "cpu", "cuda".
  virtual std::string_view name() const = 0;
  // The kernel family that executes `plan`, as replies name it: "cpu/avx3/rows".
  virtual std::string KernelName(const NormPlan& plan) const = 0;
  // False if Submit cannot run jobs of `plan`. The backends that ship support every plan.
  virtual bool Supports(const NormPlan& plan) const = 0;

  // The device memory in which x, residual, y and h of a job may lie besides the host's. The default is the host's: no
  // other memory.
  virtual MemorySpace memory_space() const { return {}; }

  // True if jobs of `plan` without a residual should leave x scattered and pass no `x_buffer`. False: such jobs must
  // bring an `x_buffer`.
  virtual bool AcceptsScattered(const NormPlan& /*plan*/) const { return false; }

  // Submit runs job lists of up to this much work (the sum of NormPlan::Work()) itself, before it returns. 0: never.
  virtual int64_t inline_elements() const { return 0; }

  // Prepares parameters for jobs of this backend, which share the result. Cheap: a backend that copies parameters to a
  // device makes the copy when they are used again, not here. `parameters` must not be null and is kept alive by the
  // result.
  virtual std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const = 0;

  // Runs all jobs, then calls `done` exactly once: before it returns, for work of up to inline_elements() and for
  // errors that are found at once, else on a thread of the backend. `done` must not block. The status is OK, or the
  // first error; the outputs are then undefined. FAILED_PRECONDITION: tensors lie in memory that this backend cannot
  // read. RESOURCE_EXHAUSTED: the jobs do not fit in the device's memory, or their scratch in the host's. UNAVAILABLE:
  // the device is lost, for good.
  // Results do not depend on which jobs share a list.
  virtual void Submit(std::vector<Job> jobs, Done done) = 0;
};

// How many positions enter the statistics of a group under a mask, and the first of them (0 if there are none). Without
// a mask all elements of the group's statistic count.
struct CountedPositions {
  int64_t counted = 0;
  int64_t first = 0;
};
// `mask` is as in Job. The cost is in proportion to the mask.
CountedPositions CountPositions(const NormPlan& plan, const uint8_t* mask);

}  // namespace normd

#endif  // NORMD_KERNELS_BACKEND_H_
