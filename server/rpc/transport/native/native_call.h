// A call of the native transport, as Stream sees it: each operation goes to the thread of the call's loop.
// In the path: between Stream and Http2Stream. Ownership and threads: see transport_call.h.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_CALL_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_CALL_H_

#include <memory>
#include <string>

#include "server/rpc/transport/native/http2_stream.h"
#include "server/rpc/transport/transport_call.h"

namespace normd::rpc::native {

class NativeCall final : public TransportCall {
 public:
  explicit NativeCall(std::shared_ptr<Http2Stream> stream);
  // Ends a call that was never finished, so that its caller does not wait for ever.
  ~NativeCall() override;

  const std::string& method() const override { return stream_->headers().path(); }
  void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const override;
  absl::Time deadline() const override { return stream_->deadline(); }
  const ConnectionPtr& connection() const override;
  const net::TlsPeerPtr& tls_peer() const override;

  void OnOver(OnDone on_done) override;
  void ReadSize(OnSize on_size) override;
  void Read(OnRead on_read) override;
  void ReadHead(OnRead on_read) override;
  void Write(MessageBytes message, Callback written) override;
  void Finish(RpcStatus status, Trailers trailers, Callback written) override;
  void WriteAndFinish(MessageBytes message, RpcStatus status, Trailers trailers, Callback written) override;
  void Cancel() override;

 private:
  // Runs `operation(Http2Stream&)` on the loop's thread.
  template <typename Operation>
  void OnLoop(Operation operation);

  const std::shared_ptr<Http2Stream> stream_;
};

}  // namespace normd::rpc::native

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_CALL_H_
