// A device that executes plans: the CPU backend (always there) and CUDA. server/batch wraps them, to choose and to
// queue. In the path: the engine makes jobs from plans and submits them; a backend trusts plans and never validates.
// Ownership: a Job borrows everything; the bytes, the layer and the outputs must live until Done has run.
// Threads: every method is safe from any thread.
#ifndef NORMD_KERNELS_BACKEND_H_
#define NORMD_KERNELS_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/moments.h"
#include "kernels/norm.h"
#include "kernels/tensor.h"

namespace normd {

// Affine parameters as they came. Absent views mean w = 1, b = 0.
struct ParameterViews {
  TensorView weight;
  TensorView bias;
  ParameterOrder order = {};  // in which a plan wants their elements: its parameter_order
};

// Parameters converted once for a backend, immutable, shared by the requests that use them. w includes weight_offset.
// Their order is that of the plan they were prepared for: a plan with another parameter_order needs a layer of its own.
struct Layer {
  std::vector<double> weight;  // empty: absent
  std::vector<double> bias;    // empty: absent
  // The same rounded to f32, for FAST.
  std::vector<float> weight32, bias32;
  bool fit_f32 = true;    // each is 0 or a normal number there
  bool equal_f32 = true;  // none had to be rounded

  // What a device keeps of them; its own to fill, under `mu`.
  struct DeviceCopy {
    std::mutex mu;
    int uses = 0;
    std::shared_ptr<const void> copy;
  };
  mutable DeviceCopy device;
};

// What ran a job.
struct Executed {
  Device device = Device::kCpu;
  std::string kernel;      // as Backend::KernelName; "": what the backend's KernelName says
  bool fell_back = false;  // another device was chosen, and lost
};

// Who waits for a job, and where it may run: for backends that choose or queue. Results do not depend on it.
struct Errand {
  Device device = Device::kAuto;
  uint64_t caller = 0;                               // jobs of one caller start in order, callers take turns
  absl::Time deadline = absl::InfiniteFuture();      // of the caller
  const std::function<bool()>* cancelled = nullptr;  // null: never
  Executed* executed = nullptr;                      // null: not wanted; else written before Done
};

// Which of a job's tensors lie in CUDA memory, of `device`.
struct CudaTensors {
  bool x = false, residual = false, y = false, h = false;
  int device = 0;

  bool any() const { return x || residual || y || h; }
};

// One execution of one plan. Which half runs: Reduce unless plan.given_statistics; Apply if y is wanted.
struct Job {
  const NormPlan* plan = nullptr;
  const Layer* layer = nullptr;  // null: no parameters

  const void* x = nullptr;  // plan.dtype, plan.shape
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
  void* h = nullptr;
  void* mean = nullptr;
  void* inverse_std = nullptr;
  Moment* moments = nullptr;

  CudaTensors in_cuda;  // only the CUDA backend takes such jobs
  Errand errand;
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

  // What will run a job of `plan` that may run on `device`, as far as can be said before; FAILED_PRECONDITION
  // (DeviceNotAvailableError) where nothing will. By itself a backend knows no other device than the CPU.
  virtual absl::StatusOr<Executed> Choose(const NormPlan& plan, Device device) const;

  // Whether a job of `plan`, without residual, is best given its x scattered as it is; else it needs an x_buffer.
  virtual bool TakesSegments(const NormPlan& /*plan*/) const { return false; }

  // Job lists of at most so many elements are run by Submit itself, before it returns.
  virtual int64_t inline_elements() const { return 0; }

  // Converts parameters to the wide type, in the order they ask for. `weight_offset` is added to a w that is given; an
  // absent w stays 1. Lengths are not checked here: they are the plan's business (see CheckParameters). REQUIRES: an
  // order, if there is one, has as many elements as each view.
  virtual absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& parameters,
                                                               double weight_offset) const = 0;

  // Runs all jobs, then Done once: inline for small work, otherwise on the backend's own threads. Results do not depend
  // on which jobs travel together.
  virtual void Submit(std::vector<Job> jobs, Done done) = 0;
};

// The positions that a mask leaves in the statistics of a set (null: all of them), and the first of these, 0 if there
// is none.
struct CountedPositions {
  int64_t counted = 0;
  int64_t first = 0;
};
CountedPositions CountPositions(const NormPlan& plan, const uint8_t* mask);

// INVALID_ARGUMENT "parameters.weight" / "parameters.bias" when a length is not plan.parameter_length (both named), or
// a shape is neither flat nor plan.parameter_shape, or the method takes none.
absl::Status CheckParameters(const NormPlan& plan, const ParameterViews& parameters);

// The same for a prepared layer, whose shapes are gone: lengths only.
absl::Status CheckLayer(const NormPlan& plan, const Layer& layer);

}  // namespace normd

#endif  // NORMD_KERNELS_BACKEND_H_
