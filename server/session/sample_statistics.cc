#include "server/session/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/nearest_step.h"
#include "server/base/error_reasons.h"

namespace normd {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// (2e130)^2 * 1e18 samples is 4e278: a session takes 1e11 such steps before a sum overflows.
constexpr double kMostCount = 1e18;
constexpr double kMostMean = 1e130;
constexpr double kMostM2 = 1e290;

bool IsSkipped(const Moment& moment) {
  return moment.count > 0 && !(std::abs(moment.mean) <= kMostMean && moment.m2 <= kMostM2);
}

absl::Status CheckExtremes(const Moments& moments, const Extremes& extremes) {
  for (size_t c = 0; c < extremes.min.size(); ++c) {
    if (moments[c].count == 0 || !(extremes.min[c] > extremes.max[c])) continue;
    return OutOfRangeError(Concat("moments.min[", c, "]"), NumberText(extremes.min[c]),
                           Concat("at most moments.max[", c, "], ", NumberText(extremes.max[c])),
                           ServerReason("MOMENTS_OUT_OF_RANGE"));
  }
  return absl::OkStatus();
}

absl::Status CheckSampleCounts(const Moments& moments, const std::vector<double>& samples) {
  for (size_t c = 0; c < samples.size(); ++c) {
    const double count = moments[c].count;
    if (count == 0 || (samples[c] >= count && samples[c] <= kMostCount)) continue;
    return OutOfRangeError(Concat("moments.samples[", c, "]"), NumberText(samples[c]),
                           Concat("between moments.count[", c, "], ", NumberText(count), ", and 1e18"),
                           ServerReason("MOMENTS_OUT_OF_RANGE"));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const Moments& moments, const SampleDetails& details, int64_t channels) {
  const auto check = [channels](std::string_view field, size_t length) {
    const auto values = static_cast<int64_t>(length);
    return values == channels ? absl::OkStatus() : ParameterLengthError(field, values, channels);
  };
  NORMD_RETURN_IF_ERROR(check("moments", moments.size()));
  if (!details.samples.empty()) NORMD_RETURN_IF_ERROR(check("moments.samples", details.samples.size()));
  if (details.extremes.empty()) return absl::OkStatus();
  NORMD_RETURN_IF_ERROR(check("moments.min", details.extremes.min.size()));
  return check("moments.max", details.extremes.max.size());
}

void MergeExtremes(const Extremes& extremes, size_t c, RunningState* state) {
  // What was not known once is never known again.
  state->min[c] = LeastOf(state->min[c], extremes.empty() ? kUnknown : extremes.min[c]);
  state->max[c] = GreatestOf(state->max[c], extremes.empty() ? kUnknown : extremes.max[c]);
}

// Channel c after the step, of which the state was `before` and its weight fades.
Moment After(const Moment& before, double fading, const Moments& moments, const SampleDetails& details, size_t c) {
  const bool is_finite = std::isfinite(before.count) && std::isfinite(before.mean) && std::isfinite(before.m2);
  if (details.exact != nullptr && is_finite) return NearestMerge(before, fading, details.exact->Totals(c));
  return Merge({.count = before.count * fading, .mean = before.mean, .m2 = before.m2 * fading}, moments[c]);
}

double VarianceOf(const RunningSpec& running, double count, double m2) {
  const double freedom = running.variance == RunningVariance::kUnbiased ? count - 1 : count;
  return freedom > 0 ? m2 / freedom : running.samples.prior_variance;
}

}  // namespace

double LeastOf(double a, double b) { return std::isnan(a) || std::isnan(b) ? kUnknown : std::min(a, b); }

double GreatestOf(double a, double b) { return std::isnan(a) || std::isnan(b) ? kUnknown : std::max(a, b); }

RunningState InitialSamples(const RunningSpec& running, int64_t channels) {
  const SampleSpec& samples = running.samples;
  const auto size = static_cast<size_t>(channels);
  RunningState state;
  state.mean.assign(size, samples.prior_mean);
  state.count.assign(size, samples.prior_count);
  state.m2.assign(size, samples.prior_count * samples.prior_variance);
  state.min.assign(size, kInfinity);
  state.max.assign(size, -kInfinity);
  DeriveVariance(running, &state);
  return state;
}

absl::Status CheckSamples(const Moments& moments, const SampleDetails& details, int64_t channels) {
  NORMD_RETURN_IF_ERROR(CheckLengths(moments, details, channels));
  for (size_t c = 0; c < moments.size(); ++c) {
    const Moment& m = moments[c];
    if (!(m.count >= 0 && m.count <= kMostCount)) {
      return OutOfRangeError(Concat("moments.count[", c, "]"), NumberText(m.count), "between 0 and 1e18",
                             ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
    if (m.count > 0 && m.m2 < 0) {
      return OutOfRangeError(Concat("moments.m2[", c, "]"), NumberText(m.m2), "at least 0",
                             ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
  }
  NORMD_RETURN_IF_ERROR(CheckSampleCounts(moments, details.samples));
  return CheckExtremes(moments, details.extremes);
}

std::vector<int64_t> SkippedChannels(const Moments& moments) {
  std::vector<int64_t> skipped;
  for (size_t c = 0; c < moments.size(); ++c) {
    if (IsSkipped(moments[c])) skipped.push_back(static_cast<int64_t>(c));
  }
  return skipped;
}

double SamplesOf(const Moments& moments, const std::vector<double>& samples, size_t c) {
  return samples.empty() || moments[c].count == 0 ? moments[c].count : samples[c];
}

void MergeSamples(const RunningSpec& running, const Moments& moments, const SampleDetails& details,
                  RunningState* state) {
  const SampleSpec& samples = running.samples;
  const double max_count = samples.max_count.value_or(kInfinity);
  for (size_t c = 0; c < moments.size(); ++c) {
    const Moment& step = moments[c];
    if (step.count == 0 || IsSkipped(step) || state->count[c] >= max_count) continue;
    const double fading = samples.decay == 1 ? 1 : std::pow(samples.decay, SamplesOf(moments, details.samples, c));
    const Moment after = After({state->count[c], state->mean[c], state->m2[c]}, fading, moments, details, c);
    state->count[c] = after.count;
    state->mean[c] = after.mean;
    state->m2[c] = after.m2;
    state->var[c] = VarianceOf(running, after.count, after.m2);
    MergeExtremes(details.extremes, c, state);
  }
}

void DeriveVariance(const RunningSpec& running, RunningState* state) {
  state->var.resize(state->count.size());
  for (size_t c = 0; c < state->count.size(); ++c) {
    state->var[c] = VarianceOf(running, state->count[c], state->m2[c]);
  }
}

}  // namespace normd
