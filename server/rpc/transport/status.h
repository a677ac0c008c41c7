// The one place where an absl::Status becomes what callers see: a code, a message and google.rpc details.
// In the path: last, for everything that went wrong. Pure functions.
#ifndef NORMD_SERVER_RPC_TRANSPORT_STATUS_H_
#define NORMD_SERVER_RPC_TRANSPORT_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace normd::rpc {

// With ErrorInfo always (domain "normd", metadata field, value and limit where they are known), BadRequest for
// INVALID_ARGUMENT, RetryInfo for what may pass later (MayPassLater), ResourceInfo for NOT_FOUND. Text that came from
// the caller is cut so that the whole fits into the trailers that a client accepts by default.
google::rpc::Status ToMessage(const absl::Status& status);

// The same with the message above as grpc-status-details-bin.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_STATUS_H_
