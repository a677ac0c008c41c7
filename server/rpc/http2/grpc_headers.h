// The texts of gRPC's header fields: timeouts, percent-encoded messages, binary values in base64, content types.
// In the path: first for a call's headers, last for its trailers. The format is that of gRPC over HTTP/2
// (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). Threads: pure functions.
#ifndef NORMD_SERVER_RPC_HTTP2_GRPC_HEADERS_H_
#define NORMD_SERVER_RPC_HTTP2_GRPC_HEADERS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace normd::rpc::http2 {

// Parses grpc-timeout, one to eight digits and a unit: "250m". Returns nullopt for anything else.
std::optional<absl::Duration> ParseTimeout(std::string_view text);

// Encodes grpc-message: visible ASCII and the space, but for '%', stay as they are.
std::string PercentEncode(std::string_view text);

// Base64 without padding, as values of "-bin" keys are sent.
std::string EncodeBinary(std::string_view bytes);
// Decodes the value of a "-bin" key, padded or not. Returns nullopt if it is not base64.
std::optional<std::string> DecodeBinary(std::string_view text);

// Whether a content type is gRPC's with messages of protobuf, which are the only ones read here: "application/grpc" or
// "application/grpc+proto", alone or followed by parameters.
bool IsGrpcContentType(std::string_view type);

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_GRPC_HEADERS_H_
