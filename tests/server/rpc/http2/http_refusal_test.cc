// Requests that are not gRPC's are answered with a status of HTTP, which what sends them can show. They are counted, as
// all calls are that the transport refuses at their headers.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// The header block of a POST of text/plain: literals without indexing (RFC 7541, 6.2.2).
std::string PlainPost() {
  const auto text = [](const std::string& value) { return std::string(1, static_cast<char>(value.size())) + value; };
  const std::string post_http = "\x83\x86", path = "\x04", authority = "\x01", content_type = "\x0f\x10";
  return post_http + path + text("/a/b") + authority + text("here") + content_type + text("text/plain");
}

class HttpRefusalTest : public testing::Test {
 protected:
  HttpRefusalTest() : peer_(server_.target()) {
    peer_.SendPreface();
    peer_.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, PlainPost());
  }
  // The next frame of the stream, if one comes.
  std::optional<Http2Frame> Next(milliseconds limit) {
    for (;;) {
      std::optional<Http2Frame> frame = peer_.Receive(limit);
      if (!frame.has_value() || frame->stream == 1) return frame;
    }
  }

  EchoServer server_;
  RawHttp2 peer_;
};

TEST_F(HttpRefusalTest, WaitsForTheEndOfTheRequest) {
  EXPECT_FALSE(Next(milliseconds(200)).has_value())
      << "curl waits for ever if it has the answer before it has sent all";
  peer_.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, "hello");
  const std::optional<Http2Frame> answer = Next(milliseconds(10000));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, RawHttp2::kHeaders);
  EXPECT_TRUE(peer_.LastHeadersContain(1, ":status: 415"));
  EXPECT_FALSE(Next(milliseconds(1500)).has_value());
}

TEST_F(HttpRefusalTest, IsNotOvertakenByAResetWhileTheBodyComes) {
  const std::optional<Http2Frame> answer = Next(milliseconds(10000));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, RawHttp2::kHeaders);
  EXPECT_TRUE(peer_.LastHeadersContain(1, ":status: 415"));
  EXPECT_FALSE(Next(milliseconds(200)).has_value());
  peer_.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1, "hello");
  EXPECT_FALSE(Next(milliseconds(1500)).has_value());
}

TEST_F(HttpRefusalTest, DoesNotWaitForeverForTheBody) {
  ASSERT_TRUE(Next(milliseconds(10000)).has_value());
  const std::optional<Http2Frame> end = Next(milliseconds(10000));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->type, RawHttp2::kReset);
  EXPECT_EQ(end->payload, std::string(4, '\0')) << "NO_ERROR";
}

// The timer of the rest must not outlive the stream.
TEST_F(HttpRefusalTest, ConnectionsThatEndMeanwhileLeaveNothingBehind) {
  for (int i = 0; i < 20; ++i) {
    RawHttp2 peer(server_.target());
    peer.SendPreface();
    peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, PlainPost());
    EXPECT_TRUE(peer.WaitForEnd(1, milliseconds(10000)));
  }
  ASSERT_TRUE(Next(milliseconds(10000)).has_value());
  EXPECT_TRUE(Next(milliseconds(10000)).has_value()) << "the loop still runs its timers";
}

// No service hears of these calls, so that nothing else could count them.
TEST(TransportRefusalsTest, AreCountedByTheirReason) {
  EchoServer server({.queues = 2, .max_metadata_bytes = 1000});
  RawHttp2 peer(server.target());
  peer.SendPreface();
  peer.SendHeaders(1, "/echo.Echo/Unary", {{"grpc-encoding", "gzip"}});
  peer.SendHeaders(3, "/echo.Echo/Unary", {{"grpc-encoding", "gzip"}});
  peer.SendHeaders(5, "/echo.Echo/Unary", {{"key-bin", "*"}});
  peer.SendHeaders(7, "/echo.Echo/Unary", {{"key", std::string(1000, 'x')}});
  // So large that the stream is reset before its last field is read.
  peer.SendHeaders(9, "/echo.Echo/Unary", {{"key", std::string(6000, 'x')}, {"key", std::string(6000, 'x')}});
  peer.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders | RawHttp2::kEndStream, 11, PlainPost());
  EXPECT_TRUE(peer.WaitForEnd(11, milliseconds(10000)));
  EXPECT_EQ(Ask(server.Connect(), {.method = "None"}).code, 12) << "which is the services' to refuse";
  EXPECT_EQ(server.counts().calls.load(), 1);
  const std::array<int64_t, kTransportRefusals> refused = server.transport().TakeStats().refused;
  EXPECT_EQ(refused[static_cast<size_t>(TransportRefusal::kNotGrpc)], 1);
  EXPECT_EQ(refused[static_cast<size_t>(TransportRefusal::kTooLarge)], 2);
  EXPECT_EQ(refused[static_cast<size_t>(TransportRefusal::kMalformed)], 1);
  EXPECT_EQ(refused[static_cast<size_t>(TransportRefusal::kCompressed)], 2);
}

}  // namespace
}  // namespace normd::rpc::http2
