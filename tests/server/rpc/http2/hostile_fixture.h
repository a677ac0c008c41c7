// What the tests of hostile peers share: frames by hand, and a server that must serve others afterwards and not grow.
// Thread-compatible.
#ifndef NORMD_TESTS_SERVER_RPC_HTTP2_HOSTILE_FIXTURE_H_
#define NORMD_TESTS_SERVER_RPC_HTTP2_HOSTILE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tests/server/rpc/http2/echo_fixture.h"
#include "tests/support/raw_http2.h"

namespace normd::rpc::http2 {

using std::chrono::milliseconds;

inline constexpr uint8_t kPriorityFrame = 2, kPingFrame = 6, kContinuationFrame = 9;
inline constexpr int64_t kMebibyte = 1 << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NORMD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NORMD_SANITIZED 1
#endif
#endif

// Sanitizers keep memory that was freed, and notes about all of it.
#ifdef NORMD_SANITIZED
inline constexpr int64_t kOverheadBytes = 256 * kMebibyte;
#else
inline constexpr int64_t kOverheadBytes = 0;
#endif

inline int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

inline std::string BigEndian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

inline int64_t WindowIncrement(const std::string& window_update) {
  int64_t increment = 0;
  for (const char byte : window_update) increment = increment << 8 | static_cast<unsigned char>(byte);
  return increment;
}

// A header block of HPACK literals that are not indexed.
inline void AddLiteral(std::string_view name, std::string_view value, std::string* block) {
  *block += '\0';
  for (const std::string_view text : {name, value}) {
    *block += static_cast<char>(text.size());  // REQUIRES: under 127
    block->append(text);
  }
}

// What HTTP/2 asks of a request.
inline std::string HttpHeaders(std::string_view method, std::string_view path) {
  std::string block;
  AddLiteral(":method", method, &block);
  AddLiteral(":scheme", "http", &block);
  AddLiteral(":path", path, &block);
  AddLiteral(":authority", "test", &block);
  return block;
}

inline std::string CallHeaders(std::string_view path) {
  std::string block = HttpHeaders("POST", path);
  AddLiteral("content-type", "application/grpc", &block);
  return block;
}

// Where the peer's doing ends, others are served, and memory is as before but for `allowed_bytes`.
class HostilePeersTest : public testing::Test {
 protected:
  HostilePeersTest() : server_({.max_message_bytes = 4 * kMebibyte, .max_concurrent_streams = 16}) {
    EXPECT_EQ(Ask(honest_, {.method = "Unary", .body = "x"}).code, 0);
    before_ = ResidentBytes();
  }

  void ExpectServed(int64_t allowed_bytes = 16 * kMebibyte) {
    const EchoReply reply = Ask(honest_, {.method = "Unary", .body = Pattern(100000), .deadline_ms = 5000});
    EXPECT_EQ(reply.code, 0) << reply.message;
    const EchoReply fresh = Ask(server_.Connect(), {.method = "Unary", .body = "x", .deadline_ms = 5000});
    EXPECT_EQ(fresh.code, 0) << fresh.message;
    EXPECT_LT(ResidentBytes() - before_, allowed_bytes + kOverheadBytes);
  }

  // Sends `frames` again and again, and reads what comes where `reading`, until the connection ends or `times` are
  // over. Returns whether it ended.
  static bool Repeat(RawHttp2& peer, const std::string& frames, int times, bool reading) {
    for (int i = 0; i < times; ++i) {
      if (!peer.SendBytes(frames)) return true;
      if (!reading) continue;
      while (peer.Receive(milliseconds(0)).has_value()) {
      }
    }
    return peer.WaitForClose(milliseconds(2000));
  }

  static std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
    std::string frame = BigEndian(static_cast<uint32_t>(payload.size()) << 8).substr(0, 3);
    frame += static_cast<char>(type);
    frame += static_cast<char>(flags);
    frame += BigEndian(stream);
    return frame.append(payload);
  }

  EchoServer server_;
  std::shared_ptr<grpc::Channel> honest_ = server_.Connect();
  int64_t before_ = 0;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_TESTS_SERVER_RPC_HTTP2_HOSTILE_FIXTURE_H_
