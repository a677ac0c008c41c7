// BatchNormalize: a result for each item, in order, with the bytes of single calls.
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

v1::BatchNormalizeResponse Batch(TestServer& server, const v1::BatchNormalizeRequest& request) {
  grpc::ClientContext context;
  v1::BatchNormalizeResponse response;
  const grpc::Status status = server.normalizer().BatchNormalize(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(BatchTest, MixesShapesMethodsAndMistakesInOrder) {
  TestServer server;
  v1::BatchNormalizeRequest request;
  *request.add_items() = LayerNormRequest(3);
  *request.add_items() = LayerNormRequest();
  request.mutable_items(1)->mutable_x()->mutable_data()->pop_back();
  *request.add_items() = RmsNormRequest({3, 4});
  *request.add_items() = LayerNormRequest();
  request.mutable_items(3)->mutable_spec()->mutable_layer_norm()->set_eps(-1);
  *request.add_items() = LayerNormRequest();
  request.mutable_items(4)->set_session("sessions/nobody");
  *request.add_items() = LayerNormRequest(2);
  const v1::BatchNormalizeResponse response = Batch(server, request);
  ASSERT_EQ(response.items_size(), 6);
  EXPECT_EQ(FieldOf(response.items(1).status()), "items[1].x.data");
  EXPECT_EQ(response.items(1).status().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(response.items(1).has_response());
  EXPECT_EQ(FieldOf(response.items(3).status()), "items[3].spec.layer_norm.eps");
  EXPECT_EQ(response.items(4).status().code(), grpc::StatusCode::NOT_FOUND);
  for (const int good : {0, 2, 5}) {
    SCOPED_TRACE(good);
    EXPECT_FALSE(response.items(good).has_status());
    v1::NormalizeResponse alone;
    ASSERT_TRUE(server.Normalize(request.items(good), &alone).ok());
    EXPECT_EQ(response.items(good).response().SerializeAsString(), alone.SerializeAsString());
  }
}

TEST(BatchTest, IsHandedToTheBackendAsOneJobList) {
  TestServer server;
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 50; ++i) *request.add_items() = LayerNormRequest(1 + i % 3);
  EXPECT_EQ(Batch(server, request).items_size(), 50);
  EXPECT_EQ(server.backend().submitted(), 1);
}

TEST(BatchTest, MayBeEmpty) {
  TestServer server;
  EXPECT_EQ(Batch(server, {}).items_size(), 0);
}

TEST(BatchTest, MayHoldOnlyMistakes) {
  TestServer server;
  v1::BatchNormalizeRequest request;
  request.add_items();
  request.add_items();
  const v1::BatchNormalizeResponse response = Batch(server, request);
  ASSERT_EQ(response.items_size(), 2);
  EXPECT_EQ(FieldOf(response.items(1).status()), "items[1].spec");
}

// Two bytes of a request must not become hundreds of a reply, 4096 times.
TEST(BatchTest, ManyMistakesAreToldInShort) {
  constexpr int kItems = 4096;
  TestServer server;
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < kItems; ++i) request.add_items();
  const v1::BatchNormalizeResponse response = Batch(server, request);
  ASSERT_EQ(response.items_size(), kItems);
  for (int i = 0; i < kItems; ++i) {
    const google::rpc::Status& error = response.items(i).status();
    ASSERT_EQ(error.code(), grpc::StatusCode::INVALID_ARGUMENT);
    ASSERT_NE(error.message().find("items[" + std::to_string(i) + "].spec"), std::string::npos) << error.message();
    ASSERT_EQ(error.details_size() > 0, i < 16) << i;
    if (i < 16) continue;
    ASSERT_LE(response.items(i).ByteSizeLong(), 128U) << error.message();
  }
}

// The message of a mistake may repeat what the caller wrote.
TEST(BatchTest, LongMessagesOfManyMistakesAreCut) {
  TestServer server;
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 20; ++i) {
    *request.add_items() = LayerNormRequest();
    request.mutable_items(i)->set_session("sessions/" + std::string(2000, 'x'));
  }
  const v1::BatchNormalizeResponse response = Batch(server, request);
  ASSERT_EQ(response.items_size(), 20);
  EXPECT_GT(response.items(0).status().message().size(), 256U);
  EXPECT_LE(response.items(19).ByteSizeLong(), 300U) << response.items(19).status().message();
}

// An item of two bytes still takes a call, a result and a place in the reply.
TEST(BatchTest, ReservesRoomForItsItems) {
  TestServer server({.max_message_bytes = 64 << 10, .max_in_flight_bytes = 4 << 20});
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 1500; ++i) request.add_items();
  grpc::ClientContext context;
  v1::BatchNormalizeResponse response;
  const grpc::Status status = server.normalizer().BatchNormalize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(FieldOf(status), "");
  EXPECT_EQ(ReasonOf(status), "LIMIT_EXCEEDED");
  request.mutable_items()->DeleteSubrange(500, 1000);
  EXPECT_EQ(Batch(server, request).items_size(), 500);
  EXPECT_TRUE(Eventually([&server] { return server.server().in_flight_bytes() == 0; }));
}

TEST(BatchTest, RefusesMoreItemsThanTheLimit) {
  TestServer server({.max_batch_items = 2});
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 3; ++i) *request.add_items() = LayerNormRequest();
  grpc::ClientContext context;
  v1::BatchNormalizeResponse response;
  const grpc::Status status = server.normalizer().BatchNormalize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "items");
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_ITEMS");
}

}  // namespace
}  // namespace normd::e2e
