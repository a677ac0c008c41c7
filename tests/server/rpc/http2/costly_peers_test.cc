// Peers that keep to HTTP/2's rules and cost far more than their bytes: header fields that expand, trailers, replies
// that nobody reads, messages that nobody asked for.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "tests/server/rpc/http2/hostile_fixture.h"

namespace normd::rpc::http2 {
namespace {

constexpr uint8_t kEndOfTrailers = RawHttp2::kEndHeaders | RawHttp2::kEndStream;

// HPACK: a field of 4,000 bytes, which enters the table.
std::string TableField(char last = 'y') {
  return std::string("\x40\1y\x7F\xA1\x1E", 6) + std::string(3999, 'y') + last;  // 127 + 33 + 30 * 128
}

// HPACK: the newest field of the table, again and again; a byte each.
std::string Repeated(size_t times) { return std::string(times, '\xBE'); }

std::string Prefixed(std::string_view body) {
  return std::string("\0", 1) + BigEndian(static_cast<uint32_t>(body.size())) + std::string(body);
}

class CostlyPeersTest : public HostilePeersTest {
 protected:
  int64_t refused(TransportRefusal reason) {
    return server_.transport().TakeStats().refused[static_cast<size_t>(reason)];
  }
};

TEST_F(CostlyPeersTest, TrailersThatExpandEndTheirCall) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, CallHeaders("/echo.Echo/Idle") + TableField());
  peer.SendFrame(RawHttp2::kHeaders, kEndOfTrailers, 1, Repeated(10000));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000)));
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().cancelled, 1));
  EXPECT_EQ(refused(TransportRefusal::kTooLarge), 1);
  ExpectServed();
}

// They are not looked at for what they say, but each was decoded, and its characters were.
TEST_F(CostlyPeersTest, FieldsThatAreIgnoredCount) {
  for (const bool as_trailers : {false, true}) {
    const int64_t before = refused(TransportRefusal::kTooLarge);
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    const std::string headers = CallHeaders("/echo.Echo/Idle") + TableField('\x01');
    if (as_trailers) peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, headers);
    peer.SendFrame(RawHttp2::kHeaders, kEndOfTrailers, 1, (as_trailers ? "" : headers) + Repeated(10000));
    EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000))) << as_trailers;
    EXPECT_EQ(refused(TransportRefusal::kTooLarge), before + 1) << as_trailers;
    ExpectServed();
  }
}

TEST_F(CostlyPeersTest, SmallTrailersMeanNothing) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, 0, 1, Prefixed("x"));
  std::string trailers;
  AddLiteral("x-checksum", "1", &trailers);
  peer.SendFrame(RawHttp2::kHeaders, kEndOfTrailers, 1, trailers);
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000)));
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().over, 2));
  EXPECT_EQ(server_.counts().cancelled.load(), 0);
}

// The stream of a request that is not gRPC's stays for a second, for clients that send all before they read.
TEST_F(CostlyPeersTest, ARequestThatWasAnsweredHasNoTrailers) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, HttpHeaders("GET", "/"));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000)));
  std::string trailers;
  AddLiteral("x-checksum", "1", &trailers);
  peer.SendFrame(RawHttp2::kHeaders, kEndOfTrailers, 1, trailers);
  bool reset = false;
  while (!reset) {
    const auto frame = peer.Receive(milliseconds(500));  // less than the time of such a stream
    if (!frame.has_value()) break;
    reset = frame->type == RawHttp2::kReset && frame->stream == 1;
  }
  EXPECT_TRUE(reset);
  ExpectServed();
}

TEST_F(CostlyPeersTest, AHeaderBlockOverSixtyFourKibibytesEndsTheConnection) {
  for (const bool as_trailers : {false, true}) {
    const int before = server_.closed(RefusedFor::kFlood);
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    const std::string headers = CallHeaders("/echo.Echo/Idle") + TableField();
    if (as_trailers) peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, headers);
    // In frames of less than 16 KiB, because this peer acknowledges no settings.
    peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndStream, 1, (as_trailers ? "" : headers) + Repeated(8000));
    for (int i = 0; i < 4; ++i) peer.SendFrame(kContinuationFrame, 0, 1, Repeated(16000));
    peer.SendFrame(kContinuationFrame, RawHttp2::kEndHeaders, 1, Repeated(1));
    EXPECT_TRUE(peer.WaitForClose(milliseconds(5000))) << as_trailers;
    EXPECT_EQ(server_.closed(RefusedFor::kFlood), before + 1) << as_trailers;
    ExpectServed();
  }
}

TEST_F(CostlyPeersTest, RequestsAgainstHttpsRulesAreCounted) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary", {{"connection", "keep-alive"}});
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000)));
  const QueueStats stats = server_.transport().TakeStats();
  EXPECT_EQ(stats.refused[static_cast<size_t>(TransportRefusal::kHttp)], 1);
  EXPECT_EQ(stats.resets[NGHTTP2_PROTOCOL_ERROR], 1);
  ExpectServed();
}

// Callers wait there without a word.
TEST_F(CostlyPeersTest, AConnectionWithoutRoomForAnotherCallShows) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  for (uint32_t stream = 1; stream < 31; stream += 2) peer.SendHeaders(stream, "/echo.Echo/Idle");
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().calls, 1 + 15));
  EXPECT_EQ(server_.transport().TakeStats().at_stream_limit, 0);
  peer.SendHeaders(31, "/echo.Echo/Idle");
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().calls, 1 + 16));
  EXPECT_EQ(server_.transport().TakeStats().at_stream_limit, 1);
  peer.SendReset(31);
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().cancelled, 1));
  EXPECT_EQ(server_.transport().TakeStats().at_stream_limit, 0);
}

// HTTP/2 and TLS take a queue's time as well as callbacks do.
TEST(QueueStatsTest, TellOfReadingAndWritingWithoutACall) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendFrame(kPingFrame, 0, 0, "12345678");
  bool answered = false;
  while (!answered) {
    const auto frame = peer.Receive(milliseconds(5000));
    ASSERT_TRUE(frame.has_value());
    answered = frame->type == kPingFrame;
  }
  // The answer may come before its sending was noted.
  absl::Duration longest;
  for (int i = 0; i < 1000 && longest == absl::ZeroDuration(); ++i) {
    longest = server.transport().TakeStats().longest_callback;
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_GT(longest, absl::ZeroDuration());
  EXPECT_GT(server.transport().TakeStats().busy, absl::ZeroDuration());
}

TEST(ProtocolErrorsTest, AreReportedWithoutValues) {
  Mutex mu;
  std::string told;
  std::atomic<int> times{0};
  RpcOptions options;
  options.observer.on_protocol_error = [&](const std::string& peer, const std::string& why) {
    MutexLock lock(mu);
    told = peer + ": " + why;
    ++times;
  };
  EchoServer server(options);
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary", {{"connection", "secret"}});
  EXPECT_TRUE(EchoServer::WaitFor(times, 1));
  {
    MutexLock lock(mu);
    EXPECT_NE(told.find("connection"), std::string::npos) << told;
    EXPECT_EQ(told.find("secret"), std::string::npos) << told;
  }
  peer.SendFrame(RawHttp2::kData, 0, 0, "x");  // DATA of no stream
  EXPECT_TRUE(EchoServer::WaitFor(times, 2));
  EXPECT_TRUE(peer.WaitForClose(milliseconds(5000)));
  EXPECT_EQ(server.closed(RefusedFor::kProtocol), 1);
}

class UnreadRepliesTest : public testing::Test {
 protected:
  static constexpr int64_t kReplyBytes = 32 * kMebibyte;

  // A call for a large reply, which the windows allow and the peer does not read.
  static void Ask(RawHttp2& peer, const RawHttp2::Fields& fields) {
    peer.SendPreface(0x7FFFFFFF);
    peer.SendFrame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(0x7FFFFFFF - 65535));
    peer.SendHeaders(1, "/echo.Echo/Fill", fields);
    peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, Prefixed(std::to_string(kReplyBytes)));
  }
};

// What is reserved for a reply belongs to its callback: it must not be given back while the bytes are there.
TEST_F(UnreadRepliesTest, AreHeldByTheirCallUntilTheirBytesAreGone) {
  EchoServer server;
  RawHttp2 peer(server.target());
  Ask(peer, {{"grpc-timeout", "2S"}});
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().cancelled, 1));
  EXPECT_EQ(server.counts().destroyed.load(), 0);
  EXPECT_EQ(server.closed(RefusedFor::kStalled), 0);
  // All that the socket has still to take comes, and no more of the reply than that.
  int64_t bytes = 0;
  while (const auto frame = peer.Receive(milliseconds(500))) {
    if (frame->type == RawHttp2::kData) bytes += static_cast<int64_t>(frame->payload.size());
  }
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().destroyed, 1));
  EXPECT_LT(bytes, kReplyBytes);
}

TEST_F(UnreadRepliesTest, EndTheirConnectionInTime) {
  EchoServer server({.message_timeout = absl::Milliseconds(300) / kPatienceForReaders});
  RawHttp2 peer(server.target());
  Ask(peer, {{"grpc-timeout", "2S"}});
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().destroyed, 1));
  EXPECT_EQ(server.closed(RefusedFor::kStalled), 1);
}

TEST_F(UnreadRepliesTest, AHeaderBlockThatDoesNotEndEndsItsConnection) {
  EchoServer server({.setup_timeout = absl::Milliseconds(300)});
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendFrame(RawHttp2::kHeaders, 0, 1, CallHeaders("/echo.Echo/Unary"));
  EXPECT_TRUE(server.WaitForClosed(RefusedFor::kStalled, 1));
  EXPECT_TRUE(peer.WaitForClose(milliseconds(5000)));
}

TEST(WaitingBytesTest, AllowOnePeerHalfOfAll) {
  EchoServer server({.max_waiting_bytes = 400 << 10});
  RawHttp2 peer(server.target());
  peer.SendPreface();
  const std::string message = Prefixed(std::string(60 << 10, 'x'));
  for (uint32_t stream = 1; stream < 7; stream += 2) {
    peer.SendHeaders(stream, "/echo.Echo/Idle");
    EXPECT_EQ(peer.SendData(stream, message, milliseconds(5000)), message.size());
  }
  // The refusal may come before the whole message has left.
  peer.SendHeaders(7, "/echo.Echo/Idle");
  peer.SendData(7, message, milliseconds(5000));
  EXPECT_TRUE(peer.WaitForEnd(7, milliseconds(5000)));
  EXPECT_TRUE(peer.LastHeadersContain(7, "grpc-status: 8"));
  EXPECT_TRUE(peer.LastHeadersContain(7, "waiting_bytes_of_peer"));
  EXPECT_FALSE(peer.ended(5));
  EXPECT_GE(server.transport().TakeStats().waiting_bytes, 180 << 10);
  for (uint32_t stream = 1; stream < 7; stream += 2) peer.SendReset(stream);
  EXPECT_TRUE(EchoServer::WaitFor(server.counts().destroyed, 4));
  EXPECT_EQ(server.transport().TakeStats().waiting_bytes, 0);
}

TEST(WaitingBytesTest, AreZeroOnceTheMessageIsAskedFor) {
  EchoServer server({.max_waiting_bytes = 400 << 10});
  RawHttp2 peer(server.target());
  peer.SendPreface();
  const std::string message = Prefixed(std::string(60 << 10, 'x'));
  for (uint32_t stream = 1; stream < 17; stream += 2) {
    peer.SendHeaders(stream, "/echo.Echo/Hang");
    EXPECT_EQ(peer.SendData(stream, message, milliseconds(5000)), message.size());
  }
  EXPECT_FALSE(peer.WaitForEnd(15, milliseconds(100)));
  EXPECT_EQ(server.transport().TakeStats().waiting_bytes, 0);
}

}  // namespace
}  // namespace normd::rpc::http2
