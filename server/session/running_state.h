// What one training step does to running statistics: the arithmetic of sessions, without stores, clocks or locks.
// In the path: a store calls ApplyStep between checking a step and publishing the new state; the engine calls
// PowerNormDivisor for stateless training. Formulas: BatchNorm as in Ioffe and Szegedy 2015 with PyTorch's momentum,
// PowerNorm as in Shen et al. 2020 ("PowerNorm", algorithm 1). All in f64, in the order written.
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RUNNING_STATE_H_
#define NORMD_SERVER_SESSION_RUNNING_STATE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/moments.h"
#include "kernels/plan.h"
#include "server/session/session_store.h"

namespace normd {

// One step on `state` whose batch has `moments` (see StateUpdate for their form): kApplied, or kNonFinite for NaN or
// Inf in the batch statistics unless spec.accepts_non_finite(); then, and on an error, the state stays bit for
// bit. An empty batch (every count 0) leaves the statistics and counts as a batch. INVALID_ARGUMENT: the method has no
// running state, a wrong number of moments, a count or m2 that no batch can have, one value per channel where the spec
// refuses it.
absl::StatusOr<Reason> ApplyStep(const NormSpec& spec, int64_t channels, const Moments& moments, RunningState* state);

// PowerNorm: what the output of the training step number `iters` divides by, sqrt(divisor + eps): the step's own v
// while iters <= warmup_iters, else `phi_before`.
std::vector<double> PowerNormDivisor(const NormSpec& spec, uint64_t iters, const Moments& moments,
                                     absl::Span<const double> phi_before);

// Tells one step's data from another's: a hash of the bits of every count, mean and m2 (all NaNs alike).
uint64_t HashMoments(const Moments& moments);

// What running values may be: means {}, variances and phi {.negative = false}.
struct RunningRule {
  bool negative = true;
  bool nan = false;
};

// INVALID_ARGUMENT naming `field` when a running mean, variance or phi has not `channels` values or breaks `rule`.
absl::Status CheckRunningValues(absl::Span<const double> values, int64_t channels, const RunningRule& rule,
                                std::string_view field);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RUNNING_STATE_H_
