// ExportSession and ImportSession, which carry a session's record in chunks, so that the record may be larger than a
// message.
// In the path: beside sessions_service.h; uses Stream directly, because messages come and go one by one.
// Threads: handlers run on a queue's thread, on the work pool, or on a thread of the store.
#ifndef NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_
#define NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_

#include <cstdint>
#include <string>

#include "server/engine/engine.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

// Make the routes. Borrow all pointers, which must outlive the methods' streams.
Route ExportSessionRoute(const RouteContext* context, int64_t chunk_bytes, Engine* engine);
Route ImportSessionRoute(const RouteContext* context, Engine* engine);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_SESSION_TRANSFER_H_
