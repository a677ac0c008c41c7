// nghttp2's session of one connection: how it is set up, and the functions through which it calls back.
// In the path: between the connection's bytes and its streams. Threads: the loop's thread only.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_SESSION_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_SESSION_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/rpc/edge/rpc_options.h"

namespace normd::rpc::http2 {

class Http2Connection;

// The bytes that the peer may send on a stream before they are read: a tensor of 64 KiB and the rest of its message.
// With HTTP/2's default of 65,535 bytes the last bytes of such a message wait for a window, one round trip later.
inline constexpr int64_t kInitialWindowBytes = 68 << 10;

struct SessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
using SessionPtr = std::unique_ptr<nghttp2_session, SessionDeleter>;

// Makes a server's session, which has queued its SETTINGS. Its events go to `connection`. Null without memory.
SessionPtr MakeSession(Http2Connection* connection, const RpcOptions& options);

// nghttp2's read callback of a reply, whose source is an Http2Call.
ssize_t OfferBody(nghttp2_session* session, int32_t stream_id, uint8_t* buffer, size_t most, uint32_t* flags,
                  nghttp2_data_source* source, void* connection);

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_SESSION_H_
