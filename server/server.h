// The whole of normd in one object: the only place that wires and starts backends, store, engine, and the gRPC and
// admin listeners.
// In the path: around it; main makes one Server. The choice of backends and of the store is in make_backend.cc and
// make_store.cc.
// Threads: Start, Drain and the destructor are called from one thread.
#ifndef NORMD_SERVER_SERVER_H_
#define NORMD_SERVER_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admin/admin_server.h"
#include "server/base/clock.h"
#include "server/base/resources.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/idle_trimmer.h"
#include "server/listen.h"
#include "server/make_backend.h"
#include "server/metrics.h"
#include "server/obs/log.h"
#include "server/rpc/grpc_server.h"
#include "server/session/session_store.h"
#include "server/shared_memory.h"

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

  // Makes health and /readyz report that the server does not serve; refuses new calls after drain_settle; then gives
  // running calls drain_timeout to finish. Returns when no call runs.
  void Drain();

 private:
  Server(const Config& config, Log* log);

  absl::Status Serve(std::function<void()> on_store_failed);
  absl::Status OpenStore(std::function<void()> on_store_failed);
  absl::Status ServeAdmin();
  absl::StatusOr<std::vector<ListenAddress>> PrepareListeners();
  absl::Status ServeGrpc();
  absl::Status WritePortFile() const;
  void LogStart() const;
  void LogSharedMemory() const;
  ServingState State() const;
  StatusFacts Status() const;
  std::string MetricsText();
  TrimmerHooks MakeTrimmerHooks();

  // Constant after Start, `state_` apart. Order matters: each member uses those above it.
  const Config config_;
  Log* const log_;
  SystemClock clock_;
  SteadyClock steady_clock_;
  const absl::Time start_time_;
  Metrics metrics_;
  const OpenedBackend backend_;
  std::unique_ptr<SessionStore> sessions_;
  Resources resources_;  // outlives the engine, which has answered every call by the time that the work pool ends
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> listeners_;
  std::vector<std::string> unix_paths_;          // socket files, removed by the destructor
  std::unique_ptr<SharedMemory> shared_memory_;  // null when shared memory is off
  std::atomic<ServingState> state_ = ServingState::kStarting;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<PeriodicTrimmer> trimmer_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SERVER_H_
