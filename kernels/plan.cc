// MakePlan: validates a spec, checks it against a shape, and lets the method lower it with the functions of lowering.h.
#include "kernels/plan.h"

#include <algorithm>
#include <charconv>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"

namespace normd {

namespace {

absl::Status CheckOptions(const NormSpec& spec, const PlanOptions& options) {
  if (options.mode != Mode::kInference && options.mode != Mode::kTraining) {
    return OutOfRangeError("mode", Concat(static_cast<int>(options.mode)), "MODE_INFERENCE or MODE_TRAINING",
                           KernelReason("UNKNOWN_ENUM_VALUE"));
  }
  if (options.given_statistics && !spec.HasState()) {
    return NotAllowedError("parameters.running_mean",
                           Concat(Info(spec.method()).name, " of this spec uses no running statistics"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CheckTensor(Method method, DType dtype, absl::Span<const int64_t> shape) {
  if (SizeOf(dtype) == 0) return DTypeError("x.dtype", Concat(static_cast<int>(dtype)));
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t min_rank = TraitsOf(method).has_channels ? 2 : 1;
  if (rank < min_rank || rank > kMaxRank) return RankError("x.shape", rank, min_rank, kMaxRank);
  return CheckedElementCount(shape, "x");
}

absl::Status CheckSingleValue(const NormSpec& spec, const NormPlan& plan) {
  const bool computed = plan.mode == Mode::kTraining && !plan.given_statistics && plan.elements > 0;
  if (!computed || plan.SetSize() != 1 || !spec.running().RefusesSingleValue()) return absl::OkStatus();
  return OutOfRangeError(
      "x.shape", ShapeText(plan.shape),
      "of more than one value per channel in training, unless single_value is SINGLE_VALUE_ZERO_VARIANCE",
      KernelReason("SINGLE_VALUE_PER_CHANNEL"));
}

// The number digits * 10^exponent.
struct Decimal {
  uint64_t digits = 0;
  int exponent = 0;
};

// The shortest decimal that reads back as p. REQUIRES: 0 < p <= 1.
Decimal ShortestDecimal(double p) {
  char text[32];  // "7e-02", "2.9e-01"
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), p, std::chars_format::scientific);
  const char* const e = std::find(text, end.ptr, 'e');
  const char* const point = std::find(static_cast<const char*>(text), e, '.');
  Decimal decimal;
  std::from_chars(e + (e[1] == '+' ? 2 : 1), end.ptr, decimal.exponent);
  for (const char* c = text; c != e; ++c) {
    if (c != point) decimal.digits = decimal.digits * 10 + static_cast<uint64_t>(*c - '0');
  }
  if (point != e) decimal.exponent -= static_cast<int>(e - point) - 1;
  return decimal;
}

}  // namespace

absl::StatusOr<NormPlan> MakePlan(const NormSpec& spec, DType dtype, absl::Span<const int64_t> shape,
                                  const PlanOptions& options) {
  if (absl::Status status = ValidateSpec(spec); !status.ok()) return PrefixField(status, "spec");
  if (absl::Status status = CheckOptions(spec, options); !status.ok()) return status;
  const absl::StatusOr<int64_t> elements = CheckTensor(spec.method(), dtype, shape);
  if (!elements.ok()) return elements.status();

  const MethodDefinition& method = DefinitionOf(spec.method());
  NormPlan plan;
  plan.method = spec.method();
  plan.mode = options.mode;
  plan.statistic = method.statistic(spec);
  plan.given_statistics = options.given_statistics;
  plan.exact_sums = options.exact_sums;
  plan.dtype = dtype;
  plan.shape.assign(shape.begin(), shape.end());
  plan.elements = *elements;
  plan.eps = spec.eps.value_or(method.info.default_eps) + 0.0;  // -0 becomes 0
  plan.eps_mode = spec.eps_mode.value_or(method.info.default_eps_mode);
  if (method.traits.takes_parameters) plan.cast_order = spec.cast_order;
  const bool has_fast = dtype != DType::kF64 && method.traits.has_fast && !SumsPowers(plan.statistic) &&
                        plan.cast_order == CastOrder::kAffineThenCast;
  if (has_fast) plan.precision = options.precision;
  if (spec.HasState()) {
    const RunningSpec& running = spec.running();
    plan.clip = running.clip;
    plan.counts_samples = running.CountsSamples() && !plan.given_statistics;
    plan.skips_nan = plan.counts_samples && running.nan_policy == NanPolicy::kSkip;
  }
  if (absl::Status status = method.lower(spec, &plan); !status.ok()) return status;
  if (method.traits.refuses_single_values) {
    if (absl::Status status = CheckSingleValue(spec, plan); !status.ok()) return status;
  }
  return plan;
}

int64_t PartialLength(double p, int64_t d, KRounding rounding) {
  const Decimal decimal = ShortestDecimal(p);
  // At most 17 digits times d < 2^63: below 2^120.
  __extension__ unsigned __int128 product = static_cast<uint64_t>(d);
  product *= decimal.digits;
  bool exact = true;
  for (int exponent = decimal.exponent; exponent < 0 && product != 0; ++exponent) {
    exact = exact && product % 10 == 0;
    product /= 10;
  }
  const int64_t k = static_cast<int64_t>(product);
  return rounding == KRounding::kCeil && !exact ? k + 1 : k;
}

}  // namespace normd
