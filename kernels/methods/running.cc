#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

// Far beyond any data, and small enough that no sum of squares of them overflows: (2e130)^2 * 1e18 = 4e278.
constexpr double kMostSampleValue = 1e130;
constexpr double kMostSamples = 1e18;

absl::Status CheckSampleNumber(const NormSpec& spec, std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, Concat("running.", field)), NumberText(value),
                         Concat("between ", NumberText(least), " and ", NumberText(most)),
                         KernelReason("SAMPLES_OUT_OF_RANGE"));
}

absl::Status CheckSampleNumbers(const NormSpec& spec) {
  const SampleSpec& samples = spec.running().samples;
  const double max_count = samples.max_count.value_or(1);
  absl::Status status = CheckSampleNumber(spec, "prior_count", samples.prior_count, 0, kMostSamples);
  if (status.ok())
    status = CheckSampleNumber(spec, "prior_mean", samples.prior_mean, -kMostSampleValue, kMostSampleValue);
  if (status.ok()) status = CheckSampleNumber(spec, "prior_variance", samples.prior_variance, 0, kMostSampleValue);
  if (status.ok() && !(samples.decay > 0 && samples.decay <= 1)) {
    status = OutOfRangeError(SpecPath(spec, "running.decay"), NumberText(samples.decay), "above 0 and at most 1",
                             KernelReason("SAMPLES_OUT_OF_RANGE"));
  }
  if (status.ok() && !(max_count > 0 && max_count <= kMostSamples)) {
    status =
        OutOfRangeError(SpecPath(spec, "running.max_count"), NumberText(max_count),
                        Concat("above 0 and at most ", NumberText(kMostSamples)), KernelReason("SAMPLES_OUT_OF_RANGE"));
  }
  return status;
}

// Samples are counted, so a weight of a step has no place here.
absl::Status CheckSamples(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  const RunningSpec defaults;
  if (TraitsOf(spec.method()).steps_by_sample) {
    return NotAllowedError(SpecPath(spec, "running.weighting"),
                           Concat(Info(spec.method()).name, " has no statistics of all samples"));
  }
  const auto refuse = [&spec](std::string_view field) {
    return NotAllowedError(SpecPath(spec, Concat("running.", field)), "WEIGHTING_SAMPLES counts samples, not steps");
  };
  if (running.momentum.has_value()) return refuse("momentum");
  if (running.momentum_of != defaults.momentum_of) return refuse("momentum_of");
  if (running.cumulative) return refuse("cumulative");
  if (running.single_value != defaults.single_value) return refuse("single_value");
  if (running.accept_non_finite) return refuse("accept_non_finite");
  absl::Status status = CheckEnum(spec, "running.normalize_with", running.normalize_with, NormalizeWith::kRunning,
                                  "NORMALIZE_WITH_BATCH or NORMALIZE_WITH_RUNNING");
  return status.ok() ? CheckSampleNumbers(spec) : status;
}

absl::Status CheckNoSamples(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  const SampleSpec none;
  const SampleSpec& given = running.samples;
  const auto refuse = [&spec](std::string_view field) {
    return NotAllowedError(SpecPath(spec, Concat("running.", field)), "it needs WEIGHTING_SAMPLES");
  };
  if (given.prior_count != none.prior_count) return refuse("prior_count");
  if (given.prior_mean != none.prior_mean) return refuse("prior_mean");
  if (given.prior_variance != none.prior_variance) return refuse("prior_variance");
  if (given.decay != none.decay) return refuse("decay");
  if (given.max_count != none.max_count) return refuse("max_count");
  return running.normalize_with == NormalizeWith::kBatch ? absl::OkStatus() : refuse("normalize_with");
}

// The fields of WEIGHTING_STEPS.
absl::Status CheckSteps(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  if (running.momentum.has_value() && !(*running.momentum >= 0 && *running.momentum <= 1)) {
    return MomentumError(SpecPath(spec, "running.momentum"), *running.momentum);
  }
  if (running.momentum.has_value() && running.cumulative) {
    return ExclusiveError(SpecPath(spec, "running.momentum"), "cumulative");
  }
  absl::Status status = CheckEnum(spec, "running.momentum_of", running.momentum_of, MomentumOf::kOld,
                                  "MOMENTUM_OF_NEW or MOMENTUM_OF_OLD");
  if (!status.ok()) return status;
  status = CheckEnum(spec, "running.single_value", running.single_value, SingleValue::kZeroVariance,
                     "SINGLE_VALUE_REFUSE or SINGLE_VALUE_ZERO_VARIANCE");
  return status.ok() ? CheckNoSamples(spec) : status;
}

}  // namespace

absl::Status CheckLayoutAndRunning(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  absl::Status status = CheckLayout(spec);
  if (!status.ok()) return status;
  status = CheckEnum(spec, "running.weighting", running.weighting, Weighting::kSamples,
                     "WEIGHTING_STEPS or WEIGHTING_SAMPLES");
  if (!status.ok()) return status;
  status = running.CountsSamples() ? CheckSamples(spec) : CheckSteps(spec);
  if (!status.ok()) return status;
  return CheckEnum(spec, "running.variance", running.variance, RunningVariance::kBiased,
                   "RUNNING_VARIANCE_UNBIASED or RUNNING_VARIANCE_BIASED");
}

}  // namespace normd::methods
