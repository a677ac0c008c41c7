#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "server/base/steady_time.h"
#include "server/net/listening_socket.h"
#include "server/rpc/codec/call_decoder.h"
#include "server/rpc/edge/accept_loop.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/dispatcher.h"
#include "server/rpc/edge/read_limiter.h"
#include "server/rpc/edge/route.h"
#include "server/rpc/edge/transfer_watch.h"
#include "server/rpc/edge/transport_options.h"
#include "server/rpc/grpc/grpc_transport.h"
#include "server/rpc/http2/http2_transport.h"
#include "server/rpc/services/health_service.h"
#include "server/rpc/services/method_names.h"
#include "server/rpc/services/normalizer_service.h"
#include "server/rpc/services/reflection.h"
#include "server/rpc/services/session_watch.h"
#include "server/rpc/services/sessions_service.h"
#include "server/rpc/services/shared_memory_service.h"

namespace normd {

// The order of the members matters: everything that streams use outlives the dispatcher, which waits for them.
class RpcServer::State {
 public:
  State(RpcOptions options, Engine* engine, Resources* resources)
      : options_(std::move(options)),
        admission_({options_.max_in_flight_bytes, rpc::MaxCallerBytes(options_)}, options_.observer.on_bytes_in_flight,
                   options_.quotas),
        context_{.admission = &admission_,
                 .read_limiter = &read_limiter_,
                 .observer = &options_.observer,
                 .max_message_bytes = options_.max_message_bytes,
                 .buffers = resources->buffers.get(),
                 .regions = options_.regions,
                 .shared_memory_anywhere = options_.shared_memory_anywhere,
                 .work_pool = &resources->work_pool,
                 .access = options_.access},
        connections_(rpc::LimitsOfConnections(options_)),
        watches_(&context_, engine),
        transport_(MakeTransport(resources->buffers.get())),
        engine_(engine) {}

  absl::Status Start() {
    NORMD_RETURN_IF_ERROR(AddRoutes());
    std::vector<net::ListeningSocket> sockets;
    for (const std::string& address : options_.listeners) {
      NORMD_ASSIGN_OR_RETURN(std::vector<net::ListeningSocket> bound, net::Listen(address));
      ports_.push_back(bound.front().port());
      if (bound.front().is_unix()) socket_files_.emplace_back(address.substr(net::kUnixPrefix.size()));
      for (net::ListeningSocket& socket : bound) sockets.push_back(std::move(socket));
    }
    if (absl::Status status = dispatcher_.Start(transport_.get()); !status.ok()) {
      Shutdown(absl::ZeroDuration());
      return status;
    }
    transfers_.Start();
    health_.SetServing(true);
    if (absl::Status status = accept_loop_.Start(std::move(sockets)); !status.ok()) {
      Shutdown(absl::ZeroDuration());
      return status;
    }
    return absl::OkStatus();
  }

  // Only a call that exceeds the grace may end with CANCELLED, because clients retry UNAVAILABLE and nothing else. gRPC
  // cancels calls that come after its own shutdown, so it is shut down last, when no connection is left.
  void Shutdown(absl::Duration grace) {
    std::call_once(shutdown_, [this, grace] {
      health_.SetServing(false);
      accept_loop_.Stop();
      health_.EndWatches();
      watches_.End();
      shared_memory_.EndRegistrations();
      read_limiter_.Open();
      transfers_.Drain();
      const absl::Time end = SteadyNow() + grace;
      transport_->Drain();
      dispatcher_.Drain(grace);
      CloseConnections(std::max(end - SteadyNow(), kTimeToClose));
      transport_->Shutdown();
      transfers_.Stop();
      // No operation may start on a queue that was shut down, and a handler that still has its stream may start one.
      dispatcher_.live().WaitForNone();
      transport_->Stop();
    });
  }

  const std::vector<int>& ports() const { return ports_; }
  rpc::HealthService& health() { return health_; }
  bool Serves() const {
    return accept_loop_.serves() && transport_->serves() &&
           std::all_of(socket_files_.begin(), socket_files_.end(), [](const auto& file) { return file.IsThere(); });
  }
  ConnectionStats connections() const { return connections_.stats(); }
  std::map<std::string, int64_t> bytes_by_tenant() const { return admission_.bytes_by_tenant(); }
  WaitStats waiting_reads() const { return read_limiter_.wait_stats(); }
  int64_t in_flight_bytes() const { return admission_.held_bytes(); }
  QueueStats TakeQueueStats() {
    QueueStats stats = transport_->TakeStats();
    stats.calls = dispatcher_.live().calls();
    stats.idle_streams_ended = transfers_.idle_streams_ended();
    stats.watchers = watches_.watchers();
    return stats;
  }

 private:
  // The least time given to the transport to notice that its connections have ended.
  static constexpr absl::Duration kTimeToClose = absl::Seconds(1);

  // Registers a route for every method that the .proto files of normd and of health declare, and for reflection if the
  // option is on.
  absl::Status AddRoutes() {
    std::vector<rpc::Route> routes = rpc::NormalizerRoutes(&context_, &options_, engine_, &decoder_);
    for (std::vector<rpc::Route> more :
         {rpc::SessionsRoutes(&context_, &options_, engine_), shared_memory_.Routes(), health_.Routes()}) {
      std::move(more.begin(), more.end(), std::back_inserter(routes));
    }
    routes.push_back(watches_.MakeRoute());
    NORMD_RETURN_IF_ERROR(rpc::CheckRoutes(routes));
    if (options_.reflection) {
      std::vector<rpc::Route> reflection = rpc::ReflectionRoutes(&context_, routes);
      std::move(reflection.begin(), reflection.end(), std::back_inserter(routes));
    }
    dispatcher_.Add(std::move(routes));
    return absl::OkStatus();
  }

  std::unique_ptr<rpc::RpcTransport> MakeTransport(BufferPool* buffers) {
    if (options_.transport == TransportKind::kGrpc) {
      return std::make_unique<rpc::GrpcTransport>(&options_, &connections_, &admission_);
    }
    return std::make_unique<rpc::Http2Transport>(&options_, &connections_, buffers);
  }

  void CloseConnections(absl::Duration limit) {
    const absl::Time end = SteadyNow() + limit;
    while (true) {
      connections_.Sweep();
      const std::vector<rpc::ConnectionPtr> left = connections_.All();
      if (left.empty() || SteadyNow() >= end) return;
      for (const rpc::ConnectionPtr& connection : left) connection->ShutDown();
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  // Waiting messages have arrived in part; with the budget they add up to the bytes that TransferWatch allows.
  static rpc::ReadLimiter::Patience PatienceOf(const RpcOptions& options) {
    rpc::ReadLimiter::Patience patience = {.longest = options.max_wait_for_room,
                                           .max_message_bytes = options.max_in_flight_bytes / 4 * 3};
    if (options.transport == TransportKind::kNative) patience.most_held_bytes = rpc::Http2Transport::kMostAheadBytes;
    return patience;
  }

  const RpcOptions options_;
  rpc::Admission admission_;
  rpc::ReadLimiter read_limiter_{&admission_, PatienceOf(options_)};
  const rpc::RouteContext context_;
  rpc::CallDecoder decoder_{&context_};
  rpc::ConnectionTable connections_;
  rpc::SharedMemoryService shared_memory_{&context_, options_.regions};
  rpc::HealthService health_;
  rpc::SessionWatch watches_;
  rpc::Dispatcher dispatcher_{&context_, rpc::LimitsOfCalls(options_), &connections_};
  const std::unique_ptr<rpc::RpcTransport> transport_;
  rpc::TransferWatch transfers_{rpc::LimitsOfTransfers(options_),
                                &dispatcher_.live(),
                                &admission_,
                                &read_limiter_,
                                &dispatcher_.places(),
                                transport_.get()};
  rpc::AcceptLoop accept_loop_{{.tls = options_.certificates != nullptr,
                                .setup_timeout = options_.setup_timeout,
                                .on_full = options_.observer.on_connection_limit},
                               &connections_,
                               transport_.get()};
  Engine* const engine_;
  // Constant after Start.
  std::vector<int> ports_;
  std::vector<net::SocketFile> socket_files_;
  std::once_flag shutdown_;
};

RpcServer::RpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(RpcOptions options, Engine* engine, Resources* resources) {
  NORMD_RETURN_IF_ERROR(rpc::CheckOptions(options));
  auto state = std::make_unique<State>(std::move(options), engine, resources);
  NORMD_RETURN_IF_ERROR(state->Start());
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(state)));
}

const std::vector<int>& RpcServer::ports() const { return state_->ports(); }
bool RpcServer::Serves() const { return state_->Serves(); }
ConnectionStats RpcServer::connections() const { return state_->connections(); }
std::map<std::string, int64_t> RpcServer::bytes_by_tenant() const { return state_->bytes_by_tenant(); }
WaitStats RpcServer::waiting_reads() const { return state_->waiting_reads(); }
int64_t RpcServer::in_flight_bytes() const { return state_->in_flight_bytes(); }
QueueStats RpcServer::TakeQueueStats() { return state_->TakeQueueStats(); }
void RpcServer::SetServing(bool serving) { state_->health().SetServing(serving); }
void RpcServer::Shutdown(absl::Duration grace) { state_->Shutdown(grace); }

}  // namespace normd
