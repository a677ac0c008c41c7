// The affine parameters w and b on their way to a kernel: as a request or a session has them (ParameterViews),
// converted to f64 and f32 (HostParameters), and as one backend keeps them (PreparedParameters).
// In the path: the engine checks and converts the parameters and lets the backend prepare them; a Job borrows the
// result. HostParameters and PreparedParameters are immutable once made and shared by the calls that use them: safe
// from any thread. ParameterViews borrow.
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

// Borrowed parameters of any dtype. An absent weight means w = 1, an absent bias b = 0.
struct ParameterViews {
  TensorView weight;
  TensorView bias;
  ParameterOrder order = {};  // NormPlan::parameter_order of the plan
};

// Converted parameters in host memory, in the order of the plan that they were converted for: a plan with another
// parameter_order needs a conversion of its own. `weight` includes weight_offset.
struct HostParameters {
  std::vector<double> weight;           // empty: absent
  std::vector<double> bias;             // empty: absent
  std::vector<float> weight32, bias32;  // the same rounded to f32
  // What rounding weight + weight_offset to `weight` has left out; empty if nothing.
  std::vector<double> weight_rest;
  bool fit_f32 = true;                          // each weight is 0 or in [2^-60, 2^60], each bias 0 or a normal f32
  bool equal_f32 = true;                        // each value is an f32 without rounding
  double largest_weight = 1, largest_bias = 0;  // the largest finite magnitudes; of absent ones 1 and 0

  int64_t size_bytes() const {
    return static_cast<int64_t>((weight.size() + bias.size() + weight_rest.size()) * sizeof(double) +
                                (weight32.size() + bias32.size()) * sizeof(float));
  }
};

// Converts `parameters` to `parameters.order`. Adds `weight_offset` to a weight that is present; an absent weight stays
// 1. REQUIRES: CheckParameters has accepted the lengths; the order, if not empty, has as many elements as each view;
// the views are contiguous and in host memory.
HostParameters ConvertParameters(const ParameterViews& parameters, double weight_offset);

// The values of `view` as f64 in the order of the view; empty if the view is absent. REQUIRES: the view is contiguous
// and in host memory.
std::vector<double> WidenToF64(const TensorView& view);

// INVALID_ARGUMENT naming "parameters.weight" or "parameters.bias" if a length is not plan.parameter_length (the error
// names both lengths), if a shape is neither 1-D nor plan.parameter_shape, or if the method takes no parameters.
absl::Status CheckParameters(const NormPlan& plan, const ParameterViews& parameters);

// Parameters as one backend keeps them; Backend::Prepare makes them. A backend with a memory of its own derives from
// this class and owns its copy. The CPU backend accepts the prepared parameters of any backend, every other backend
// only its own.
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
