// Counts, means and squared deviations of samples, channel by channel, in f64: what contributions to shared statistics
// are made of.
// In the path: RunningMoments and `normctl stats fit` reduce rows to these and send them with CommitMoments. The
// formula is the server's: Chan, Golub and LeVeque 1983, as RunningStatistics of proto/normd/v1/norm.proto says.
// Threads: plain values. The results of one input are the same bits in every run.
#ifndef NORMD_CLIENT_CPP_SAMPLE_MOMENTS_H_
#define NORMD_CLIENT_CPP_SAMPLE_MOMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// What becomes of a value that is NaN or infinite: the batch has no sample in its channel, as on the server, or the
// value alone is left out.
enum class NonFinite { kDropsChannel, kDropsValue };

// What is known of the samples of C channels: vectors of [C]. A channel of count 0 has no sample; its min is +Inf and
// its max -Inf. Extremes that are not known are NaN. count is the sum of the samples' weights, which decay makes less
// than the number of `samples`.
struct SampleMoments {
  std::vector<double> count, mean, m2, min, max, samples;

  // No samples.
  static SampleMoments None(size_t channels);
  // Those of `rows` [N, channels]. REQUIRES: channels is above 0 and divides the size of `rows`.
  static SampleMoments Of(absl::Span<const double> rows, size_t channels, NonFinite policy);
  static SampleMoments Of(absl::Span<const float> rows, size_t channels, NonFinite policy);

  size_t channels() const { return count.size(); }
  bool empty() const;          // no channel has a sample
  double MostSamples() const;  // of any channel

  // Adds a later batch, or several that were merged with this decay. `decay` is what each sample of it multiplies the
  // weight of the earlier ones of its channel by; the samples of one batch weigh alike.
  // REQUIRES: equally many channels.
  void Merge(const SampleMoments& later, double decay = 1);
  // Without the channels whose count in `state` has reached `max_count`. REQUIRES: equally many channels.
  SampleMoments Below(double max_count, const SampleMoments& state) const;

  // m2 / count, and `prior` where count is 0.
  std::vector<double> Variance(double prior) const;

  // As CommitMoments takes them, and as the state of a session has them, which does not know how many samples there
  // were: as many as count. FromState is INTERNAL for a state that does not count samples.
  v1::Moments ToProto() const;
  static absl::StatusOr<SampleMoments> FromState(const v1::RunningState& state);
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SAMPLE_MOMENTS_H_
