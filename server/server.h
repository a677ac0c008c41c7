// The whole of normd in one object: backend, store, engine, gRPC and admin listeners, wired and started in one place.
// In the path: around it; the only code that knows which stores and backends there are. main makes one.
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
  // Serves when it returns. Borrows `log`. Errors say which listener or file could not be had; nothing is left behind.
  // `on_store_failed` runs at most once, on a thread of the store: a flush failed, the server is to be drained and to
  // end with failure.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config, Log* log,
                                                       std::function<void()> on_store_failed = nullptr);

  // Cancels what still runs; call Drain first to let it finish.
  ~Server();

  // "grpc=127.0.0.1:8001", "grpc=unix:/run/normd.sock", "admin=127.0.0.1:8002": as bound.
  const std::vector<std::string>& listeners() const { return listeners_; }

  // Health and /readyz say no; after drain_settle new calls are refused; those in flight have drain_timeout to finish.
  // Returns when none runs.
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

  // Constant after Start. Order matters: each uses those above it.
  const Config config_;
  Log* const log_;
  SystemClock clock_;
  SteadyClock steady_clock_;
  const absl::Time start_time_;
  Metrics metrics_;
  const OpenedBackend backend_;
  std::unique_ptr<SessionStore> sessions_;
  Resources resources_;  // the pool ends after the engine, which by then has answered everything
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> listeners_;
  std::vector<std::string> unix_paths_;          // to be removed at the end
  std::unique_ptr<SharedMemory> shared_memory_;  // null: off
  std::atomic<ServingState> state_ = ServingState::kStarting;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<PeriodicTrimmer> trimmer_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SERVER_H_
