#include "server/rpc/transport/native/native_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/rpc/transport/native/http2_connection.h"
#include "server/rpc/transport/native/plain_socket.h"
#include "server/rpc/transport/native/tls_socket.h"

namespace normd::rpc {
namespace {

// For a connection that no table has.
ConnectionPtr UnknownPeer(int fd, bool is_unix, bool is_tls) {
  return std::make_shared<Connection>(Connection::Facts{.fd = fd,
                                                        .cookie = SocketCookie(fd),
                                                        .peer = Concat("fd:", fd),
                                                        .address = "local",
                                                        .is_unix = is_unix,
                                                        .is_tls = is_tls});
}

}  // namespace

NativeTransport::NativeTransport(const NativeOptions& options)
    : options_(options), waiting_bytes_(options.max_waiting_bytes) {
  if (options.certificates != nullptr) {
    tls_ = std::make_unique<native::TlsContexts>(options.certificates, options.require_client_certificate);
  }
  for (int i = 0; i < std::max(options.queues, 1); ++i) loops_.push_back(std::make_unique<native::EventLoop>());
}

NativeTransport::~NativeTransport() = default;

absl::Status NativeTransport::Start(OnCall on_call) {
  on_call_ = std::move(on_call);
  for (const auto& loop : loops_) NORMD_RETURN_IF_ERROR(loop->Start());
  return absl::OkStatus();
}

void NativeTransport::Adopt(int fd, int /*listener_fd*/, bool is_unix, ConnectionPtr connection) {
  const bool is_tls = tls_ != nullptr && !is_unix;
  if (connection == nullptr) connection = UnknownPeer(fd, is_unix, is_tls);
  if (!is_unix) {
    // A turn writes what it has at once; nothing is gained by waiting for more.
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  native::EventLoop& loop = LeastLoaded();
  std::unique_ptr<native::ByteStream> bytes;
  if (is_tls) {
    bytes = std::make_unique<native::TlsSocket>(fd, tls_->current());
  } else {
    bytes = std::make_unique<native::PlainSocket>(fd);
  }
  loop.Post([this, &loop, bytes = std::move(bytes), peer = std::move(connection)]() mutable {
    if (shut_down_.load()) return;
    const native::Http2Connection::Host host = {
        .loop = &loop, .options = &options_, .on_call = &on_call_, .waiting_bytes = &waiting_bytes_};
    const auto made = std::make_shared<native::Http2Connection>(host, std::move(bytes), std::move(peer));
    made->Open();
    if (draining_.load()) made->Drain(/*server_ends=*/true);
  });
}

void NativeTransport::Drain() {
  draining_ = true;
  for (const auto& loop : loops_) {
    loop->Post([&loop = *loop] {
      for (const auto& connection : loop.connections()) connection->Drain(/*server_ends=*/true);
    });
  }
}

void NativeTransport::Shutdown() {
  shut_down_ = true;
  for (const auto& loop : loops_) {
    loop->Post([&loop = *loop] {
      for (const auto& connection : loop.connections()) connection->Close();
    });
  }
}

void NativeTransport::Stop() {
  for (const auto& loop : loops_) loop->Stop();
}

QueueStats NativeTransport::TakeStats() {
  QueueStats stats;
  for (const auto& loop : loops_) loop->load().TakeInto(&stats);
  stats.waiting_bytes = waiting_bytes_.bytes();
  return stats;
}

native::EventLoop& NativeTransport::LeastLoaded() {
  // Begins at another loop each time, so that connections which come together are spread before they are counted.
  const size_t first = next_loop_.fetch_add(1, std::memory_order_relaxed);
  native::EventLoop* least = loops_[first % loops_.size()].get();
  for (size_t i = 1; i < loops_.size(); ++i) {
    native::EventLoop* const loop = loops_[(first + i) % loops_.size()].get();
    if (loop->size() < least->size()) least = loop;
  }
  return *least;
}

}  // namespace normd::rpc
