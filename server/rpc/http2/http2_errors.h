// The errors that the transport itself answers calls with, each named once.
// In the path: where a call ends before the services see it whole. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_ERRORS_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_ERRORS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace normd::rpc::http2 {

// RESOURCE_EXHAUSTED: a prefix announces a message of `bytes`.
absl::Status MessageTooLargeError(int64_t bytes, int64_t limit);
// RESOURCE_EXHAUSTED: the headers of a call have `bytes`, as HTTP/2 counts them.
absl::Status MetadataTooLargeError(int64_t bytes, int64_t limit);
// UNIMPLEMENTED: the caller compresses its messages by `encoding`.
absl::Status CompressedError(std::string_view encoding);
// INTERNAL: the value of the header `key` cannot be read.
absl::Status MalformedHeaderError(std::string_view key);
// INTERNAL: the caller half-closed in the middle of a message.
absl::Status TruncatedMessageError();
// DEADLINE_EXCEEDED: the caller's deadline passed before the call was answered.
absl::Status DeadlineError();

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_ERRORS_H_
