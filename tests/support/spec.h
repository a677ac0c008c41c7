// Specs for tests that loop over methods: one by its number, and setters of what several methods have. A test that
// knows its method writes `NormSpec{.attributes = LpNormSpec{.order = 1}}`. Pure functions.
#ifndef NORMD_TESTS_SUPPORT_SPEC_H_
#define NORMD_TESTS_SUPPORT_SPEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/spec.h"

namespace normd {

// ---- Setters: nothing happens where the method has no such field ----

inline void SetLayout(NormSpec* spec, Layout layout) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.layout; }) method.layout = layout;
      },
      spec->attributes);
}

inline void SetNormalizedShape(NormSpec* spec, const std::vector<int64_t>& normalized_shape) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.normalized_shape; }) method.normalized_shape = normalized_shape;
      },
      spec->attributes);
}

inline void SetAxes(NormSpec* spec, const std::vector<int64_t>& axes) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.axes; }) method.axes = axes;
      },
      spec->attributes);
}

inline void SetNumGroups(NormSpec* spec, int64_t num_groups) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.num_groups; }) method.num_groups = num_groups;
      },
      spec->attributes);
}

inline void SetRunning(NormSpec* spec, const RunningSpec& running) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.running; }) method.running = running;
      },
      spec->attributes);
}

// ---- Specs ----

// The method with its defaults, and with the layout where it has one.
inline NormSpec SpecOf(Method method, Layout layout = Layout::kUnspecified) {
  const auto all = []<size_t... i>(std::index_sequence<i...>) {
    return std::array{MethodSpec(std::in_place_index<i>)...};
  }
  (std::make_index_sequence<std::variant_size_v<MethodSpec>>());
  NormSpec spec = {.attributes = all.at(static_cast<size_t>(method) - 1)};
  SetLayout(&spec, layout);
  return spec;
}

// The least that makes the method's spec valid, channels first.
inline NormSpec MinimalSpec(Method method) {
  NormSpec spec = SpecOf(method, Layout::kChannelsFirst);
  if (method == Method::kLayerNorm) SetAxes(&spec, {-1});
  if (method == Method::kPRmsNorm) std::get<PRmsNormSpec>(spec.attributes).p = 0.5;
  return spec;
}

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_SPEC_H_
