// Devices over the wire: what the backend learns of a call, and what the caller learns of what ran.
#include <gtest/gtest.h>

#include <chrono>

#include "server/base/steady_time.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

constexpr int64_t kFarSeconds = 600;

v1::NormalizeResponse Answer(TestServer& server, v1::Device device) {
  v1::NormalizeRequest request = LayerNormRequest();
  request.set_device(device);
  v1::NormalizeResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kFarSeconds));
  const grpc::Status status = server.normalizer().Normalize(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(DeviceTest, AReplyShowsDeviceKernelAndFallback) {
  TestServer server;
  EXPECT_FALSE(Answer(server, v1::DEVICE_AUTO).applied().device_fallback());
  server.backend().RunAs({.device = Device::kCpu, .kernel = "cpu/again", .fell_back = true});
  const v1::Applied applied = Answer(server, v1::DEVICE_AUTO).applied();
  EXPECT_TRUE(applied.device_fallback());
  EXPECT_EQ(applied.device(), v1::DEVICE_CPU);
  EXPECT_EQ(applied.kernel(), "cpu/again");
}

TEST(DeviceTest, ASmallCallThatNamesADeviceIsAskedForThereEachTime) {
  TestServer server;
  server.backend().RunInline();
  server.backend().RunAs({.device = Device::kCuda, .kernel = "cuda/rows"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Answer(server, v1::DEVICE_CUDA).applied().device(), v1::DEVICE_CUDA);
    EXPECT_EQ(server.backend().last_errand().device, Device::kCuda);
  }
}

TEST(DeviceTest, AMissingDeviceIsRefusedByName) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  request.set_device(v1::DEVICE_CUDA);
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "DEVICE_NOT_AVAILABLE");
}

TEST(DeviceTest, TheBackendLearnsTheDeadlineAndTheConnectionOfACall) {
  TestServer server;
  Answer(server, v1::DEVICE_AUTO);
  const Errand first = server.backend().last_errand();
  const absl::Duration left = first.deadline - SteadyNow();
  EXPECT_GT(left, absl::Seconds(kFarSeconds - 60));
  EXPECT_LE(left, absl::Seconds(kFarSeconds + 1));
  v1::NormalizeResponse response;
  EXPECT_TRUE(server.Normalize(LayerNormRequest(), &response).ok());
  EXPECT_EQ(server.backend().last_errand().deadline, absl::InfiniteFuture());
  EXPECT_EQ(server.backend().last_errand().caller, first.caller);
  const auto other = v1::Normalizer::NewStub(server.NewChannel());
  grpc::ClientContext context;
  EXPECT_TRUE(other->Normalize(&context, LayerNormRequest(), &response).ok());
  EXPECT_NE(server.backend().last_errand().caller, first.caller);
}

TEST(DeviceTest, ItemsOfAStreamHaveItsDeadlineAndConnection) {
  TestServer server;
  Answer(server, v1::DEVICE_AUTO);
  const Errand unary = server.backend().last_errand();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2 * kFarSeconds));
  const auto stream = server.normalizer().NormalizeStream(&context);
  v1::StreamRequest request;
  *request.mutable_call() = LayerNormRequest();
  ASSERT_TRUE(stream->Write(request) && stream->WritesDone());
  v1::StreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(server.backend().last_errand().caller, unary.caller);
  EXPECT_GT(server.backend().last_errand().deadline, unary.deadline + absl::Seconds(kFarSeconds / 2));
}

}  // namespace
}  // namespace normd::e2e
