// Many calls of one peer, which must not keep others out, nor the peer's own next call.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/test_server.h"
#include "tests/support/raw_http2.h"

namespace normd::e2e {
namespace {

using std::chrono::seconds;

constexpr char kStreamPath[] = "/normd.v1.Normalizer/NormalizeStream";
constexpr char kWatchPath[] = "/grpc.health.v1.Health/Watch";
constexpr char kEmptyMessage[] = {0, 0, 0, 0, 0};  // an empty message with its prefix
// What a server of little memory takes in all, of which one peer may have half.
constexpr int kCalls = 1024;

class CallLimitsTest : public testing::Test {
 protected:
  // One connection may hold all the calls of these tests.
  CallLimitsTest()
      : server_({.listeners = {"127.0.0.1:0", "unix:" + folder_.path() + "/s"},
                 .max_message_bytes = 1 << 20,
                 .max_in_flight_bytes = 8 << 20,
                 .max_concurrent_streams = 2 * kCalls}) {}

  grpc::Status Check(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    return grpc::health::v1::Health::NewStub(channel)->Check(&context, {}, &response);
  }
  grpc::Status Normalize(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::NormalizeResponse response;
    return v1::Normalizer::NewStub(channel)->Normalize(&context, LayerNormRequest(), &response);
  }
  std::shared_ptr<grpc::Channel> Local() {
    return grpc::CreateChannel("unix:" + folder_.path() + "/s", grpc::InsecureChannelCredentials());
  }
  int64_t Calls() { return server_.server().TakeQueueStats().calls; }

  const TemporaryFolder folder_;
  TestServer server_;
};

TEST_F(CallLimitsTest, IdleStreamsOfOnePeerKeepNobodyOut) {
  RawHttp2 idler(server_.target());
  ASSERT_TRUE(idler.SendPreface());
  for (uint32_t i = 0; i < kCalls + 100; ++i) ASSERT_TRUE(idler.SendHeaders(2 * i + 1, kStreamPath));
  // The first stream has waited longest, where calls are handed out in their order.
  if (TestedTransport() == TransportKind::kNative) {
    EXPECT_TRUE(idler.WaitForEnd(1, seconds(20)));
    EXPECT_TRUE(idler.LastHeadersContain(1, "calls_of_peer")) << "the error says which limit";
  }
  // Behind all of its headers, so that no more of its calls come.
  constexpr uint8_t kPing = 6;
  ASSERT_TRUE(idler.SendFrame(kPing, 0, 0, "12345678"));
  bool answered = false;
  while (!answered) {
    const std::optional<Http2Frame> frame = idler.Receive(seconds(20));
    ASSERT_TRUE(frame.has_value());
    answered = frame->type == kPing;
  }
  EXPECT_TRUE(Eventually([this] { return Calls() <= kCalls / 2 * 3 / 4; }));
  EXPECT_TRUE(Eventually([this] { return server_.server().TakeQueueStats().idle_streams_ended >= 100; }));
  EXPECT_TRUE(Check(server_.channel()).ok());
  EXPECT_TRUE(Check(Local()).ok());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Normalize(server_.channel()).ok()) << "a call of the same peer";
    EXPECT_TRUE(Normalize(Local()).ok()) << "a call of another peer";
  }
}

TEST_F(CallLimitsTest, FewIdleStreamsStayOpen) {
  RawHttp2 idler(server_.target());
  ASSERT_TRUE(idler.SendPreface());
  constexpr int kFew = kCalls / 2 * 3 / 4;
  for (uint32_t i = 0; i < kFew; ++i) ASSERT_TRUE(idler.SendHeaders(2 * i + 1, kStreamPath));
  ASSERT_TRUE(Eventually([this] { return Calls() >= kFew; }));
  EXPECT_FALSE(idler.WaitForEnd(1, std::chrono::milliseconds(200)));
  EXPECT_GE(Calls(), kFew);
}

TEST_F(CallLimitsTest, HalfOfTheCallsIsOnePeers) {
  RawHttp2 watcher(server_.target());
  ASSERT_TRUE(watcher.SendPreface());
  // A watch has its message, so that it does not count as idle.
  constexpr uint32_t kTooMany = 20;
  for (uint32_t i = 0; i < kCalls / 2 + kTooMany; ++i) {
    ASSERT_TRUE(watcher.SendHeaders(2 * i + 1, kWatchPath));
    ASSERT_TRUE(
        watcher.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 2 * i + 1, {kEmptyMessage, sizeof(kEmptyMessage)}));
  }
  // The last ones, but for a transport with several queues.
  const auto refused = [&watcher] {
    std::vector<uint32_t> streams;
    for (uint32_t i = 0; i < kCalls / 2 + kTooMany; ++i) {
      if (watcher.ended(2 * i + 1)) streams.push_back(2 * i + 1);
    }
    return streams;
  };
  EXPECT_TRUE(Eventually([&] {
    while (watcher.Receive(std::chrono::milliseconds(1)).has_value()) {
    }
    return refused().size() >= kTooMany;
  }));
  ASSERT_EQ(refused().size(), kTooMany) << "what was let in stays";
  EXPECT_TRUE(watcher.LastHeadersContain(refused().back(), "calls_of_peer"));
  const grpc::Status same = Normalize(server_.channel());
  EXPECT_EQ(same.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(same), "NO_ROOM");
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(DetailsOf(same)).has_value());
  EXPECT_TRUE(Check(server_.channel()).ok()) << "health is always told";
  EXPECT_TRUE(Normalize(Local()).ok());
}

}  // namespace
}  // namespace normd::e2e
