// What the server knows of one connection, and the table of all of them: who is at the other end, how many calls it has
// open, how often it takes calls back, how many bytes have come.
// In the path: made by the accept loop before gRPC gets the descriptor; a call finds its connection at its headers.
// Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_CONNECTION_H_
#define NORMD_SERVER_RPC_TRANSPORT_CONNECTION_H_

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

#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/connection_stats.h"
#include "server/rpc/transport/delivery_account.h"

namespace normd::rpc {

// A socket's number that is never used again, unlike its descriptor; 0: not a socket any more.
uint64_t SocketCookie(int fd);

// Why a connection may not come in.
enum class Refusal : uint8_t { kNone, kTotal, kAddress };

class Connection {
 public:
  struct Facts {
    int fd = -1;  // of gRPC, which closes it at any time; used only while its cookie is `cookie`
    uint64_t cookie = 0;
    std::string peer;     // as gRPC names it: "ipv4:127.0.0.1:40112", or "fd:17" for a Unix socket
    std::string address;  // who shares the limits of one peer: "127.0.0.1", or "uid 1000" for a Unix socket
    bool is_unix = false;
  };

  explicit Connection(Facts facts) : facts_(std::move(facts)), key_(std::hash<std::string>()(facts_.peer)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& peer() const { return facts_.peer; }
  const std::string& address() const { return facts_.address; }
  bool is_unix() const { return facts_.is_unix; }
  // The same number for every call of this connection, which other connections hardly have.
  uint64_t key() const { return key_; }

  // Whether the socket is still open on this side.
  bool IsOpen() const { return facts_.cookie != 0 && SocketCookie(facts_.fd) == facts_.cookie; }
  // Bytes that have come from the peer since the connection was made; nothing where the kernel does not count them (a
  // Unix socket) or the connection is gone.
  std::optional<int64_t> ReceivedBytes() const;
  // Ends the connection, at once and for both directions: gRPC sees the end of it and the peer's calls fail with
  // UNAVAILABLE. What was written still reaches the peer.
  void Close() { End(/*reset=*/false); }
  // The same for a peer that floods us: the socket is reset, so that the peer does not wait for a window any more, and
  // what is on its way in either direction is dropped.
  void Reset() { End(/*reset=*/true); }

  // Calls that have arrived and are not over.
  int AddCall() { return live_calls_.fetch_add(1, std::memory_order_relaxed) + 1; }
  int RemoveCall() { return live_calls_.fetch_sub(1, std::memory_order_relaxed) - 1; }
  int live_calls() const { return live_calls_.load(std::memory_order_relaxed); }

  // The peer took a call back, or opened one that it may not have, which weighs more. False: it does so far more often
  // than any client that means well, and its connection is to be closed.
  bool AllowReset(absl::Time now, double weight = 1);

  // The size of the messages to come, guessed from those before: it decides how many of them are read side by side, and
  // refuses nobody.
  int64_t expected_bytes() const { return expected_bytes_.load(std::memory_order_relaxed); }
  void NoteMessage(int64_t bytes);

  // The messages that come: streams tell of them.
  void BeginMessage() { delivery_.Begin(); }
  void EndMessage(bool complete);
  void DeliverBytes(int64_t bytes) { delivery_.Deliver(bytes); }
  void LoseMessage(absl::Time now) { delivery_.Lose(now); }
  int open_messages() const { return delivery_.open(); }
  // What gRPC holds for this connection of messages that are not complete; nothing where that cannot be measured.
  DeliveryAccount::Bounds UndeliveredBytes(absl::Time now);

 private:
  void End(bool reset);

  const Facts facts_;
  const uint64_t key_;
  std::atomic<int> live_calls_{0};
  std::atomic<int64_t> expected_bytes_{0};
  DeliveryAccount delivery_;

  Mutex mu_;
  double resets_ ABSL_GUARDED_BY(mu_) = 0;  // those that have not been forgiven yet
  absl::Time resets_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

using ConnectionPtr = std::shared_ptr<Connection>;

struct ConnectionLimits {
  int max_connections = 0;
  int max_per_address = 0;
};

class ConnectionTable {
 public:
  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  // Takes a connection in. Null, and why in `refusal`, when there are as many as there may be; those that have ended
  // are forgotten first.
  ConnectionPtr Add(Connection::Facts facts, Refusal* refusal);
  void Remove(const Connection& connection);

  // The connection that gRPC calls `peer`. Never null: one that is not known has a peer and nothing else.
  ConnectionPtr Find(const std::string& peer) const;

  // Forgets those that have ended.
  void Sweep();
  std::vector<ConnectionPtr> All() const;

  void CountAccepted() { accepted_.fetch_add(1, std::memory_order_relaxed); }
  void Count(RefusedFor reason) { refused_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  ConnectionStats stats() const;
  int size() const { return size_.load(std::memory_order_relaxed); }

 private:
  void Forget(const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Refusal Judge(const std::string& address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ConnectionLimits limits_;
  std::atomic<int> size_{0};
  std::atomic<int64_t> accepted_{0};
  std::array<std::atomic<int64_t>, kRefusedForCount> refused_{};
  mutable Mutex mu_;
  std::unordered_map<std::string, ConnectionPtr> by_peer_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, int> by_address_ ABSL_GUARDED_BY(mu_);
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_CONNECTION_H_
