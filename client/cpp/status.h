// Statuses of the server as absl::Status. The google.rpc details travel as a payload and are read with GetErrorInfo.
// Pure functions, safe from any thread.
#ifndef NORMD_CLIENT_CPP_STATUS_H_
#define NORMD_CLIENT_CPP_STATUS_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"

namespace normd::client {

// What the server said about an error, next to code and message. Absent parts are empty.
struct ErrorInfo {
  std::string field;        // path as in the .proto: "spec.layer_norm.eps"
  std::string description;  // of the field's violation
  std::string reason;       // UPPER_SNAKE, stable: "EPS_OUT_OF_RANGE"
  std::string value;        // what was sent
  std::string limit;        // what would have been right
  std::string resource;     // the name that was not found
  std::optional<absl::Duration> retry_delay;
};

// The details of a status that a Client, a batch item or a stream reply returned; nothing for other statuses and for
// errors that never reached a server.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// The status of a batch item or of a stream's `error`. Code 0 is OkStatus.
absl::Status ToStatus(const google::rpc::Status& proto);

// A status of `code` (gRPC's and absl's numbers agree) whose details are the bytes of grpc-status-details-bin.
absl::Status MakeStatus(int code, absl::string_view message, absl::string_view details);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_STATUS_H_
