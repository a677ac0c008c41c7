// Messages that do not get on, and what the server holds meanwhile.
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"
#include "gtest/gtest.h"
#include "proto/wire/metadata.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/test_server.h"
#include "tests/support/constants.h"
#include "tests/support/raw_http2.h"

namespace normd::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kNormalize[] = "/normd.v1.Normalizer/Normalize";
constexpr char kNormalizeStream[] = "/normd.v1.Normalizer/NormalizeStream";
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The length prefix of a gRPC message.
std::string Prefix(uint32_t bytes) {
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(bytes >> shift & 0xFF);
  return prefix;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

// Small calls of others, one after the other, while a test does its worst: how many were refused, of how many.
class PoliteCaller {
 public:
  explicit PoliteCaller(TestServer& server) : stub_(v1::Normalizer::NewStub(server.NewChannel())) {
    thread_ = std::thread([this] {
      const v1::NormalizeRequest request = RmsNormRequest(std::vector<float>(1024, 1.0F));
      while (!stop_) {
        grpc::ClientContext context;
        v1::NormalizeResponse response;
        const grpc::Status status = stub_->Normalize(&context, request, &response);
        ++calls_;
        if (!status.ok()) ++refused_;
      }
    });
  }
  ~PoliteCaller() {
    stop_ = true;
    thread_.join();
  }
  int calls() const { return calls_; }
  int refused() const { return refused_; }
  void WaitForCalls(int count) const {
    const int until = calls_ + count;
    while (calls_ < until) std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  const std::unique_ptr<v1::Normalizer::Stub> stub_;
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::atomic<int> refused_{0};
  std::thread thread_;
};

TEST(TransfersE2eTest, AMessageThatDoesNotComeEndsItsCallAndGivesItsRoomBack) {
  std::atomic<int64_t> held{0};
  RpcOptions options = {.max_message_bytes = 4 * kMiB, .max_in_flight_bytes = 12 * kMiB};
  options.message_timeout = absl::Milliseconds(500);
  options.observer.on_bytes_in_flight = [&held](int64_t bytes) { held = bytes; };
  TestServer server(std::move(options));
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  ASSERT_TRUE(peer.SendHeaders(1, kNormalize, {{wire::kMessageBytesKey, "4000000"}}));
  {
    const PoliteCaller polite(server);
    EXPECT_TRUE(peer.WaitForEnd(1, seconds(20)));
    polite.WaitForCalls(1);
    EXPECT_EQ(polite.refused(), 0);
  }
  EXPECT_TRUE(peer.LastHeadersContain(1, "too slowly"));
  // A caller has its reply before the server has given the room of it back.
  for (int i = 0; i < 5000 && held != 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(held, 0);
}

// A whole budget of announcements refuses large calls only, and only as long as nothing comes of them.
TEST(TransfersE2eTest, AnnouncementsDoNotKeepSmallCallsOut) {
  RpcOptions options = {.max_message_bytes = 4 * kMiB, .max_in_flight_bytes = 16 * kMiB};
  options.message_timeout = absl::Seconds(2);
  TestServer server(std::move(options));
  std::vector<std::unique_ptr<RawHttp2>> peers;
  for (int i = 0; i < 4; ++i) {
    RawHttp2& peer = *peers.emplace_back(std::make_unique<RawHttp2>(server.target()));
    ASSERT_TRUE(peer.SendPreface());
    uint32_t stream = 1;
    for (int bytes = 2'000'000; bytes > 0; bytes /= 8, stream += 2) {
      ASSERT_TRUE(peer.SendHeaders(stream, kNormalize, {{wire::kMessageBytesKey, std::to_string(bytes)}}));
    }
  }
  const PoliteCaller polite(server);
  polite.WaitForCalls(200);
  EXPECT_EQ(polite.refused(), 0);
  v1::NormalizeResponse response;
  grpc::Status large;
  for (int i = 0; i < 100 && !(large = server.Normalize(RmsNormRequest(std::vector<float>(900'000)), &response)).ok();
       ++i) {
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(large.ok()) << large.error_message();
}

TEST(TransfersE2eTest, AReplyThatNobodyReadsEndsItsCall) {
  std::atomic<int64_t> held{0};
  RpcOptions options;
  options.message_timeout = absl::Milliseconds(500);
  options.observer.on_bytes_in_flight = [&held](int64_t bytes) { held = bytes; };
  TestServer server(std::move(options));
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface(/*initial_window=*/0));
  const std::string request = RmsNormRequest(std::vector<float>(100'000, 1.0F)).SerializeAsString();
  ASSERT_TRUE(peer.SendHeaders(1, kNormalize));
  const std::string message = Prefix(static_cast<uint32_t>(request.size())) + request;
  ASSERT_EQ(peer.SendData(1, message, seconds(20), /*end_stream=*/true), message.size());
  EXPECT_TRUE(peer.WaitForEnd(1, seconds(20)));
  EXPECT_FALSE(peer.LastHeadersContain(1, "too slowly")) << "it was the request that was too slow";
  for (int i = 0; i < 100 && held != 0; ++i) std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(held, 0);
}

// The items of a stream whose replies nobody reads are some bytes each on the wire, and kilobytes here.
TEST(TransfersE2eTest, UnreadItemsCountForWhatTheyTake) {
  std::atomic<int64_t> held{0};
  RpcOptions options;
  options.observer.on_bytes_in_flight = [&held](int64_t bytes) { held = bytes; };
  TestServer server(std::move(options));
  v1::StreamRequest item;
  item.set_sequence(1);
  *item.mutable_call() = RmsNormRequest({1, 2, 3, 4});
  const std::string text = item.SerializeAsString();
  std::string messages;
  constexpr int kItems = 8;
  for (int i = 0; i < kItems; ++i) messages += Prefix(static_cast<uint32_t>(text.size())) + text;
  {
    RawHttp2 peer(server.target());
    ASSERT_TRUE(peer.SendPreface(/*initial_window=*/0));
    ASSERT_TRUE(peer.SendHeaders(1, kNormalizeStream));
    ASSERT_EQ(peer.SendData(1, messages, seconds(20)), messages.size());
    for (int i = 0; i < 400 && held < kItems * (5 << 10); ++i) std::this_thread::sleep_for(milliseconds(50));
    EXPECT_GE(held, kItems * (5 << 10));
  }
  for (int i = 0; i < 400 && held != 0; ++i) std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(held, 0);
}

// gRPC takes a message whole before it looks at the limit: what it holds is bounded by what its connection carries. The
// native transport takes none that was not admitted.
TEST(TransfersE2eTest, UnfinishedMessagesHoldAtMostTwiceTheBudget) {
  constexpr int64_t kBudget = 192 * kMiB;
  TestServer server({.max_message_bytes = 32 * kMiB, .max_in_flight_bytes = kBudget});
  server.ExpectAlive();
  const int64_t before = ResidentBytes();
  int64_t most = 0;
  {
    const PoliteCaller polite(server);
    const std::string piece(kMiB, '\0');
    std::vector<std::unique_ptr<RawHttp2>> peers;
    int64_t sent = 0;
    // As many connections as it takes: the server may end one of them early.
    for (int i = 0; i < 16 && sent < 2 * kBudget; ++i) {
      RawHttp2& peer = *peers.emplace_back(std::make_unique<RawHttp2>(server.target()));
      ASSERT_TRUE(peer.SendPreface());
      for (uint32_t stream = 1; stream < 12; stream += 2) {
        peer.SendHeaders(stream, kNormalize);
        peer.SendData(stream, Prefix(30 * kMiB), seconds(1));
      }
      for (int64_t mib = 0; mib < 29; ++mib) {
        for (uint32_t stream = 1; stream < 12; stream += 2) {
          if (peer.ended(stream)) continue;
          sent += static_cast<int64_t>(peer.SendData(stream, piece, seconds(1)));
          most = std::max(most, ResidentBytes());
        }
      }
    }
    if (TestedTransport() == TransportKind::kNative) {
      EXPECT_LT(sent, kBudget) << "of a message that was not admitted only the first window may be sent";
    } else {
      EXPECT_GT(sent, kBudget) << "the test must send more than may be held";
    }
    EXPECT_EQ(polite.refused(), 0);
    EXPECT_GT(polite.calls(), 0);
  }
  server.ExpectAlive();
  if (kSanitized) GTEST_SKIP() << "resident memory is not judged: sanitizers keep what was freed";
  EXPECT_LT(most - before, 2 * kBudget + 64 * kMiB);
}

// Stream 1 announces a message of 1 GiB in its length prefix.
bool BeginHugeMessage(RawHttp2& peer) {
  return peer.SendPreface() && peer.SendHeaders(1, kNormalize) && peer.SendData(1, Prefix(1 << 30), seconds(1)) == 5;
}

TEST(TransfersE2eTest, AMessageFarOverTheLimitEndsWhileItComes) {
  TestServer server({.max_message_bytes = 4 * kMiB, .max_in_flight_bytes = 64 * kMiB});
  RawHttp2 peer(server.target());
  ASSERT_TRUE(BeginHugeMessage(peer));
  const std::string piece(kMiB, '\0');
  int mib = 0;
  for (; mib < 1000 && !peer.ended(1); ++mib) peer.SendData(1, piece, seconds(1));
  EXPECT_TRUE(peer.ended(1));
  EXPECT_LT(mib, 500);
  server.ExpectAlive();
}

// Every message that is given up might have been what came; what the server holds tells that it was not.
TEST(TransfersE2eTest, AMessageFarOverTheLimitDoesNotHideBehindOthersThatAreGivenUp) {
  TestServer server({.max_message_bytes = 4 * kMiB, .max_in_flight_bytes = 64 * kMiB});
  RawHttp2 peer(server.target());
  ASSERT_TRUE(BeginHugeMessage(peer));
  const std::string piece(kMiB, '\0');
  uint32_t other = 3;
  int mib = 0;
  for (; mib < 1000 && !peer.ended(1); ++mib) {
    peer.SendData(1, piece, seconds(1));
    peer.SendHeaders(other, kNormalize);
    peer.SendData(other, Prefix(1000), seconds(1));
    peer.SendReset(other);
    other += 2;
  }
  EXPECT_TRUE(peer.ended(1));
  EXPECT_LT(mib, 700);
  server.ExpectAlive();
}

// Calls that are refused for want of room have often been sent by then: nobody is to be blamed for their bytes.
TEST(TransfersE2eTest, BytesOfRefusedCallsAreNotThoseOfTheOthers) {
  if (kSanitized) GTEST_SKIP() << "the memory of the process decides, and sanitizers keep what was freed";
  TestServer server({.max_message_bytes = 4 * kMiB, .max_in_flight_bytes = 12 * kMiB});
  server.backend().Close();
  std::thread holder([&server] {
    v1::NormalizeResponse response;
    EXPECT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(900'000, 1.0F)), &response).ok());
  });
  server.backend().WaitForSubmitted(1);
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  const std::string request = RmsNormRequest(std::vector<float>(1000, 1.0F)).SerializeAsString();
  const std::string message = Prefix(static_cast<uint32_t>(request.size())) + request;
  ASSERT_TRUE(peer.SendHeaders(1, kNormalize));
  ASSERT_EQ(peer.SendData(1, message.substr(0, 100), seconds(1)), 100U);
  const std::string piece(60'000, '\0');
  uint32_t refused = 3;
  for (int64_t sent = 0; sent < 40 * kMiB && !peer.ended(1) && !peer.closed(); refused += 2) {
    peer.SendHeaders(refused, kNormalize, {{wire::kMessageBytesKey, "4000000"}});
    sent += static_cast<int64_t>(peer.SendData(refused, piece, seconds(10)));
    EXPECT_TRUE(peer.WaitForEnd(refused, seconds(10)));
  }
  EXPECT_FALSE(peer.ended(1));
  EXPECT_FALSE(peer.closed());
  server.backend().Open();
  holder.join();
  peer.SendData(1, message.substr(100), seconds(10), /*end_stream=*/true);
  EXPECT_TRUE(peer.WaitForEnd(1, seconds(10)));
  EXPECT_FALSE(peer.LastHeadersContain(1, "message_bytes"));
}

TEST(TransfersE2eTest, AChunkThatDoesNotComeEndsItsStream) {
  RpcOptions options;
  options.message_timeout = absl::Milliseconds(300);
  TestServer server(std::move(options));
  OpenStream stream(server);
  v1::NormalizeRequest call = LayerNormRequest(1000);
  const std::string data = call.x().data();
  call.mutable_x()->clear_data();
  call.mutable_x()->mutable_chunked()->set_size_bytes(data.size());
  ASSERT_TRUE(stream.Send(7, call));
  EXPECT_EQ(stream.Receive().sequence(), 7U) << "the call is answered with an error";
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

// An idle stream is no message on its way.
TEST(TransfersE2eTest, AStreamMayWaitBetweenItsCalls) {
  RpcOptions options;
  options.message_timeout = absl::Milliseconds(100);
  TestServer server(std::move(options));
  OpenStream stream(server);
  ASSERT_TRUE(stream.Send(1, LayerNormRequest()));
  EXPECT_TRUE(stream.Receive().has_reply());
  std::this_thread::sleep_for(seconds(2));
  ASSERT_TRUE(stream.Send(2, LayerNormRequest()));
  EXPECT_TRUE(stream.Receive().has_reply());
  stream.HalfClose();
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_TRUE(stream.Finish().ok());
}

// Each of these calls abandons the one before, and its error waits for a reader who does not come: the window holds.
TEST(TransfersE2eTest, AbandonedCallsStayInTheWindow) {
  TestServer server({.queues = 1});
  v1::StreamRequest request;
  request.set_sequence(1);
  v1::NormalizeRequest& call = *request.mutable_call();
  call.mutable_spec()->mutable_layer_norm()->add_normalized_shape(2);
  call.mutable_x()->set_dtype(v1::DTYPE_F32);
  call.mutable_x()->add_shape(1);
  call.mutable_x()->add_shape(2);
  call.mutable_x()->mutable_chunked()->set_size_bytes(8);
  const std::string text = request.SerializeAsString();
  std::string block;
  for (int i = 0; i < 20'000; ++i) block += Prefix(static_cast<uint32_t>(text.size())) + text;
  const PoliteCaller polite(server);
  {
    RawHttp2 peer(server.target());
    ASSERT_TRUE(peer.SendPreface(/*initial_window=*/1024));
    ASSERT_TRUE(peer.SendHeaders(1, kNormalizeStream));
    size_t sent = 0;
    for (int i = 0; i < 100; ++i) {
      const size_t took = peer.SendData(1, block, milliseconds(200));
      sent += took;
      if (took < block.size()) break;
    }
    EXPECT_LT(sent, 100 * block.size()) << "nothing holds the sender back";
    polite.WaitForCalls(20);
  }
  polite.WaitForCalls(20);
  EXPECT_EQ(polite.refused(), 0);
}

}  // namespace
}  // namespace normd::e2e
