// The oracle of running state: what a training step does to the state of a BatchNorm, tracking InstanceNorm or
// PowerNorm session, and what the statistics of all samples are, in 113 bits. Sessions are judged by it. Includes
// nothing of kernels/ or server/. Pure functions.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_STATE_H_
#define NORMD_TESTS_SUPPORT_ORACLE_STATE_H_

#include <cstdint>
#include <vector>

#include "tests/support/wide.h"

namespace normd::oracle {

struct RunningRule {
  double momentum = 0.1;
  bool momentum_of_old = false;
  bool cumulative = false;  // the weight of the new value is 1 / num_batches
  bool biased = false;
  bool accept_non_finite = false;
};

struct RunningValues {
  std::vector<Wide> mean, var;  // start at 0 and 1
  uint64_t num_batches = 0;
  uint64_t version = 0;

  static RunningValues Initial(int64_t channels);
};

// Statistics of one group over `count` values: `variance` is biased.
struct BatchStatistics {
  int64_t count = 0;
  Wide mean = 0;
  Wide variance = 0;
};

// One BatchNorm step with one entry per channel. False: refused as not finite, nothing changed.
bool StepBatchNorm(const RunningRule& rule, const std::vector<BatchStatistics>& batch, RunningValues& state);

// One step of a tracking InstanceNorm with N * C entries in order (n, c).
bool StepInstanceNorm(const RunningRule& rule, const std::vector<BatchStatistics>& instances, RunningValues& state);

// The samples of one channel of a session that counts samples, as they were seen, and from them its statistics by
// definition: mean = sum w x / sum w, m2 = sum w (x - mean)^2. The prior is `prior_count` samples of its variance.
class SampleHistory {
 public:
  struct Prior {
    double count = 0, mean = 0, variance = 1;
  };
  struct Statistics {
    Wide count = 0, mean = 0, m2 = 0;
  };

  explicit SampleHistory(const Prior& prior, double decay = 1)
      : prior_(prior), prior_weight_(prior.count), decay_(decay) {}

  // The samples of one step, each of which counts `weight` times.
  void Add(const std::vector<double>& samples, double weight = 1);
  Statistics Now() const;

 private:
  struct Sample {
    Wide value, weight;
  };

  Prior prior_;
  Wide prior_weight_;
  double decay_;
  std::vector<Sample> samples_;
};

// The statistics of the union of sets of samples that are known by their moments alone, which are taken as exact.
struct KnownMoment {
  double count = 0, mean = 0, m2 = 0;
};
SampleHistory::Statistics UnionOf(const std::vector<KnownMoment>& sets);

struct PowerRule {
  double alpha_fwd = 0.9;
  int64_t warmup_iters = 10000;
  bool accept_non_finite = false;
};

struct PowerValues {
  std::vector<Wide> phi;  // starts at 1
  int64_t iters = 0;
  uint64_t version = 0;

  static PowerValues Initial(int64_t channels);
};

struct PowerStep {
  bool applied = false;
  std::vector<Wide> divisor;  // what the output of the step uses: y = w * s / sqrt(divisor + eps) + b
};

// `v` is the mean square of the group-scaled values per channel over `count` positions; count 0 leaves phi as it is.
PowerStep StepPowerNorm(const PowerRule& rule, int64_t count, const std::vector<Wide>& v, PowerValues& state);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_STATE_H_
