// NormalizeStream: many calls on one stream, answered in the order of their arrival.
// In the path: calls take the same steps as Normalize: decode, call, encode. A window bounds the calls in progress and
// gives backpressure: while the window is full of running calls or of replies that the caller does not read, nothing
// more is read.
// Threads: handlers run on queue, pool and engine threads; a mutex guards the state of each stream.
#ifndef NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_
#define NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_

#include <string>

#include "server/engine/engine.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

struct StreamLimits {
  int max_calls = 0;             // calls of one stream that are decoded and not yet answered
  int64_t max_tensor_bytes = 0;  // of one tensor in chunks
};

// Makes the route. Borrows all pointers, which must outlive the streams.
Route NormalizeStreamRoute(const RouteContext* context, std::string path, const StreamLimits& limits, Engine* engine,
                           CallDecoder* decoder);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_
