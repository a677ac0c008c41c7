// When the replies of a connection leave, and in which order.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon(5000);

// A message of fewer than 256 bytes.
std::string SmallMessage(std::string_view text) {
  return std::string("\0\0\0\0", 4) + static_cast<char>(text.size()) + std::string(text);
}

class LargeRepliesTest : public testing::Test {
 protected:
  // Large windows for streams, and 64 KiB for all of them together, which the first reply uses up.
  LargeRepliesTest() : peer_(server_.target()) { peer_.SendPreface(/*initial_window=*/1 << 20); }

  // Asks for a reply of `bytes`, and waits until it has begun.
  void Ask(uint32_t stream, std::string_view bytes) {
    peer_.SendHeaders(stream, "/echo.Echo/Fill");
    peer_.SendData(stream, SmallMessage(bytes), kSoon, /*end_stream=*/true);
    while (true) {
      const std::optional<Http2Frame> frame = peer_.Receive(kSoon);
      ASSERT_TRUE(frame.has_value());
      if (frame->type == RawHttp2::kHeaders && frame->stream == stream) return;
    }
  }

  // Lets everything come; returns the streams in the order in which they end.
  std::string OrderOfEnds(size_t streams) {
    peer_.SendFrame(RawHttp2::kWindowUpdate, 0, 0, std::string("\0\x40\0\0", 4));  // 4 MiB
    std::string order;
    uint32_t last = 0;
    for (size_t ended = 0; ended < streams;) {
      const std::optional<Http2Frame> frame = peer_.Receive(kSoon);
      if (!frame.has_value()) return order + " and nothing more";
      if (frame->type == RawHttp2::kData && frame->stream != last) {
        last = frame->stream;
        order += " " + std::to_string(last);
      }
      if (peer_.ended(frame->stream)) ++ended;
    }
    return order;
  }

  EchoServer server_;
  RawHttp2 peer_;
};

TEST_F(LargeRepliesTest, FollowOneAnother) {
  for (const uint32_t stream : {1U, 3U, 5U}) Ask(stream, "500000");
  EXPECT_EQ(OrderOfEnds(3), " 1 3 5");
}

TEST_F(LargeRepliesTest, LetSmallOnesGoFirst) {
  for (const uint32_t stream : {1U, 3U}) Ask(stream, "500000");
  Ask(5, "50000");
  EXPECT_EQ(OrderOfEnds(3), " 5 1 3");
}

TEST(RepliesTest, AReplyLeavesBeforeALaterCallOfTheSameReadIsComputed) {
  EchoServer server({.queues = 1});
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  const auto ask = [&peer](uint32_t stream, std::string_view method) {
    peer.SendHeaders(stream, method);
    peer.SendData(stream, SmallMessage("x"), kSoon, /*end_stream=*/true);
  };
  // While the first call holds the loop, two more arrive, so that they are read together.
  ask(1, "/echo.Echo/Hold");
  ASSERT_TRUE(EchoServer::WaitFor(server.counts().calls, 1));
  ask(3, "/echo.Echo/Slow");
  ask(5, "/echo.Echo/Hold");
  server.Release();
  ASSERT_TRUE(peer.WaitForEnd(1, kSoon));
  EXPECT_TRUE(peer.WaitForEnd(3, kSoon)) << "the reply waits for the call after it";
  server.Release();
  EXPECT_TRUE(peer.WaitForEnd(5, kSoon));
}

}  // namespace
}  // namespace normd::rpc::http2
