// A server that goes: what runs is finished, what waits is told so, and nobody is told anything that clients do not try
// again.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/test_server.h"
#include "tests/support/raw_http2.h"

namespace normd::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a shutdown took that may take as long as it likes.
absl::Duration TimeOfShutdown(TestServer& server) {
  const auto start = std::chrono::steady_clock::now();
  server.server().Shutdown(absl::Minutes(5));
  return absl::FromChrono(std::chrono::steady_clock::now() - start);
}

TEST(DrainE2eTest, IdleStreamsEndAtOnceWithWhatTheyHaveReadAnswered) {
  TestServer server;
  OpenStream idle(server);
  OpenStream used(server);
  ASSERT_TRUE(idle.Send(1, LayerNormRequest()));
  EXPECT_TRUE(idle.Receive().has_reply());
  ASSERT_TRUE(used.Send(1, LayerNormRequest()));
  EXPECT_TRUE(used.Receive().has_reply());
  EXPECT_LT(TimeOfShutdown(server), absl::Seconds(30));
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_EQ(idle.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(used.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(DrainE2eTest, ACallWhoseMessageDoesNotComeIsNotWaitedFor) {
  TestServer server;
  RawHttp2 peer(server.target());
  ASSERT_TRUE(peer.SendPreface());
  ASSERT_TRUE(peer.SendHeaders(1, "/normd.v1.Normalizer/Normalize"));
  server.ExpectAlive();
  EXPECT_LT(TimeOfShutdown(server), absl::Seconds(30));
}

TEST(DrainE2eTest, CallsThatRunAreFinishedAndCallsThatComeAreUnavailable) {
  TestServer server;
  server.backend().Close();
  std::thread running([&server] {
    v1::NormalizeResponse response;
    const grpc::Status status = server.Normalize(RmsNormRequest(std::vector<float>(100'000, 1.0F)), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  server.backend().WaitForSubmitted(1);
  std::thread drain([&server] { server.server().Shutdown(absl::Minutes(5)); });
  // On a connection that was there before: new ones find no listener any more.
  std::map<grpc::StatusCode, int> codes;
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    v1::DescribeResponse description;
    const grpc::Status status = server.normalizer().Describe(&context, v1::DescribeRequest(), &description);
    ++codes[status.error_code()];
    std::this_thread::sleep_for(milliseconds(1));
  }
  server.backend().Open();
  running.join();
  drain.join();
  EXPECT_GT(codes[grpc::StatusCode::UNAVAILABLE], 0);
  EXPECT_EQ(codes[grpc::StatusCode::OK] + codes[grpc::StatusCode::UNAVAILABLE], 200);
}

// Health's answers are not reported, but the refusal of a Watch is, as that of any other call.
TEST(DrainE2eTest, ARefusedWatchIsReportedByItsOwnPath) {
  if (TestedTransport() == TransportKind::kNative) {
    GTEST_SKIP() << "a client that the native transport has told to go opens no call, so none is refused";
  }
  Mutex mu;
  std::set<std::string> paths;
  RpcOptions options;
  options.observer.on_request_done = [&](const RequestRecord& record) {
    MutexLock lock(mu);
    if (record.code == absl::StatusCode::kUnavailable) paths.emplace(record.origin.path);
  };
  TestServer server(std::move(options));
  server.backend().Close();
  std::thread running([&server] {
    v1::NormalizeResponse response;
    EXPECT_TRUE(server.Normalize(LayerNormRequest(), &response).ok());
  });
  server.backend().WaitForSubmitted(1);
  std::thread drain([&server] { server.server().Shutdown(absl::Minutes(5)); });
  const auto reported = [&] {
    MutexLock lock(mu);
    return paths;
  };
  for (int i = 0; i < 10'000 && reported().empty(); ++i) {
    grpc::ClientContext context;
    const auto watch = server.health().Watch(&context, grpc::health::v1::HealthCheckRequest());
    grpc::health::v1::HealthCheckResponse response;
    while (watch->Read(&response)) {
    }
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    std::this_thread::sleep_for(milliseconds(1));
  }
  server.backend().Open();
  running.join();
  drain.join();
  EXPECT_EQ(reported(), std::set<std::string>{"/grpc.health.v1.Health/Watch"});
}

// Clients that call without a pause, over and over: the last call of each is UNAVAILABLE and nothing else.
TEST(DrainE2eTest, NobodyIsToldCancelled) {
  for (int round = 0; round < 5; ++round) {
    TestServer server;
    Mutex mu;
    std::map<grpc::StatusCode, int> ends;
    std::vector<std::thread> callers;
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([&] {
        const auto stub = v1::Normalizer::NewStub(server.NewChannel());
        while (true) {
          grpc::ClientContext context;
          v1::NormalizeResponse response;
          const grpc::Status status = stub->Normalize(&context, LayerNormRequest(), &response);
          if (status.ok()) continue;
          MutexLock lock(mu);
          ++ends[status.error_code()];
          return;
        }
      });
    }
    std::this_thread::sleep_for(milliseconds(200));
    server.server().Shutdown(absl::Minutes(5));
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(ends[grpc::StatusCode::UNAVAILABLE], 6) << "round " << round;
  }
}

}  // namespace
}  // namespace normd::e2e
