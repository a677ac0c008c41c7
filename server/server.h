// The whole of normd in one object: the only place that wires and starts backends, store, engine, and the gRPC and
// admin listeners.
// In the path: around it; main makes one Server. The choice of backends and of the store is in make_backend.cc and
// make_store.cc.
// Threads: Start, Reload, Drain and the destructor are called from one thread.
#ifndef NORMD_SERVER_SERVER_H_
#define NORMD_SERVER_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admin/admin_server.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/periodic_thread.h"
#include "server/base/resources.h"
#include "server/base/tenant_quotas.h"
#include "server/engine/engine.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/options/listen.h"
#include "server/rpc/rpc_server.h"
#include "server/security/access_control.h"
#include "server/security/server_certificates.h"
#include "server/session/session_store.h"
#include "server/wiring/audit_log.h"
#include "server/wiring/idle_trimmer.h"
#include "server/wiring/make_backend.h"
#include "server/wiring/metrics.h"
#include "server/wiring/shared_memory.h"
#include "server/wiring/stats.h"
#include "server/wiring/store_trouble.h"
#include "server/wiring/tracing.h"

namespace normd {

class Server {
 public:
  // Returns a server that serves. Borrows `log`, which must outlive the server. An error says which listener or file
  // failed, and leaves nothing behind. `on_store_failed` runs at most once, on a thread of the store, when a flush
  // failed: the caller then drains the server and exits with failure.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Log* log,
                                                       std::function<void()> on_store_failed = nullptr);

  // Cancels the calls that still run. Call Drain first to let them finish.
  ~Server();

  // The bound addresses: "grpc=127.0.0.1:8001", "grpc=unix:/run/normd.sock", "admin=127.0.0.1:8002".
  const std::vector<std::string>& listeners() const { return listeners_; }

  // Takes over the options of `config` that can change while the server serves, and logs each change, as well as each
  // change that needs a restart. No call fails for it. The log's own options are the caller's to change.
  void Reload(const Config& config);
  // The same when the options could not be read because of `why`: logs and counts it, and all options stay as they are.
  void RefuseReload(const absl::Status& why);
  // Reads the files of certificates, tokens and policy now instead of within a few seconds, and opens the audit log
  // anew. What cannot be used is logged and leaves everything as it was. Safe from any thread.
  void ReloadFiles();

  // The options as they are now.
  const Config& config() const { return config_; }

  // Makes health and /readyz report that the server does not serve; refuses new calls after drain_settle; then gives
  // running calls drain_timeout to finish. Returns when no call runs.
  void Drain();

 private:
  Server(const Config& config, Log* log);

  absl::Status Serve(std::function<void()> on_store_failed);
  absl::Status OpenStore(std::function<void()> on_store_failed);
  absl::Status OpenSecurity();
  void SetQuotas();
  absl::Status OpenCertificates();
  absl::Status ServeAdmin();
  absl::StatusOr<std::vector<ListenAddress>> PrepareListeners();
  absl::Status ServeGrpc();
  absl::Status WritePortFile() const;
  void LogStart() const;
  void LogSharedMemory() const;
  ServingState State() const;
  StatusFacts Status() const;
  // Where the sessions are, with the room that is left there; "" for PostgreSQL and memory.
  std::string StorePlace() const;
  // Problems that an operator has to solve.
  std::vector<std::string> Problems() const;
  // Sets the metrics that are read and not counted. `scrape`: figures since the last scrape begin anew.
  void ReadStats(bool scrape);
  TenantStats StatsOfTenants() const;
  TrimmerHooks MakeTrimmerHooks();

  // Constant after Start, except `state_` and the options that Reload changes. Order matters: each member uses those
  // above it.
  Config config_;            // Reload changes reloadable options, which the thread that calls Reload reads, and Status
  mutable Mutex reload_mu_;  // held while Reload changes options, and while Status reads those
  ReloadStats reloads_ ABSL_GUARDED_BY(reload_mu_);
  Log* const log_;
  SystemClock clock_;
  SteadyClock steady_clock_;
  const absl::Time start_time_;
  Metrics metrics_;
  Mutex set_quotas_mu_;  // held while the quotas of the policy in force are set, so that those of the newest stay
  TenantQuotaTable quotas_;
  const OpenedBackend backend_;
  StoreTrouble store_trouble_;
  std::unique_ptr<SessionStore> sessions_;
  Resources resources_;  // outlives the engine, which has answered every call by the time that the work pool ends
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<Tracing> tracing_;
  std::vector<std::string> listeners_;
  UnixSocketAccess socket_access_;                    // of unix_paths_
  std::vector<std::string> unix_paths_;               // socket files, removed by the destructor
  std::unique_ptr<SharedMemory> shared_memory_;       // null when shared memory is off
  std::unique_ptr<ServerCertificates> certificates_;  // null without TLS
  std::atomic<ServingState> state_ = ServingState::kStarting;
  std::unique_ptr<RpcServer> grpc_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<PeriodicTrimmer> trimmer_;
  std::unique_ptr<PeriodicThread> rules_watch_;  // null without files to watch

  absl::Duration longest_callback_;  // of a queue since the last scrape; used by the thread of the slow admin pages
};

}  // namespace normd

#endif  // NORMD_SERVER_SERVER_H_
