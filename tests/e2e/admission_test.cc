// What may come in, on the wire: decided at a call's headers, before its message is sent.
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/wire/metadata.h"
#include "tests/e2e/test_server.h"

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
  GrpcServerOptions options;
  options.observer.on_bytes_in_flight = [&held](int64_t bytes) { held = bytes; };
  TestServer server(std::move(options));
  for (int i = 0; i < 3; ++i) {
    v1::NormalizeResponse response;
    ASSERT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(100'000, 1.0F)), &response).ok());
  }
  server.server().Shutdown(absl::Seconds(5));
  EXPECT_EQ(held, 0);
}

// Waits for a message then, which does not come.
TEST(AdmissionE2eTest, WhatIsNoNumberAnnouncesNothing) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 4 << 20});
  for (const char* text : {"-5", "many", "", "99999999999999999999999"}) {
    grpc::ClientContext context;
    context.AddMetadata(wire::kMessageBytesKey, text);
    v1::NormalizeResponse response;
    EXPECT_TRUE(server.normalizer().Normalize(&context, LayerNormRequest(), &response).ok()) << text;
  }
}

}  // namespace
}  // namespace normd::e2e
