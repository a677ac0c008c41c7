#include "server/rpc/transport/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

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

TEST(ConnectionTableTest, BoundsConnectionsInAllAndOfOnePeer) {
  ConnectionTable table({.max_connections = 3, .max_per_address = 2});
  const Pair a, b, c, d, e;
  Refusal refusal = Refusal::kNone;
  EXPECT_NE(table.Add(a.Facts("1", "x"), &refusal), nullptr);
  EXPECT_NE(table.Add(b.Facts("2", "x"), &refusal), nullptr);
  EXPECT_EQ(table.Add(c.Facts("3", "x"), &refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kAddress);
  EXPECT_NE(table.Add(d.Facts("4", "y"), &refusal), nullptr);
  EXPECT_EQ(table.Add(e.Facts("5", "z"), &refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kTotal);
  EXPECT_EQ(table.size(), 3);
}

TEST(ConnectionTableTest, AConnectionThatHasEndedMakesRoom) {
  ConnectionTable table({.max_connections = 1, .max_per_address = 1});
  Pair a;
  const Pair b;
  Refusal refusal = Refusal::kNone;
  ASSERT_NE(table.Add(a.Facts("1", "x"), &refusal), nullptr);
  a.CloseOwn();
  EXPECT_NE(table.Add(b.Facts("2", "x"), &refusal), nullptr);
  EXPECT_EQ(table.size(), 1);
}

// A host may use one port for connections to two listeners; of the calls, gRPC tells that host and port alone.
TEST(ConnectionTableTest, TwoConnectionsNeverHaveOneName) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  Pair a;
  const Pair b;
  Refusal refusal = Refusal::kNone;
  const ConnectionPtr first = table.Add(a.Facts("1", "x"), &refusal);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(table.Add(b.Facts("1", "x"), &refusal), nullptr);
  EXPECT_EQ(refusal, Refusal::kAddress);
  EXPECT_EQ(table.Find("1"), first);
  a.CloseOwn();
  const ConnectionPtr second = table.Add(b.Facts("1", "x"), &refusal);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(table.Find("1"), second);
}

// Descriptors are used again at once; the socket behind one is another.
TEST(ConnectionTableTest, ClosesItsOwnSocketAndNotTheNextOneOfThatNumber) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  Pair a;
  Refusal refusal = Refusal::kNone;
  const ConnectionPtr connection = table.Add(a.Facts("1", "x"), &refusal);
  ASSERT_NE(connection, nullptr);
  const int number = a.fds[0];
  a.CloseOwn();
  const Pair next;
  ASSERT_TRUE(next.fds[0] == number || next.fds[1] == number);
  EXPECT_FALSE(connection->IsOpen());
  connection->Close();
  char byte = 'x';
  EXPECT_EQ(send(next.fds[0], &byte, 1, MSG_NOSIGNAL), 1) << "it was shut down";
}

TEST(ConnectionTableTest, CloseEndsBothDirections) {
  ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  const Pair a;
  Refusal refusal = Refusal::kNone;
  table.Add(a.Facts("1", "x"), &refusal)->Close();
  char byte = 0;
  EXPECT_EQ(recv(a.fds[1], &byte, 1, MSG_DONTWAIT), 0);
}

TEST(ConnectionTableTest, AnUnknownPeerIsItself) {
  const ConnectionTable table({.max_connections = 4, .max_per_address = 4});
  EXPECT_EQ(table.Find("ipv4:10.0.0.1:5")->peer(), "ipv4:10.0.0.1:5");
  EXPECT_FALSE(table.Find("ipv4:10.0.0.1:5")->IsOpen());
}

TEST(ConnectionTest, ForgivesResetsInTimeAndNotInAFlood) {
  Connection connection({.peer = "1"});
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

TEST(ConnectionTest, ExpectsWhatHasComeAndForgetsLargeMessagesSlowly) {
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
