// What the server knows of one connection, and the table of all connections: the peer, the number of open calls, how
// often the peer cancels calls, and the bytes received. The table also decides who may connect, and whose connection is
// closed when there is no room.
// In the path: the accept loop makes a Connection before the transport gets the descriptor; a call finds its connection
// at its headers.
// Ownership: shared by the table and the streams; the transport owns the descriptor.
// Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_RPC_EDGE_CONNECTION_H_
#define NORMD_SERVER_RPC_EDGE_CONNECTION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/net/rate_guard.h"
#include "server/rpc/edge/connection_stats.h"
#include "server/rpc/edge/reset_guard.h"

namespace normd::rpc {

// A number that identifies a socket and, unlike a descriptor, is never reused; 0 when `fd` is no socket.
uint64_t SocketCookie(int fd);

// Why the table refuses a connection.
enum class Refusal : uint8_t { kNone, kTotal, kAddress };
inline constexpr size_t kRefusalCount = 3;

// The calls of one peer, which is an address as in Connection::address, that hold a place of CallPlaces. Shared by the
// peer's connections.
struct PeerCalls {
  bool IsAny() const { return held.load(std::memory_order_relaxed) > 0; }

  std::atomic<int> held{0};
};

class Connection {
 public:
  struct Facts {
    int fd = -1;  // the transport may close it at any time; used only while its cookie is `cookie`
    uint64_t cookie = 0;
    double resets_per_second = kResetsPerSecond;  // that the peer may cause
    std::string peer;                             // as in gRPC: "ipv4:127.0.0.1:40112", or "fd:17" for a Unix socket
    std::string address;  // the key of per-peer limits: "127.0.0.1", or "uid 1000" for a Unix socket
    bool is_unix = false;
    std::optional<uint32_t> uid;  // the user at the other end of a Unix socket, as the kernel says
    bool is_tls = false;
  };

  explicit Connection(Facts facts, std::shared_ptr<PeerCalls> peer_calls = std::make_shared<PeerCalls>());
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& peer() const { return facts_.peer; }
  const std::string& address() const { return facts_.address; }
  bool is_unix() const { return facts_.is_unix; }
  const std::optional<uint32_t>& uid() const { return facts_.uid; }
  // Whether TLS is spoken, from the ClientHello on. A call knows from its stream whether it is encrypted.
  bool is_tls() const { return facts_.is_tls; }
  // A hash of peer(): equal for all calls of this connection; other connections almost always differ.
  uint64_t key() const { return key_; }

  // Whether this side still has the socket open.
  bool IsOpen() const { return facts_.cookie != 0 && SocketCookie(facts_.fd) == facts_.cookie; }
  // Bytes received from the peer since the connection was made; nullopt where the kernel does not count them (a Unix
  // socket) or the connection is gone.
  std::optional<int64_t> ReceivedBytes() const;
  // Shuts the connection down at once in both directions: the transport sees its end, and the peer's calls fail with
  // UNAVAILABLE. Bytes already written still reach the peer.
  void ShutDown() { End(/*reset=*/false); }
  // Like ShutDown, but resets the socket, for a peer that floods the server: the peer stops waiting for a window, and
  // bytes on their way in either direction are dropped.
  void Reset() { End(/*reset=*/true); }

  // Marks that the server ends the connection because of its peer's behaviour. Returns true to the first caller only,
  // which then counts it: see ConnectionTable::CountEnded.
  bool MarkEnded() { return !ended_.exchange(true, std::memory_order_relaxed); }

  // The number of calls that have arrived and are not over. `now` is the time by SteadyNow.
  int AddCall(absl::Time now) {
    had_call_.store(true, std::memory_order_relaxed);
    last_call_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
    return live_calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  int RemoveCall() { return live_calls_.fetch_sub(1, std::memory_order_relaxed) - 1; }
  int live_calls() const { return live_calls_.load(std::memory_order_relaxed); }
  // When the last call came or, before the first one, the connection: by SteadyNow, in nanoseconds since the Unix
  // epoch.
  int64_t last_call() const { return last_call_.load(std::memory_order_relaxed); }
  PeerCalls& peer_calls() const { return *peer_calls_; }

  // Notes that the first bytes were right: see ConnectionTable::CountAccepted.
  void NoteAccepted() { accepted_.store(true, std::memory_order_relaxed); }
  // Whether the first bytes were right, and no call came.
  bool without_call() const {
    return accepted_.load(std::memory_order_relaxed) && !had_call_.load(std::memory_order_relaxed);
  }

  // Counts a call that the peer cancelled, or one that it opened beyond its limit, which has a larger weight. Returns
  // false when the peer does so far more often than any honest client, and its connection should be closed.
  bool AllowReset(absl::Time now, double weight = 1);

  // The size of coming messages, predicted from earlier ones. The prediction decides how many messages are read at the
  // same time, and never refuses a call.
  int64_t expected_bytes() const { return expected_bytes_.load(std::memory_order_relaxed); }
  void NoteMessage(int64_t bytes);

  // The messages that are on their way and are not counted elsewhere, as far as the transport knows; see
  // ReadLimiter::Enter.
  virtual int open_messages() const { return 0; }

 private:
  void End(bool reset);

  const Facts facts_;
  const uint64_t key_;
  const std::shared_ptr<PeerCalls> peer_calls_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> accepted_{false};
  std::atomic<bool> had_call_{false};
  std::atomic<int> live_calls_{0};
  std::atomic<int64_t> last_call_;
  std::atomic<int64_t> expected_bytes_{0};

  Mutex mu_;
  net::RateGuard resets_ ABSL_GUARDED_BY(mu_);
};

using ConnectionPtr = std::shared_ptr<Connection>;

struct ConnectionLimits {
  int max_connections = 0;
  int max_per_address = 0;
  // Of max_connections, those that only the Unix socket and peers which have none open may take, and half of them only
  // the Unix socket. What fills the rest locks out neither the operator nor a new client.
  int kept = 0;
  double resets_per_second = kResetsPerSecond;  // of each
};

// The connections by the names of their peers, in parts with a lock each: on gRPC's transport every call looks its
// connection up.
class PeerIndex {
 public:
  // Null if there is none.
  ConnectionPtr Find(const std::string& peer) const;
  void Insert(ConnectionPtr connection);
  void Erase(const std::string& peer);
  std::vector<ConnectionPtr> All() const;

 private:
  static constexpr size_t kParts = 16;
  struct alignas(64) Part {
    mutable Mutex mu;
    std::unordered_map<std::string, ConnectionPtr> connections ABSL_GUARDED_BY(mu);
  };

  Part& PartOf(const std::string& peer) { return parts_[std::hash<std::string>()(peer) % kParts]; }
  const Part& PartOf(const std::string& peer) const { return parts_[std::hash<std::string>()(peer) % kParts]; }

  std::array<Part, kParts> parts_;
};

class ConnectionTable {
 public:
  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  // Adds a connection. At a limit, sweeps ended connections first. If that does not help, closes a connection of the
  // peer that has most of them, the one that has been longest without a call, as long as the new one's peer has fewer
  // even with the new one: so nobody who connects again and again can take more than an equal share. If that does not
  // help either, returns null and sets `*refusal`. `make` makes the connection; it must not call the table.
  using Make = absl::FunctionRef<ConnectionPtr(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls)>;
  ConnectionPtr Add(Connection::Facts facts, Make make, Refusal* refusal);
  void Remove(const Connection& connection);

  // The connection of `peer`; null if there is none.
  ConnectionPtr Find(const std::string& peer) const { return by_peer_.Find(peer); }

  // Removes the connections that have ended.
  void Sweep();
  // The same, unless that was done a moment ago.
  void SweepIfDue();
  std::vector<ConnectionPtr> All() const { return by_peer_.All(); }

  // Counts a connection whose client has finished its half of HTTP/2's set-up or, with TLS, has sent its ClientHello.
  void CountAccepted(Connection& connection) {
    connection.NoteAccepted();
    accepted_.fetch_add(1, std::memory_order_relaxed);
  }
  void Count(RefusedFor reason) { refused_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  // Counts a connection that the server ends, unless it was counted before.
  void CountEnded(Connection& connection, RefusedFor reason) {
    if (connection.MarkEnded()) Count(reason);
  }
  ConnectionStats stats() const;
  const ConnectionLimits& limits() const { return limits_; }
  int size() const { return size_.load(std::memory_order_relaxed); }

 private:
  // The connections of one address.
  struct Peer {
    int open = 0;
    std::shared_ptr<PeerCalls> calls = std::make_shared<PeerCalls>();
  };

  void Forget(const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Refusal Judge(const Connection::Facts& facts) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int OpenOf(const std::string& address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsFullFor(const Connection::Facts& facts);
  // Closes a connection in favour of one of `address`. Returns whether there was one to close.
  bool MakeRoom(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Looks through all connections for those to close.
  void FindIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ConnectionLimits limits_;
  std::atomic<int> size_{0};
  std::atomic<int64_t> accepted_{0};
  std::array<std::atomic<int64_t>, kRefusedForCount> refused_{};
  std::atomic<int64_t> without_call_{0};
  PeerIndex by_peer_;  // changed with mu_ locked
  Mutex mu_;
  std::unordered_map<std::string, Peer> by_address_ ABSL_GUARDED_BY(mu_);
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // The connections without a call of the peer that had most connections at `looked_`, the longest without one last.
  std::vector<ConnectionPtr> idle_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_CONNECTION_H_
