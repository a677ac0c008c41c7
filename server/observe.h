// Connects what rpc and the session store report to metrics and logs, so that neither knows the other.
// In the path: after it. Threads: the observer's functions run on queue, backend and store threads, several at a time.
#ifndef NORMD_SERVER_OBSERVE_H_
#define NORMD_SERVER_OBSERVE_H_

#include <string_view>

#include "absl/types/span.h"
#include "server/obs/log.h"
#include "server/obs/metrics.h"
#include "server/rpc/connection_figures.h"
#include "server/rpc/observer.h"
#include "server/rpc/queue_figures.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/durable_store.h"

namespace normd {

// Every RPC that is counted, as RequestRecord names it: the values of the label `method`. A test compares it with the
// services of the .proto files.
absl::Span<const std::string_view> CountedRpcs();

// The closed lists of label values, and what normd_build_info says.
MetricsOptions DefaultMetricsOptions();

// Borrows both; they must outlive whoever calls the observer.
RpcObserver MakeObserver(Metrics* metrics, Log* log);

SchedulerObserver MakeSchedulerObserver(Metrics* metrics, Log* log);

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log);
void SetTransportMetrics(const ConnectionFigures& connections, const QueueFigures& queues, Metrics* metrics);
void SetStoreMetrics(const StoreFigures& figures, Metrics* metrics);

}  // namespace normd

#endif  // NORMD_SERVER_OBSERVE_H_
