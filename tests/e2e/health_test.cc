// grpc.health.v1.Health: Check and Watch.
#include "absl/time/clock.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthCheckRequest For(const std::string& service) {
  HealthCheckRequest request;
  request.set_service(service);
  return request;
}

grpc::Status Check(TestServer& server, const std::string& service, HealthCheckResponse* response) {
  grpc::ClientContext context;
  return server.health().Check(&context, For(service), response);
}

TEST(HealthTest, ChecksTheServerAndEachService) {
  TestServer server;
  for (const char* service : {"", "normd.v1.Normalizer", "normd.v1.Sessions"}) {
    HealthCheckResponse response;
    ASSERT_TRUE(Check(server, service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING) << service;
  }
  server.server().SetServing(false);
  HealthCheckResponse response;
  ASSERT_TRUE(Check(server, "", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server.ExpectAlive();  // health is what the server says, not what it does
}

TEST(HealthTest, AnUnknownServiceIsNotFoundByCheck) {
  TestServer server;
  HealthCheckResponse response;
  const grpc::Status status = Check(server, "somebody.Else", &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(status), "SERVICE_UNKNOWN");
}

TEST(HealthTest, WatchTellsEveryChangeAndEndsWithTheServer) {
  TestServer server;
  grpc::ClientContext context;
  const auto watch = server.health().Watch(&context, For("normd.v1.Normalizer"));
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server.server().SetServing(true);  // no change, no message
  server.server().SetServing(false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server.server().SetServing(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  const absl::Time begin = absl::Now();
  server.server().Shutdown(absl::Seconds(60));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << "a watch held up the shutdown";
  while (watch->Read(&response)) EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(HealthTest, WatchingAnUnknownServiceStaysOpen) {
  TestServer server;
  grpc::ClientContext context;
  const auto watch = server.health().Watch(&context, For("somebody.Else"));
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  server.server().SetServing(false);
  HealthCheckResponse checked;
  ASSERT_TRUE(Check(server, "", &checked).ok());
  context.TryCancel();
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(HealthTest, ManyWatchersComeAndGo) {
  TestServer server({.max_concurrent_streams = 100});
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>> watches;
    for (int i = 0; i < 20; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      watches.push_back(server.health().Watch(contexts.back().get(), For("")));
      HealthCheckResponse response;
      ASSERT_TRUE(watches.back()->Read(&response));
    }
    server.server().SetServing(round % 2 != 0);
    for (const auto& context : contexts) context->TryCancel();
    for (const auto& watch : watches) watch->Finish();
  }
  HealthCheckResponse response;
  EXPECT_TRUE(Check(server, "", &response).ok());
}

}  // namespace
}  // namespace normd::e2e
