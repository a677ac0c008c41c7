// Connects the observers of rpc, the device scheduler and the session store to metrics and logs, so that those layers
// know neither.
// In the path: beside it; server.cc and make_backend.cc pass the observers on.
// Threads: an observer's functions run on queue, backend and store threads, several at a time.
#ifndef NORMD_SERVER_TELEMETRY_H_
#define NORMD_SERVER_TELEMETRY_H_

#include "server/metrics.h"
#include "server/obs/log.h"
#include "server/rpc/transport/observer.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/durable/durable_store.h"

namespace normd {

// The label values of a server: its methods and norms, and the labels of normd_build_info.
MetricsOptions DefaultMetricsOptions();

// These three borrow `metrics` and `log`, which must outlive every call of the observer.
RpcObserver MakeObserver(Metrics* metrics, Log* log);

SchedulerObserver MakeSchedulerObserver(Metrics* metrics, Log* log);

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log);

}  // namespace normd

#endif  // NORMD_SERVER_TELEMETRY_H_
