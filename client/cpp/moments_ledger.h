// What one process has added to shared statistics and the server has not acknowledged, and what both know together.
// The rule that this file holds: only samples since the last contribution are ever sent, each contribution under one
// StepId until it is answered, so that none counts twice.
// In the path: RunningMoments keeps one. Threads: thread-compatible; RunningMoments locks.
#ifndef NORMD_CLIENT_CPP_MOMENTS_LEDGER_H_
#define NORMD_CLIENT_CPP_MOMENTS_LEDGER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client/cpp/sample_moments.h"

namespace normd::client {

// The server's state at a version. `digest` is empty where the reply did not have it.
struct KnownState {
  SampleMoments samples;
  uint64_t version = 0;
  std::string digest;
};

// How the session merges a contribution: `decay` and `max_count` of its RunningStatistics.
struct MergeRule {
  double decay = 1;
  std::optional<double> max_count = std::nullopt;

  // Makes of `state` what the server does.
  void Merge(const SampleMoments& contribution, SampleMoments* state) const;
};

class MomentsLedger {
 public:
  // A contribution: `sequence` is that of its StepId.
  struct Contribution {
    SampleMoments samples;
    uint64_t sequence = 0;
  };

  MomentsLedger(KnownState known, MergeRule rule);

  const KnownState& known() const { return known_; }
  // True if the server has acknowledged everything.
  bool settled() const { return !sent_.has_value() && pending_.empty(); }
  // The most samples of any channel that were not sent yet.
  double pending_samples() const { return pending_.MostSamples(); }
  // The server's state and all of the own samples.
  SampleMoments View() const;

  void Add(const SampleMoments& samples);
  // What is to be sent: the contribution of the last call until it is acknowledged, then all samples since. Null if
  // there are none. A new contribution has the next sequence, or `least_sequence` if that is larger. The pointer is
  // valid until Acknowledge.
  const Contribution* Take(uint64_t least_sequence = 1);
  // The contribution was applied; `state`, if the server still has one, holds it. REQUIRES: Take returned one.
  void Acknowledge(std::optional<KnownState> state);
  // The server's state as somebody has read it. While a contribution is on its way the state may hold it, and so waits
  // for the acknowledgement.
  void See(KnownState state);

 private:
  const MergeRule rule_;
  KnownState known_;
  std::optional<Contribution> sent_;
  SampleMoments pending_;
  std::optional<KnownState> newer_;  // seen while a contribution was on its way
  uint64_t last_sequence_ = 0;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_MOMENTS_LEDGER_H_
