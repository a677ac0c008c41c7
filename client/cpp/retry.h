// Which failed calls are sent again, and when. Decisions alone: no clock, no sleep, no gRPC; the Client acts on them.
#ifndef NORMD_CLIENT_CPP_RETRY_H_
#define NORMD_CLIENT_CPP_RETRY_H_

#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

struct RetryOptions {
  int max_attempts = 5;  // the first one counted; 1 never retries
  // Of a call that was refused for want of room: the server is there and says when to come back. At least max_attempts
  // counts; never more than one where that is 1.
  int max_attempts_for_room = 8;
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  double multiplier = 2;
  double jitter = 0.2;  // each wait is drawn from (1 - jitter, 1 + jitter) times the backoff
  // Of all calls of a client, see RetryBudget. 0 tokens: as many retries as the above allows.
  double budget_tokens = 100;
  double budget_return = 0.1;
};

// How much a client may still send again, as gRPC's own retry throttling has it: each retry takes a token, each call
// that succeeds gives a part of one back, and with half of the tokens gone nothing is sent again. So a restart is
// bridged, and a server that stays overloaded gets a tenth more requests than without retries and not eight times as
// many. Safe from any thread.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options) : options_(options), tokens_(options.budget_tokens) {}

  void NoteSuccess();
  // Whether a retry may be sent now; takes its token.
  bool Take();

 private:
  const RetryOptions options_;
  std::mutex mu_;
  double tokens_;  // guarded by mu_
};

// Whether sending `request` twice changes nothing more than sending it once: stateless calls, inference and validation
// on sessions, and training steps that carry a StepId. Never sent again are a training step without one, and a request
// whose y replaces x in shared memory.
bool IsSafeToRetry(const v1::NormalizeRequest& request);
bool IsSafeToRetry(const v1::BatchNormalizeRequest& request);  // every item is
bool IsSafeToRetry(const v1::CommitMomentsRequest& request);   // it carries a StepId

// How long to wait before attempt number `attempt` + 1 (attempts count from 1), or nothing: the status is final. Sent
// again are UNAVAILABLE, and RESOURCE_EXHAUSTED that carries a RetryInfo; a RetryInfo's delay is a lower bound of the
// wait. `uniform` in [0, 1) draws the jitter. Nothing is returned when the wait would reach `remaining`.
std::optional<absl::Duration> NextWait(const RetryOptions& options, const absl::Status& status, int attempt,
                                       absl::Duration remaining, double uniform);

// A random number in [0, 1). From the system's source of randomness: retries are rare, and need no state then.
double DrawUniform();

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_RETRY_H_
