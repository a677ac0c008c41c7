#include "server/rpc/http2/http2_errors.h"

#include "kernels/base/strings.h"
#include "server/base/errors.h"

namespace normd::rpc::http2 {

absl::Status MessageTooLargeError(int64_t bytes, int64_t limit) {
  return LimitExceededError("message_bytes", bytes, limit, {.option = "--max_message_bytes"});
}

absl::Status MetadataTooLargeError(int64_t bytes, int64_t limit) {
  return LimitExceededError("metadata_bytes", bytes, limit);
}

absl::Status CompressedError(std::string_view encoding) {
  return UnimplementedError("grpc-encoding", Concat("compression by ", encoding));
}

absl::Status MalformedHeaderError(std::string_view key) {
  return absl::InternalError(Concat("the header ", key, " is malformed"));
}

absl::Status TruncatedMessageError() { return absl::InternalError("the message ends before its announced size"); }

absl::Status DeadlineError() { return absl::DeadlineExceededError("the call's deadline passed before its answer"); }

}  // namespace normd::rpc::http2
