#include "server/rpc/transport/accept_loop.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/base/strings.h"
#include "server/base/listen_tcp.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/http2.h"

namespace normd::rpc {
namespace {

constexpr int kMaxEvents = 64;
// The number of connections accepted in a row before pending connections are looked at again.
constexpr int kMaxAcceptsAtOnce = 64;
// How often the table is swept of ended connections.
constexpr int kSweepMilliseconds = 1000;
constexpr std::chrono::milliseconds kPauseWithoutMemory{10};
// How long a connection that was sent an answer instead of being served stays open, and how many may: each has one of
// the descriptors that are kept free of connections.
constexpr absl::Duration kPartingTime = absl::Seconds(1);
constexpr size_t kMostParting = 16;
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

// The number of bytes that can be read from a socket.
size_t ReceivedBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

bool Watch(int epoll_fd, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::Status AcceptLoop::Start(std::vector<ListeningSocket> listeners) {
  listeners_ = std::move(listeners);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_fd_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  bool watched = epoll_fd_ >= 0 && stop_fd_ >= 0 && Watch(epoll_fd_, stop_fd_, EPOLLIN);
  for (const ListeningSocket& listener : listeners_) watched = watched && Watch(epoll_fd_, listener.fd(), EPOLLIN);
  if (!watched) return absl::UnavailableError("no descriptors are left to accept connections with");
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void AcceptLoop::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
    thread_.join();
  }
  for (const auto& [fd, pending] : pending_) {
    if (pending.connection != nullptr) table_->Remove(*pending.connection);
    close(fd);
  }
  pending_.clear();
  EndParting(absl::InfiniteFuture(), 0);
  listeners_.clear();
  for (int* fd : {&epoll_fd_, &stop_fd_, &spare_fd_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

void AcceptLoop::Run() {
  epoll_event events[kMaxEvents];
  absl::Time sweep = SteadyNow();
  while (true) {
    const int count =
        epoll_wait(epoll_fd_, events, kMaxEvents, pending_.empty() && parting_.empty() ? kSweepMilliseconds : 100);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_fd_) return;
      const auto listener = std::find_if(listeners_.begin(), listeners_.end(),
                                         [fd](const ListeningSocket& socket) { return socket.fd() == fd; });
      if (listener != listeners_.end()) {
        AcceptFrom(*listener);
      } else {
        LookAt(fd, (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
      }
    }
    DropOverdue();
    if (SteadyNow() - sweep < absl::Milliseconds(kSweepMilliseconds)) continue;
    sweep = SteadyNow();
    table_->Sweep();
  }
}

void AcceptLoop::AcceptFrom(const ListeningSocket& listener) {
  for (int i = 0; i < kMaxAcceptsAtOnce; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd = accept4(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      TakeIn(fd, address, listener);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE) return RefuseForWantOfDescriptors(listener.fd());
    // The listener stays readable, so without a pause the loop would spin until memory is free again.
    if (errno == ENOBUFS || errno == ENOMEM) std::this_thread::sleep_for(kPauseWithoutMemory);
    // The three errors below concern one connection that is already gone; any other error ends the queue.
    if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) return;
  }
}

void AcceptLoop::RefuseForWantOfDescriptors(int listener_fd) {
  table_->Count(RefusedFor::kDescriptors);
  table_->Sweep();
  if (spare_fd_ < 0) {
    std::this_thread::sleep_for(kPauseWithoutMemory);
  } else {
    close(spare_fd_);
    const int fd = accept4(listener_fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
  }
  spare_fd_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void AcceptLoop::TakeIn(int fd, const sockaddr_storage& address, const ListeningSocket& listener) {
  Pending pending = {.listener_fd = listener.fd(),
                     .is_unix = listener.is_unix(),
                     .deadline = SteadyNow() + options_.setup_timeout,
                     .connection = nullptr};
  Connection::Facts facts = {.fd = fd,
                             .cookie = SocketCookie(fd),
                             .is_unix = listener.is_unix(),
                             .is_tls = options_.tls && !listener.is_unix()};
  if (listener.is_unix()) {
    NameUnix(&facts);
  } else {
    NameTcp(address, &facts);
  }
  const uint16_t exempt = exempt_port_.load(std::memory_order_relaxed);
  if (exempt == 0 || PortOf(address) != exempt) {
    Refusal refusal = Refusal::kNone;
    const std::string address_text = facts.address;
    const bool is_tls = facts.is_tls;
    pending.connection = table_->Add(std::move(facts), &refusal);
    if (pending.connection == nullptr) return RefuseForLimit(fd, refusal, address_text, is_tls);
  }
  deadlines_.emplace_back(pending.deadline, fd);
  pending_[fd] = std::move(pending);
  // Edge-triggered, because the loop only peeks at the bytes, which would otherwise be reported again and again.
  if (!Watch(epoll_fd_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET)) Drop(fd, RefusedFor::kDescriptors);
}

void AcceptLoop::LookAt(int fd, bool ended) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return AnswerParting(fd);
  char head[kPrefaceWindowBytes];
  const ssize_t got = recv(fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return Drop(fd, RefusedFor::kLeft);
  const std::string_view first(head, static_cast<size_t>(got));
  const bool tls = options_.tls && !found->second.is_unix;
  const Preface spoken = tls ? JudgeClientHello(first, ReceivedBytes(fd)) : JudgePreface(first);
  if (spoken == Preface::kIncomplete) {
    if (ended) Drop(fd, RefusedFor::kLeft);
    return;
  }
  if (spoken != Preface::kComplete) return TurnAway(fd, spoken, tls);
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  table_->CountAccepted();
  if (pending.connection != nullptr) pending.connection->NoteHandOver();
  transport_->Adopt(fd, pending.listener_fd, pending.is_unix, pending.connection);
}

void AcceptLoop::TurnAway(int fd, Preface spoken, bool tls) {
  std::string answer;
  if (spoken == Preface::kHttp1) answer = Http1Answer(tls);
  // Whoever speaks TLS finds that this is none, as with every server without TLS.
  if (spoken == Preface::kTls) answer = http2::kEmptySettings;
  const bool plaintext = tls && (spoken == Preface::kHttp1 || spoken == Preface::kHttp2);
  const RefusedFor reason = plaintext                 ? RefusedFor::kPlaintext
                            : spoken == Preface::kTls ? RefusedFor::kTls
                                                      : RefusedFor::kForeign;
  if (answer.empty()) return Drop(fd, reason);
  Forget(fd, reason);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  Part(fd, answer, "");
}

void AcceptLoop::RefuseForLimit(int fd, Refusal limit, const std::string& address, bool tls) {
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
  // TLS has no words for it.
  if (tls) {
    close(fd);
    return;
  }
  Part(fd, http2::kEmptySettings, Concat("normd has as many connections as its limit allows: ", text));
}

void AcceptLoop::Part(int fd, std::string_view answer, std::string why) {
  send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (why.empty()) {
    shutdown(fd, SHUT_WR);
  } else {
    Watch(epoll_fd_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
  }
  parting_.push_back(
      {.end = SteadyNow() + std::min(kPartingTime, options_.setup_timeout), .fd = fd, .why = std::move(why)});
  EndParting(SteadyNow(), kMostParting);
}

void AcceptLoop::AnswerParting(int fd) {
  const auto parting =
      std::find_if(parting_.begin(), parting_.end(), [fd](const Parting& one) { return one.fd == fd; });
  if (parting == parting_.end() || parting->why.empty()) return;
  char head[kPrefaceWindowBytes];
  const ssize_t got = recv(fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0) return;
  const std::optional<uint32_t> call = FirstCall({head, static_cast<size_t>(got)});
  if (!call.has_value()) return;
  const std::string answer = RefusedCall(*call, parting->why);
  send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  parting->why.clear();
}

void AcceptLoop::EndParting(absl::Time until, size_t most) {
  while (!parting_.empty() && (parting_.size() > most || parting_.front().end <= until)) {
    close(parting_.front().fd);
    parting_.pop_front();
  }
}

void AcceptLoop::Forget(int fd, RefusedFor reason) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
  if (found->second.connection != nullptr) {
    table_->CountEnded(*found->second.connection, reason);
    table_->Remove(*found->second.connection);
  }
  pending_.erase(found);
}

void AcceptLoop::Drop(int fd, RefusedFor reason) {
  if (!pending_.contains(fd)) return;
  Forget(fd, reason);
  close(fd);
}

void AcceptLoop::DropOverdue() {
  const absl::Time now = SteadyNow();
  EndParting(now, kMostParting);
  while (!deadlines_.empty() && deadlines_.front().first <= now) {
    const auto [deadline, fd] = deadlines_.front();
    deadlines_.pop_front();
    const auto found = pending_.find(fd);
    // The descriptor may belong to another connection by now.
    if (found != pending_.end() && found->second.deadline == deadline) Drop(fd, RefusedFor::kSetup);
  }
}

}  // namespace normd::rpc
