#include "server/rpc/grpc/grpc_call.h"

#include <grpc/support/time.h>

#include <utility>

#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/rpc/grpc/byte_buffer.h"
#include "server/rpc/grpc/grpc_tls_peer.h"

namespace normd::rpc {
namespace {

std::string_view TextOf(const grpc::string_ref& text) { return {text.data(), text.size()}; }

grpc::Status ToGrpcStatus(const RpcStatus& status) {
  if (status.code == 0) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code), status.message, status.details_bin};
}

}  // namespace

void GrpcCall::Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, const CallHost& host,
                      OnArrival on_arrival) {
  auto owned = std::make_shared<GrpcCall>();
  GrpcCall* const call = owned.get();
  call->BePresent(host.live);
  call->context_.AsyncNotifyWhenDone(&call->over_tag_);
  void* const tag =
      call->arrival_tag_.Arm([owned = std::move(owned), host, on_arrival = std::move(on_arrival)](bool ok) mutable {
        if (!ok) return on_arrival(nullptr);
        owned->HandleArrival(host);
        on_arrival(std::move(owned));
      });
  service->RequestCall(&call->context_, &call->stream_, queue, queue, tag);
}

void GrpcCall::HandleArrival(const CallHost& host) {
  const std::string peer = context_.peer();
  connection_ = std::static_pointer_cast<GrpcConnection>(host.connections->Find(peer));
  // A connection that has left the table meanwhile.
  if (connection_ == nullptr) {
    connection_ = std::make_shared<GrpcConnection>(Connection::Facts{.peer = peer, .address = peer});
  }
  tls_peer_ = FindTlsPeer(context_.c_call(), connection_->tls_peer());
  // The tag is armed only here because it never comes back for an RPC that did not arrive. It cannot run before it is
  // armed, because it comes through the queue whose only thread this is.
  over_tag_.Arm([this, self = shared_from_this()](bool) {
    HandleOver(context_.IsCancelled() ? CallerGoneError() : absl::OkStatus());
  });
  Begin(host, connection_);
}

void GrpcCall::VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const {
  for (const auto& [key, value] : context_.client_metadata()) visit(TextOf(key), TextOf(value));
}

absl::Time GrpcCall::deadline() const {
  const gpr_timespec given = context_.raw_deadline();
  if (gpr_time_cmp(given, gpr_inf_future(given.clock_type)) == 0) return absl::InfiniteFuture();
  const gpr_timespec deadline = gpr_convert_clock_type(given, GPR_CLOCK_MONOTONIC);
  if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) return absl::InfiniteFuture();
  return absl::UnixEpoch() + absl::DurationFromTimespec({.tv_sec = deadline.tv_sec, .tv_nsec = deadline.tv_nsec});
}

void GrpcCall::StartRead(bool is_counted) {
  if (is_counted) connection_->BeginMessage();
  stream_.Read(&incoming_, read_tag_.Arm([this, self = shared_from_this(), is_counted](bool ok) {
    std::optional<MessageBytes> message;
    if (ok) message = ToMessageBytes(incoming_);
    incoming_.Clear();
    if (message.has_value()) connection_->DeliverBytes(message->size_bytes());
    if (is_counted) connection_->EndMessage(message.has_value());
    HandleRead(std::move(message));
  }));
}

void* GrpcCall::Written() {
  return write_tag_.Arm([this, self = shared_from_this()](bool) { HandleWritten(); });
}

void GrpcCall::AddTrailers(const Trailers& trailers) {
  for (const auto& [key, value] : trailers) context_.AddTrailingMetadata(key, value);
}

void GrpcCall::StartWrite(MessageBytes message) { stream_.Write(ToByteBuffer(message), Written()); }

void GrpcCall::StartFinish(RpcEnd end) {
  AddTrailers(end.trailers);
  stream_.Finish(ToGrpcStatus(end.status), Written());
}

void GrpcCall::StartWriteAndFinish(MessageBytes message, RpcEnd end) {
  AddTrailers(end.trailers);
  stream_.WriteAndFinish(ToByteBuffer(message), grpc::WriteOptions(), ToGrpcStatus(end.status), Written());
}

void GrpcCall::NoteLoss() { connection_->LoseMessage(SteadyNow()); }

}  // namespace normd::rpc
