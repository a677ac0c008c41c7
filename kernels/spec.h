// What the caller wants: NormSpec, a method with its attributes. Read this file first.
// In the path: rpc's codec or a session makes a spec, MakePlan (kernels/plan.h) meets it with a shape. Plain values.
#ifndef NORMD_KERNELS_SPEC_H_
#define NORMD_KERNELS_SPEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/types.h"

namespace normd {

// How running statistics move (BatchNorm, tracking InstanceNorm). running = (1 - a) * running + a * new.
struct RunningSpec {
  std::optional<double> momentum;  // absent: 0.1 of NEW, 0.9 of OLD
  MomentumOf momentum_of = MomentumOf::kNew;
  bool cumulative = false;  // a = 1 / num_batches; momentum must be absent
  RunningVariance variance = RunningVariance::kUnbiased;
  SingleValue single_value = SingleValue::kRefuse;
  bool accept_non_finite = false;

  // The weight a of the new value, `num_batches` counting this one.
  double NewWeight(uint64_t num_batches) const;
  // The momentum as echoed: given or default.
  double ResolvedMomentum() const;
};

// ---- The attributes of each method, as its message in norm.proto has them ----

struct BatchNormSpec {
  Layout layout = Layout::kUnspecified;
  RunningSpec running;
};
struct LayerNormSpec {  // exactly one of the two
  std::vector<int64_t> normalized_shape;
  std::vector<int64_t> axes;
};
struct InstanceNormSpec {
  Layout layout = Layout::kUnspecified;
  bool track_running_statistics = false;
  RunningSpec running;
};
struct GroupNormSpec {
  Layout layout = Layout::kUnspecified;
  int64_t num_groups = 1;
  bool affine_per_group = false;
};
struct RmsNormSpec {  // neither: the last axis
  std::vector<int64_t> normalized_shape;
  std::vector<int64_t> axes;
};
struct PRmsNormSpec {  // exactly one of p and k
  std::optional<double> p;
  std::optional<int64_t> k;
  KRounding k_rounding = KRounding::kCeil;
};
struct ScaleNormSpec {};
struct LpNormSpec {
  int64_t order = 2;
  int64_t axis = -1;
  std::optional<double> p;    // instead of `order`; infinity: the largest |x|
  std::vector<int64_t> axes;  // instead of `axis`

  double Power() const { return p.value_or(static_cast<double>(order)); }
};
struct PowerNormSpec {
  int64_t num_groups = 1;
  double alpha_fwd = 0.9;
  int64_t warmup_iters = 10000;
  bool accept_non_finite = false;
};

// The numbers are those of NormSpec's oneof on the wire.
enum class Method : uint8_t {
  kBatchNorm = 1,
  kLayerNorm,
  kInstanceNorm,
  kGroupNorm,
  kRmsNorm,
  kPRmsNorm,
  kScaleNorm,
  kLpNorm,
  kPowerNorm,
};

// In the order of Method.
using MethodSpec = std::variant<BatchNormSpec, LayerNormSpec, InstanceNormSpec, GroupNormSpec, RmsNormSpec,
                                PRmsNormSpec, ScaleNormSpec, LpNormSpec, PowerNormSpec>;

inline constexpr std::array<Method, std::variant_size_v<MethodSpec>> kAllMethods = [] {
  std::array<Method, std::variant_size_v<MethodSpec>> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Method>(i + 1);
  return all;
}();

// What the caller wants. `{.eps = 1e-6, .attributes = RmsNormSpec()}` is RMSNorm of the last axis.
struct NormSpec {
  std::optional<double> eps;        // absent: the method's default
  std::optional<EpsMode> eps_mode;  // absent: the method's default
  // Of the methods with parameters; the others ignore them.
  CastOrder cast_order = CastOrder::kAffineThenCast;
  double weight_offset = 0;  // 0 or 1

  MethodSpec attributes = LayerNormSpec();

  Method method() const { return static_cast<Method>(attributes.index() + 1); }

  // What several methods have, as one that does not have it is to be read: no layout, the default running statistics,
  // no normalized_shape, the only group.
  Layout layout() const;
  const RunningSpec& running() const;
  absl::Span<const int64_t> normalized_shape() const;
  absl::Span<const int64_t> axes() const;
  int64_t num_groups() const;
  bool accepts_non_finite() const;

  // Whether a session of this spec has running state (Batch, Power, tracking Instance).
  bool HasState() const;
};

// The checks that need no tensor: eps, momentum, p, k, groups, orders, modes. Field paths are relative to the NormSpec
// message ("layer_norm.eps"). MakePlan calls it; sessions call it at creation.
absl::Status ValidateSpec(const NormSpec& spec);

}  // namespace normd

#endif  // NORMD_KERNELS_SPEC_H_
