// Our own transport: gRPC's protocol over nghttp2, without gRPC.
// In the path: the accept loop gives it connections, and it gives the dispatcher their calls. Each connection belongs
// to one of the queues, each of which is a thread that does all work of its connections. Ownership: borrows what the
// options name, which must outlive it. Threads: see transport.h.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_TRANSPORT_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/rpc/transport/native/event_loop.h"
#include "server/rpc/transport/native/native_options.h"
#include "server/rpc/transport/native/tls_contexts.h"
#include "server/rpc/transport/native/waiting_bytes.h"
#include "server/rpc/transport/transport.h"

namespace normd::rpc {

class NativeTransport final : public RpcTransport {
 public:
  // The most that is held of a message before it is read: the window of its stream, once opened again.
  static constexpr int64_t kMostAheadBytes = 128 << 10;

  explicit NativeTransport(const NativeOptions& options);
  ~NativeTransport() override;

  absl::Status Start(OnCall on_call) override;
  void Adopt(int fd, int listener_fd, bool is_unix, ConnectionPtr connection) override;
  void Drain() override;
  void Shutdown() override;
  void Stop() override;
  QueueStats TakeStats() override;

 private:
  native::EventLoop& LeastLoaded();

  const NativeOptions options_;
  OnCall on_call_;  // constant once started
  native::WaitingBytes waiting_bytes_;
  std::unique_ptr<native::TlsContexts> tls_;  // null: all connections are plain text
  std::vector<std::unique_ptr<native::EventLoop>> loops_;
  std::atomic<size_t> next_loop_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> shut_down_{false};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_TRANSPORT_H_
