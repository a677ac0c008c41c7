// Submits the header blocks of a reply to nghttp2: the first one, the trailers, and both in one.
// In the path: last but for the output. Threads: the loop's thread only.
#ifndef NORMD_SERVER_RPC_HTTP2_REPLY_HEADERS_H_
#define NORMD_SERVER_RPC_HTTP2_REPLY_HEADERS_H_

#include <nghttp2/nghttp2.h>

#include "server/rpc/edge/status.h"

namespace normd::rpc::http2 {

// Begins a reply with messages, which `body` gives.
void SubmitReply(nghttp2_session* session, int32_t stream_id, const nghttp2_data_provider& body);
// Ends a reply that was begun.
void SubmitTrailers(nghttp2_session* session, int32_t stream_id, const RpcEnd& end);
// A reply without messages: one header block.
void SubmitTrailersOnly(nghttp2_session* session, int32_t stream_id, const RpcEnd& end);
// The answer of a request that is none of gRPC's.
void SubmitHttpStatus(nghttp2_session* session, int32_t stream_id, int status);

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_REPLY_HEADERS_H_
