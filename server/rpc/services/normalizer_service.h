// normd.v1.Normalizer. Each method reads as decode, call, encode; NormalizeStream is in normalize_stream.h, and
// Describe in describe.h.
// In the path: between the transport and the engine.
// Threads: handlers run on a queue's thread or on the work pool; replies are sent from the thread on which the engine
// finishes.
#ifndef NORMD_SERVER_RPC_SERVICES_NORMALIZER_SERVICE_H_
#define NORMD_SERVER_RPC_SERVICES_NORMALIZER_SERVICE_H_

#include <vector>

#include "server/engine/engine.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/edge/route.h"
#include "server/rpc/edge/rpc_options.h"

namespace normd::rpc {

// Makes the routes. Borrows all pointers, which must outlive the methods' streams.
std::vector<Route> NormalizerRoutes(const RouteContext* context, const RpcOptions* options, Engine* engine,
                                    CallDecoder* decoder);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_NORMALIZER_SERVICE_H_
