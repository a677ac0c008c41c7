// The table of methods: names, defaults, properties and attributes, declared once. MakePlan takes its defaults from it,
// Describe and `normctl methods` print it. Constant data, safe from any thread.
#ifndef NORMD_KERNELS_METHODS_H_
#define NORMD_KERNELS_METHODS_H_

#include <string_view>

#include "absl/types/span.h"
#include "kernels/norm.h"

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

absl::Span<const MethodInfo> AllMethods();
const MethodInfo& Info(Method method);

}  // namespace normd

#endif  // NORMD_KERNELS_METHODS_H_
