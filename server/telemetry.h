// Connects what rpc and the session store report to metrics and logs, so that neither knows the other.
// In the path: after it. Threads: the observer's functions run on queue, backend and store threads, several at a time.
#ifndef NORMD_SERVER_TELEMETRY_H_
#define NORMD_SERVER_TELEMETRY_H_

#include "server/metrics.h"
#include "server/obs/log.h"
#include "server/rpc/transport/observer.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/durable/durable_store.h"

namespace normd {

// The closed lists of label values, and what normd_build_info says.
MetricsOptions DefaultMetricsOptions();

// Borrows both; they must outlive whoever calls the observer.
RpcObserver MakeObserver(Metrics* metrics, Log* log);

SchedulerObserver MakeSchedulerObserver(Metrics* metrics, Log* log);

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log);

}  // namespace normd

#endif  // NORMD_SERVER_TELEMETRY_H_
