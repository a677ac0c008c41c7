// Connects the observers of rpc, the device scheduler, the session store and the certificates to metrics and logs, so
// that those layers know neither.
// In the path: beside it; server.cc and make_backend.cc pass the observers on.
// Threads: an observer's functions run on queue, backend and store threads, several at a time.
#ifndef NORMD_SERVER_WIRING_TELEMETRY_H_
#define NORMD_SERVER_WIRING_TELEMETRY_H_

#include <functional>

#include "absl/status/status.h"
#include "server/engine/engine.h"
#include "server/obs/log.h"
#include "server/rpc/edge/observer.h"
#include "server/schedule/device_scheduler.h"
#include "server/security/access_stats.h"
#include "server/security/server_certificates.h"
#include "server/session/durable/durable_options.h"
#include "server/wiring/audit_log.h"
#include "server/wiring/metrics.h"
#include "server/wiring/tracing.h"

namespace normd {

// The label values of a server: its methods and norms, and the labels of normd_build_info.
MetricsOptions DefaultMetricsOptions();

// These four borrow their arguments, which must outlive every call of the observer. `audit` and `tracing` may be null.
RpcObserver MakeObserver(Metrics* metrics, Log* log, AuditLog* audit = nullptr, Tracing* tracing = nullptr);

std::function<void(RulesFile file, const absl::Status& status)> MakeRulesObserver(Log* log);

// Borrows `metrics`, which must outlive every call of the observer.
EngineObserver MakeEngineObserver(Metrics* metrics);

SchedulerObserver MakeSchedulerObserver(Metrics* metrics, Log* log);

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log);

// Logs reloads, failures and expiry of the server's certificates. Borrows `log` in the same way.
ServerCertificates::Observer MakeCertificateObserver(Log* log);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_TELEMETRY_H_
