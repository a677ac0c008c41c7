// Requests that came before take a shorter way through the server. Nobody sees it: the replies are those of the long
// way, byte for byte.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

// One of each kind whose repetition is plain, with f32 and f64 among them, and some that never are.
std::vector<v1::NormalizeRequest> Requests() {
  std::vector<v1::NormalizeRequest> requests = {LayerNormRequest(3), RmsNormRequest({1, 2, 3, 4, 5})};
  const std::vector<float> values = {1, -2, 3, 4, 5, 6, -7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const auto add = [&](auto set) {
    v1::NormalizeRequest& request = requests.emplace_back();
    SetTensor({2, 4, 2}, values, request.mutable_x());
    set(request);
  };
  add([](auto& r) { r.mutable_spec()->mutable_instance_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST); });
  add([](auto& r) {
    r.mutable_spec()->mutable_group_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    r.mutable_spec()->mutable_group_norm()->set_num_groups(2);
  });
  add([](auto& r) { r.mutable_spec()->mutable_p_rms_norm()->set_p(0.5); });
  add([](auto& r) { r.mutable_spec()->mutable_scale_norm(); });
  add([](auto& r) { r.mutable_spec()->mutable_lp_norm()->set_order(2); });
  add([](auto& r) {
    r.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
    r.set_mode(v1::MODE_TRAINING);
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_rms_norm();
    r.set_want_timings(true);
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_rms_norm();
    r.set_validate_only(true);
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_rms_norm();
    r.add_outputs()->set_kind(v1::OUTPUT_KIND_INV_STD);
  });
  return requests;
}

TEST(PlainRequestsTest, AreAnsweredAsTheFirstTime) {
  TestServer server;
  server.backend().RunInline();
  for (const v1::NormalizeRequest& request : Requests()) {
    std::string first;
    for (int i = 0; i < 3; ++i) {
      v1::NormalizeResponse response;
      const grpc::Status status = server.Normalize(request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message() << request.spec().ShortDebugString();
      response.clear_timings();
      if (i == 0) first = response.SerializeAsString();
      EXPECT_EQ(response.SerializeAsString(), first) << request.spec().ShortDebugString();
    }
  }
}

TEST(PlainRequestsTest, TakeTheirOwnX) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest request = RmsNormRequest({3, 4});
  v1::NormalizeResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server.Normalize(request, &response).ok());
  SetTensor({1, 2}, {6, 8}, request.mutable_x());
  request.mutable_x()->mutable_shape()->Clear();
  request.mutable_x()->add_shape(1);
  request.mutable_x()->add_shape(2);
  ASSERT_TRUE(server.Normalize(request, &response).ok());
  const std::vector<float> y = Values<float>(response.outputs(0).tensor());
  EXPECT_NEAR(y[0], 6 / std::sqrt(50.0), 1e-6);
  EXPECT_NEAR(y[1], 8 / std::sqrt(50.0), 1e-6);
}

TEST(PlainRequestsTest, OfTheWrongSizeAreRefusedAsEver) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest request = RmsNormRequest({3, 4});
  v1::NormalizeResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server.Normalize(request, &response).ok());
  request.mutable_x()->set_data("123456789");
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "x.data");
  server.ExpectAlive();
}

}  // namespace
}  // namespace normd::e2e
