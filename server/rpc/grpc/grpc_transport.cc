#include "server/rpc/grpc/grpc_transport.h"

#include <grpcpp/security/server_credentials.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "server/base/steady_time.h"
#include "server/rpc/grpc/grpc_call.h"
#include "server/rpc/grpc/tag.h"

namespace normd::rpc {
namespace {

constexpr int kSecondMs = 1000;

// The number of RPCs that one queue can take before its thread asks for more; further RPCs wait in gRPC.
constexpr int kAcceptsPerQueue = 64;

// A queue hands out its events before it polls its sockets, so a stream that always has an event would keep every other
// connection unread. The sockets are therefore polled at this interval whatever events are ready, and several times,
// because one poll serves one socket.
constexpr absl::Duration kPollInterval = absl::Milliseconds(1);
constexpr int kPollsAtOnce = 8;
constexpr size_t kMaxReadyEvents = 1024;

struct Event {
  void* tag = nullptr;
  bool ok = false;
};

// Takes the ready events off the queue, which then polls its sockets.
std::vector<Event> TakeReady(grpc::ServerCompletionQueue& queue) {
  std::vector<Event> ready;
  Event event;
  for (int polls = 0; polls < kPollsAtOnce && ready.size() < kMaxReadyEvents;) {
    const auto status = queue.AsyncNext(&event.tag, &event.ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (status == grpc::CompletionQueue::SHUTDOWN) break;
    if (status == grpc::CompletionQueue::GOT_EVENT) ready.push_back(event);
    if (status == grpc::CompletionQueue::TIMEOUT) ++polls;
  }
  return ready;
}

}  // namespace

absl::Duration HandOverTimeout(const RpcOptions& options) {
  return options.certificates == nullptr ? options.setup_timeout : options.setup_timeout / 2;
}

void SetTransportLimits(const RpcOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  // grpc::ResourceQuota is not used: once a quota is exceeded, gRPC 1.51 wakes its reclaimer on whatever thread
  // releases a slice, and on our threads, which lack gRPC's context, that dereferences a null pointer. The transfer
  // watch bounds memory instead.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, ConcurrentStreams(options));
  // A connection reads into a block of this size, which lives as long as any message with a part in the block. With 64
  // connections and 512 calls of 1 MiB in flight, memory was 1.1 GiB with gRPC's own limit of 4 MiB and 0.4 GiB with
  // this one, and no message was slower.
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10);
  // Compressed requests are refused, because tensors hardly compress, and a small message must not expand to a large
  // one.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  // These find dead peers within minutes, and let clients behind middleboxes that close idle connections ping, but not
  // flood.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_interval)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Of the client's half of the set-up Newcomers has seen all, or with TLS the ClientHello; this option bounds
  // the rest, up to the client's SETTINGS.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(HandOverTimeout(options))));
  const auto limit = [&builder](const char* argument, absl::Duration duration) {
    if (duration >= absl::Hours(24 * 20)) return;  // an int holds no more
    builder.AddChannelArgument(argument, static_cast<int>(absl::ToInt64Milliseconds(duration)));
  };
  limit(GRPC_ARG_MAX_CONNECTION_AGE_MS, options.max_connection_age);
  limit(GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.max_connection_idle);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecondMs);
}

absl::Status GrpcTransport::Start(const CallHost& calls, OnCall on_call) {
  calls_ = calls;
  on_call_ = std::move(on_call);
  grpc::ServerBuilder builder;
  SetTransportLimits(*options_, builder);
  builder.RegisterAsyncGenericService(&service_);
  for (int i = 0; i < Queues(*options_); ++i) {
    queues_.push_back(builder.AddCompletionQueue());
    loads_.emplace_back();
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options_->certificates != nullptr) {
    tls_credentials_ = std::make_shared<TlsCredentials>(options_->certificates, options_->require_client_certificate);
    credentials = tls_credentials_;
  }
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(credentials));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("the gRPC server does not start");
  NORMD_RETURN_IF_ERROR(newcomers_.Start());
  for (size_t i = 0; i < queues_.size(); ++i) {
    grpc::ServerCompletionQueue* const queue = queues_[i].get();
    for (int call = 0; call < kAcceptsPerQueue; ++call) Accept(queue);
    threads_.emplace_back([this, queue, load = &loads_[i]] { Serve(queue, load); });
  }
  oversized_.Start();
  return absl::OkStatus();
}

void GrpcTransport::Adopt(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) {
  newcomers_.Add(std::move(fd), listener, std::move(connection));
}

void GrpcTransport::HandOver(UniqueFd fd, int listener_fd, bool is_unix) {
  // gRPC's acceptor names every connection of a Unix socket "unix:", so callers could not be distinguished. A
  // connection made from the descriptor alone has a name of its own. There is nothing to encrypt on a Unix socket.
  if (is_unix) return grpc::AddInsecureChannelFromFd(server_.get(), fd.Release());
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_fd;
  parameters.fd = fd.Release();
  acceptor_->HandleNewConnection(&parameters);
}

void GrpcTransport::Drain() { newcomers_.Stop(); }

void GrpcTransport::Shutdown() {
  newcomers_.Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

void GrpcTransport::Stop() {
  for (auto& queue : queues_) queue->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  if (threads_.empty()) {
    for (size_t i = 0; i < queues_.size(); ++i) Serve(queues_[i].get(), &loads_[i]);
  }
  threads_.clear();
  queues_.clear();
}

void GrpcTransport::Accept(grpc::ServerCompletionQueue* queue) {
  GrpcCall::Accept(&service_, queue, calls_, [this, queue](std::shared_ptr<GrpcCall> call) {
    if (call == nullptr) return;
    Accept(queue);
    on_call_(std::move(call));
  });
}

void GrpcTransport::Serve(grpc::ServerCompletionQueue* queue, net::LoopLoad* load) {
  Event event;
  // Runs the event's callback, records its duration, and returns the time of its end.
  const auto run = [load](const Event& one) {
    const absl::Time began = SteadyNow();
    load->BeginTurn(began);
    static_cast<Tag*>(one.tag)->Run(one.ok);
    const absl::Time ended = SteadyNow();
    load->EndTurn();
    load->Note(ended - began);
    return ended;
  };
  absl::Time polled = SteadyNow();
  while (queue->Next(&event.tag, &event.ok)) {
    const absl::Time ended = run(event);
    if (ended - polled < kPollInterval) continue;
    polled = ended;
    for (const Event& ready : TakeReady(*queue)) run(ready);
  }
}

bool GrpcTransport::serves() const {
  return newcomers_.serves() &&
         std::all_of(loads_.begin(), loads_.end(), [](const net::LoopLoad& load) { return load.serves(); });
}

QueueStats GrpcTransport::TakeStats() {
  QueueStats stats;
  for (net::LoopLoad& load : loads_) stats.Add(load.Take());
  return stats;
}

}  // namespace normd::rpc
