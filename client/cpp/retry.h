// Which failed calls a Client sends again, and when. Only decisions are made here: no clock, no sleep, no gRPC.
//
//   normd::ClientOptions options;
//   options.deadline = absl::Seconds(2);  // covers the retries
//   options.retry.max_attempts = 1;       // never retries
//   const auto client = normd::Client::Connect("127.0.0.1:8001", options);
//
// Threads: RetryBudget is safe from any thread; the functions are pure, except DrawUniform, which is safe from any
// thread.
#ifndef NORMD_CLIENT_CPP_RETRY_H_
#define NORMD_CLIENT_CPP_RETRY_H_

#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// When a call is tried again. Connect checks the ranges.
struct RetryOptions {
  int max_attempts = 5;  // the first one included; 1 never retries; at least 1
  // As max_attempts, for a call that was refused for want of room (RESOURCE_EXHAUSTED): the server is there and says
  // when to come back. The larger of the two counts, unless max_attempts is 1, which never retries.
  int max_attempts_for_room = 8;
  // The wait before the second attempt; each later wait is `multiplier` times the one before, up to `max_backoff`.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  double multiplier = 2;  // at least 1
  double jitter = 0.2;    // in [0, 1]: each wait is drawn from [1 - jitter, 1 + jitter) times the backoff
  // The budget that all calls of a Client share: see RetryBudget. With 0 tokens there is no budget, and the options
  // above alone bound the retries.
  double budget_tokens = 100;  // the budget when full
  double budget_return = 0.1;  // tokens that a successful call gives back
};

// Bounds the retries of all calls of a Client, like gRPC's own retry throttling: each retry takes a token, each
// successful call gives a part of one back, and while half of the tokens or more are gone nothing is retried. A restart
// of the server is therefore bridged, and a server that stays overloaded gets a tenth more requests than without
// retries, not eight times as many. Safe from any thread.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options) : options_(options), tokens_(options.budget_tokens) {}

  // Gives `budget_return` tokens back, up to a full budget.
  void NoteSuccess();
  // True if a retry may be sent now; takes its token.
  bool Take();

 private:
  const RetryOptions options_;
  std::mutex mu_;
  double tokens_;  // guarded by mu_
};

// True if sending `request` twice changes nothing more than sending it once: stateless calls, inference and validation
// on sessions, and training steps with a StepId. False for a training step without a StepId, and for a request whose y
// replaces x in shared memory.
bool IsSafeToRetry(const v1::NormalizeRequest& request);
bool IsSafeToRetry(const v1::BatchNormalizeRequest& request);  // true if every item is
bool IsSafeToRetry(const v1::CommitMomentsRequest& request);   // true if it carries a StepId

// How long to wait before the attempt after number `attempt` (the first attempt is 1); nullopt if `status` is final.
// UNAVAILABLE is retried, and so is RESOURCE_EXHAUSTED that carries a RetryInfo, whose delay is a lower bound of the
// wait. `uniform` in [0, 1) draws the jitter. nullopt also where the wait would reach `remaining`, the time left to the
// call.
std::optional<absl::Duration> NextWait(const RetryOptions& options, const absl::Status& status, int attempt,
                                       absl::Duration remaining, double uniform);

// A random number in [0, 1) from the system's source. Retries are rare, so no generator's state is kept for them.
double DrawUniform();

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_RETRY_H_
