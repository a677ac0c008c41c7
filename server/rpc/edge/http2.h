// The few constants of HTTP/2's framing (RFC 9113) that are needed outside of nghttp2 and gRPC's library.
#ifndef NORMD_SERVER_RPC_EDGE_HTTP2_H_
#define NORMD_SERVER_RPC_EDGE_HTTP2_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd::rpc::http2 {

// Section 3.4: the fixed bytes with which a client begins a connection. A SETTINGS frame follows them.
inline constexpr std::string_view kMagic = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Section 4.1: length (3 bytes), type (1), flags (1), stream id (4).
inline constexpr size_t kFrameHeaderBytes = 9;
inline constexpr uint8_t kSettingsType = 4;
inline constexpr uint8_t kHeadersType = 1;
inline constexpr uint8_t kGoAwayType = 7;
// An empty SETTINGS frame.
inline constexpr std::string_view kEmptySettings("\0\0\0\4\0\0\0\0\0", kFrameHeaderBytes);

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_EDGE_HTTP2_H_
