// The exact oracle of running statistics: what one training step makes of them, rounded once to f64 from the exact
// statistics of the batch. Judges sessions of numerics exact-4. Includes nothing of kernels/ or server/. Pure
// functions.
#ifndef NORMD_TESTS_SUPPORT_NEAREST_STATE_H_
#define NORMD_TESTS_SUPPORT_NEAREST_STATE_H_

#include "tests/support/oracle.h"
#include "tests/support/oracle_state.h"

namespace normd::oracle {

// One step of BatchNorm, or of a tracking InstanceNorm, whose new values are the means over the instances. Every
// running value becomes the f64 nearest to (1 - a) * old + a * new, ties to even, with a and new exact: 1 / num_batches
// is no f64, either. False: refused as not finite, nothing changed.
//
//   RunningValues state = RunningValues::Initial(channels);
//   StepNearest({.method = Method::kBatch}, input, {.momentum = 0.1}, state);
//
// REQUIRES: as Nearest, without given statistics; values of `state` that are f64; unless the step is refused, no batch
// that is not finite.
bool StepNearest(const Spec& spec, const Input& input, const RunningRule& rule, RunningValues& state);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_NEAREST_STATE_H_
