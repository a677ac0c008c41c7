// A call of no transport: nothing comes on it, and what is sent is taken at once.
#ifndef NORMD_TESTS_SERVER_RPC_EDGE_SILENT_CALL_H_
#define NORMD_TESTS_SERVER_RPC_EDGE_SILENT_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/rpc/edge/rpc_call.h"

namespace normd::rpc {

class SilentCall final : public RpcCall {
 public:
  // Whether a Read waits for its message, as on a connection, or ends without one.
  enum class Reads { kWait, kEnd };

  static std::shared_ptr<SilentCall> Make(const CallHost& host, ConnectionPtr connection, Reads reads) {
    auto call = std::make_shared<SilentCall>(std::move(connection), reads);
    call->Begin(host, call->connection_);
    return call;
  }
  SilentCall(ConnectionPtr connection, Reads reads) : connection_(std::move(connection)), reads_(reads) {}

  const std::string& method() const override { return method_; }
  void VisitMetadata(absl::FunctionRef<void(std::string_view, std::string_view)> /*visit*/) const override {}
  absl::Time deadline() const override { return absl::InfiniteFuture(); }
  const net::TlsPeerPtr& tls_peer() const override { return tls_peer_; }
  void Cancel() override {}

 private:
  void StartReadSize() override {
    if (reads_ == Reads::kEnd) HandleSize(std::nullopt);
  }
  void StartRead(bool /*is_counted*/) override {
    if (reads_ == Reads::kEnd) HandleRead(std::nullopt);
  }
  void StartReadHead() override { StartRead(/*is_counted=*/false); }
  void StartWrite(MessageBytes /*message*/) override { HandleWritten(); }
  void StartFinish(RpcEnd /*end*/) override { HandleWritten(); }
  void StartWriteAndFinish(MessageBytes /*message*/, RpcEnd /*end*/) override { HandleWritten(); }

  const std::string method_;
  const ConnectionPtr connection_;
  const Reads reads_;
  const net::TlsPeerPtr tls_peer_ = std::make_shared<net::TlsPeer>();
};

}  // namespace normd::rpc

#endif  // NORMD_TESTS_SERVER_RPC_EDGE_SILENT_CALL_H_
