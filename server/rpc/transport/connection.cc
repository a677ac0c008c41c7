#include "server/rpc/transport/connection.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

// How many calls a peer may cancel: the size of a burst, and the sustained rate. A client with a full window whose
// deadlines pass cancels eight or sixteen at a time; a flood cancels ten thousand a second.
constexpr double kResetBurst = 1000;
constexpr double kResetsPerSecond = 100;

// The least time between sweeps, because at the limit every new connection would otherwise check every other one.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(50);

}  // namespace

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::optional<int64_t> Connection::ReceivedBytes() const {
  if (facts_.is_unix || !IsOpen()) return std::nullopt;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(facts_.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

void Connection::End(bool reset) {
  // gRPC may close its descriptor between the check and the shutdown, and the number may become another socket's. A
  // duplicate avoids that.
  const int fd = fcntl(facts_.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return;
  if (SocketCookie(fd) == facts_.cookie) {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (reset) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    shutdown(fd, SHUT_RDWR);
  }
  close(fd);
}

bool Connection::AllowReset(absl::Time now, double weight) {
  MutexLock lock(mu_);
  if (resets_at_ != absl::InfinitePast()) {
    const double forgiven = absl::ToDoubleSeconds(now - resets_at_) * kResetsPerSecond;
    resets_ = std::max(0.0, resets_ - std::max(0.0, forgiven));
  }
  resets_at_ = now;
  resets_ += weight;
  return resets_ <= kResetBurst;
}

void Connection::NoteMessage(int64_t bytes) {
  // Follows a larger size at once and smaller ones slowly.
  const int64_t before = expected_bytes();
  expected_bytes_.store(std::max(bytes, before - before / 8), std::memory_order_relaxed);
}

void Connection::EndMessage(bool complete) {
  const absl::Time now = SteadyNow();
  if (!delivery_.End(complete, now)) return;
  if (const std::optional<int64_t> received = ReceivedBytes(); received.has_value()) delivery_.Settle(*received, now);
}

DeliveryAccount::Bounds Connection::UndeliveredBytes(absl::Time now) {
  const std::optional<int64_t> received = ReceivedBytes();
  return received.has_value() ? delivery_.Undelivered(*received, now) : DeliveryAccount::Bounds();
}

ConnectionPtr ConnectionTable::Add(Connection::Facts facts, Refusal* refusal) {
  auto connection = std::make_shared<Connection>(std::move(facts));
  MutexLock lock(mu_);
  Forget(connection->peer());  // an entry of this name is stale, because the name has been reused
  *refusal = Judge(connection->address());
  if (*refusal != Refusal::kNone && SteadyNow() - swept_ >= kSweepInterval) {
    SweepLocked();
    *refusal = Judge(connection->address());
  }
  if (*refusal != Refusal::kNone) return nullptr;
  by_peer_.emplace(connection->peer(), connection);
  ++by_address_[connection->address()];
  size_.store(static_cast<int>(by_peer_.size()), std::memory_order_relaxed);
  return connection;
}

void ConnectionTable::Remove(const Connection& connection) {
  MutexLock lock(mu_);
  const auto found = by_peer_.find(connection.peer());
  if (found != by_peer_.end() && found->second.get() == &connection) Forget(connection.peer());
}

Refusal ConnectionTable::Judge(const std::string& address) const {
  if (static_cast<int>(by_peer_.size()) >= limits_.max_connections) return Refusal::kTotal;
  const auto found = by_address_.find(address);
  return found != by_address_.end() && found->second >= limits_.max_per_address ? Refusal::kAddress : Refusal::kNone;
}

void ConnectionTable::Forget(const std::string& peer) {
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  const auto address = by_address_.find(found->second->address());
  if (--address->second == 0) by_address_.erase(address);
  by_peer_.erase(found);
  size_.store(static_cast<int>(by_peer_.size()), std::memory_order_relaxed);
}

ConnectionPtr ConnectionTable::Find(const std::string& peer) const {
  {
    MutexLock lock(mu_);
    const auto found = by_peer_.find(peer);
    if (found != by_peer_.end()) return found->second;
  }
  return std::make_shared<Connection>(Connection::Facts{.peer = peer, .address = peer});
}

void ConnectionTable::Sweep() {
  MutexLock lock(mu_);
  SweepLocked();
}

void ConnectionTable::SweepLocked() {
  swept_ = SteadyNow();
  std::vector<std::string> ended;
  for (const auto& [peer, connection] : by_peer_) {
    if (!connection->IsOpen()) ended.push_back(peer);
  }
  for (const std::string& peer : ended) Forget(peer);
}

ConnectionStats ConnectionTable::stats() const {
  ConnectionStats stats;
  stats.open = size();
  stats.accepted = accepted_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kRefusedForCount; ++i) stats.refused[i] = refused_[i].load(std::memory_order_relaxed);
  return stats;
}

std::vector<ConnectionPtr> ConnectionTable::All() const {
  std::vector<ConnectionPtr> all;
  MutexLock lock(mu_);
  all.reserve(by_peer_.size());
  for (const auto& [peer, connection] : by_peer_) all.push_back(connection);
  return all;
}

}  // namespace normd::rpc
