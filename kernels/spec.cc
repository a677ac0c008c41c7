#include "kernels/spec.h"

#include <algorithm>

#include "kernels/methods.h"

namespace normd {
namespace {

constexpr double kMomentumOfNew = 0.1;
constexpr double kMomentumOfOld = 0.9;

}  // namespace

double RunningSpec::ResolvedMomentum() const {
  return momentum.value_or(momentum_of == MomentumOf::kNew ? kMomentumOfNew : kMomentumOfOld);
}

double RunningSpec::NewWeight(uint64_t num_batches) const {
  if (cumulative) return 1.0 / static_cast<double>(std::max<uint64_t>(1, num_batches));
  return momentum_of == MomentumOf::kNew ? ResolvedMomentum() : 1 - ResolvedMomentum();
}

Layout NormSpec::layout() const {
  return std::visit(
      [](const auto& method) {
        if constexpr (requires { method.layout; }) return method.layout;
        return Layout::kUnspecified;
      },
      attributes);
}

const RunningSpec& NormSpec::running() const {
  static constexpr RunningSpec kDefault;
  return std::visit(
      [](const auto& method) -> const RunningSpec& {
        if constexpr (requires { method.running; }) return method.running;
        return kDefault;
      },
      attributes);
}

absl::Span<const int64_t> NormSpec::normalized_shape() const {
  return std::visit(
      [](const auto& method) -> absl::Span<const int64_t> {
        if constexpr (requires { method.normalized_shape; }) return method.normalized_shape;
        return {};
      },
      attributes);
}

absl::Span<const int64_t> NormSpec::axes() const {
  return std::visit(
      [](const auto& method) -> absl::Span<const int64_t> {
        if constexpr (requires { method.axes; }) return method.axes;
        return {};
      },
      attributes);
}

int64_t NormSpec::num_groups() const {
  return std::visit(
      [](const auto& method) -> int64_t {
        if constexpr (requires { method.num_groups; }) return method.num_groups;
        return 1;
      },
      attributes);
}

bool NormSpec::accepts_non_finite() const {
  return std::visit(
      [this](const auto& method) {
        if constexpr (requires { method.accept_non_finite; }) return method.accept_non_finite;
        return running().accept_non_finite;
      },
      attributes);
}

bool NormSpec::HasState() const {
  const MethodTraits& traits = TraitsOf(method());
  if (traits.state == StateKind::kNone) return false;
  return std::visit(
      [](const auto& method) {
        if constexpr (requires { method.track_running_statistics; }) return method.track_running_statistics;
        return true;
      },
      attributes);
}

}  // namespace normd
