// Peers whose frames, requests or messages are wrong, one mistake each: the connection or the call ends with the reason
// that HTTP/2 and gRPC have for it, at once, and others are served.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/server/rpc/transport/native/hostile_fixture.h"

namespace normd::rpc::native {
namespace {

class MalformedPeersTest : public HostilePeersTest {};

// A message with the prefix that it should have.
std::string WithPrefix(std::string_view message) {
  return std::string(1, '\0') + BigEndian(static_cast<uint32_t>(message.size())) + std::string(message);
}

TEST_F(MalformedPeersTest, FramesAgainstTheRulesEndTheConnection) {
  // A stream with a lower number than one before is not among them: nghttp2 takes it for one that is over.
  const std::string call = Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, CallHeaders("/echo.Echo/Idle"));
  constexpr uint8_t kPushPromiseFrame = 5;
  const struct {
    std::string_view what;
    std::string frames;
  } cases[] = {
      {"a window grows by 0", Frame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(0))},
      {"data on stream 0", Frame(RawHttp2::kData, 0, 0, "x")},
      {"data of a stream that was never opened", Frame(RawHttp2::kData, 0, 9, "x")},
      {"a continuation of nothing", Frame(kContinuationFrame, RawHttp2::kEndHeaders, 1, CallHeaders("/"))},
      {"another frame inside a header block",
       Frame(RawHttp2::kHeaders, 0, 1, CallHeaders("/")) + Frame(kPingFrame, 0, 0, "12345678")},
      {"headers that HPACK cannot read", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, std::string(50, '\xFF'))},
      {"an even stream", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 2, CallHeaders("/echo.Echo/Idle"))},
      {"headers on stream 0", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 0, CallHeaders("/"))},
      {"a reset of a stream that was never opened", Frame(RawHttp2::kReset, 0, 7, BigEndian(8))},
      {"a promise of a client", call + Frame(kPushPromiseFrame, RawHttp2::kEndHeaders, 1, BigEndian(2))},
      {"a short ping", Frame(kPingFrame, 0, 0, "1234567")},
      {"a ping on a stream", call + Frame(kPingFrame, 0, 1, "12345678")},
      {"settings that are cut", Frame(RawHttp2::kSettings, 0, 0, "12345")},
      {"an acknowledgement with contents", Frame(RawHttp2::kSettings, 1, 0, "123456")},
      {"an initial window over 2^31 - 1", Frame(RawHttp2::kSettings, 0, 0, std::string("\0\4\xFF\xFF\xFF\xFF", 6))},
      {"more padding than frame", call + Frame(RawHttp2::kData, 0x8, 1, "\x20x")},
      {"a frame over the largest size", std::string("\xFF\xFF\xFF\0\0\0\0\0\1", 9)},
      {"bytes that are no frames", Pattern(20000)},
  };
  for (const auto& [what, frames] : cases) {
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    peer.SendBytes(frames);
    EXPECT_TRUE(peer.WaitForClose(milliseconds(5000))) << what;
    ExpectServed();
  }
}

TEST_F(MalformedPeersTest, RequestsAgainstTheRulesEndAlone) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  std::vector<std::string> blocks = {CallHeaders(""), CallHeaders("/echo.Echo/Un\nary"), CallHeaders("/x"), "", "", ""};
  AddLiteral(":path", "/y", &blocks[2]);                       // twice, and behind other fields
  AddLiteral("content-type", "application/grpc", &blocks[3]);  // no pseudo-header at all
  blocks[4] = CallHeaders("/echo.Echo/Unary");
  AddLiteral("connection", "close", &blocks[4]);
  blocks[5] = CallHeaders("/echo.Echo/Unary");
  AddLiteral("Upper", "case", &blocks[5]);
  uint32_t stream = 1;
  for (size_t i = 0; i < blocks.size(); ++i, stream += 2) {
    peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, stream, blocks[i]);
    EXPECT_TRUE(peer.WaitForEnd(stream, milliseconds(5000))) << i;
  }
  EXPECT_EQ(server_.counts().calls.load(), 1) << "none of them is a call";
  peer.SendHeaders(stream, "/echo.Echo/Unary");
  peer.SendData(stream, WithPrefix("served"), milliseconds(5000), /*end_stream=*/true);
  EXPECT_TRUE(peer.WaitForEnd(stream, milliseconds(5000)));
  EXPECT_TRUE(peer.LastHeadersContain(stream, "grpc-status: 0"));
  ExpectServed();
}

// What gRPC's clients cannot send: no message, more than one, a piece of another one, a flag that does not exist.
TEST_F(MalformedPeersTest, UnaryCallsHaveOneMessage) {
  const struct {
    std::string data;
    std::string_view status;
  } cases[] = {
      {"", "grpc-status: 3"},
      {WithPrefix("one") + WithPrefix("two"), "grpc-status: 0"},
      {WithPrefix("one") + "gar", "grpc-status: 0"},
      {"\1" + BigEndian(1).substr(0, 2), "grpc-status: 13"},
      {"\2" + WithPrefix("one").substr(1), "grpc-status: 12"},
      {std::string(1, '\0') + BigEndian(0xFFFFFFFF) + "x", "grpc-status: 8"},
  };
  uint32_t stream = 1;
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  for (const auto& [data, status] : cases) {
    peer.SendHeaders(stream, "/echo.Echo/Unary");
    peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, stream, data);
    EXPECT_TRUE(peer.WaitForEnd(stream, milliseconds(5000))) << status;
    EXPECT_TRUE(peer.LastHeadersContain(stream, status)) << status;
    stream += 2;
  }
  ExpectServed();
}

// Unlike a rapid reset, each of these calls reaches its service with a message to work on.
TEST_F(MalformedPeersTest, WholeRequestsThatAreTakenBackEndTheConnection) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  bool ended = false;
  for (uint32_t stream = 1; stream < 100000 && !ended; stream += 2) {
    ended = !peer.SendHeaders(stream, "/echo.Echo/Worker") ||
            !peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, stream, WithPrefix("work")) ||
            !peer.SendReset(stream);
  }
  EXPECT_TRUE(ended || peer.WaitForClose(milliseconds(5000)));
  EXPECT_EQ(server_.counts().closed_for_flood.load(), 1);
  ExpectServed();
}

// A message byte by byte, in as many frames.
TEST_F(MalformedPeersTest, AMessageMayComeByteByByte) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary");
  const std::string message = WithPrefix(Pattern(5000));
  for (const char byte : message) peer.SendFrame(RawHttp2::kData, 0, 1, std::string(1, byte));
  peer.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, "");
  EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(5000)));
  EXPECT_TRUE(peer.LastHeadersContain(1, "grpc-status: 0"));
  ExpectServed();
}

// As many silent connections as descriptors allow are the listener's business; these have each opened all their calls.
TEST_F(MalformedPeersTest, ManyConnectionsFullOfIdleCallsHoldLittle) {
  std::vector<std::unique_ptr<RawHttp2>> peers;
  for (int i = 0; i < 100; ++i) {
    RawHttp2& peer = *peers.emplace_back(std::make_unique<RawHttp2>(server_.target()));
    peer.SendPreface();
    for (uint32_t stream = 1; stream < 32; stream += 2) peer.SendHeaders(stream, "/echo.Echo/Hang");
  }
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().calls, 1 + 1600));
  ExpectServed();
  peers.clear();
  EXPECT_TRUE(EchoServer::WaitFor(server_.counts().destroyed, 1600));
  ExpectServed();
}

}  // namespace
}  // namespace normd::rpc::native
