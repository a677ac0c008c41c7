// A device that executes plans: the CPU backend (always there) and CUDA. server/schedule chooses between them and
// queues. In the path: the engine makes jobs from plans and submits them; a backend trusts plans and never validates.
// Ownership: a Job borrows everything; the bytes, the parameters and the outputs must live until Done has run.
// Threads: every method is safe from any thread.
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

// One execution of one plan. Which half runs: Reduce unless plan.given_statistics; Apply if y is wanted.
struct Job {
  const NormPlan* plan = nullptr;
  const PreparedParameters* parameters = nullptr;  // null: none

  const void* x = nullptr;  // plan.dtype, plan.shape
  MemorySpace x_space = {};
  // Or x scattered; x is null then. Backends that do not take it so put it together in x_buffer, which has its size.
  absl::Span<const Segment> x_segments = {};
  void* x_buffer = nullptr;
  TensorView residual;  // absent, or the shape of x in any dtype
  double residual_scale = 1;
  ResidualRounding residual_rounding = ResidualRounding::kRoundFirst;
  const uint8_t* mask = nullptr;  // one byte a position, non-zero counts; null: all count

  // plan.given_statistics: one per channel. PowerNorm: given_variance is phi (or the step's own v) and given_mean null.
  const double* given_mean = nullptr;
  const double* given_variance = nullptr;

  // Outputs, null where not wanted. y and h have x's dtype and shape. mean and inverse_std hold Sets() values of
  // plan.StatisticsDType(). moments holds Sets() values (nullptr: not wanted); when the plan gives the statistics it is
  // not written.
  void* y = nullptr;
  MemorySpace y_space = {};
  void* h = nullptr;
  MemorySpace h_space = {};
  void* mean = nullptr;
  void* inverse_std = nullptr;
  Moment* moments = nullptr;

  // The memory besides the host's that tensors of the job lie in, which is one device's at most; the host's: all do.
  MemorySpace space() const {
    for (const MemorySpace& space : {x_space, residual.space, y_space, h_space}) {
      if (!space.is_host()) return space;
    }
    return {};
  }
  // Whether the host may follow every address.
  bool on_host() const { return space().is_host(); }
};

class Backend {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~Backend() = default;

  // "cpu"
  virtual std::string_view name() const = 0;
  // What executes `plan`, as replies name it: "cpu/avx3/rows".
  virtual std::string KernelName(const NormPlan& plan) const = 0;
  virtual bool Supports(const NormPlan& plan) const = 0;

  // The memory besides the host's that x, residual, y and h of a job may lie in.
  virtual MemorySpace memory_space() const { return {}; }

  // Whether a job of `plan`, without residual, is best given its x scattered as it is; else it needs an x_buffer.
  virtual bool AcceptsScattered(const NormPlan& /*plan*/) const { return false; }

  // Job lists of at most so many elements are run by Submit itself, before it returns.
  virtual int64_t inline_elements() const { return 0; }

  // The parameters as this backend keeps them. Cheap: a copy in a device's memory is made when it first pays.
  virtual std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const = 0;

  // Runs all jobs, then Done once: inline for small work, otherwise on the backend's own threads. Results do not depend
  // on which jobs travel together.
  virtual void Submit(std::vector<Job> jobs, Done done) = 0;
};

// The positions that a mask leaves in the statistics of a group (null: all of them), and the first of these, 0 if there
// is none.
struct CountedPositions {
  int64_t counted = 0;
  int64_t first = 0;
};
CountedPositions CountPositions(const NormPlan& plan, const uint8_t* mask);

}  // namespace normd

#endif  // NORMD_KERNELS_BACKEND_H_
