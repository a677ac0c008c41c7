#include "server/session/running_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/exact_sums/nearest_step.h"
#include "kernels/exact_sums/rounded_step.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/session/sample_statistics.h"

namespace normd {

namespace {

using slow_road::Dyadic;

// Whether every moment is one that a batch can have. One pass without branches, because a store waits for it.
bool AllPossible(const Moments& moments) {
  if (moments.empty()) return true;
  const double count = moments.front().count;
  bool possible = count >= 0 && std::floor(count) == count && !std::isinf(count);
  for (const Moment& m : moments) possible &= (m.count == count) & !(m.m2 < 0);
  return possible;
}

// Moments come from kernels, but also from callers that pool their own, so nothing is taken on trust.
absl::Status CheckMoments(const Moments& moments) {
  if (AllPossible(moments)) return absl::OkStatus();
  for (size_t i = 0; i < moments.size(); ++i) {
    const Moment& m = moments[i];
    if (!(m.count >= 0) || std::floor(m.count) != m.count || std::isinf(m.count)) {
      return OutOfRangeError(absl::StrCat("moments.count[", i, "]"), absl::StrCat(m.count),
                             "a whole number, at least 0", ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
    if (m.m2 < 0) {
      return OutOfRangeError(absl::StrCat("moments.m2[", i, "]"), absl::StrCat(m.m2), "at least 0",
                             ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
    if (m.count != moments.front().count) {
      return OutOfRangeError(absl::StrCat("moments.count[", i, "]"), absl::StrCat(m.count),
                             absl::StrCat("equal to the first count, ", moments.front().count),
                             ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const NormSpec& spec, int64_t channels, const Moments& moments) {
  const auto groups = static_cast<int64_t>(moments.size());
  if (!TraitsOf(spec.method()).steps_by_sample) {
    return groups == channels ? absl::OkStatus() : ParameterLengthError("moments", groups, channels);
  }
  if (groups % channels == 0) return absl::OkStatus();
  return AmountError("moments", absl::StrCat(groups, groups == 1 ? " value" : " values"),
                     absl::StrCat("a multiple of C = ", channels), ServerReason("MOMENTS_OUT_OF_RANGE"));
}

// BatchNorm has one group a channel, InstanceNorm one for each instance, whose means and variances are averaged.
void StepMeanVariance(const NormSpec& spec, const Moments& moments, RunningState* state) {
  const StepWeight weight = StepWeight::Of(spec.running(), state->num_batches);
  const size_t instances = moments.size() / state->mean.size();
  const Dyadic over_n = Dyadic::Integer(instances);
  RoundedStep(weight, over_n).Apply(moments, &Moment::mean, &state->mean);
  // All counts are equal; CheckMoments has checked this. One value of an instance has no variance to learn from.
  const bool unbiased = spec.running().variance == RunningVariance::kUnbiased;
  const double count = moments.front().count;
  if (count == 1 && (unbiased || TraitsOf(spec.method()).steps_by_sample)) return;
  const Dyadic freedom = Dyadic(count) - Dyadic::Integer(unbiased ? 1 : 0);
  RoundedStep(weight, freedom * over_n).Apply(moments, &Moment::m2, &state->var);
}

// BatchNorm has one group a channel, InstanceNorm one for each instance.
void StepExactly(const NormSpec& spec, const GroupSums& exact, RunningState* state) {
  const StepWeight weight = StepWeight::Of(spec.running(), state->num_batches);
  const size_t channels = state->mean.size();
  for (size_t c = 0; c < channels; ++c) {
    StepStatistics batch;
    for (size_t group = c; group < exact.size(); group += channels) batch.Add(exact.Totals(group));
    state->mean[c] = batch.NextMean(weight, state->mean[c]);
    // One value of an instance has no variance to learn from.
    if (TraitsOf(spec.method()).steps_by_sample && batch.count() == 1) continue;
    state->var[c] = batch.NextVariance(weight, spec.running().variance, state->var[c]);
  }
}

// With the step's number t, v the mean square and alpha of the old: during warm-up phi becomes
//   alpha (phi (t - 1) / t + v / t) + (1 - alpha) v = phi (1 - a) + v a  with a = (alpha + (1 - alpha) t) / t.
StepWeight PowerNormWeight(const PowerNormSpec& spec, uint64_t iters) {
  const Dyadic alpha(spec.alpha_fwd), of_batch = Dyadic(1.0) - alpha;
  if (iters >= static_cast<uint64_t>(spec.warmup_iters)) return {of_batch, Dyadic(1.0)};
  const Dyadic t = Dyadic::Integer(std::max<uint64_t>(1, iters));
  return {alpha + of_batch * t, t};
}

void StepPowerNorm(const PowerNormSpec& spec, const Moments& moments, RunningState* state) {
  const StepWeight weight = PowerNormWeight(spec, state->num_batches);
  RoundedStep(weight, Dyadic(moments.front().count)).Apply(moments, &Moment::m2, &state->phi);
}

absl::StatusOr<Reason> StepSamples(const NormSpec& spec, int64_t channels, const Moments& moments,
                                   const SampleDetails& details, RunningState* state) {
  NORMD_RETURN_IF_ERROR(CheckSamples(moments, details, channels));
  const auto sampled = std::count_if(moments.begin(), moments.end(), [](const Moment& m) { return m.count > 0; });
  const auto skipped = static_cast<int64_t>(SkippedChannels(moments).size());
  if (sampled > 0 && skipped == sampled) return Reason::kNonFinite;
  state->num_batches = NextBatch(state->num_batches);
  MergeSamples(spec.running(), moments, details, state);
  return Reason::kApplied;
}

uint64_t Bits(double value) {
  return std::bit_cast<uint64_t>(std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
}

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

}  // namespace

bool AllFinite(const Moments& moments) {
  bool finite = true;
  // x - x is 0 for finite x and NaN for NaN and Inf.
  for (const Moment& m : moments) finite &= (m.mean - m.mean == 0) & (m.m2 - m.m2 == 0);
  return finite;
}

uint64_t NextBatch(uint64_t num_batches) {
  return num_batches == std::numeric_limits<uint64_t>::max() ? num_batches : num_batches + 1;
}

std::optional<double> DriftOf(const Session& session, const Moments& moments) {
  const RunningState& state = session.state;
  const size_t channels = state.mean.size();
  if (channels == 0 || state.num_batches == 0 || moments.empty() || moments.size() % channels != 0) return std::nullopt;
  const double eps = session.spec.eps.value_or(Info(session.spec.method()).default_eps);
  const size_t instances = moments.size() / channels;  // 1 unless the method steps by sample
  double drift = 0;
  for (size_t c = 0; c < channels; ++c) {
    if (session.spec.running().CountsSamples() && moments[c].count == 0) continue;
    double mean = 0;
    for (size_t n = 0; n < instances; ++n) mean += moments[n * channels + c].mean;
    mean /= static_cast<double>(instances);
    const double distance = std::abs(mean - state.mean[c]) / std::sqrt(state.var[c] + eps);
    if (std::isnan(distance)) return distance;
    drift = std::max(drift, distance);
  }
  return drift;
}

RunningState InitialState(const NormSpec& spec, int64_t channels) {
  RunningState state;
  if (!spec.HasState()) return state;
  const auto size = static_cast<size_t>(channels);
  if (spec.running().CountsSamples()) return InitialSamples(spec.running(), channels);
  if (TraitsOf(spec.method()).state == StateKind::kQuadraticMean) {
    state.phi.assign(size, 1.0);
  } else {
    state.mean.assign(size, 0.0);
    state.var.assign(size, 1.0);
  }
  return state;
}

int StateVectorsOf(const NormSpec& spec) {
  const RunningState state = InitialState(spec, 1);
  return static_cast<int>(ValuesOf(state));
}

bool CommitGivesStatistics(const NormSpec& spec) {
  return TraitsOf(spec.method()).commit_gives_divisor || spec.running().normalize_with == NormalizeWith::kRunning;
}

absl::StatusOr<Reason> ApplyStep(const NormSpec& spec, int64_t channels, const Moments& moments, RunningState* state,
                                 const SampleDetails& details) {
  if (!spec.HasState()) {
    return NotAllowedError("moments", std::string(Info(spec.method()).name) + " without running state takes no steps");
  }
  if (spec.running().CountsSamples()) return StepSamples(spec, channels, moments, details, state);
  if (!details.extremes.empty()) {
    return NotAllowedError("moments.min", "only a session that counts samples keeps extremes");
  }
  if (!details.samples.empty()) {
    return NotAllowedError("moments.samples", "only a session that counts samples has a decay of them");
  }
  NORMD_RETURN_IF_ERROR(CheckLength(spec, channels, moments));
  NORMD_RETURN_IF_ERROR(CheckMoments(moments));
  const bool empty = moments.empty() || moments.front().count == 0;
  if (empty) {
    state->num_batches = NextBatch(state->num_batches);
    return Reason::kApplied;
  }
  const MethodTraits& traits = TraitsOf(spec.method());
  if (traits.refuses_single_values && moments.front().count == 1 && spec.running().RefusesSingleValue()) {
    return AmountError("x", "1 value per channel", "at least 2 in training, or single_value SINGLE_VALUE_ZERO_VARIANCE",
                       ServerReason("SINGLE_VALUE"));
  }
  if (!spec.accepts_non_finite() && !AllFinite(moments)) return Reason::kNonFinite;
  state->num_batches = NextBatch(state->num_batches);
  if (details.exact != nullptr) {
    StepExactly(spec, *details.exact, state);
  } else if (traits.state == StateKind::kQuadraticMean) {
    StepPowerNorm(std::get<PowerNormSpec>(spec.attributes), moments, state);
  } else {
    StepMeanVariance(spec, moments, state);
  }
  return Reason::kApplied;
}

std::vector<double> MeanSquaresOf(const Moments& moments, absl::Span<const double> given) {
  std::vector<double> v(given.begin(), given.end());
  v.resize(moments.size(), std::numeric_limits<double>::quiet_NaN());
  for (size_t c = 0; c < v.size(); ++c) {
    if (std::isnan(v[c])) v[c] = moments[c].BiasedVariance();
  }
  return v;
}

std::vector<double> PowerNormDivisor(const NormSpec& spec, uint64_t iters, std::vector<double> v,
                                     absl::Span<const double> phi_before) {
  const auto warmup_iters = static_cast<uint64_t>(std::get<PowerNormSpec>(spec.attributes).warmup_iters);
  if (iters > warmup_iters) return {phi_before.begin(), phi_before.end()};
  return v;
}

uint64_t HashMoments(const Moments& moments, const SampleDetails& details) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  // One chain per field, so that mixing one field does not wait for another.
  uint64_t count = Mix(moments.size() + kGolden);
  uint64_t mean = Mix(count + kGolden);
  uint64_t m2 = Mix(mean + kGolden);
  for (const Moment& m : moments) {
    count = Mix(count ^ Bits(m.count)) + kGolden;
    mean = Mix(mean ^ Bits(m.mean)) + kGolden;
    m2 = Mix(m2 ^ Bits(m.m2)) + kGolden;
  }
  for (const std::vector<double>* values : {&details.extremes.min, &details.extremes.max, &details.samples}) {
    for (const double value : *values) m2 = Mix(m2 ^ Bits(value)) + kGolden;
  }
  if (details.exact != nullptr) details.exact->ForEachWord([&m2](uint64_t word) { m2 = Mix(m2 ^ word) + kGolden; });
  return Mix(count ^ Mix(mean ^ Mix(m2)));
}

absl::Status CheckRunningValues(absl::Span<const double> values, int64_t channels, const RunningRule& rule,
                                std::string_view field) {
  if (static_cast<int64_t>(values.size()) != channels) {
    return ParameterLengthError(field, static_cast<int64_t>(values.size()), channels);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if ((rule.nan || !std::isnan(values[i])) && (rule.negative || !(values[i] < 0))) continue;
    return OutOfRangeError(std::string(field) + absl::StrCat("[", i, "]"), absl::StrCat(values[i]),
                           rule.negative ? "a number" : "a number, at least 0",
                           ServerReason("RUNNING_VALUE_OUT_OF_RANGE"));
  }
  return absl::OkStatus();
}

}  // namespace normd
