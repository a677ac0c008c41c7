#include "server/rpc/transport/native/native_call.h"

#include <utility>

#include "server/net/event_loop.h"
#include "server/rpc/transport/native/http2_connection.h"

namespace normd::rpc::native {

template <typename Operation>
void NativeCall::OnLoop(Operation operation) {
  stream_->connection().loop().Run(
      [stream = stream_, operation = std::move(operation)]() mutable { operation(*stream); });
}

NativeCall::NativeCall(std::shared_ptr<Http2Stream> stream) : stream_(std::move(stream)) {}

NativeCall::~NativeCall() {
  if (!stream_->over()) Cancel();
}

void NativeCall::VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const {
  stream_->headers().VisitMetadata(visit);
}

const ConnectionPtr& NativeCall::connection() const { return stream_->connection().peer(); }

const net::TlsPeerPtr& NativeCall::tls_peer() const { return stream_->connection().tls_peer(); }

void NativeCall::OnOver(OnDone on_done) {
  OnLoop([on_done = std::move(on_done)](Http2Stream& stream) mutable { stream.OnOver(std::move(on_done)); });
}

void NativeCall::ReadSize(OnSize on_size) {
  OnLoop([on_size = std::move(on_size)](Http2Stream& stream) mutable { stream.ReadSize(std::move(on_size)); });
}

void NativeCall::Read(OnRead on_read) {
  OnLoop([on_read = std::move(on_read)](Http2Stream& stream) mutable { stream.Read(std::move(on_read)); });
}

void NativeCall::ReadHead(OnRead on_read) {
  OnLoop([on_read = std::move(on_read)](Http2Stream& stream) mutable { stream.ReadHead(std::move(on_read)); });
}

void NativeCall::Write(MessageBytes message, Callback written) {
  OnLoop([message = std::move(message), written = std::move(written)](Http2Stream& stream) mutable {
    stream.Write(std::move(message), std::move(written));
  });
}

void NativeCall::Finish(RpcStatus status, Trailers trailers, Callback written) {
  OnLoop([end = ReplyEnd{std::move(status), std::move(trailers)}, written = std::move(written)](
             Http2Stream& stream) mutable { stream.Finish(std::move(end), std::move(written)); });
}

void NativeCall::WriteAndFinish(MessageBytes message, RpcStatus status, Trailers trailers, Callback written) {
  OnLoop([message = std::move(message), end = ReplyEnd{std::move(status), std::move(trailers)},
          written = std::move(written)](Http2Stream& stream) mutable {
    stream.WriteAndFinish(std::move(message), std::move(end), std::move(written));
  });
}

void NativeCall::Cancel() {
  OnLoop([](Http2Stream& stream) { stream.Cancel(); });
}

}  // namespace normd::rpc::native
