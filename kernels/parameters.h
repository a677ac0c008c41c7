// Affine parameters on their way to a kernel: as they came (ParameterViews), converted to the wide types
// (HostParameters), and as one backend keeps them (PreparedParameters).
// In the path: the engine converts what a request or a session brings and lets the backend prepare it; a Job borrows
// the result. All of them are immutable once made, and shared by the calls that use them: safe from any thread.
#ifndef NORMD_KERNELS_PARAMETERS_H_
#define NORMD_KERNELS_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/plan.h"
#include "kernels/tensor.h"

namespace normd {

// Parameters as they came. An absent weight means w = 1, an absent bias b = 0.
struct ParameterViews {
  TensorView weight;
  TensorView bias;
  ParameterOrder order = {};  // in which a plan wants their elements: its parameter_order
};

// The same as vectors of host memory, in the order of the plan that they were converted for: a plan with another
// parameter_order needs its own. `weight` includes weight_offset.
struct HostParameters {
  std::vector<double> weight;           // empty: absent
  std::vector<double> bias;             // empty: absent
  std::vector<float> weight32, bias32;  // the same rounded to f32, for FAST
  bool fit_f32 = true;                  // each value is 0 or a normal number of f32
  bool equal_f32 = true;                // no value had to be rounded to be an f32

  int64_t size_bytes() const {
    return static_cast<int64_t>((weight.size() + bias.size()) * sizeof(double) +
                                (weight32.size() + bias32.size()) * sizeof(float));
  }
};

// Converts `parameters`, in the order that they ask for. `weight_offset` is added to a weight that is given; an absent
// one stays 1. Lengths are not checked here but by CheckParameters. REQUIRES: an order, if there is one, has as many
// elements as each view; the views are on the host.
HostParameters ConvertParameters(const ParameterViews& parameters, double weight_offset);

// The values of `view` in its own order, none where it is absent. REQUIRES: it is on the host.
std::vector<double> WidenToF64(const TensorView& view);

// INVALID_ARGUMENT "parameters.weight" or "parameters.bias" when a length is not plan.parameter_length (both named), a
// shape is neither flat nor plan.parameter_shape, or the method takes none.
absl::Status CheckParameters(const NormPlan& plan, const ParameterViews& parameters);

// Parameters as one backend keeps them; what Backend::Prepare returns. A backend with memory of its own derives from
// this and owns its copy. The CPU backend takes those that any backend prepared, every other backend only its own.
class PreparedParameters {
 public:
  explicit PreparedParameters(std::shared_ptr<const HostParameters> host) : host_(std::move(host)) {}
  virtual ~PreparedParameters() = default;
  PreparedParameters(const PreparedParameters&) = delete;
  PreparedParameters& operator=(const PreparedParameters&) = delete;

  const HostParameters& host() const { return *host_; }

 private:
  const std::shared_ptr<const HostParameters> host_;
};

}  // namespace normd

#endif  // NORMD_KERNELS_PARAMETERS_H_
