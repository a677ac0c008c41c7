// NormalizeStream: many calls on one stream, answered in the order of their arrival.
// In the path: the same decode, call, encode as Normalize, with a window of calls under way and backpressure: while the
// window is full, of calls that run or of replies that the caller does not take, nothing more is read.
#ifndef NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_
#define NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_

#include <string>

#include "server/engine/engine.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

struct StreamLimits {
  int max_calls = 0;             // of one stream, decoded and not yet answered
  int64_t max_tensor_bytes = 0;  // of one tensor that comes in chunks
};

// Everything is borrowed and must outlive the streams.
Route NormalizeStreamRoute(const RouteContext* context, std::string path, const StreamLimits& limits, Engine* engine,
                           CallDecoder* decoder);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_NORMALIZE_STREAM_H_
