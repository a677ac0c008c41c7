#include "server/rpc/grpc_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/text.h"
#include "server/base/status_macros.h"
#include "server/rpc/admission.h"
#include "server/rpc/dispatcher.h"
#include "server/rpc/health_service.h"
#include "server/rpc/normalizer_service.h"
#include "server/rpc/reflection.h"
#include "server/rpc/route.h"
#include "server/rpc/sessions_service.h"
#include "server/rpc/shared_memory_service.h"

namespace normd {

int DefaultQueues() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / 2, 1, 8);
}

// Members in the order of their making: what streams use outlives the dispatcher that waits for them.
class GrpcServer::State {
 public:
  State(GrpcServerOptions options, Engine* engine)
      : options_(std::move(options)),
        admission_(Limits(options_), options_.observer.on_bytes_in_flight),
        context_{&admission_,        &options_.observer, options_.max_message_bytes,
                 &engine->buffers(), options_.regions,   options_.shared_memory_anywhere} {
    dispatcher_.Add(rpc::NormalizerRoutes(&context_, &options_, engine));
    dispatcher_.Add(rpc::SessionsRoutes(&context_, &options_, engine));
    dispatcher_.Add(shared_memory_.Routes());
    dispatcher_.Add(health_.Routes());
  }

  absl::Status Start() {
    grpc::ServerBuilder builder;
    rpc::SetTransportLimits(options_, builder);
    reflection_.AddTo(builder);
    dispatcher_.AddTo(builder, options_.queues != 0 ? options_.queues : DefaultQueues());
    ports_.resize(options_.listeners.size());
    for (size_t i = 0; i < ports_.size(); ++i) {
      builder.AddListeningPort(options_.listeners[i], grpc::InsecureServerCredentials(), &ports_[i]);
    }
    server_ = builder.BuildAndStart();
    if (absl::Status status = CheckBound(); !status.ok()) {
      Shutdown(absl::ZeroDuration());
      return status;
    }
    dispatcher_.Start();
    health_.SetServing(true);
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) {
    std::call_once(shutdown_, [this, grace] {
      health_.SetServing(false);
      health_.EndWatches();
      shared_memory_.EndRegistrations();
      const absl::Duration bounded = std::min(grace, absl::Hours(24));  // an infinite one does not fit a time_point
      if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(bounded));
      dispatcher_.Stop();
    });
  }

  const std::vector<int>& ports() const { return ports_; }
  rpc::HealthService& health() { return health_; }

 private:
  static rpc::AdmissionLimits Limits(const GrpcServerOptions& options) {
    return {options.max_in_flight_bytes, rpc::MaxCallerBytes(options)};
  }

  absl::Status CheckBound() const {
    for (size_t i = 0; i < ports_.size(); ++i) {
      if (ports_[i] == 0) return absl::UnavailableError(Concat("cannot listen on ", options_.listeners[i]));
    }
    return server_ != nullptr ? absl::OkStatus() : absl::UnavailableError("the gRPC server does not start");
  }

  const GrpcServerOptions options_;
  rpc::Admission admission_;
  const rpc::RouteContext context_;
  rpc::SharedMemoryService shared_memory_{&context_, options_.regions};
  rpc::HealthService health_;
  rpc::Reflection reflection_{options_.reflection};
  rpc::Dispatcher dispatcher_{&options_.observer};
  std::vector<int> ports_;
  std::unique_ptr<grpc::Server> server_;
  std::once_flag shutdown_;
};

GrpcServer::GrpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options, Engine* engine) {
  NORMD_RETURN_IF_ERROR(rpc::CheckOptions(options));
  auto state = std::make_unique<State>(std::move(options), engine);
  NORMD_RETURN_IF_ERROR(state->Start());
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(state)));
}

const std::vector<int>& GrpcServer::ports() const { return state_->ports(); }
void GrpcServer::SetServing(bool serving) { state_->health().SetServing(serving); }
void GrpcServer::Shutdown(absl::Duration grace) { state_->Shutdown(grace); }

}  // namespace normd
