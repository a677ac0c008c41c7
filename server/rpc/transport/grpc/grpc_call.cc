#include "server/rpc/transport/grpc/grpc_call.h"

#include <grpc/support/time.h>

#include <utility>

#include "server/base/errors.h"
#include "server/rpc/transport/grpc/byte_buffer.h"
#include "server/rpc/transport/grpc/grpc_tls_peer.h"

namespace normd::rpc {
namespace {

std::string_view TextOf(const grpc::string_ref& text) { return {text.data(), text.size()}; }

grpc::Status ToGrpcStatus(const RpcStatus& status) {
  if (status.code == 0) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code), status.message, status.details_bin};
}

}  // namespace

void GrpcCall::Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveStreams* live,
                      ConnectionTable* connections, OnArrival on_arrival) {
  std::unique_ptr<GrpcCall> owned(new GrpcCall(live));
  GrpcCall* const call = owned.get();
  call->context_.AsyncNotifyWhenDone(&call->over_tag_);
  void* const tag = call->arrival_tag_.Arm(
      [owned = std::move(owned), connections, on_arrival = std::move(on_arrival)](bool ok) mutable {
        if (!ok) return on_arrival(nullptr);
        owned->HandleArrival(connections);
        on_arrival(std::move(owned));
      });
  service->RequestCall(&call->context_, &call->stream_, queue, queue, tag);
}

void GrpcCall::HandleArrival(ConnectionTable* connections) {
  connection_ = connections->Find(context_.peer());
  tls_peer_ = FindTlsPeer(context_.c_call(), connection_->tls_peer());
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

// The tag is armed only here because it never comes back for an RPC that did not arrive. It cannot run before it is
// armed, because it comes through the queue whose only thread this is.
void GrpcCall::OnOver(OnDone on_done) {
  over_tag_.Arm([this, on_done = std::move(on_done)](bool) mutable {
    on_done(context_.IsCancelled() ? CallerGoneError() : absl::OkStatus());
  });
}

void GrpcCall::Read(OnRead on_read) {
  stream_.Read(&incoming_, read_tag_.Arm([this, on_read = std::move(on_read)](bool ok) mutable {
    if (!ok) return on_read(std::nullopt);
    MessageBytes message = ToMessageBytes(incoming_);
    incoming_.Clear();
    on_read(std::move(message));
  }));
}

void* GrpcCall::Written(Callback written) {
  return write_tag_.Arm([written = std::move(written)](bool) mutable {
    if (written) written();
  });
}

void GrpcCall::AddTrailers(const Trailers& trailers) {
  for (const auto& [key, value] : trailers) context_.AddTrailingMetadata(key, value);
}

void GrpcCall::Write(MessageBytes message, Callback written) {
  stream_.Write(ToByteBuffer(message), Written(std::move(written)));
}

void GrpcCall::Finish(RpcStatus status, Trailers trailers, Callback written) {
  AddTrailers(trailers);
  stream_.Finish(ToGrpcStatus(status), Written(std::move(written)));
}

void GrpcCall::WriteAndFinish(MessageBytes message, RpcStatus status, Trailers trailers, Callback written) {
  AddTrailers(trailers);
  stream_.WriteAndFinish(ToByteBuffer(message), grpc::WriteOptions(), ToGrpcStatus(status),
                         Written(std::move(written)));
}

}  // namespace normd::rpc
