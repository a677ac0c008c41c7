// Times and counts one request while it is handled, and reports once, just before the reply goes to the transport.
// In the path: beside a request, from its message's arrival to its reply. Threads: thread-compatible.
#ifndef NORMD_SERVER_RPC_TRANSPORT_OBSERVATION_H_
#define NORMD_SERVER_RPC_TRANSPORT_OBSERVATION_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/transport/observer.h"

namespace normd::rpc {

class Observation {
 public:
  // Borrows `observer` (which may be null) and `rpc` until Finish. Time starts now.
  Observation(const RpcObserver* observer, std::string_view rpc) : observer_(observer) { record_.rpc = rpc; }

  RequestRecord& record() { return record_; }

  absl::Duration Elapsed() const { return absl::FromChrono(std::chrono::steady_clock::now() - start_); }
  // Records the time until now as the time of decoding.
  void DecodeDone() { record_.decode = Elapsed(); }

  // Reports the request to the observer. REQUIRES: called at most once.
  void Finish(const absl::Status& status, int64_t response_bytes) {
    if (observer_ == nullptr || !observer_->on_request_done) return;
    record_.code = status.code();
    record_.message = std::string(status.message());
    record_.response_bytes = response_bytes;
    record_.total = Elapsed();
    observer_->on_request_done(record_);
  }

 private:
  const RpcObserver* observer_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  RequestRecord record_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_OBSERVATION_H_
