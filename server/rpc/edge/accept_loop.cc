#include "server/rpc/edge/accept_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/steady_time.h"
#include "server/rpc/edge/http2.h"
#include "server/rpc/edge/preface.h"

namespace normd::rpc {
namespace {

// The most connections that are accepted before the loop looks at its other handlers again.
constexpr int kMaxAcceptsAtOnce = 64;
constexpr absl::Duration kTableSweepInterval = absl::Seconds(1);
// How many connections that were refused stay open: each has one of the descriptors that are kept free of connections.
constexpr size_t kMostRefused = 16;
constexpr absl::Duration kWarningInterval = absl::Minutes(1);

// Names a TCP peer as gRPC does: the brackets of IPv6 are percent-encoded, and IPv4 mapped to IPv6 is written as IPv4.
void NameTcp(const sockaddr_storage& storage, Connection::Facts* facts) {
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET6) {
    auto v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    const int port = ntohs(v6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
      facts->peer = Concat("ipv4:", text, ":", port);
      facts->address = text;
      return;
    }
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    facts->peer = Concat("ipv6:%5B", text, "%5D:", port);
    // A host commonly has a whole /64, so the lower half of the address does not identify anybody.
    std::memset(&v6.sin6_addr.s6_addr[8], 0, 8);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    facts->address = Concat(text, "/64");
    return;
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  facts->peer = Concat("ipv4:", text, ":", static_cast<int>(ntohs(v4.sin_port)));
  facts->address = text;
}

// Names a peer on a Unix socket as gRPC does, by the connection's descriptor.
void NameUnix(Connection::Facts* facts) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  const bool known = getsockopt(facts->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
  facts->peer = Concat("fd:", facts->fd);
  facts->address = known ? Concat("uid ", static_cast<int64_t>(credentials.uid)) : "unix";
  if (known) facts->uid = credentials.uid;
}

}  // namespace

// A connection that is not served, but kept for a moment, so that its peer reads why: bytes of the peer that nobody has
// read turn a close into a reset, which could destroy the answer. The first call is answered with the reason.
class AcceptLoop::RefusedConnection final : public net::Handler {
 public:
  RefusedConnection(AcceptLoop* loop, UniqueFd fd, std::string why)
      : loop_(loop), fd_(std::move(fd)), why_(std::move(why)), end_timer_([this] { loop_->Forget(this); }) {}

  bool Open(std::shared_ptr<RefusedConnection> self) {
    if (!loop_->loop_.Add(std::move(self), fd_.get(), EPOLLIN)) return false;
    const absl::Duration time = std::min(kFarewellTime, loop_->options_.setup_timeout);
    loop_->loop_.timers().Set(&end_timer_, SteadyNow() + time);
    Send(http2::kEmptySettings);
    return true;
  }
  void Close() {
    loop_->loop_.timers().Cancel(&end_timer_);
    loop_->loop_.Remove(this, fd_.get());
    fd_.Close();
  }
  void OnEvents(uint32_t /*events*/) override;

 private:
  void Send(std::string_view bytes) { send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); }

  AcceptLoop* const loop_;
  UniqueFd fd_;
  const std::string why_;
  std::string received_;  // until the first call has come
  bool answered_ = false;
  int64_t discarded_bytes_ = 0;  // since then, or since nothing more is looked at
  net::Timer end_timer_;
};

void AcceptLoop::RefusedConnection::OnEvents(uint32_t /*events*/) {
  if (!fd_.valid()) return;
  char bytes[kPrefaceWindowBytes];
  const ssize_t got = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return loop_->Forget(this);
  if (answered_ || received_.size() == kPrefaceWindowBytes) {
    discarded_bytes_ += got;
    // What else comes waits in the system, and with it the answer: to close now would destroy it.
    if (discarded_bytes_ > kMostDiscardedBytes) loop_->loop_.Change(this, fd_.get(), 0);
    return;
  }
  received_.append(bytes, std::min(static_cast<size_t>(got), kPrefaceWindowBytes - received_.size()));
  const std::optional<uint32_t> call = FirstCall(received_);
  if (!call.has_value()) return;
  Send(RefusedCall(*call, why_));
  shutdown(fd_.get(), SHUT_WR);
  answered_ = true;
}

AcceptLoop::AcceptLoop(const Options& options, ConnectionTable* table, RpcTransport* transport)
    : options_(options),
      table_(table),
      transport_(transport),
      acceptor_(&loop_, this, {.at_once = kMaxAcceptsAtOnce}),
      sweep_timer_([this] { Sweep(); }) {}

absl::Status AcceptLoop::Start(std::vector<net::ListeningSocket> listeners) {
  NORMD_RETURN_IF_ERROR(loop_.Open());
  NORMD_RETURN_IF_ERROR(acceptor_.Open(std::move(listeners)));
  loop_.timers().Set(&sweep_timer_, SteadyNow() + kTableSweepInterval);
  loop_.Start();
  return absl::OkStatus();
}

void AcceptLoop::Stop() {
  loop_.Post([this] {
    loop_.timers().Cancel(&sweep_timer_);
    acceptor_.Close();
    CloseRefused(/*most=*/0);
  });
  loop_.Stop();
}

bool AcceptLoop::serves() const { return loop_.load().serves() && !acceptor_.is_short_of_descriptors(); }

void AcceptLoop::OnAccepted(UniqueFd fd, const sockaddr_storage& peer, const net::ListeningSocket& listener) {
  Connection::Facts facts = {.fd = fd.get(),
                             .cookie = SocketCookie(fd.get()),
                             .is_unix = listener.is_unix(),
                             .is_tls = options_.tls && !listener.is_unix()};
  if (listener.is_unix()) {
    NameUnix(&facts);
  } else {
    NameTcp(peer, &facts);
  }
  Refusal refusal = Refusal::kNone;
  const std::string address = facts.address;
  const bool is_tls = facts.is_tls;
  ConnectionPtr connection = table_->Add(
      std::move(facts),
      [this](Connection::Facts own, std::shared_ptr<PeerCalls> calls) {
        return transport_->MakeConnection(std::move(own), std::move(calls));
      },
      &refusal);
  if (connection == nullptr) return RefuseForLimit(std::move(fd), refusal, address, is_tls);
  transport_->Adopt(std::move(fd), listener, std::move(connection));
}

void AcceptLoop::OnRefused() {
  table_->Count(RefusedFor::kDescriptors);
  table_->SweepIfDue();
}

void AcceptLoop::RefuseForLimit(UniqueFd fd, Refusal limit, const std::string& address, bool tls) {
  const bool total = limit == Refusal::kTotal;
  table_->Count(total ? RefusedFor::kTotal : RefusedFor::kAddress);
  const ConnectionLimits& limits = table_->limits();
  const std::string text = total ? Concat("--max_connections, ", limits.max_connections)
                                 : Concat("--max_connections_per_peer, ", limits.max_per_address);
  absl::Time& next = next_warning_[static_cast<size_t>(limit)];
  if (options_.on_full != nullptr && SteadyNow() >= next) {
    next = SteadyNow() + kWarningInterval;
    options_.on_full(text, address);
  }
  if (tls) return;  // TLS has no words for it
  auto refused = std::make_shared<RefusedConnection>(
      this, std::move(fd), Concat("normd has as many connections as its limit allows: ", text));
  if (!refused->Open(refused)) return;
  refused_.push_back(std::move(refused));
  CloseRefused(kMostRefused);
}

void AcceptLoop::CloseRefused(size_t most) {
  while (refused_.size() > most) {
    refused_.front()->Close();
    refused_.pop_front();
  }
}

void AcceptLoop::Forget(RefusedConnection* connection) {
  connection->Close();
  std::erase_if(refused_, [connection](const auto& other) { return other.get() == connection; });
}

void AcceptLoop::Sweep() {
  table_->Sweep();
  loop_.timers().Set(&sweep_timer_, SteadyNow() + kTableSweepInterval);
}

}  // namespace normd::rpc
