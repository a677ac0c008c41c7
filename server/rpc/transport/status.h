// The one place where an absl::Status becomes what callers see: a code, a message and google.rpc details.
// In the path: last, for every error. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_TRANSPORT_STATUS_H_
#define NORMD_SERVER_RPC_TRANSPORT_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace normd::rpc {

// Converts an error with its details: always ErrorInfo (domain "normd", metadata field, value and limit where they are
// known), BadRequest for INVALID_ARGUMENT, ResourceInfo for NOT_FOUND, and RetryInfo if MayPassLater. Texts are cut so
// that all of it fits into the trailers that a client accepts by default. Returns an empty message for OK.
google::rpc::Status ToMessage(const absl::Status& status);

// Converts an error to gRPC's form, with the message above as grpc-status-details-bin.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_STATUS_H_
