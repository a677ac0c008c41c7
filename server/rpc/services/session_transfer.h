// ExportSession and ImportSession: a session's record in chunks, so that it is never larger than a message allows.
// In the path: beside sessions_service.h, on Stream itself, because messages come and go one by one.
#ifndef NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_
#define NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_

#include <cstdint>
#include <string>

#include "server/engine/engine.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

// Everything is borrowed and must outlive the methods' streams.
Route ExportSessionRoute(const RouteContext* context, int64_t chunk_bytes, Engine* engine);
Route ImportSessionRoute(const RouteContext* context, Engine* engine);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_
