#include "server/rpc/http2/http2_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/http2/http2_connection.h"

namespace normd::rpc {
namespace {

// All handlers of a queue are connections.
http2::Http2Connection& ConnectionOf(const std::shared_ptr<net::Handler>& handler) {
  return static_cast<http2::Http2Connection&>(*handler);
}

}  // namespace

Http2Transport::Http2Transport(const RpcOptions* options, ConnectionTable* connections, BufferPool* buffers)
    : options_(*options), connections_(connections), buffers_(buffers), waiting_bytes_(MaxWaitingBytes(*options)) {
  if (options->certificates != nullptr) {
    tls_ = std::make_unique<net::TlsContexts>(options->certificates, options->require_client_certificate);
  }
  for (int i = 0; i < Queues(*options); ++i) loops_.push_back(std::make_unique<net::EventLoop>());
}

Http2Transport::~Http2Transport() = default;

absl::Status Http2Transport::Start(const CallHost& calls, OnCall on_call) {
  calls_ = calls;
  on_call_ = std::move(on_call);
  for (const auto& loop : loops_) {
    NORMD_RETURN_IF_ERROR(loop->Open());
    loop->Start();
  }
  return absl::OkStatus();
}

ConnectionPtr Http2Transport::MakeConnection(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls) {
  const http2::Http2Connection::Host host = {.loop = &LeastLoaded(),
                                             .options = &options_,
                                             .on_call = &on_call_,
                                             .calls = calls_,
                                             .counts = &counts_,
                                             .connections = connections_,
                                             .buffers = buffers_,
                                             .tls = tls_.get(),
                                             .waiting_bytes = &waiting_bytes_};
  return std::make_shared<http2::Http2Connection>(host, std::move(facts), std::move(peer_calls));
}

void Http2Transport::Adopt(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) {
  if (!listener.is_unix()) {
    // A turn writes what it has at once; nothing is gained by waiting for more.
    const int one = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  auto own = std::static_pointer_cast<http2::Http2Connection>(std::move(connection));
  net::EventLoop& loop = own->loop();
  loop.Post([this, fd = std::move(fd), own = std::move(own)]() mutable {
    if (shut_down_.load()) return;
    own->Open(std::move(fd));
    if (draining_.load()) own->Drain(/*server_ends=*/true);
  });
}

void Http2Transport::Drain() {
  draining_ = true;
  for (const auto& loop : loops_) {
    loop->Post([&loop = *loop] {
      for (const auto& handler : loop.handlers()) ConnectionOf(handler).Drain(/*server_ends=*/true);
    });
  }
}

void Http2Transport::Shutdown() {
  shut_down_ = true;
  for (const auto& loop : loops_) {
    loop->Post([&loop = *loop] {
      for (const auto& handler : loop.handlers()) ConnectionOf(handler).Close();
    });
  }
}

bool Http2Transport::serves() const {
  return std::all_of(loops_.begin(), loops_.end(), [](const auto& loop) { return loop->load().serves(); });
}

void Http2Transport::Stop() {
  for (const auto& loop : loops_) loop->Stop();
}

QueueStats Http2Transport::TakeStats() {
  QueueStats stats;
  for (const auto& loop : loops_) stats.Add(loop->load().Take());
  counts_.CopyTo(&stats);
  stats.waiting_bytes = waiting_bytes_.bytes();
  return stats;
}

net::EventLoop& Http2Transport::LeastLoaded() {
  // Begins at another loop each time, so that connections which come together are spread before they are counted.
  const size_t first = next_loop_.fetch_add(1, std::memory_order_relaxed);
  net::EventLoop* least = loops_[first % loops_.size()].get();
  for (size_t i = 1; i < loops_.size(); ++i) {
    net::EventLoop* const loop = loops_[(first + i) % loops_.size()].get();
    if (loop->size() < least->size()) least = loop;
  }
  return *least;
}

}  // namespace normd::rpc
