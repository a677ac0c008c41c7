// The arithmetic of one training step on running statistics, without stores, clocks or locks. Of the rules of a step
// this file holds only the numbers; stored_session.h lists the other rules.
// In the path: CommitStep calls ApplyStep between checking a step and publishing the new state; the engine calls
// PowerNormDivisor for stateless training. Formulas: BatchNorm as in Ioffe and Szegedy 2015 with PyTorch's momentum,
// PowerNorm as in Shen et al. 2020 ("PowerNorm", algorithm 1). Each running value of a step is rounded once: from the
// moments as given (kernels/exact_sums/rounded_step.h), or from exact sums (nearest_step.h).
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RUNNING_STATE_H_
#define NORMD_SERVER_SESSION_RUNNING_STATE_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/moments.h"
#include "kernels/plan.h"
#include "server/session/session_store.h"

namespace normd {

// Applies one step, whose batch has `moments` and `details` (see StateUpdate for their form), to `state`. Returns
// kApplied, or kNonFinite if a batch statistic is NaN or Inf and the spec does not accept non-finite steps; with
// kSamples, if every channel with samples is skipped (SkippedChannels). After kNonFinite and after an error the state
// is unchanged, bit for bit. An empty batch (every count 0) leaves the statistics and counts as a batch.
// REQUIRES: details.exact, if given, is of the moments' groups, and the session is none of PowerNorm.
// INVALID_ARGUMENT if the method has no running state, the number of moments is wrong, a count or m2 is one that no
// batch can have, there is one value per channel and the spec refuses that, or extremes or samples are given and the
// spec does not count samples.
absl::StatusOr<Reason> ApplyStep(const NormSpec& spec, int64_t channels, const Moments& moments, RunningState* state,
                                 const SampleDetails& details = {});

// Whether the output of a training step of `spec` is normalised with what the commit of the step returns.
bool CommitGivesStatistics(const NormSpec& spec);

// The number of the step after `num_batches` of them. The largest number stays: a count that is too high, which older
// servers let callers give, must not begin again at 0.
uint64_t NextBatch(uint64_t num_batches);

// Whether no mean and no m2 is NaN or Inf.
bool AllFinite(const Moments& moments);

// How far a batch is from the running statistics of `session`: the largest over the channels of |batch mean - running
// mean| / sqrt(running variance + eps). Nothing if the session has no running mean, has learnt from no batch yet, or
// `moments` do not fit it; NaN or infinite if a mean is.
std::optional<double> DriftOf(const Session& session, const Moments& moments);

// PowerNorm: v of each channel, which are the `given` numbers, or m2 / count of `moments` where these are NaN or empty.
std::vector<double> MeanSquaresOf(const Moments& moments, absl::Span<const double> given);

// PowerNorm: the divisor of training step number `iters`, whose output is divided by sqrt(divisor + eps): the step's
// own `v` while iters <= warmup_iters, then `phi_before`.
std::vector<double> PowerNormDivisor(const NormSpec& spec, uint64_t iters, std::vector<double> v,
                                     absl::Span<const double> phi_before);

// A hash of the bits of every count, mean and m2, and of the details that are given (all NaNs alike), which
// distinguishes the data of two steps.
uint64_t HashMoments(const Moments& moments, const SampleDetails& details = {});

// Which values are allowed. For means: {}. For variances and phi: {.negative = false}.
struct RunningRule {
  bool negative = true;
  bool nan = false;
};

// INVALID_ARGUMENT naming `field` if `values` (a running mean, variance or phi) does not have `channels` elements or
// breaks `rule`.
absl::Status CheckRunningValues(absl::Span<const double> values, int64_t channels, const RunningRule& rule,
                                std::string_view field);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RUNNING_STATE_H_
