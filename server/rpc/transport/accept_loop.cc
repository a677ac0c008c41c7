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
#include <string_view>
#include <utility>

#include "kernels/base/strings.h"
#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

constexpr int kMaxEvents = 64;
// The number of connections accepted in a row before pending connections are looked at again.
constexpr int kMaxAcceptsAtOnce = 64;
// How often the table is swept of ended connections.
constexpr int kSweepMilliseconds = 1000;
constexpr std::chrono::milliseconds kPauseWithoutMemory{10};

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

uint16_t PortOf(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
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
  listeners_.clear();
  for (int* fd : {&epoll_fd_, &stop_fd_, &spare_fd_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

void AcceptLoop::Run() {
  epoll_event events[kMaxEvents];
  absl::Time sweep = SteadyNow();
  while (true) {
    const int count = epoll_wait(epoll_fd_, events, kMaxEvents, pending_.empty() ? kSweepMilliseconds : 100);
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
    pending.connection = table_->Add(std::move(facts), &refusal);
    if (pending.connection == nullptr) {
      table_->Count(refusal == Refusal::kTotal ? RefusedFor::kTotal : RefusedFor::kAddress);
      close(fd);
      return;
    }
  }
  deadlines_.emplace_back(pending.deadline, fd);
  pending_[fd] = std::move(pending);
  // Edge-triggered, because the loop only peeks at the bytes, which would otherwise be reported again and again.
  if (!Watch(epoll_fd_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET)) Drop(fd, RefusedFor::kDescriptors);
}

void AcceptLoop::LookAt(int fd, bool ended) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
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
  if (spoken == Preface::kHttp1) {
    const std::string_view answer = Http1Answer(tls);
    send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    // Unread bytes would turn the close into a reset, which could destroy the answer.
    char unread[kPrefaceWindowBytes];
    while (recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0) {
    }
  }
  const bool plaintext = tls && (spoken == Preface::kHttp1 || spoken == Preface::kHttp2);
  if (plaintext) return Drop(fd, RefusedFor::kPlaintext);
  Drop(fd, spoken == Preface::kTls ? RefusedFor::kTls : RefusedFor::kForeign);
}

void AcceptLoop::Drop(int fd, RefusedFor reason) {
  const auto found = pending_.find(fd);
  if (found == pending_.end()) return;
  if (found->second.connection != nullptr) {
    table_->CountEnded(*found->second.connection, reason);
    table_->Remove(*found->second.connection);
  }
  pending_.erase(found);
  close(fd);
}

void AcceptLoop::DropOverdue() {
  const absl::Time now = SteadyNow();
  while (!deadlines_.empty() && deadlines_.front().first <= now) {
    const auto [deadline, fd] = deadlines_.front();
    deadlines_.pop_front();
    const auto found = pending_.find(fd);
    // The descriptor may belong to another connection by now.
    if (found != pending_.end() && found->second.deadline == deadline) Drop(fd, RefusedFor::kSetup);
  }
}

}  // namespace normd::rpc
