// The arithmetic of Weighting::kSamples: running statistics of all samples that a session has seen, each counted once.
// In the path: ApplyStep (running_state.h) calls it for sessions whose spec counts samples. Formula: Chan, Golub and
// LeVeque 1983 ("Algorithms for computing the sample variance"), in pairs of f64 (kernels/pairs.h), so that what a
// state shows, which is each pair rounded once, does not depend on the order of steps. Pure functions, safe from any
// thread.
#ifndef NORMD_SERVER_SESSION_SAMPLE_STATISTICS_H_
#define NORMD_SERVER_SESSION_SAMPLE_STATISTICS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/moments.h"
#include "kernels/spec.h"
#include "server/session/session_store.h"

namespace normd {

// The state before the first sample: the prior.
RunningState InitialSamples(const RunningSpec& running, int64_t channels);

// INVALID_ARGUMENT if a count is not from 0 to 1e18, an m2 of a channel with samples is negative, the lengths differ
// from `channels`, a smallest sample is above the largest, or a channel has fewer samples than its count. REQUIRES: the
// extremes are both given or both empty.
absl::Status CheckSamples(const Moments& moments, const SampleDetails& details, int64_t channels);

// The channels with samples whose mean or m2 is not finite, or beyond 1e130 or 1e290, where sums of squares could
// overflow: a step leaves them as they are. Rising.
std::vector<int64_t> SkippedChannels(const Moments& moments);

// Merges a step into `state` channel by channel. Channels without samples, skipped ones, and those that have reached
// max_count stay as they are. Extremes that are not known make those of the channels that move unknown (NaN). A merge
// is off by 2^-100 of the numbers in it, except that decay^samples is an f64; where a sum overflows, it is Merge of
// kernels/moments.h. REQUIRES: CheckSamples returned OK.
void MergeSamples(const RunningSpec& running, const Moments& moments, const SampleDetails& details,
                  RunningState* state);

// How many samples the moments of channel c are of.
double SamplesOf(const Moments& moments, const std::vector<double>& samples, size_t c);

// The smaller and the larger of two extremes, -0 below +0, in either order; NaN, not known, if either is.
double LeastOf(double a, double b);
double GreatestOf(double a, double b);

// INVALID_ARGUMENT naming the field unless the low vectors of `state` are empty, or have a value for each of `channels`
// that rounding left out of the vector above it. REQUIRES: count, mean and m2 are of as many channels, or `channels` is
// 0, because the session counts no samples.
absl::Status CheckLowValues(const RunningState& state, int64_t channels);

// Sets state->var from count and m2, as they are shown.
void DeriveVariance(const RunningSpec& running, RunningState* state);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SAMPLE_STATISTICS_H_
