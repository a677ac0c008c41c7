// What refusals say about coming back: only want of room at the moment asks for it.
#include <chrono>
#include <thread>

#include "proto/wire/metadata.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

// What the client's retry policies go by.
struct Advice {
  std::string reason;
  bool retry_info = false;
  bool pushback = false;
};

Advice AdviceOf(const grpc::Status& status, const grpc::ClientContext& context) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  const auto& trailers = context.GetServerTrailingMetadata();
  return {ReasonOf(status), Detail<google::rpc::RetryInfo>(DetailsOf(status)).has_value(),
          trailers.find("grpc-retry-pushback-ms") != trailers.end()};
}

// To send the same again would not move it.
void ExpectLimit(const Advice& advice) {
  EXPECT_EQ(advice.reason, "LIMIT_EXCEEDED");
  EXPECT_FALSE(advice.retry_info);
  EXPECT_FALSE(advice.pushback);
}

TEST(LimitsTest, ASessionOfTooManyChannelsIsALimit) {
  TestServer server;
  v1::CreateSessionRequest create;
  create.set_session_id("bn");
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(int64_t{1} << 40);
  grpc::ClientContext context;
  v1::Session session;
  const Advice advice = AdviceOf(server.sessions().CreateSession(&context, create, &session), context);
  ExpectLimit(advice);
}

TEST(LimitsTest, ACallThatNeverFitsIsALimit) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20});
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(200'000);
  // The weight takes six times its bytes when it is converted: more than the server holds for all.
  for (v1::Tensor* tensor : {request.mutable_x(), request.mutable_parameters()->mutable_weight()}) {
    tensor->set_dtype(v1::DTYPE_BF16);
    tensor->add_shape(200'000);
    tensor->set_data(std::string(400'000, '\0'));
  }
  v1::NormalizeResponse response;
  grpc::ClientContext context;
  const Advice advice = AdviceOf(server.normalizer().Normalize(&context, request, &response), context);
  ExpectLimit(advice);
}

TEST(LimitsTest, AServerThatIsFullAsksToComeBack) {
  TestServer server({.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3 << 20});
  server.backend().Close();
  std::thread caller([&server] {
    v1::NormalizeResponse response;
    EXPECT_TRUE(server.Normalize(RmsNormRequest(std::vector<float>(250'000, 1.0F)), &response).ok());
  });
  server.backend().WaitForSubmitted(1);
  v1::NormalizeResponse response;
  grpc::ClientContext context;
  const v1::NormalizeRequest second = RmsNormRequest(std::vector<float>(250'000, 1.0F));
  const Advice advice = AdviceOf(server.normalizer().Normalize(&context, second, &response), context);
  server.backend().Open();
  caller.join();
  EXPECT_EQ(advice.reason, "NO_ROOM");
  EXPECT_TRUE(advice.retry_info);
  EXPECT_TRUE(advice.pushback);
}

// To be refused, to wait and to send it all again costs both sides more than a moment at the door.
TEST(LimitsTest, ACallThatSaysItsSizeWaitsForRoom) {
  TestServer server(
      {.max_message_bytes = 1 << 20, .max_in_flight_bytes = 3'300'000, .max_wait_for_room = absl::Seconds(60)});
  server.backend().Close();
  const v1::NormalizeRequest request = RmsNormRequest(std::vector<float>(225'000, 1.0F));
  const auto call = [&] {
    grpc::ClientContext context;
    context.AddMetadata(wire::kMessageBytesKey, std::to_string(request.ByteSizeLong()));
    v1::NormalizeResponse response;
    const grpc::Status status = server.normalizer().Normalize(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back(call);
  server.backend().WaitForSubmitted(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(server.backend().submitted(), 1) << "there is room for one";
  server.backend().Open();
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace normd::e2e
