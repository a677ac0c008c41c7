// What may come in, on the wire: decided at a call's headers, before its message is sent.
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/wire/metadata.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/test_server.h"
#include "tests/support/raw_http2.h"

namespace normd::e2e {
namespace {

// A call of Normalize that announces `bytes` and sends nothing.
struct Announcement {
  grpc::Status status;
  std::string pushback;  // of the trailers
};

Announcement Announce(TestServer& server, const std::string& bytes) {
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  context.AddMetadata(wire::kMessageBytesKey, bytes);
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  auto call = stub.PrepareCall(&context, "/normd.v1.Normalizer/Normalize", &queue);
  call->StartCall(&call);
  queue.Next(&tag, &ok);
  Announcement announcement;
  call->Finish(&announcement.status, &call);
  queue.Next(&tag, &ok);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found != trailers.end()) announcement.pushback = std::string(found->second.data(), found->second.size());
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return announcement;
}

// A call whose request and reply, and x in one piece, take 2.1 MB, held by the backend for as long as this lives.
class HeldCall {
 public:
  explicit HeldCall(TestServer& server) : server_(server) {
    server_.backend().Close();
    caller_ = std::thread([this] {
      v1::NormalizeResponse response;
      EXPECT_TRUE(server_.Normalize(RmsNormRequest(std::vector<float>(175'000, 1.0F)), &response).ok());
    });
    server_.backend().WaitForSubmitted(1);
  }
  ~HeldCall() {
    server_.backend().Open();
    caller_.join();
  }

 private:
  TestServer& server_;
  std::thread caller_;
};

TEST(AdmissionE2eTest, RefusesByWhatIsAnnouncedBeforeItIsSent) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20});
  {
    const HeldCall held(server);
    const Announcement over = Announce(server, "1000000");
    EXPECT_EQ(over.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << over.status.error_message();
    EXPECT_NE(over.status.error_message().find("bytes_in_flight would be "), std::string::npos)
        << over.status.error_message();
    EXPECT_EQ(over.pushback, "100");
  }
  server.ExpectAlive();
}

TEST(AdmissionE2eTest, AConnectionHasItsShare) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 8 << 20, .max_caller_bytes = 3 << 20});
  {
    const HeldCall held(server);
    const Announcement over = Announce(server, "1000000");
    EXPECT_EQ(over.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_NE(over.status.error_message().find("bytes_in_flight_of_caller would be "), std::string::npos)
        << over.status.error_message();
  }
  server.ExpectAlive();
}

TEST(AdmissionE2eTest, AMessageOverTheLimitIsRefusedBeforeItIsSentAndForGood) {
  TestServer server({.max_message_bytes = 1 << 20});
  const Announcement over = Announce(server, "1048577");
  EXPECT_EQ(over.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(over.pushback, "");
  server.ExpectAlive();
}

// y of 8 bytes for each 2 of x: more than the request made room for.
TEST(AdmissionE2eTest, RepliesLargerThanTheirRequestsNeedRoom) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20});
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  request.mutable_x()->set_dtype(v1::DTYPE_F16);
  request.mutable_x()->add_shape(450'000);
  request.mutable_x()->add_shape(1);
  request.mutable_x()->set_data(std::string(900'000, '\0'));
  request.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  request.clear_outputs();
  // The refused call's bytes are given back only after its caller has the answer.
  EXPECT_TRUE(Eventually([&] { return server.Normalize(request, &response).ok(); }));
  server.ExpectAlive();
}

// A reply that nobody reads is held, and counts.
TEST(AdmissionE2eTest, WhatIsHeldIsGivenBack) {
  std::atomic<int64_t> held{0};
  RpcOptions options;
  options.observer.on_bytes_in_flight = [&held](int64_t bytes) { held = bytes; };
  TestServer server(std::move(options));
  for (int i = 0; i < 3; ++i) {
    v1::NormalizeResponse response;
    ASSERT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(100'000, 1.0F)), &response).ok());
  }
  server.server().Shutdown(absl::Seconds(5));
  EXPECT_EQ(held, 0);
}

// The outcome of a call whose metadata have these announcements.
grpc::Status CallAnnouncing(TestServer& server, const std::vector<std::string>& texts) {
  grpc::ClientContext context;
  for (const std::string& text : texts) context.AddMetadata(wire::kMessageBytesKey, text);
  v1::NormalizeResponse response;
  return server.normalizer().Normalize(&context, LayerNormRequest(), &response);
}

TEST(AdmissionE2eTest, AnAnnouncementIsOneNumber) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 4 << 20});
  const std::vector<std::string> wrong[] = {{"-5"},  {"+5"},   {"many"},           {""},
                                            {"1e3"}, {"0x5a"}, {"1000", "999999"}, {"99999999999999999999999"}};
  for (const std::vector<std::string>& texts : wrong) {
    const grpc::Status status = CallAnnouncing(server, texts);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << texts.back();
    EXPECT_EQ(ReasonOf(status), "MESSAGE_BYTES_FORM") << texts.back();
    const std::string shown = texts.back().empty() ? "empty" : "\"" + texts.back() + "\"";
    EXPECT_EQ(status.error_message(),
              "normd-message-bytes is " + shown + "; write one number of bytes from 0 to 2^63 - 1");
  }
  EXPECT_TRUE(CallAnnouncing(server, {"1000", "1000"}).ok());
  EXPECT_TRUE(CallAnnouncing(server, {"0"}).ok()) << "announces nothing";
}

TEST(AdmissionE2eTest, AnAnnouncementIsToldAsItIs) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 4 << 20});
  const std::string message = CallAnnouncing(server, {"4611686018427387904"}).error_message();
  EXPECT_EQ(message, "message has 4611686018427387904 bytes; it must have at most 1048576");
}

// A message of NormalizeStream whose call is RMSNorm of `count` values.
v1::StreamRequest StreamCall(uint64_t sequence, size_t count) {
  v1::StreamRequest request;
  request.set_sequence(sequence);
  *request.mutable_call() = RmsNormRequest(std::vector<float>(count, 1.0F));
  return request;
}

// The message as the wire has it: with a prefix of its own.
std::string Framed(const std::string& message) {
  std::string framed(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) framed += static_cast<char>(message.size() >> shift & 0xFF);
  return framed + message;
}

TEST(AdmissionE2eTest, AMessageLongerThanItWasAnnouncedIsRefused) {
  TestServer server;
  grpc::ClientContext context;
  context.AddMetadata(wire::kMessageBytesKey, "10");
  v1::NormalizeResponse response;
  const grpc::Status status = server.normalizer().Normalize(&context, LayerNormRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(FieldOf(status), "message");
  EXPECT_EQ(ReasonOf(status), "MESSAGE_OVER_ANNOUNCEMENT");
  EXPECT_NE(status.error_message().find("at most 10"), std::string::npos) << status.error_message();
  server.ExpectAlive();
}

TEST(AdmissionE2eTest, AMessageLongerThanItWasAnnouncedIsRefusedBeforeItIsSent) {
  if (TestedTransport() != TransportKind::kNative) GTEST_SKIP() << "gRPC tells no size before the message";
  TestServer server;
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  ASSERT_TRUE(peer.SendHeaders(1, "/normd.v1.Normalizer/Normalize", {{wire::kMessageBytesKey, "1000"}}));
  peer.SendData(1, Framed(std::string(1 << 20, 'x')).substr(0, 5), std::chrono::seconds(1));
  EXPECT_TRUE(peer.WaitForEnd(1, std::chrono::seconds(5)));
  EXPECT_TRUE(peer.LastHeadersContain(1, "1048576 bytes"));
  server.ExpectAlive();
}

TEST(AdmissionE2eTest, AMessageOfAStreamThatDoesNotFitIsAnsweredAndTheNextIsServed) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20});
  OpenStream stream(server);
  {
    const HeldCall held(server);
    ASSERT_TRUE(stream.Send(StreamCall(7, 250'000)));
    const v1::StreamResponse refused = stream.Receive();
    EXPECT_EQ(refused.sequence(), 7U);
    EXPECT_EQ(refused.error().code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
    EXPECT_NE(refused.error().message().find("bytes_in_flight would be "), std::string::npos)
        << refused.error().message();
  }
  ASSERT_TRUE(stream.Send(StreamCall(8, 1000)));
  const v1::StreamResponse served = stream.Receive();
  EXPECT_EQ(served.sequence(), 8U);
  EXPECT_TRUE(served.has_reply());
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(AdmissionE2eTest, AMessageOfAStreamIsAdmittedBeforeItIsSent) {
  if (TestedTransport() != TransportKind::kNative) GTEST_SKIP() << "gRPC reads a message of a stream to learn its size";
  RpcOptions options = {.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20};
  options.max_wait_for_room = absl::Seconds(20);
  TestServer server(std::move(options));
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  ASSERT_TRUE(peer.SendHeaders(1, "/normd.v1.Normalizer/NormalizeStream"));
  const std::string message = Framed(StreamCall(7, 250'000).SerializeAsString());
  size_t sent = 0;
  {
    const HeldCall held(server);
    sent = peer.SendData(1, message, std::chrono::milliseconds(500));
    EXPECT_LE(sent, 128U << 10) << "only the first window is for a message without room";
  }
  sent += peer.SendData(1, std::string_view(message).substr(sent), std::chrono::seconds(10), /*end_stream=*/true);
  EXPECT_EQ(sent, message.size()) << "the message was not let in when there was room";
}

// Together they are larger than what may wait where the transport already has them.
TEST(AdmissionE2eTest, MessagesThatAreNotReadYetMayAllWait) {
  if (TestedTransport() != TransportKind::kNative) GTEST_SKIP() << "gRPC may hold all of a message that waits";
  RpcOptions options = {.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20};
  options.max_wait_for_room = absl::Seconds(20);
  TestServer server(std::move(options));
  std::vector<std::thread> callers;
  {
    const HeldCall held(server);
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([channel = server.NewChannel()] {
        grpc::ClientContext context;
        v1::NormalizeResponse response;
        const grpc::Status status = v1::Normalizer::NewStub(channel)->Normalize(
            &context, RmsNormRequest(std::vector<float>(250'000, 1.0F)), &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace normd::e2e
