// Peers whose frames, requests or messages are wrong, one mistake each: the connection or the call ends with the reason
// that HTTP/2 and gRPC have for it, at once, and others are served.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/server/rpc/http2/hostile_fixture.h"

namespace normd::rpc::http2 {
namespace {

class MalformedPeersTest : public HostilePeersTest {};

// A message with the prefix that it should have.
std::string WithPrefix(std::string_view message) {
  return std::string(1, '\0') + BigEndian(static_cast<uint32_t>(message.size())) + std::string(message);
}

// What the server answers to frames behind the preface: "GOAWAY code", "RST stream code", or "closed", the first of
// them.
std::string AnswerTo(const std::string& target, std::string_view frames) {
  RawHttp2 peer(target);
  peer.SendPreface();
  peer.SendBytes(frames);
  const auto number = [](std::string_view payload, size_t at) {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(payload[i]);
    return value;
  };
  while (const std::optional<Http2Frame> frame = peer.Receive(milliseconds(5000))) {
    if (frame->type == RawHttp2::kReset) return Concat("RST ", frame->stream, " ", number(frame->payload, 0));
    if (frame->type != RawHttp2::kGoAway) continue;
    const uint32_t code = number(frame->payload, 4);
    EXPECT_TRUE(peer.WaitForClose(milliseconds(5000)));
    return Concat("GOAWAY ", code);
  }
  return peer.closed() ? "closed" : "nothing";
}

// The cases of h2spec that concern a server, by the sections of RFC 9113.
TEST_F(MalformedPeersTest, FramesAgainstTheRulesEndTheConnection) {
  // Not among them: a stream with a lower number than one before, which nghttp2 takes for one that is over, and a
  // priority on stream 0, which it passes over as all priorities.
  constexpr uint8_t kPriorityFrame = 2;
  constexpr uint8_t kPushPromiseFrame = 5;
  const std::string headers = CallHeaders("/echo.Echo/Idle");
  const std::string call = Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, headers);
  const std::string half_closed = Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders | RawHttp2::kEndStream, 1, headers);
  const auto setting = [](uint16_t id, uint32_t value) { return BigEndian(id).substr(2) + BigEndian(value); };
  constexpr std::string_view kProtocol = "GOAWAY 1", kFlowControl = "GOAWAY 3", kStreamClosed = "GOAWAY 5",
                             kFrameSize = "GOAWAY 6", kCompression = "GOAWAY 9";
  const struct {
    std::string_view what;
    std::string frames;
    std::string_view answer;
  } cases[] = {
      {"4.1 bytes that are no frames", Pattern(20000), kFrameSize},
      {"4.2 a frame over the largest size", std::string("\xFF\xFF\xFF\0\0\0\0\0\1", 9), kFrameSize},
      {"4.3 headers that HPACK cannot read",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, std::string(50, '\xFF')), kCompression},
      {"4.3 another frame inside a header block",
       Frame(RawHttp2::kHeaders, 0, 1, headers) + Frame(kPingFrame, 0, 0, "12345678"), kProtocol},
      {"4.3 headers of another stream inside a header block",
       Frame(RawHttp2::kHeaders, 0, 1, headers) + Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 3, headers),
       kProtocol},
      {"5.1 data of a stream that was never opened", Frame(RawHttp2::kData, 0, 9, "x"), kProtocol},
      {"5.1 a reset of a stream that was never opened", Frame(RawHttp2::kReset, 0, 7, BigEndian(8)), kProtocol},
      {"5.1 a window of a stream that was never opened", Frame(RawHttp2::kWindowUpdate, 0, 7, BigEndian(8)), kProtocol},
      {"5.1 data behind the end", half_closed + Frame(RawHttp2::kData, 0, 1, "x"), kStreamClosed},
      {"5.1 headers behind the end",
       half_closed + Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders | RawHttp2::kEndStream, 1, headers),
       kStreamClosed},
      {"5.1.1 an even stream", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 2, headers), kProtocol},
      {"5.5 an unknown frame inside a header block", Frame(RawHttp2::kHeaders, 0, 1, headers) + Frame(0x16, 0, 0, "x"),
       kProtocol},
      {"6.1 data on stream 0", Frame(RawHttp2::kData, 0, 0, "x"), kProtocol},
      {"6.1 more padding than data", call + Frame(RawHttp2::kData, 0x8, 1, "\x20x"), kProtocol},
      {"6.2 headers on stream 0", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 0, headers), kProtocol},
      {"6.2 more padding than headers", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders | 0x8, 1, "\x20x"), kProtocol},
      {"6.3 a priority of 4 bytes", Frame(kPriorityFrame, 0, 1, "\1\1\1\1"), kFrameSize},
      {"6.4 a reset on stream 0", Frame(RawHttp2::kReset, 0, 0, BigEndian(8)), kProtocol},
      {"6.4 a reset of 3 bytes", call + Frame(RawHttp2::kReset, 0, 1, "123"), kFrameSize},
      {"6.5 settings on a stream", call + Frame(RawHttp2::kSettings, 0, 1, ""), kProtocol},
      {"6.5 settings that are cut", Frame(RawHttp2::kSettings, 0, 0, "12345"), kFrameSize},
      {"6.5 an acknowledgement with contents", Frame(RawHttp2::kSettings, 1, 0, "123456"), kFrameSize},
      {"6.5.2 ENABLE_PUSH of 2", Frame(RawHttp2::kSettings, 0, 0, setting(2, 2)), kProtocol},
      {"6.5.2 an initial window over 2^31 - 1", Frame(RawHttp2::kSettings, 0, 0, setting(4, 0xFFFFFFFF)), kFlowControl},
      {"6.5.2 a largest frame under 16 KiB", Frame(RawHttp2::kSettings, 0, 0, setting(5, 16383)), kProtocol},
      {"6.5.2 a largest frame over 16 MiB", Frame(RawHttp2::kSettings, 0, 0, setting(5, 1 << 24)), kProtocol},
      {"6.6 a promise of a client", call + Frame(kPushPromiseFrame, RawHttp2::kEndHeaders, 1, BigEndian(2)), kProtocol},
      {"6.7 a short ping", Frame(kPingFrame, 0, 0, "1234567"), kFrameSize},
      {"6.7 a ping on a stream", call + Frame(kPingFrame, 0, 1, "12345678"), kProtocol},
      {"6.8 GOAWAY on a stream", call + Frame(RawHttp2::kGoAway, 0, 1, BigEndian(0) + BigEndian(0)), kProtocol},
      {"6.9 a window grows by 0", Frame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(0)), kProtocol},
      {"6.9 a window of 3 bytes", Frame(RawHttp2::kWindowUpdate, 0, 0, "123"), kFrameSize},
      {"6.9.1 the connection's window over 2^31 - 1", Frame(RawHttp2::kWindowUpdate, 0, 0, BigEndian(0x7FFFFFFF)),
       kFlowControl},
      {"6.9.1 a stream's window over 2^31 - 1", call + Frame(RawHttp2::kWindowUpdate, 0, 1, BigEndian(0x7FFFFFFF)),
       "RST 1 3"},
      {"6.10 a continuation of nothing", Frame(kContinuationFrame, RawHttp2::kEndHeaders, 1, headers), kProtocol},
      {"6.10 a continuation of another stream",
       Frame(RawHttp2::kHeaders, 0, 1, headers) + Frame(kContinuationFrame, RawHttp2::kEndHeaders, 3, ""), kProtocol},
      {"6.10 a continuation behind the last", call + Frame(kContinuationFrame, RawHttp2::kEndHeaders, 1, ""),
       kProtocol},
      {"6.10 a continuation behind data",
       call + Frame(RawHttp2::kData, 0, 1, "") + Frame(kContinuationFrame, RawHttp2::kEndHeaders, 1, ""), kProtocol},
      {"RFC 7541, 2.3.3: index 0", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, "\x80"), kCompression},
      {"RFC 7541, 2.3.3: an index behind the tables", Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, "\xFF\x7F"),
       kCompression},
      {"RFC 7541, 4.2: a table's size behind a field",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, headers + "\x20"), kCompression},
      {"RFC 7541, 6.3: a table over the setting",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, "\x3F\xFF\xFF\x7F" + headers), kCompression},
      {"RFC 7541, 5.2: Huffman padding of zeros",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, std::string("\0\x81\x18\1x", 5)), kCompression},
      {"RFC 7541, 5.2: Huffman padding of a byte",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, std::string("\0\x82\x1F\xFF\1x", 6)), kCompression},
      {"RFC 7541, 5.2: Huffman's end of string",
       Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, std::string("\0\x84\xFF\xFF\xFF\xFF\1x", 8)), kCompression},
  };
  for (const auto& [what, frames, answer] : cases) {
    EXPECT_EQ(AnswerTo(server_.target(), frames), answer) << what;
  }
  ExpectServed();
}

// What HTTP/2 wants to be ignored, or allows.
TEST_F(MalformedPeersTest, IgnoresUnknownFramesAndSettings) {
  const std::string headers = CallHeaders("/echo.Echo/Unary");
  const std::string before[] = {
      Frame(0x16, 0xFF, 0, "an unknown frame"),
      Frame(RawHttp2::kSettings, 0, 0, std::string("\xF0\0\0\0\0\1", 6)),  // an unknown setting
      Frame(kPingFrame, 1, 0, "12345678"),                                 // nobody has asked
      Frame(RawHttp2::kWindowUpdate, 0xFF, 0, BigEndian(1)),               // flags that are not defined
      std::string("\0\0\x8\6\0\x80\0\0\0", 9) + "12345678",                // the bit that is reserved
  };
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  uint32_t stream = 1;
  for (const std::string& frames : before) {
    peer.SendBytes(frames);
    peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, stream, headers);
    peer.SendData(stream, WithPrefix("served"), milliseconds(5000), /*end_stream=*/true);
    EXPECT_TRUE(peer.WaitForEnd(stream, milliseconds(5000))) << stream;
    EXPECT_TRUE(peer.LastHeadersContain(stream, "grpc-status: 0")) << stream;
    stream += 2;
  }
}

TEST_F(MalformedPeersTest, RequestsAgainstTheRulesEndAlone) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  std::vector<std::string> blocks = {CallHeaders(""), CallHeaders("/echo.Echo/Un\nary"), CallHeaders("/x")};
  AddLiteral(":path", "/y", &blocks[2]);  // twice, and behind other fields
  // No pseudo-header at all, or all but one.
  AddLiteral("content-type", "application/grpc", &blocks.emplace_back());
  const std::pair<std::string, std::string> pseudo_headers[] = {
      {":method", "POST"}, {":scheme", "http"}, {":path", "/echo.Echo/Unary"}};
  for (const auto& left_out : pseudo_headers) {
    std::string block;
    for (const auto& field : pseudo_headers) {
      if (field != left_out) AddLiteral(field.first, field.second, &block);
    }
    AddLiteral("content-type", "application/grpc", &block);
    blocks.push_back(block);
  }
  // One that does not exist, one of replies, and one twice, before the others.
  for (const std::string_view name : {":unknown", ":status", ":method"}) {
    std::string block;
    AddLiteral(name, name == ":method" ? "POST" : "200", &block);
    blocks.push_back(block + CallHeaders("/echo.Echo/Unary"));
  }
  // What belongs to HTTP/1, and a name in upper case.
  const std::pair<std::string, std::string> fields[] = {
      {"connection", "close"}, {"transfer-encoding", "chunked"}, {"te", "gzip"}, {"Upper", "case"}};
  for (const auto& [name, value] : fields) {
    blocks.push_back(CallHeaders("/echo.Echo/Unary"));
    AddLiteral(name, value, &blocks.back());
  }
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

// gRPC's clients name the path of a Unix socket, or nothing, where HTTP wants a host, and gRPC's server takes that.
TEST_F(MalformedPeersTest, AnyAuthorityIsServed) {
  RawHttp2 peer(server_.target());
  peer.SendPreface();
  uint32_t stream = 1;
  const auto call = [&](const std::vector<std::pair<std::string, std::string>>& fields) {
    std::string block;
    AddLiteral(":method", "POST", &block);
    AddLiteral(":scheme", "http", &block);
    AddLiteral(":path", "/echo.Echo/Unary", &block);
    for (const auto& [name, value] : fields) AddLiteral(name, value, &block);
    AddLiteral("content-type", "application/grpc", &block);
    peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, stream, block);
    peer.SendData(stream, WithPrefix("served"), milliseconds(5000), /*end_stream=*/true);
    EXPECT_TRUE(peer.WaitForEnd(stream, milliseconds(5000)));
    const bool served = peer.LastHeadersContain(stream, "grpc-status: 0");
    stream += 2;
    return served;
  };
  for (const char* authority : {"", "/var/run/x.sock", "%2Fvar%2Frun%2Fx.sock", "unix:///n.sock", "unix:n.sock",
                                "my_service:8001", "[::1]:8001", "a b", "user@host", "\xC3\xA9", "{x}|^`"}) {
    EXPECT_TRUE(call({{":authority", authority}})) << authority;
    EXPECT_TRUE(call({{"host", authority}})) << authority;
  }
  EXPECT_TRUE(call({{":authority", "a"}, {"host", "b"}}));
  EXPECT_FALSE(call({})) << "as with gRPC's own server";
  EXPECT_FALSE(call({{":authority", ""}, {":authority", ""}}));
  EXPECT_FALSE(call({{"host", "a"}, {"host", "a"}}));
  EXPECT_FALSE(call({{":authority", "a\r\nb"}}));
  ExpectServed();
}

// What breaks the rules is counted, in headers and behind them.
TEST_F(MalformedPeersTest, EachRefusalIsCounted) {
  const auto refused = [this] {
    return server_.transport().TakeStats().refused[static_cast<size_t>(TransportRefusal::kHttp)];
  };
  const auto block = [](std::string_view name, std::string_view value) {
    std::string headers = CallHeaders("/echo.Echo/Unary");
    AddLiteral(name, value, &headers);
    return Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, headers);
  };
  int expected = 0;
  for (const std::string& frames :
       {block("connection", "keep-alive"), block("te", "trailers, deflate"), block(":late", "x"), block("Upper", "x"),
        block("content-length", "x"), block("content-length", "2") + Frame(RawHttp2::kData, 0, 1, "xyz"),
        block("content-length", "2") + Frame(RawHttp2::kData, RawHttp2::kEndStream, 1, "x"),
        block("x", "y") + block("x", "trailers that are not the end")}) {
    EXPECT_EQ(AnswerTo(server_.target(), frames), "RST 1 1") << expected;
    EXPECT_EQ(refused(), ++expected);
  }
  EXPECT_EQ(AnswerTo(server_.target(), block("te", "Trailers") + Frame(RawHttp2::kReset, 0, 1, BigEndian(8)) +
                                           Frame(RawHttp2::kData, 0, 0, "x")),
            "GOAWAY 1");
  EXPECT_EQ(refused(), expected);
}

// The call is one by its headers; what follows is not of HTTP/2.
TEST_F(MalformedPeersTest, TrailersAndLengthsAgainstTheRulesEndTheCall) {
  const std::string open = Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, CallHeaders("/echo.Echo/Unary"));
  std::string with_length = CallHeaders("/echo.Echo/Unary");
  AddLiteral("content-length", "7", &with_length);
  const std::string measured = Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, with_length);
  std::string trailer, pseudo_trailer;
  AddLiteral("x-trailer", "1", &trailer);
  AddLiteral(":path", "/y", &pseudo_trailer);
  constexpr uint8_t kLast = RawHttp2::kEndHeaders | RawHttp2::kEndStream;
  const std::pair<std::string_view, std::string> cases[] = {
      {"8.1 trailers that are not the end", open + Frame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, trailer)},
      {"8.1 a pseudo-header in trailers", open + Frame(RawHttp2::kHeaders, kLast, 1, pseudo_trailer)},
      {"8.1.1 fewer bytes than announced", measured + Frame(RawHttp2::kData, RawHttp2::kEndStream, 1, WithPrefix("x"))},
      {"8.1.1 the same in two frames",
       measured + Frame(RawHttp2::kData, 0, 1, WithPrefix("")) + Frame(RawHttp2::kData, RawHttp2::kEndStream, 1, "x")},
      {"8.1.1 more bytes than announced", measured + Frame(RawHttp2::kData, 0, 1, WithPrefix("xyz"))},
  };
  for (const auto& [what, frames] : cases) EXPECT_EQ(AnswerTo(server_.target(), frames), "RST 1 1") << what;
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
  EXPECT_EQ(server_.closed(RefusedFor::kFlood), 1);
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
}  // namespace normd::rpc::http2
