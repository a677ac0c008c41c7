#include "server/rpc/edge/connection.h"

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

// The least time between sweeps, and between searches for idle connections, because at the limit every new connection
// would otherwise check every other one.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(50);
// How many idle connections one search finds: room for 1280 new ones a second.
constexpr size_t kIdleAtOnce = 64;

}  // namespace

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

Connection::Connection(Facts facts, std::shared_ptr<PeerCalls> peer_calls)
    : facts_(std::move(facts)),
      key_(std::hash<std::string>()(facts_.peer)),
      peer_calls_(std::move(peer_calls)),
      last_call_(absl::ToUnixNanos(SteadyNow())),
      resets_(ResetGuard(facts_.resets_per_second)) {}

std::optional<int64_t> Connection::ReceivedBytes() const {
  if (facts_.is_unix || !IsOpen()) return std::nullopt;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(facts_.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

void Connection::End(bool reset) {
  // The transport may close its descriptor between the check and the shutdown, and the number may become another
  // socket's. A duplicate avoids that.
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
  return resets_.Allow(now, weight);
}

void Connection::NoteMessage(int64_t bytes) {
  // Follows a larger size at once and smaller ones slowly.
  const int64_t before = expected_bytes();
  expected_bytes_.store(std::max(bytes, before - before / 8), std::memory_order_relaxed);
}

ConnectionPtr PeerIndex::Find(const std::string& peer) const {
  const Part& part = PartOf(peer);
  MutexLock lock(part.mu);
  const auto found = part.connections.find(peer);
  return found == part.connections.end() ? nullptr : found->second;
}

void PeerIndex::Insert(ConnectionPtr connection) {
  Part& part = PartOf(connection->peer());
  MutexLock lock(part.mu);
  part.connections.insert_or_assign(connection->peer(), connection);
}

void PeerIndex::Erase(const std::string& peer) {
  Part& part = PartOf(peer);
  ConnectionPtr erased;  // outlives the lock
  MutexLock lock(part.mu);
  const auto found = part.connections.find(peer);
  if (found == part.connections.end()) return;
  erased = std::move(found->second);
  part.connections.erase(found);
}

std::vector<ConnectionPtr> PeerIndex::All() const {
  std::vector<ConnectionPtr> all;
  for (const Part& part : parts_) {
    MutexLock lock(part.mu);
    for (const auto& [peer, connection] : part.connections) all.push_back(connection);
  }
  return all;
}

ConnectionPtr ConnectionTable::Add(Connection::Facts facts, Make make, Refusal* refusal) {
  if (IsFullFor(facts)) SweepIfDue();
  MutexLock lock(mu_);
  // A name is reused when its connection has ended. One host and port may also be connected to two listeners at a time;
  // calls could not be told apart then, so the second connection is refused, and its client takes another port.
  if (const ConnectionPtr same = by_peer_.Find(facts.peer); same != nullptr && same->IsOpen()) {
    *refusal = Refusal::kAddress;
    return nullptr;
  }
  Forget(facts.peer);
  *refusal = Judge(facts);
  if (*refusal == Refusal::kTotal && MakeRoom(facts.address)) *refusal = Refusal::kNone;
  if (*refusal != Refusal::kNone) return nullptr;
  facts.resets_per_second = limits_.resets_per_second;
  Peer& peer = by_address_[facts.address];
  ++peer.open;
  ConnectionPtr connection = make(std::move(facts), peer.calls);
  by_peer_.Insert(connection);
  size_.fetch_add(1, std::memory_order_relaxed);
  return connection;
}

void ConnectionTable::Remove(const Connection& connection) {
  MutexLock lock(mu_);
  if (by_peer_.Find(connection.peer()).get() == &connection) Forget(connection.peer());
}

bool ConnectionTable::IsFullFor(const Connection::Facts& facts) {
  MutexLock lock(mu_);
  return Judge(facts) != Refusal::kNone;
}

int ConnectionTable::OpenOf(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? 0 : found->second.open;
}

Refusal ConnectionTable::Judge(const Connection::Facts& facts) const {
  const int own = OpenOf(facts.address);
  if (own >= limits_.max_per_address) return Refusal::kAddress;
  const int kept_from_tcp = own > 0 ? limits_.kept : limits_.kept / 2;
  const int most = limits_.max_connections - (facts.is_unix ? 0 : kept_from_tcp);
  return size() >= most ? Refusal::kTotal : Refusal::kNone;
}

bool ConnectionTable::MakeRoom(const std::string& address) {
  if (SteadyNow() - looked_ >= kSweepInterval) FindIdle();
  while (!idle_.empty() && OpenOf(idle_.back()->address()) > OpenOf(address) + 1) {
    const ConnectionPtr idle = std::move(idle_.back());
    idle_.pop_back();
    // It may have ended, or have a call, since it was found.
    if (idle->live_calls() > 0 || by_peer_.Find(idle->peer()) != idle) continue;
    Forget(idle->peer());
    CountEnded(*idle, RefusedFor::kMadeRoom);
    idle->ShutDown();
    return true;
  }
  return false;
}

void ConnectionTable::FindIdle() {
  looked_ = SteadyNow();
  idle_.clear();
  const auto largest = std::max_element(by_address_.begin(), by_address_.end(),
                                        [](const auto& a, const auto& b) { return a.second.open < b.second.open; });
  if (largest == by_address_.end()) return;
  // The times may change meanwhile, so that they are read once.
  std::vector<std::pair<int64_t, ConnectionPtr>> found;
  for (ConnectionPtr& connection : by_peer_.All()) {
    if (connection->live_calls() > 0 || connection->address() != largest->first) continue;
    const int64_t last_call = connection->last_call();
    found.emplace_back(last_call, std::move(connection));
  }
  const size_t kept = std::min(found.size(), kIdleAtOnce);
  const auto later = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(kept), found.end(), later);
  for (size_t i = kept; i > 0; --i) idle_.push_back(std::move(found[i - 1].second));
}

void ConnectionTable::Forget(const std::string& peer) {
  const ConnectionPtr found = by_peer_.Find(peer);
  if (found == nullptr) return;
  if (found->is_tls() && found->without_call()) without_call_.fetch_add(1, std::memory_order_relaxed);
  const auto address = by_address_.find(found->address());
  if (--address->second.open == 0 && !address->second.calls->IsAny()) by_address_.erase(address);
  by_peer_.Erase(peer);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

void ConnectionTable::SweepIfDue() {
  {
    MutexLock lock(mu_);
    if (SteadyNow() - swept_ < kSweepInterval) return;
  }
  Sweep();
}

void ConnectionTable::Sweep() {
  // To ask the system about each takes milliseconds for thousands of them: not with the lock, for which the loops of
  // the connections wait.
  std::vector<ConnectionPtr> ended = by_peer_.All();
  std::erase_if(ended, [](const ConnectionPtr& connection) { return connection->IsOpen(); });
  MutexLock lock(mu_);
  swept_ = SteadyNow();
  for (const ConnectionPtr& connection : ended) {
    if (by_peer_.Find(connection->peer()) == connection) Forget(connection->peer());
  }
  // Peers without a connection are kept while calls of theirs run, so that they are counted when the peer comes back.
  std::erase_if(by_address_, [](const auto& peer) { return peer.second.open == 0 && !peer.second.calls->IsAny(); });
}

ConnectionStats ConnectionTable::stats() const {
  ConnectionStats stats;
  stats.open = size();
  stats.accepted = accepted_.load(std::memory_order_relaxed);
  stats.without_call = without_call_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kRefusedForCount; ++i) stats.refused[i] = refused_[i].load(std::memory_order_relaxed);
  return stats;
}

}  // namespace normd::rpc
