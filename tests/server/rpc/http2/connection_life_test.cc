// How connections begin and end: keepalive, age, drain, set-up.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {
namespace {

using std::chrono::milliseconds;

constexpr uint8_t kPing = 6, kAck = 1;

// The next frame of a type; nothing if the connection ends before.
std::optional<Http2Frame> Next(RawHttp2& peer, uint8_t type) {
  while (std::optional<Http2Frame> frame = peer.Receive(milliseconds(2000))) {
    if (frame->type == type) return frame;
  }
  return std::nullopt;
}

const std::string kEmptyMessage(5, '\0');

TEST(ConnectionLifeTest, ADrainTellsThePeerTwiceAndLetsCallsEnd) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Stream");
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().calls, 1));
  server.transport().Drain();
  const auto notice = Next(peer, RawHttp2::kGoAway);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->payload.substr(0, 4), "\x7F\xFF\xFF\xFF");
  // What was opened before the peer could know is served.
  peer.SendHeaders(3, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 3, kEmptyMessage);
  EXPECT_TRUE(peer.WaitForEnd(3, milliseconds(2000)));
  peer.SendFrame(kPing, kAck, 0, "draining");
  const auto last = Next(peer, RawHttp2::kGoAway);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->payload.substr(0, 4), std::string("\0\0\0\3", 4));
  peer.SendHeaders(5, "/echo.Echo/Unary");
  // The first call goes on, and the connection ends with it.
  peer.SendFrame(RawHttp2::kData, 0, 1, kEmptyMessage);
  EXPECT_EQ(Next(peer, RawHttp2::kData)->stream, 1U);
  EXPECT_EQ(server.counts().calls.load(), 2);
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, "");
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  EXPECT_TRUE(peer.WaitForClose(milliseconds(2000)));
  EXPECT_EQ(server.counts().cancelled.load(), 0);
}

TEST(ConnectionLifeTest, ADrainEndsWithAPeerThatAnswersNoPing) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface();
  ASSERT_TRUE(Next(peer, RawHttp2::kSettings).has_value());
  server.transport().Drain();
  EXPECT_TRUE(Next(peer, RawHttp2::kGoAway).has_value());
  EXPECT_TRUE(Next(peer, RawHttp2::kGoAway).has_value());
  EXPECT_TRUE(peer.WaitForClose(milliseconds(3000)));
}

TEST(ConnectionLifeTest, ClientsReconnectAfterADrainWithoutAnError) {
  EchoServer server({.max_connection_age = absl::Milliseconds(50)});
  const auto channel = server.Connect();
  const auto end = std::chrono::steady_clock::now() + milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    const EchoReply reply = Ask(channel, {.method = "Unary", .body = "x"});
    ASSERT_EQ(reply.code, 0) << reply.message;
  }
}

TEST(ConnectionLifeTest, AConnectionWithoutACallIsDrainedAndOneWithACallIsNot) {
  EchoServer server({.max_connection_idle = absl::Milliseconds(100)});
  RawHttp2 busy(server.target());
  busy.SendPreface();
  busy.SendHeaders(1, "/echo.Echo/Stream");
  RawHttp2 idle(server.target());
  idle.SendPreface();
  idle.SendHeaders(1, "/echo.Echo/Unary");
  idle.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, kEmptyMessage);
  EXPECT_TRUE(idle.WaitForEnd(1, milliseconds(2000)));
  EXPECT_TRUE(Next(idle, RawHttp2::kGoAway).has_value());
  EXPECT_TRUE(idle.WaitForClose(milliseconds(3000)));
  std::this_thread::sleep_for(milliseconds(300));
  busy.SendFrame(RawHttp2::kData, 0, 1, kEmptyMessage);
  for (uint8_t type = 0xFF; type != RawHttp2::kData;) {
    const std::optional<Http2Frame> frame = busy.Receive(milliseconds(2000));
    ASSERT_TRUE(frame.has_value());
    ASSERT_NE(frame->type, RawHttp2::kGoAway);
    type = frame->type;
  }
  busy.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, "");
  EXPECT_TRUE(Next(busy, RawHttp2::kGoAway).has_value()) << "the call is over";
}

TEST(ConnectionLifeTest, ASilentPeerIsPingedAndThenLeft) {
  EchoServer server({.keepalive_interval = absl::Milliseconds(200), .keepalive_timeout = absl::Milliseconds(200)});
  RawHttp2 peer(server.target());
  peer.SendPreface();
  const auto first = Next(peer, kPing);
  ASSERT_TRUE(first.has_value());
  peer.SendFrame(kPing, kAck, 0, first->payload);
  ASSERT_TRUE(Next(peer, kPing).has_value());
  EXPECT_TRUE(peer.WaitForClose(milliseconds(2000)));
}

TEST(ConnectionLifeTest, APeerWithoutSettingsIsClosed) {
  EchoServer server({.setup_timeout = absl::Milliseconds(100)});
  RawHttp2 peer(server.target());
  EXPECT_TRUE(peer.WaitForClose(milliseconds(2000)));
  EXPECT_EQ(server.closed(RefusedFor::kSetup), 1);
}

TEST(ConnectionLifeTest, PingsAreAnswered) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendFrame(kPing, 0, 0, "12345678");
  const auto answer = Next(peer, kPing);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->flags, kAck);
  EXPECT_EQ(answer->payload, "12345678");
}

TEST(ConnectionLifeTest, ASmallReplyOvertakesALargeOne) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface(0x7FFFFFFF);
  peer.SendFrame(RawHttp2::kWindowUpdate, 0, 0, std::string("\x7F\0\0\0", 4));
  peer.SendHeaders(1, "/echo.Echo/Fill");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, std::string("\0\0\0\0\x08", 5) + "20000000");
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().calls, 1));
  // The large reply fills the socket; of what waits behind it, the small one goes first.
  std::this_thread::sleep_for(milliseconds(200));
  peer.SendHeaders(3, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 3, kEmptyMessage);
  EXPECT_TRUE(peer.WaitForEnd(3, milliseconds(20000)));
  EXPECT_FALSE(peer.ended(1));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(20000)));
}

}  // namespace
}  // namespace normd::rpc::http2
