// What a method is: names, defaults, properties, attributes, traits, and how a spec of it is checked and lowered; each
// declared once, in kernels/methods/. MakePlan asks it, the engine and the sessions ask the traits, Describe and
// `normctl methods` print the rest. Constant data, safe from any thread.
#ifndef NORMD_KERNELS_METHODS_H_
#define NORMD_KERNELS_METHODS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/plan.h"
#include "kernels/spec.h"

namespace normd {

struct AttributeInfo {
  std::string_view name;  // the field of the method's message
  std::string_view type;
  std::string_view default_value;
  std::string_view limits;
};

struct MethodInfo {
  Method method;
  std::string_view name;   // "layer_norm": the NormSpec field, and what replies call it
  std::string_view title;  // "LayerNorm"
  double default_eps;
  EpsMode default_eps_mode;
  bool subtracts_mean;
  std::string_view divides_by;
  std::string_view axes_bchw;  // statistics over which axes of [B,C,H,W]
  std::string_view axes_bld;
  std::string_view axes_bc;
  bool depends_on_batch;  // in training
  std::string_view parameters;
  bool training_equals_inference;
  std::string_view used_by;
  std::string_view when_to_choose;
  absl::Span<const AttributeInfo> attributes;
};

// What a session of a method keeps, and what its inference is given.
enum class StateKind : uint8_t { kNone, kMeanVariance, kQuadraticMean };

// What distinguishes a method from the others, wherever that matters.
struct MethodTraits {
  bool has_channels = false;     // x has a channel axis, and so rank 2 at least
  bool has_layout = false;       // the spec says which; without a layout the channels are the last axis
  bool takes_parameters = true;  // w and b, and so a weight_offset and a cast_order
  bool takes_mask = false;
  bool has_fast = true;                // an f32 arithmetic
  bool refuses_single_values = false;  // one value a channel in training, unless the spec allows it
  // The rank of a shape of ones in which every spec of the method can be planned, where w and b depend on neither x nor
  // the spec: what its plan has is what every plan has. Else 0.
  int parameter_shape_rank = 0;

  StateKind state = StateKind::kNone;
  bool commit_gives_divisor = false;  // a step's output is divided by what its commit says
  bool steps_by_sample = false;       // a step takes the moments of each sample's channel, and not of each channel
};

struct MethodDefinition {
  MethodInfo info;
  MethodTraits traits;
  // What is wrong with a spec whatever tensor it meets, next to what all methods have. Paths are relative to NormSpec.
  absl::Status (*validate)(const NormSpec& spec);
  Statistic (*statistic)(const NormSpec& spec);
  // Fills the geometry and the parameters of a plan that has all else. Paths begin with "spec." and "x.".
  absl::Status (*lower)(const NormSpec& spec, NormPlan* plan);
};

// In the order of kAllMethods.
absl::Span<const MethodDefinition* const> AllMethods();
const MethodDefinition& DefinitionOf(Method method);
inline const MethodInfo& Info(Method method) { return DefinitionOf(method).info; }
inline const MethodTraits& TraitsOf(Method method) { return DefinitionOf(method).traits; }

}  // namespace normd

#endif  // NORMD_KERNELS_METHODS_H_
