// The table of the methods: for each its traits, and how a spec of it is checked and lowered. Each method is declared
// once, in a file of kernels/methods/; its names, defaults and texts are in the catalogue.
// In the path: ValidateSpec and MakePlan call the functions of a MethodDefinition, and the engine and the sessions ask
// the traits. Few other places name a method (see kernels/README.md). Constant data; safe from any thread.
#ifndef NORMD_KERNELS_METHODS_H_
#define NORMD_KERNELS_METHODS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/plan.h"
#include "kernels/spec.h"
#include "proto/catalogue/methods.h"

namespace normd {

// The description of a method for people and clients.
constexpr const MethodInfo& Info(Method method) { return kMethods[static_cast<size_t>(method) - 1]; }

// The running state that a session of a method keeps and that its inference uses: none, a mean and a variance for each
// channel, or a quadratic mean (PowerNorm's phi) for each channel.
enum class StateKind : uint8_t { kNone, kMeanVariance, kQuadraticMean };

// The properties of a method that code branches on.
struct MethodTraits {
  bool has_channels = false;           // x has a channel axis, and therefore at least rank 2
  bool has_layout = false;             // the spec has a layout; false: the channels are the last axis
  bool takes_parameters = true;        // w and b, and therefore weight_offset and cast_order
  bool has_fast = true;                // Precision::kFast is implemented
  bool refuses_single_values = false;  // refuses one value per channel in training, unless the spec allows it
  // For methods whose w and b have a shape that depends on neither x nor the spec: a rank at which every spec of the
  // method can be planned for a shape of ones, so that such a plan gives the shape of w and b. 0 for all other methods.
  int parameter_shape_rank = 0;

  StateKind state = StateKind::kNone;
  bool commit_gives_divisor = false;  // a training step's divisor is known only after the commit (PowerNorm)
  bool steps_by_sample = false;       // a step takes moments per sample and channel, not per channel
};

// One method, complete: declared in kernels/methods/NAME.cc and listed in kernels/methods/list.cc.
struct MethodDefinition {
  const MethodInfo& info;  // of the catalogue
  MethodTraits traits;
  // Checks what is particular to the method and needs no tensor; ValidateSpec checks what all methods share. Field
  // paths are relative to NormSpec ("layer_norm.axes"). REQUIRES: spec.method() is this method, here and below.
  absl::Status (*validate)(const NormSpec& spec);
  // The statistic that the reduce pass computes.
  Statistic (*statistic)(const NormSpec& spec);
  // Writes the geometry and the parameter fields of `plan`, whose other fields are set. Fails where the spec does not
  // fit plan->shape; field paths begin with "spec." or "x.".
  absl::Status (*lower)(const NormSpec& spec, NormPlan* plan);
};

// All methods, in the order of kAllMethods.
absl::Span<const MethodDefinition* const> AllMethods();
const MethodDefinition& DefinitionOf(Method method);
inline const MethodTraits& TraitsOf(Method method) { return DefinitionOf(method).traits; }

}  // namespace normd

#endif  // NORMD_KERNELS_METHODS_H_
