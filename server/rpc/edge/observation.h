// Times and counts one request while it is handled, and reports twice: just before the reply goes to the transport, and
// when the transport has written it.
// In the path: beside a request, from its message's arrival to its last byte. Threads: thread-compatible.
#ifndef NORMD_SERVER_RPC_EDGE_OBSERVATION_H_
#define NORMD_SERVER_RPC_EDGE_OBSERVATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/steady_time.h"
#include "server/rpc/edge/observer.h"

namespace normd::rpc {

class Observation {
 public:
  // Borrows `observer` (which may be null) until destruction, and `rpc` until the reply is written. Time starts now.
  Observation(const RpcObserver* observer, std::string_view rpc, const RequestOrigin& origin);
  Observation(Observation&&) noexcept = default;
  Observation& operator=(Observation&& other) noexcept;
  // Reports the end of writing if that was not reported.
  ~Observation() { Written(); }

  RequestRecord& record() { return state_->record; }

  // Says that the call's headers came at `headers`, so that the time since then was the time of receiving.
  void ReceivedSince(absl::Time headers);

  // The time since the message's arrival.
  absl::Duration Elapsed() const { return SteadyNow() - state_->arrived; }
  // Says that the request has waited for a thread since its message arrived.
  void ThreadFound() { state_->thread_wait = Elapsed(); }
  // Records the time until now, without the wait for a thread, as the time of decoding.
  void DecodeDone() { state_->record.decode = Elapsed() - state_->thread_wait; }

  // Reports the request to the observer. REQUIRES: called at most once.
  void Finish(const absl::Status& status, int64_t response_bytes);
  // The explanation for a caller that asked for one; empty if it did not ask. REQUIRES: Finish was called.
  std::string Explain() const;
  // Reports that the reply was written. Does nothing if the request was not finished or this was reported before.
  void Written();

 private:
  // Apart from the observation, which moves from stage to stage.
  struct State {
    const RpcObserver* observer;
    absl::Time arrived;
    absl::Duration thread_wait;
    absl::Time finished = absl::InfiniteFuture();
    RequestRecord record;
  };

  std::unique_ptr<State> state_;  // null after a move, and when the end of writing was reported
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_OBSERVATION_H_
