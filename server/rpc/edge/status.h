// The one place where an absl::Status becomes a reply to the caller: a code, a message and google.rpc details.
// In the path: last, for every error. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_EDGE_STATUS_H_
#define NORMD_SERVER_RPC_EDGE_STATUS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace normd::rpc {

// Converts an error with its details: always ErrorInfo (domain "normd", metadata field, value and limit where they are
// known), BadRequest for INVALID_ARGUMENT, ResourceInfo for NOT_FOUND, and RetryInfo if MayPassLater. Texts are cut so
// that all of it fits into the trailers that a client accepts by default. Returns an empty message for OK.
google::rpc::Status ToMessage(const absl::Status& status);

// Converts the code and the message alone, which is cut to `max_message_bytes`.
google::rpc::Status ToShortMessage(const absl::Status& status, size_t max_message_bytes);

// A status as it travels in trailers.
struct RpcStatus {
  int code = 0;             // grpc-status: the number of an absl::StatusCode, which are the same as gRPC's
  std::string message;      // grpc-message, before it is percent-encoded
  std::string details_bin;  // grpc-status-details-bin, before base64: the message above; empty for OK
};

RpcStatus ToRpcStatus(const absl::Status& status);

// Keys are in lower case and values are visible ASCII. The transport adds the status itself.
using Trailers = std::vector<std::pair<std::string, std::string>>;

// How a call ends.
struct RpcEnd {
  RpcStatus status;
  Trailers trailers;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_STATUS_H_
