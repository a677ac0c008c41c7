// The server's errors as absl::Status. The google.rpc details travel as a payload of the status; GetErrorInfo reads
// them.
//
//   const absl::StatusOr<normd::v1::NormalizeResponse> response = client->Normalize(request);
//   if (const auto info = normd::client::GetErrorInfo(response.status())) {
//     if (info->reason == "EPS_OUT_OF_RANGE") std::cerr << info->field << " must be " << info->limit << "\n";
//   }
//
// Print an error with ToText: `std::cerr << status` would add the payload's bytes.
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

// The parts of an error next to its code and message. Absent parts are empty.
struct ErrorInfo {
  std::string field;                          // the path in the .proto, "spec.layer_norm.eps", or a limit's name
  std::string description;                    // what is wrong with the field
  std::string reason;                         // UPPER_SNAKE, stable, for programs to compare: "EPS_OUT_OF_RANGE"
  std::string value;                          // the value that was sent
  std::string limit;                          // the values that are allowed
  std::string resource;                       // the name of the resource that was not found
  std::optional<absl::Duration> retry_delay;  // how long the server asks to wait before a retry
};

// The details of a status that a Client, a batch item or a stream reply returned. nullopt for other statuses, and for
// errors that reached no server.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// What the server's logs and traces call the call that failed: who reports an error quotes it. Empty for other
// statuses, for batch items and stream replies, and where no server answered.
std::string GetRequestId(const absl::Status& status);

// What a person reads: "INVALID_ARGUMENT: spec.layer_norm.eps is -1; it must be finite and at least 0", in one line and
// with '?' in place of control characters, which a terminal would obey. "OK" for an OkStatus.
std::string ToText(const absl::Status& status);

// The status of a batch item, or of a stream reply's `error`. Code 0 is OkStatus.
absl::Status ToStatus(const google::rpc::Status& proto);

// A status of `code` (gRPC and absl use the same numbers). `details` are the bytes of the grpc-status-details-bin
// trailer, or empty.
absl::Status MakeStatus(int code, absl::string_view message, absl::string_view details);

// `status`, which is no OkStatus, with the request id that GetRequestId returns.
absl::Status WithRequestId(absl::Status status, absl::string_view id);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_STATUS_H_
