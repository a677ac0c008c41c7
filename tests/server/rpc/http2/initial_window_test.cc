// What a peer may send before anybody reads.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {
namespace {

constexpr uint8_t kInitialWindowSize = 4;  // of SETTINGS (RFC 9113, 6.5.2)

// The value in the payload of SETTINGS, as large as it is there.
std::optional<uint32_t> SettingIn(const std::string& payload, uint8_t identifier) {
  for (size_t entry = 0; entry + 6 <= payload.size(); entry += 6) {
    if (static_cast<uint8_t>(payload[entry + 1]) != identifier) continue;
    uint32_t value = 0;
    for (size_t i = entry + 2; i < entry + 6; ++i) value = value << 8 | static_cast<unsigned char>(payload[i]);
    return value;
  }
  return std::nullopt;
}

TEST(InitialWindowTest, HasRoomForATensorOf64KiBInItsMessage) {
  EchoServer server;
  RawHttp2 peer(server.target());
  peer.SendPreface();
  const std::optional<Http2Frame> settings = peer.Receive(std::chrono::milliseconds(5000));
  ASSERT_TRUE(settings.has_value());
  ASSERT_EQ(settings->type, RawHttp2::kSettings);
  EXPECT_GE(SettingIn(settings->payload, kInitialWindowSize), (64 << 10) + 1024);
}

}  // namespace
}  // namespace normd::rpc::http2
