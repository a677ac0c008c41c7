// A server of the native transport for tests: a listener on 127.0.0.1, and a few methods that echo.
//   /echo.Echo/Unary   one message, which comes back          /echo.Echo/Stream  each message comes back
//   /echo.Echo/Worker  as Unary, answered by another thread   /echo.Echo/Hang    reads one message and never answers
//   /echo.Echo/Idle    never reads and never answers          /echo.Echo/Size    answers with the text of ReadSize
//   /echo.Echo/Fail    an error with a detail and a trailer     /echo.Echo/Fields  answers with the caller's metadata
//   /echo.Echo/Cancel  is cancelled by the server             /echo.Echo/Peer    answers with the peer's TLS name
//   /echo.Echo/Fill    answers with as many bytes as the message says
//   /echo.Echo/Slow    as Unary, after 1 ms of the loop      /echo.Echo/Hold    as Unary, holds the loop until Release
// Thread-compatible; the counts are safe from any thread.
#ifndef NORMD_TESTS_SERVER_RPC_HTTP2_ECHO_FIXTURE_H_
#define NORMD_TESTS_SERVER_RPC_HTTP2_ECHO_FIXTURE_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "server/base/buffer.h"
#include "server/rpc/edge/accept_loop.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/live_calls.h"
#include "server/rpc/http2/http2_transport.h"

namespace normd::rpc::http2 {

// What an EchoServer has seen.
struct EchoCounts {
  std::atomic<int> calls{0};
  std::atomic<int> over{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> destroyed{0};
};

class EchoServer {
 public:
  explicit EchoServer(RpcOptions options = {});
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  // "127.0.0.1:40112"
  const std::string& target() const { return target_; }
  Http2Transport& transport() { return *transport_; }
  const EchoCounts& counts() const { return counts_; }
  // The connections that the server has ended for `reason`.
  int closed(RefusedFor reason) const {
    return static_cast<int>(connections_.stats().refused[static_cast<size_t>(reason)]);
  }
  // A channel with a connection of its own; null credentials: in plain text.
  std::shared_ptr<grpc::Channel> Connect(std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr) const;
  // Lets one more call of Hold go on, the earliest first. One that waits for 10 s goes on by itself.
  void Release() { ++released_; }
  // Waits until `count` reaches `wanted`, for 30 s at most. Returns whether it did.
  static bool WaitFor(const std::atomic<int>& count, int wanted);
  // The same for closed(reason).
  bool WaitForClosed(RefusedFor reason, int wanted) const;

 private:
  class Worker;

  RpcOptions options_;
  EchoCounts counts_;
  int held_ = 0;  // calls of Hold; of the loop's thread, of which a test of Hold has one
  std::atomic<int> released_{0};
  const std::shared_ptr<BufferPool> pool_ = BufferPool::Create(int64_t{64} << 20);
  std::unique_ptr<Worker> worker_;
  LiveCalls live_;
  ConnectionTable connections_{{.max_connections = 1 << 20, .max_per_address = 1 << 20}};
  std::unique_ptr<Http2Transport> transport_;
  std::unique_ptr<AcceptLoop> accept_loop_;
  std::string target_;
};

// A unary call by gRPC's client.
struct EchoReply {
  int code = 0;
  std::string message;
  std::string details;
  std::string body;
  std::multimap<std::string, std::string> trailers;
};
struct EchoRequest {
  std::string method;  // "Unary"
  std::string body;
  std::multimap<std::string, std::string> metadata = {};
  int deadline_ms = 30000;
};
EchoReply Ask(const std::shared_ptr<grpc::Channel>& channel, const EchoRequest& request);

// Bytes of every value, which repeat in no power of two.
std::string Pattern(size_t size);

}  // namespace normd::rpc::http2

#endif  // NORMD_TESTS_SERVER_RPC_HTTP2_ECHO_FIXTURE_H_
