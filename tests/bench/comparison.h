// The comparison that every suite makes: candidates take turns in one run, round by round, so that a slow moment of the
// machine hits all of them, and figures are medians over the rounds.
//
// Google Benchmark has no place for this: its repetitions of one benchmark follow each other, or are shuffled over the
// whole run, so that no round of one candidate has a round of the other beside it; and what it would take over,
// repeating and counting iterations, is the loop below.
#ifndef NORMD_TESTS_BENCH_COMPARISON_H_
#define NORMD_TESTS_BENCH_COMPARISON_H_

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace normd::bench {

// The middle value; the upper one of two. REQUIRES: not empty.
double Median(std::vector<double> values);
// The value that `share` of all are not above. REQUIRES: not empty, 0 <= share <= 1.
double Percentile(std::vector<double> values, double share);
// REQUIRES: not empty, all above 0.
double GeometricMean(const std::vector<double>& values);

// The median of the ratios of each round to the one beside it. REQUIRES: as many of each, not none.
double MedianRatio(const std::vector<double>& over, const std::vector<double>& under);

// One field of every round.
template <typename Round>
std::vector<double> ValuesOf(const std::vector<Round>& rounds, double Round::*field) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const Round& round : rounds) values.push_back(round.*field);
  return values;
}

// Runs `rounds` rounds of each of `candidates`, by number, after one that warms up and is not counted. The order turns
// round every time: no candidate always runs in the caches that a certain other one leaves. The first error ends the
// comparison.
template <typename Round>
absl::StatusOr<std::vector<std::vector<Round>>> Interleave(
    size_t candidates, int rounds, absl::FunctionRef<absl::StatusOr<Round>(size_t candidate, bool warm_up)> run) {
  std::vector<std::vector<Round>> results(candidates);
  for (int round = -1; round < rounds; ++round) {
    for (size_t turn = 0; turn < candidates; ++turn) {
      const size_t candidate = round % 2 == 0 ? turn : candidates - 1 - turn;
      absl::StatusOr<Round> result = run(candidate, round < 0);
      if (!result.ok()) return result.status();
      if (round >= 0) results[candidate].push_back(*std::move(result));
    }
  }
  return results;
}

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_COMPARISON_H_
