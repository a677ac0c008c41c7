// The mean and the variance of all samples that all processes have seen, each counted exactly once, kept by a normd
// server: what normd.stats.RunningMeanStd is in Python, on the same sessions.
//
//   #include <normd/running_moments.h>
//
//   const auto client = normd::Client::Connect("127.0.0.1:8001");
//   const auto moments = normd::RunningMoments::Open(**client, "observations", 17);
//   if (!moments.ok()) return moments.status();
//   (*moments)->Update(observations).IgnoreError();        // [N, 17]; merged here, sent by a thread
//   const auto snapshot = (*moments)->snapshot();          // what a rollout keeps
//   snapshot->Normalize(observations, absl::MakeSpan(normalized)).IgnoreError();
//
// In the path: rows are reduced here, and the few numbers go to the session by CommitMoments.
// What is shown is the server's state merged with the own samples that it does not have yet. A server that is away
// delays, and loses nothing while the process lives; an acknowledged flush survives what the session's durability says.
// A contribution is sent under one StepId until it is answered, so that a lost reply counts nothing twice.
// Threads: every method is safe from any thread. Ownership: it keeps the connections of its Client, and may outlive it.
// After fork() the child opens its own: the object of the parent has a thread, which the child does not have.
#ifndef NORMD_CLIENT_CPP_RUNNING_MOMENTS_H_
#define NORMD_CLIENT_CPP_RUNNING_MOMENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"

namespace normd {

namespace client {
class MomentsSender;
struct SampleMoments;
}  // namespace client

// Options of RunningMoments; constant after Open.
struct RunningMomentsOptions {
  // Of the session, if Open creates it: the state begins with `prior_count` samples of mean 0 and variance 1, and each
  // sample multiplies the weight of the samples of earlier batches in its channel by `decay`, in (0, 1]. The samples of
  // one Update weigh alike, and when they are sent makes no difference.
  double prior_count = 1e-4;
  double decay = 1;
  // A channel whose count has reached it moves no more; the contribution that reaches it counts wholly. Above 0.
  std::optional<double> max_count = std::nullopt;
  // A name for each channel, or none. A session has names for good.
  std::vector<std::string> channel_names = {};
  // y = (x - mean) / sqrt(var + epsilon), within [-clip, clip].
  double epsilon = 1e-8;
  std::optional<double> clip = std::nullopt;
  // Samples are sent when a channel has flush_samples of them, and at the latest after flush_interval; as often, the
  // samples of others are read.
  int64_t flush_samples = 2048;
  absl::Duration flush_interval = absl::Seconds(1);
  // The time limit of a call in the background, its retries included.
  absl::Duration call_deadline = absl::Seconds(10);
  // How long the destructor waits for a server that takes the last samples.
  absl::Duration close_timeout = absl::Seconds(10);
};

// Statistics at one moment, which never change. Vectors of [C], f64.
struct MomentsSnapshot {
  std::vector<double> count, mean;
  std::vector<double> var;  // biased; 1 where count is 0
  std::vector<double> min;  // +Inf without a sample; NaN where it is not known
  std::vector<double> max;  // -Inf without a sample
  uint64_t version = 0;     // the server's version that is part of it
  std::string digest;       // the session's of this version; empty where own samples are part of it, or where the
                            // server was not asked for it: see RunningMoments::Refresh
  double epsilon = 0;
  std::optional<double> clip;

  // y[N, C] of x[N, C], computed in f64 and rounded once. y may be x. INVALID_ARGUMENT if x is no whole rows, or y has
  // another size.
  absl::Status Normalize(absl::Span<const float> x, absl::Span<float> y) const;
  absl::Status Normalize(absl::Span<const double> x, absl::Span<double> y) const;
  // The x whose Normalize is y, unless that was clipped.
  absl::Status Denormalize(absl::Span<const float> y, absl::Span<float> x) const;
  absl::Status Denormalize(absl::Span<const double> y, absl::Span<double> x) const;
};

class RunningMoments {
 public:
  // Opens the session `name` ("observations" or "sessions/observations") of `channels` channels, or creates it.
  // INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION if the session exists with other attributes, and the
  // server's errors.
  static absl::StatusOr<std::unique_ptr<RunningMoments>> Open(const Client& client, const std::string& name,
                                                              int64_t channels, RunningMomentsOptions options = {});
  RunningMoments(const RunningMoments&) = delete;
  RunningMoments& operator=(const RunningMoments&) = delete;
  // Flushes for at most close_timeout, and returns within call_deadline after that. Samples that were not acknowledged
  // by then are lost: call Flush to know.
  ~RunningMoments();

  // Adds samples: `rows` [N, C]. Never waits for the network. A channel with a value in `rows` that is NaN or infinite
  // gets no sample of these rows; the other channels do. INVALID_ARGUMENT if `rows` is no whole rows; the server's
  // error if it has refused earlier samples for good, as a frozen session does.
  absl::Status Update(absl::Span<const float> rows);
  absl::Status Update(absl::Span<const double> rows);
  // Adds `count` samples of this mean [C] and biased variance [C], whose smallest and largest are not known.
  absl::Status UpdateFromMoments(absl::Span<const double> mean, absl::Span<const double> var, double count);

  // The statistics as they are now, own samples included.
  std::shared_ptr<const MomentsSnapshot> snapshot() const;
  // As snapshot()->Normalize.
  absl::Status Normalize(absl::Span<const float> x, absl::Span<float> y) const;
  absl::Status Normalize(absl::Span<const double> x, absl::Span<double> y) const;

  // Waits until the server has acknowledged all samples that were added before. After `timeout` UNAVAILABLE or
  // DEADLINE_EXCEEDED, and the samples are kept and sent again; or the error with which the server refuses them.
  absl::Status Flush(absl::Duration timeout);
  // Reads what others have added, with the digest: one call.
  absl::Status Refresh();
  // Flushes, and makes the session refuse every later change, for good. Returns what it is then.
  absl::StatusOr<std::shared_ptr<const MomentsSnapshot>> Freeze(absl::Duration timeout);

  const std::string& name() const { return name_; }  // "sessions/observations"
  int64_t channels() const { return channels_; }

 private:
  RunningMoments(std::string name, int64_t channels, RunningMomentsOptions options, std::unique_ptr<Client> client,
                 std::unique_ptr<client::MomentsSender> sender);
  template <typename T>
  absl::Status UpdateRows(absl::Span<const T> rows);

  const std::string name_;
  const int64_t channels_;
  const RunningMomentsOptions options_;
  const std::unique_ptr<Client> client_;
  const std::unique_ptr<client::MomentsSender> sender_;
};

}  // namespace normd

#endif  // NORMD_CLIENT_CPP_RUNNING_MOMENTS_H_
