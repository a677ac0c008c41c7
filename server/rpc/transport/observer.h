// What the rpc layer tells the outside about finished work: metrics and logs hang here, and rpc knows neither.
// Threads: the callbacks come from queue, backend and store threads, several at a time; they must not block.
#ifndef NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_
#define NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace normd {

// One finished request. NormalizeStream gives one for each item answered, and one more (no rows) for a stream that
// ended with an error. Health checks and reflection are not counted.
struct RequestRecord {
  // "Normalizer/Normalize"; "unknown" for a method that does not exist, so that callers cannot make new label values.
  std::string_view rpc;
  // "layer_norm"; "mixed" for a batch of several; empty where no method is involved or the request was refused early.
  std::string_view norm_method;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // of a code that is not OK
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  int64_t rows = 0;         // statistic sets computed
  int64_t batch_items = 0;  // BatchNormalize: items in the request
  int64_t batch_items_failed = 0;
  absl::Duration decode, compute, commit, encode;
  absl::Duration total;  // from the message's arrival to the hand-over of the reply to the transport
};

// Empty functions are not called.
struct RpcObserver {
  std::function<void(const RequestRecord& record)> on_request_done;
  // Bytes of requests held at the moment, after every change.
  std::function<void(int64_t bytes)> on_bytes_in_flight;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_OBSERVER_H_
