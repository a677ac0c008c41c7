// Peers that break HTTP/2's rules, or keep to them and cost as much as they can. After each of them, other connections
// are served and the process has not grown.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/server/rpc/http2/hostile_fixture.h"

namespace normd::rpc::http2 {
namespace {

TEST_F(HostilePeersTest, RapidResetEndsTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  bool ended = false;
  for (uint32_t stream = 1; stream < 100000 && !ended; stream += 2) {
    ended = !peer.SendHeaders(stream, "/echo.Echo/Idle") || !peer.SendReset(stream);
  }
  EXPECT_TRUE(ended || peer.WaitForClose(milliseconds(2000)));
  EXPECT_EQ(server_.closed(RefusedFor::kFlood), 1);
  EXPECT_LE(server_.counts().calls.load(), 1 + 1100);
  ExpectServed();
}

TEST_F(HostilePeersTest, AFloodOfPingsEndsTheConnection) {
  const std::string ping = Frame(kPingFrame, 0, 0, "12345678");
  std::string many;
  for (int i = 0; i < 100; ++i) many += ping;
  for (const bool reading : {false, true}) {
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    EXPECT_TRUE(Repeat(peer, many, 20000, reading)) << reading;
    ExpectServed();
  }
  EXPECT_GE(server_.closed(RefusedFor::kFlood), 1);
}

TEST_F(HostilePeersTest, AFloodOfSettingsEndsTheConnection) {
  const std::string settings = Frame(RawHttp2::kSettings, 0, 0, "");
  std::string many;
  for (int i = 0; i < 100; ++i) many += settings;
  for (const bool reading : {false, true}) {
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    EXPECT_TRUE(Repeat(peer, many, 20000, reading)) << reading;
    ExpectServed();
  }
}

TEST_F(HostilePeersTest, SettingsWithoutNumberEndTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  std::string settings;
  for (int i = 0; i < 1000; ++i) settings += std::string("\0\4\0\1\0\0", 6);
  peer.SendFrame(RawHttp2::kSettings, 0, 0, settings);
  EXPECT_TRUE(peer.WaitForClose(milliseconds(2000)));
  ExpectServed();
}

TEST_F(HostilePeersTest, AFloodOfContinuationsEndsTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendFrame(RawHttp2::kHeaders, 0, 1, CallHeaders("/echo.Echo/Unary"));
  EXPECT_TRUE(Repeat(peer, Frame(kContinuationFrame, 0, 1, ""), 100000, /*reading=*/false));
  ExpectServed();
}

TEST_F(HostilePeersTest, AHugeHeaderStringEndsTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  // A literal whose value has 600 MiB, which come in frames of the largest size.
  std::string block = CallHeaders("/echo.Echo/Unary");
  block += std::string("\0\1x", 3);
  block += '\x7F';
  for (uint64_t rest = (uint64_t{600} << 20) - 127;; rest >>= 7) {
    block += static_cast<char>((rest & 0x7F) | (rest >= 128 ? 0x80 : 0));
    if (rest < 128) break;
  }
  peer.SendFrame(RawHttp2::kHeaders, 0, 1, block);
  EXPECT_TRUE(Repeat(peer, Frame(kContinuationFrame, 0, 1, std::string(1 << 20, 'x')), 100, /*reading=*/false));
  ExpectServed();
}

TEST_F(HostilePeersTest, HeadersThatExpandAreRefused) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  // A field of 4000 bytes enters the table, and each byte that follows repeats it.
  std::string block = CallHeaders("/echo.Echo/Unary");
  block += '\x40';
  block += std::string("\1y", 2);
  block += '\x7F';
  block += std::string("\xA1\x1E", 2);  // 127 + 33 + 30 * 128
  block += std::string(4000, 'y');
  block += std::string(10000, '\xBE');
  peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, block);
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  ExpectServed();
}

TEST_F(HostilePeersTest, AWindowThatOverflowsEndsItsStreamOrTheConnection) {
  for (const uint32_t stream : {0U, 1U}) {
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    peer.SendHeaders(1, "/echo.Echo/Idle");
    for (int i = 0; i < 2; ++i) peer.SendFrame(RawHttp2::kWindowUpdate, 0, stream, BigEndian(0x7FFFFFFF));
    EXPECT_TRUE(stream == 0 ? peer.WaitForClose(milliseconds(2000)) : peer.WaitForEnd(1, milliseconds(2000)));
    ExpectServed();
  }
}

TEST_F(HostilePeersTest, DataOfAClosedStreamIsDropped) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, std::string(5, '\0'));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  Repeat(peer, Frame(RawHttp2::kData, 0, 1, std::string(16384, 'x')), 2000, /*reading=*/true);
  ExpectServed();
}

TEST_F(HostilePeersTest, DataBeyondTheWindowIsNotKept) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Idle");
  // Nobody reads this message of 4 MiB.
  peer.SendFrame(RawHttp2::kData, 0, 1, std::string("\0", 1) + BigEndian(4 << 20));
  Repeat(peer, Frame(RawHttp2::kData, 0, 1, std::string(16384, 'x')), 4000, /*reading=*/false);
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().cancelled, 1));
  ExpectServed();
}

TEST_F(HostilePeersTest, StreamsBeyondTheLimitAreRefusedAndThenTheConnectionEnds) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  // This peer does not acknowledge the settings that tell the limit.
  for (uint32_t stream = 1; stream < 2 * 40; stream += 2) peer.SendHeaders(stream, "/echo.Echo/Idle");
  EXPECT_TRUE(peer.WaitForEnd(79, milliseconds(2000)));
  EXPECT_FALSE(peer.ended(31));
  EXPECT_TRUE(peer.ended(33));
  EXPECT_EQ(server_.counts().calls.load(), 1 + 16);
  bool ended = false;
  for (uint32_t stream = 81; stream < 4000 && !ended; stream += 2) {
    ended = !peer.SendHeaders(stream, "/echo.Echo/Idle");
  }
  EXPECT_TRUE(ended || peer.WaitForClose(milliseconds(2000)));
  EXPECT_EQ(server_.closed(RefusedFor::kFlood), 1);
  ExpectServed();
}

TEST_F(HostilePeersTest, ResetsThatThePeerProvokesEndTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  bool ended = false;
  for (uint32_t stream = 1; stream < 10000 && !ended; stream += 2) {
    // An increment of 0 is an error of the stream, which the server resets (CVE-2025-8671).
    ended = !peer.SendHeaders(stream, "/echo.Echo/Idle") ||
            !peer.SendFrame(RawHttp2::kWindowUpdate, 0, stream, BigEndian(0));
    while (peer.Receive(milliseconds(0)).has_value()) {
    }
  }
  EXPECT_TRUE(ended || peer.WaitForClose(milliseconds(2000)));
  ExpectServed();
}

TEST_F(HostilePeersTest, FramesThatMeanNothingCostLittle) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Idle");
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += Frame(kPriorityFrame, 0, 1, std::string("\0\0\0\0\20", 5));
    many += Frame(RawHttp2::kData, 0, 1, "");
    many += Frame(0x77, 0, 1, "unknown");
  }
  for (int i = 0; i < 100; ++i) peer.SendBytes(many);
  ExpectServed();
}

// Each lets one byte of a large reply through: a frame for a byte, and no more.
TEST_F(HostilePeersTest, AReplyThatIsTakenByteByByteHoldsNothingElse) {
  RawHttp2 peer(server_.target());
  peer.SendPreface(0);
  const std::string size = "33554432";
  peer.SendHeaders(1, "/echo.Echo/Fill");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1,
                 std::string("\0\0\0\0", 4) + static_cast<char>(size.size()) + size);
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().calls, 2));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += Frame(RawHttp2::kWindowUpdate, 0, 1, BigEndian(1));
  size_t bytes = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(peer.SendBytes(many));
    for (const size_t wanted = bytes + 1000; bytes < wanted;) {
      const std::optional<Http2Frame> frame = peer.Receive(milliseconds(5000));
      ASSERT_TRUE(frame.has_value()) << bytes;
      if (frame->type == RawHttp2::kData) bytes += frame->payload.size();
    }
  }
  EXPECT_EQ(bytes, 20000U);
  ExpectServed(32 * kMebibyte + 16 * kMebibyte);
}

TEST_F(HostilePeersTest, WindowsThatGrowForNothingCostLittle) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Idle");
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += Frame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(1));
    many += Frame(RawHttp2::kWindowUpdate, 0, 1, BigEndian(1));
  }
  for (int i = 0; i < 100; ++i) peer.SendBytes(many);
  ExpectServed();
}

TEST_F(HostilePeersTest, APeerThatDoesNotReadHoldsItsRepliesAndNothingElse) {
  RawHttp2 peer(server_.target());
  peer.SendPreface(0x7FFFFFFF);
  peer.SendFrame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(0x7FFFFFFF - 65535));
  const std::string size = "33554432";
  peer.SendHeaders(1, "/echo.Echo/Fill");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1,
                 std::string("\0\0\0\0", 4) + static_cast<char>(size.size()) + size);
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().calls, 2));
  // The reply's 32 MiB, and what the kernel takes, which is not ours.
  ExpectServed(32 * kMebibyte + 16 * kMebibyte);
  // Calls that it takes back meanwhile leave nothing behind.
  bool ended = false;
  for (uint32_t stream = 3; stream < 20000 && !ended; stream += 2) {
    ended = !peer.SendHeaders(stream, "/echo.Echo/Fail") || !peer.SendReset(stream);
  }
  ExpectServed(32 * kMebibyte + 16 * kMebibyte);
}

TEST_F(HostilePeersTest, AConnectionOfSomethingElseIsClosed) {
  RawHttp2 peer(server_.target());
  peer.SendBytes("GET / HTTP/1.1\r\n\r\n and so on and on");
  EXPECT_TRUE(peer.WaitForClose(milliseconds(2000)));
  ExpectServed();
}

TEST_F(HostilePeersTest, RequestsThatAreNotGrpcGetAnAnswerThatSaysSo) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders | RawHttp2::kEndStream, 1, HttpHeaders("GET", "/"));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  EXPECT_EQ(server_.counts().calls.load(), 1);
  ExpectServed();
}

TEST_F(HostilePeersTest, CompressedMessagesAreRefused) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, std::string("\1\0\0\0\1x", 6));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().cancelled, 1));
  peer.SendHeaders(3, "/echo.Echo/Unary", {{"grpc-encoding", "gzip"}});
  EXPECT_TRUE(peer.WaitForEnd(3, milliseconds(2000)));
  ExpectServed();
}

TEST_F(HostilePeersTest, AMessageThatEndsEarlyIsRefused) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, std::string("\0\0\0\0\5abc", 8));
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().cancelled, 1));
  ExpectServed();
}

// Whatever is reserved for such a reply would be lost, and the server would wait for the call at its end.
TEST_F(HostilePeersTest, AReplyThatWaitsForAWindowIsDroppedWithItsBrokenCall) {
  const int before = server_.counts().destroyed.load();
  RawHttp2 peer(server_.target());
  peer.SendPreface(/*initial_window=*/0);
  peer.SendHeaders(1, "/echo.Echo/Unary");
  peer.SendFrame(RawHttp2::kData, 0, 1, std::string("\0\0\0\0\5hello", 10));
  std::optional<Http2Frame> frame;
  do {
    frame = peer.Receive(milliseconds(10000));
    ASSERT_TRUE(frame.has_value());
  } while (frame->type != RawHttp2::kHeaders);
  // A second message, which is compressed: the call is over, and its reply still waits.
  peer.SendFrame(RawHttp2::kData, 0, 1, std::string("\1\0\0\0\5hello", 10));
  peer.SendReset(1);
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().destroyed, before + 1));
  ExpectServed();
}

TEST_F(HostilePeersTest, PaddedMessagesArrive) {
  RawHttp2 peer(server_.target());
  peer.SendPreface(1 << 20);
  peer.SendFrame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(1 << 20));
  peer.SendHeaders(1, "/echo.Echo/Unary");
  constexpr int kFrames = 2000;
  const std::string prefix = std::string("\0", 1) + BigEndian(kFrames * 100);
  EXPECT_EQ(peer.SendData(1, prefix, milliseconds(1000)), prefix.size());
  // Each frame has 100 bytes of the message and 255 of padding.
  const std::string frame = '\xFF' + std::string(100, 'x') + std::string(255, '\0');
  auto window = int64_t{65535} - static_cast<int64_t>(prefix.size());
  for (int i = 0; i < kFrames; ++i) {
    while (window < static_cast<int64_t>(frame.size())) {
      const std::optional<Http2Frame> received = peer.Receive(milliseconds(2000));
      ASSERT_TRUE(received.has_value()) << i;
      if (received->type == RawHttp2::kWindowUpdate && received->stream == 1)
        window += WindowIncrement(received->payload);
    }
    peer.SendFrame(RawHttp2::kData, 0x8 | (i + 1 == kFrames ? RawHttp2::kEndStream : 0), 1, frame);
    window -= static_cast<int64_t>(frame.size());
  }
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(2000)));
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().over, 2));
  EXPECT_EQ(server_.counts().cancelled.load(), 0);
  ExpectServed();
}

}  // namespace
}  // namespace normd::rpc::http2
