#include "server/rpc/edge/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

ConnectionPtr MakePlain(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls) {
  return std::make_shared<Connection>(std::move(facts), std::move(peer_calls));
}

// A pair of sockets: `own` is the server's end.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0); }
  ~Pair() {
    CloseOwn();
    close(fds[1]);
  }
  void CloseOwn() {
    if (fds[0] >= 0) close(std::exchange(fds[0], -1));
  }
  Connection::Facts Facts(const std::string& peer, const std::string& address) const {
    return {.fd = fds[0], .cookie = SocketCookie(fds[0]), .peer = peer, .address = address, .is_unix = true};
  }

  std::array<int, 2> fds = {-1, -1};
};

// Many connections, of any number of peers, to a table.
class Crowd {
 public:
  explicit Crowd(const ConnectionLimits& limits) : table(limits) {}

  // A connection of `address`, or null.
  ConnectionPtr Come(const std::string& address, bool is_unix = false) {
    pairs_.push_back(std::make_unique<Pair>());
    Connection::Facts facts = pairs_.back()->Facts(std::to_string(pairs_.size()), address);
    facts.is_unix = is_unix;
    ConnectionPtr connection = table.Add(std::move(facts), MakePlain, &refusal);
    if (connection != nullptr) far_ends_[connection.get()] = pairs_.back()->fds[1];
    return connection;
  }
  // Whether the server has closed the connection.
  bool IsClosed(const ConnectionPtr& connection) const {
    char byte = 0;
    return recv(far_ends_.at(connection.get()), &byte, 1, MSG_DONTWAIT) == 0;
  }
  // The time between two searches for connections to close has passed.
  static void Wait() { absl::SleepFor(absl::Milliseconds(60)); }
  int64_t MadeRoom() const { return table.stats().refused[static_cast<size_t>(RefusedFor::kMadeRoom)]; }

  ConnectionTable table;
  Refusal refusal = Refusal::kNone;

 private:
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::map<const Connection*, int> far_ends_;
};

TEST(ConnectionTableTest, CallsOfAPeerCountUntilTheyEndWhateverBecomesOfItsConnections) {
  Crowd crowd({.max_connections = 3, .max_per_address = 2});
  const ConnectionPtr first = crowd.Come("x");
  PeerCalls& calls = first->peer_calls();
  calls.held = 5;
  crowd.table.Remove(*first);
  crowd.table.Sweep();
  const ConnectionPtr second = crowd.Come("x");
  EXPECT_EQ(&second->peer_calls(), &calls);
  calls.held = 0;
  crowd.table.Remove(*second);
  EXPECT_NE(&crowd.Come("x")->peer_calls(), &calls);
}

TEST(ConnectionTableTest, BoundsConnectionsInAllAndOfOnePeer) {
  Crowd crowd({.max_connections = 3, .max_per_address = 2});
  const ConnectionPtr first = crowd.Come("x"), second = crowd.Come("x");
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(crowd.Come("x"), nullptr);
  EXPECT_EQ(crowd.refusal, Refusal::kAddress);
  first->AddCall(SteadyNow());
  second->AddCall(SteadyNow());
  EXPECT_NE(crowd.Come("y"), nullptr);
  EXPECT_EQ(crowd.Come("z"), nullptr) << "nobody is idle who has more";
  EXPECT_EQ(crowd.refusal, Refusal::kTotal);
  EXPECT_EQ(crowd.table.size(), 3);
  EXPECT_EQ(crowd.MadeRoom(), 0);
}

TEST(ConnectionTableTest, AFullHouseClosesTheLongestIdleConnectionOfTheLargestPeer) {
  Crowd crowd({.max_connections = 6, .max_per_address = 6});
  const ConnectionPtr small = crowd.Come("small");
  const ConnectionPtr busy = crowd.Come("large"), used = crowd.Come("large"), idle = crowd.Come("large"),
                      later = crowd.Come("large"), latest = crowd.Come("large");
  ASSERT_NE(latest, nullptr);
  busy->AddCall(SteadyNow());
  used->AddCall(SteadyNow());
  used->RemoveCall();
  EXPECT_NE(crowd.Come("new"), nullptr);
  EXPECT_TRUE(crowd.IsClosed(idle));
  EXPECT_EQ(crowd.MadeRoom(), 1);
  EXPECT_NE(crowd.Come("new"), nullptr);
  EXPECT_TRUE(crowd.IsClosed(later));
  for (const ConnectionPtr& kept : {small, busy, used, latest}) EXPECT_FALSE(crowd.IsClosed(kept));
  EXPECT_EQ(crowd.table.size(), 6);
  EXPECT_EQ(crowd.MadeRoom(), 2);
}

// Two peers could otherwise close each other's connections for ever.
TEST(ConnectionTableTest, NobodyGetsMoreThanAnEqualShareByComingAgain) {
  Crowd crowd({.max_connections = 8, .max_per_address = 8});
  for (int i = 0; i < 8; ++i) ASSERT_NE(crowd.Come("large"), nullptr);
  int let_in = 0;
  for (int i = 0; i < 20; ++i) let_in += crowd.Come("greedy") != nullptr ? 1 : 0;
  EXPECT_EQ(let_in, 4);
  Crowd::Wait();
  EXPECT_EQ(crowd.Come("greedy"), nullptr);
  EXPECT_EQ(crowd.refusal, Refusal::kTotal);
  EXPECT_EQ(crowd.Come("large"), nullptr);
  EXPECT_EQ(crowd.MadeRoom(), 4);
}

// Each search takes time in proportion to all connections.
TEST(ConnectionTableTest, AConnectionThatWasFoundIdleAndHasACallStays) {
  Crowd crowd({.max_connections = 4, .max_per_address = 4});
  std::vector<ConnectionPtr> large;
  for (int i = 0; i < 4; ++i) large.push_back(crowd.Come("large"));
  EXPECT_NE(crowd.Come("new"), nullptr);
  EXPECT_TRUE(crowd.IsClosed(large[0]));
  large[1]->AddCall(SteadyNow());
  EXPECT_NE(crowd.Come("other"), nullptr);
  EXPECT_FALSE(crowd.IsClosed(large[1]));
  EXPECT_TRUE(crowd.IsClosed(large[2]));
}

TEST(ConnectionTableTest, SomeConnectionsAreKeptForNewPeersAndForTheUnixSocket) {
  Crowd crowd({.max_connections = 12, .max_per_address = 12, .kept = 4});
  // Calls, so that nobody can be closed.
  const auto come = [&crowd](const std::string& address, bool is_unix = false) {
    const ConnectionPtr connection = crowd.Come(address, is_unix);
    if (connection != nullptr) connection->AddCall(SteadyNow());
    return connection != nullptr;
  };
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(come("large")) << i;
  EXPECT_FALSE(come("large"));
  EXPECT_TRUE(come("new"));
  EXPECT_FALSE(come("new")) << "it has one open";
  EXPECT_TRUE(come("newer"));
  EXPECT_FALSE(come("newest"));
  EXPECT_EQ(crowd.refusal, Refusal::kTotal);
  EXPECT_TRUE(come("uid 0", /*is_unix=*/true));
  EXPECT_TRUE(come("uid 0", /*is_unix=*/true));
  EXPECT_FALSE(come("uid 0", /*is_unix=*/true));
}

TEST(ConnectionTableTest, AConnectionThatTheServerEndsCountsOnce) {
  Crowd crowd({.max_connections = 1, .max_per_address = 1});
  const ConnectionPtr connection = crowd.Come("x");
  crowd.table.CountEnded(*connection, RefusedFor::kFlood);
  crowd.table.CountEnded(*connection, RefusedFor::kFlood);
  crowd.table.CountEnded(*connection, RefusedFor::kSetup);
  EXPECT_FALSE(connection->MarkEnded());
  EXPECT_EQ(crowd.table.stats().refused[static_cast<size_t>(RefusedFor::kFlood)], 1);
  EXPECT_EQ(crowd.table.stats().refused[static_cast<size_t>(RefusedFor::kSetup)], 0);
}

TEST(ConnectionTableTest, ConnectionsOfOnePeerShareItsCalls) {
  Crowd crowd({.max_connections = 3, .max_per_address = 3});
  const ConnectionPtr a = crowd.Come("x"), b = crowd.Come("x"), c = crowd.Come("y");
  EXPECT_EQ(&a->peer_calls(), &b->peer_calls());
  EXPECT_NE(&a->peer_calls(), &c->peer_calls());
}

TEST(ConnectionTableTest, AConnectionThatHasEndedMakesRoom) {
  ConnectionTable table({.max_connections = 1, .max_per_address = 1});
  Pair a;
  const Pair b;
  Refusal refusal = Refusal::kNone;
  ASSERT_NE(table.Add(a.Facts("1", "x"), MakePlain, &refusal), nullptr);
  a.CloseOwn();
  EXPECT_NE(table.Add(b.Facts("2", "x"), MakePlain, &refusal), nullptr);
  EXPECT_EQ(table.size(), 1);
}

// A host may use one port for connections to two listeners; of the calls, gRPC tells that host and port alone.
TEST(ConnectionTableTest, TwoConnectionsNeverHaveOneName) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  Pair a;
  const Pair b;
  Refusal refusal = Refusal::kNone;
  const ConnectionPtr first = table.Add(a.Facts("1", "x"), MakePlain, &refusal);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(table.Add(b.Facts("1", "x"), MakePlain, &refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kAddress);
  EXPECT_EQ(table.Find("1"), first);
  a.CloseOwn();
  const ConnectionPtr second = table.Add(b.Facts("1", "x"), MakePlain, &refusal);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(table.Find("1"), second);
}

// Descriptors are used again at once; the socket behind one is another.
TEST(ConnectionTableTest, ClosesItsOwnSocketAndNotTheNextOneOfThatNumber) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  Pair a;
  Refusal refusal = Refusal::kNone;
  const ConnectionPtr connection = table.Add(a.Facts("1", "x"), MakePlain, &refusal);
  ASSERT_NE(connection, nullptr);
  const int number = a.fds[0];
  a.CloseOwn();
  const Pair next;
  ASSERT_TRUE(next.fds[0] == number || next.fds[1] == number);
  EXPECT_FALSE(connection->IsOpen());
  connection->ShutDown();
  char byte = 'x';
  EXPECT_EQ(send(next.fds[0], &byte, 1, MSG_NOSIGNAL), 1) << "it was shut down";
}

TEST(ConnectionTableTest, CloseEndsBothDirections) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  const Pair a;
  Refusal refusal = Refusal::kNone;
  table.Add(a.Facts("1", "x"), MakePlain, &refusal)->ShutDown();
  char byte = 0;
  EXPECT_EQ(recv(a.fds[1], &byte, 1, MSG_DONTWAIT), 0);
}

TEST(ConnectionTableTest, ReturnsNullForAnUnknownPeer) {
  const ConnectionTable table({.max_connections = 2, .max_per_address = 2});
  EXPECT_EQ(table.Find("ipv4:127.0.0.1:1"), nullptr);
}

TEST(ConnectionTest, ForgivesResetsInTimeAndNotInAFlood) {
  Connection connection({.resets_per_second = 100, .peer = "1"});
  const absl::Time start = SteadyNow();
  int allowed = 0;
  while (connection.AllowReset(start)) ++allowed;
  EXPECT_EQ(allowed, 1000);
  EXPECT_FALSE(connection.AllowReset(start + absl::Milliseconds(5)));
  EXPECT_TRUE(connection.AllowReset(start + absl::Seconds(1)));
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(connection.AllowReset(start + absl::Seconds(60) + i * absl::Milliseconds(11))) << i;
  }
}

TEST(ConnectionTest, ExpectedBytesGrowAtOnceAndShrinkSlowly) {
  Connection connection({.peer = "1"});
  connection.NoteMessage(1000);
  EXPECT_EQ(connection.expected_bytes(), 1000);
  connection.NoteMessage(8);
  EXPECT_EQ(connection.expected_bytes(), 875);
  connection.NoteMessage(5000);
  EXPECT_EQ(connection.expected_bytes(), 5000);
}

}  // namespace
}  // namespace normd::rpc
