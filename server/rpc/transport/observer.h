// How the rpc layer reports finished requests. Metrics and logs are attached here (server/telemetry.h), so that rpc
// knows neither.
// In the path: beside it, at the end of each request.
// Threads: the callbacks run on queue, backend and store threads, several at a time, and must not block.
#ifndef NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_
#define NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace normd {

// One finished request. NormalizeStream reports one record for each item answered, and one more (without rows) for a
// stream that ended with an error. Health checks and reflection are not reported.
struct RequestRecord {
  // "Normalizer/Normalize"; "unknown" for a method that does not exist, so that callers cannot make new label values.
  std::string_view rpc;
  // "layer_norm"; "mixed" for a batch of several norms; empty where no norm is involved or the request was refused
  // early.
  std::string_view norm_method;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // the error message; empty if OK
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  int64_t rows = 0;         // statistics groups computed
  int64_t batch_items = 0;  // items in a BatchNormalize request
  int64_t batch_items_failed = 0;
  absl::Duration decode, compute, commit, encode;
  absl::Duration total;  // from the message's arrival until just before the reply is handed to the transport
};

// Functions that are empty are not called.
struct RpcObserver {
  std::function<void(const RequestRecord& record)> on_request_done;
  // Runs after every change with the bytes of requests now in flight.
  std::function<void(int64_t bytes)> on_bytes_in_flight;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_
