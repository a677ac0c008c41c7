// Our own transport: gRPC's protocol over nghttp2, without gRPC.
// In the path: the accept loop gives it connections, and it gives the dispatcher their calls. Each connection belongs
// to one of the queues, each of which is a thread that does all work of its connections. Ownership: borrows the objects
// that the options name, which must outlive it. Threads: see transport.h.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP2_TRANSPORT_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP2_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/net/event_loop.h"
#include "server/net/tls_contexts.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/transport.h"
#include "server/rpc/http2/http2_counts.h"
#include "server/rpc/http2/waiting_bytes.h"

namespace normd::rpc {

class Http2Transport final : public RpcTransport {
 public:
  // The most that is held of a message before it is read: the window of its stream, once opened again.
  static constexpr int64_t kMostAheadBytes = 128 << 10;

  // `buffers` are those of messages; null: malloc. All are borrowed.
  Http2Transport(const RpcOptions* options, ConnectionTable* connections, BufferPool* buffers);
  ~Http2Transport() override;

  absl::Status Start(const CallHost& calls, OnCall on_call) override;
  ConnectionPtr MakeConnection(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls) override;
  void Adopt(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) override;
  void Drain() override;
  void Shutdown() override;
  bool serves() const override;
  void Stop() override;
  QueueStats TakeStats() override;

 private:
  net::EventLoop& LeastLoaded();

  const RpcOptions& options_;
  ConnectionTable* const connections_;
  BufferPool* const buffers_;
  CallHost calls_;  // constant once started, as the next
  OnCall on_call_;
  http2::WaitingBytes waiting_bytes_;
  http2::Http2Counts counts_;
  std::unique_ptr<net::TlsContexts> tls_;  // null: all connections are plain text
  std::vector<std::unique_ptr<net::EventLoop>> loops_;
  std::atomic<size_t> next_loop_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> shut_down_{false};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP2_TRANSPORT_H_
