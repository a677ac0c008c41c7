// Calls that came before are not parsed and planned again, however they come. Nobody sees it: the replies are those of
// the first time, byte for byte, and every call has its own tensors.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/sessions_fixture.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

// One of each kind, with parameters, other tensors and outputs among them, and some that are never kept.
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
  add([](auto& r) {
    r.mutable_spec()->mutable_layer_norm()->add_normalized_shape(2);
    SetTensor({2}, {1, 2}, r.mutable_parameters()->mutable_weight());
    SetTensor({2}, {3, -1}, r.mutable_parameters()->mutable_bias());
    r.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
    r.add_outputs()->set_kind(v1::OUTPUT_KIND_MOMENTS);
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_rms_norm();
    *r.mutable_residual()->mutable_tensor() = r.x();
    r.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
    r.add_outputs()->set_kind(v1::OUTPUT_KIND_H);
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
    SetTensor({4}, {1, 2, 3, 4}, r.mutable_parameters()->mutable_running_mean());
    SetTensor({4}, {1, 2, 3, 4}, r.mutable_parameters()->mutable_running_var());
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
    r.set_mode(v1::MODE_TRAINING);
    r.mutable_mask()->add_shape(2);
    r.mutable_mask()->add_shape(2);
    r.mutable_mask()->set_data(std::string("\1\0\1\1", 4));
  });
  add([](auto& r) {
    r.mutable_spec()->mutable_power_norm();
    r.set_mode(v1::MODE_TRAINING);
  });
  return requests;
}

std::string WithoutTimings(v1::NormalizeResponse response) {
  response.clear_timings();
  return response.SerializeAsString();
}

v1::NormalizeResponse Answer(TestServer& server, const v1::NormalizeRequest& request) {
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message() << request.spec().ShortDebugString();
  return response;
}

TEST(CallCacheTest, RepeatedCallsGetTheSameBytesAloneOnAStreamAndInABatch) {
  TestServer server;
  server.backend().RunInline();
  v1::BatchNormalizeRequest batch;
  std::vector<std::string> first;
  for (const v1::NormalizeRequest& request : Requests()) {
    *batch.add_items() = request;
    first.push_back(WithoutTimings(Answer(server, request)));
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(WithoutTimings(Answer(server, request)), first.back()) << request.spec().ShortDebugString();
    }
  }
  OpenStream stream(server);
  for (int i = 0; i < batch.items_size(); ++i) {
    ASSERT_TRUE(stream.Send(static_cast<uint64_t>(i), batch.items(i)));
    const v1::StreamResponse response = stream.Receive();
    EXPECT_EQ(response.sequence(), static_cast<uint64_t>(i));
    EXPECT_EQ(WithoutTimings(response.reply()), first[static_cast<size_t>(i)]) << "on a stream, " << i;
  }
  v1::BatchNormalizeResponse together;
  grpc::ClientContext context;
  ASSERT_TRUE(server.normalizer().BatchNormalize(&context, batch, &together).ok());
  for (int i = 0; i < batch.items_size(); ++i) {
    EXPECT_EQ(WithoutTimings(together.items(i).response()), first[static_cast<size_t>(i)]) << "in a batch, " << i;
  }
}

// What is learned from a batch or a stream serves the others.
TEST(CallCacheTest, AreLearnedFromBatchesAndStreams) {
  TestServer one, other;
  one.backend().RunInline();
  other.backend().RunInline();
  for (const v1::NormalizeRequest& request : Requests()) {
    const std::string want = WithoutTimings(Answer(other, request));
    v1::BatchNormalizeRequest batch;
    for (int i = 0; i < 3; ++i) *batch.add_items() = request;
    for (int time = 0; time < 2; ++time) {
      v1::BatchNormalizeResponse response;
      grpc::ClientContext context;
      ASSERT_TRUE(one.normalizer().BatchNormalize(&context, batch, &response).ok());
      for (const auto& item : response.items()) EXPECT_EQ(WithoutTimings(item.response()), want);
    }
    EXPECT_EQ(WithoutTimings(Answer(one, request)), want);
  }
}

TEST(CallCacheTest, TakeTheirOwnTensors) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest request = RmsNormRequest({3, 4});
  SetTensor({2}, {1, 1}, request.mutable_parameters()->mutable_weight());
  for (int i = 0; i < 3; ++i) Answer(server, request);
  request.mutable_x()->clear_shape();
  request.mutable_x()->clear_data();
  SetTensor({1, 2}, {6, 8}, request.mutable_x());
  request.mutable_parameters()->mutable_weight()->clear_shape();
  SetTensor({2}, {1, 10}, request.mutable_parameters()->mutable_weight());
  const std::vector<float> y = Values<float>(Answer(server, request).outputs(0).tensor());
  EXPECT_NEAR(y[0], 6 / std::sqrt(50.0), 1e-6);
  EXPECT_NEAR(y[1], 80 / std::sqrt(50.0), 1e-5);
}

TEST(CallCacheTest, OfTheWrongSizeAreRefusedAsEver) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest request = RmsNormRequest({3, 4});
  for (int i = 0; i < 3; ++i) Answer(server, request);
  request.mutable_x()->set_data("123456789");
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "x.data");
  OpenStream stream(server);
  ASSERT_TRUE(stream.Send(1, request));
  EXPECT_EQ(stream.Receive().error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  server.ExpectAlive();
}

TEST(CallCacheTest, OfABatchFailWithoutTheOthers) {
  TestServer server;
  server.backend().RunInline();
  v1::BatchNormalizeRequest batch;
  for (int i = 0; i < 3; ++i) *batch.add_items() = RmsNormRequest({3, 4});
  v1::BatchNormalizeResponse response;
  for (int time = 0; time < 3; ++time) {
    grpc::ClientContext context;
    ASSERT_TRUE(server.normalizer().BatchNormalize(&context, batch, &response).ok());
    EXPECT_EQ(response.items(1).has_response(), time != 2);
    EXPECT_TRUE(response.items(2).has_response());
    if (time == 1) batch.mutable_items(1)->mutable_x()->set_data("123");
  }
  EXPECT_EQ(response.items(1).status().code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A stream's defaults are part of its calls: the same bytes are another call under others.
TEST(CallCacheTest, OfAStreamAreThoseUnderItsDefaults) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest call = RmsNormRequest({3, 4});
  call.clear_spec();
  OpenStream stream(server);
  for (const double weight : {1.0, 2.0, 5.0}) {
    v1::NormalizeRequest defaults;
    defaults.mutable_spec()->mutable_scale_norm();
    SetTensor({1}, {static_cast<float>(weight)}, defaults.mutable_parameters()->mutable_weight());
    ASSERT_TRUE(stream.SendDefaults(1, defaults));
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(stream.Send(2 + i, call));
      const v1::StreamResponse response = stream.Receive();
      ASSERT_TRUE(response.has_reply()) << response.ShortDebugString();
      EXPECT_NEAR(Values<float>(response.reply().outputs(0).tensor())[0], weight * 0.6, 1e-3);
    }
  }
}

TEST(CallCacheTest, OfTwoStreamsAreThoseUnderTheDefaultsOfEach) {
  TestServer server;
  server.backend().RunInline();
  v1::NormalizeRequest call = RmsNormRequest({3, 4});
  call.clear_spec();
  const auto defaults = [](float weight) {
    v1::NormalizeRequest request;
    request.mutable_spec()->mutable_scale_norm();
    SetTensor({1}, {weight}, request.mutable_parameters()->mutable_weight());
    return request;
  };
  const auto ask = [&](OpenStream& stream, double weight) {
    ASSERT_TRUE(stream.Send(2, call));
    const v1::StreamResponse response = stream.Receive();
    ASSERT_TRUE(response.has_reply()) << response.ShortDebugString();
    EXPECT_NEAR(Values<float>(response.reply().outputs(0).tensor())[0], weight * 0.6, 1e-3);
  };
  OpenStream kept(server);
  ASSERT_TRUE(kept.SendDefaults(1, defaults(3)));
  for (int weight = 10; weight < 13; ++weight) {
    OpenStream ended(server);
    ASSERT_TRUE(ended.SendDefaults(1, defaults(static_cast<float>(weight))));
    for (int i = 0; i < 3; ++i) {
      ask(ended, weight);
      ask(kept, 3);
    }
    ended.HalfClose();
    EXPECT_TRUE(ended.Finish().ok());
  }
}

using SessionCallCacheTest = SessionsTest;

TEST_F(SessionCallCacheTest, SeeTheSessionAsItIs) {
  server_.backend().RunInline();
  v1::NormalizeRequest inference;
  inference.set_session("sessions/bn");
  SetTensor({2, 2}, {1, 10, 3, 30}, inference.mutable_x());
  std::string before;
  for (uint64_t step = 1; step <= 4; ++step) {
    const v1::NormalizeResponse first = Answer(server_, inference);
    EXPECT_EQ(first.state().version(), first.applied().session_version());
    EXPECT_EQ(first.state().num_batches(), step - 1);
    EXPECT_FALSE(first.state().applied());
    EXPECT_NE(first.outputs(0).tensor().data(), before) << "the statistics have moved";
    before = first.outputs(0).tensor().data();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Answer(server_, inference).SerializeAsString(), first.SerializeAsString());
    EXPECT_TRUE(Answer(server_, Step(step)).state().applied());
  }
}

TEST_F(SessionCallCacheTest, OfATrainerWithoutStepsAreStepsEachTime) {
  server_.backend().RunInline();
  v1::NormalizeRequest training = Step(1);
  training.clear_step();
  for (uint64_t i = 1; i <= 4; ++i) {
    const v1::NormalizeResponse response = Answer(server_, training);
    EXPECT_TRUE(response.state().applied());
    EXPECT_EQ(response.state().num_batches(), i);
  }
  EXPECT_EQ(Get("bn").state().num_batches(), 4);
}

// What a step came to is said of that step alone.
TEST_F(SessionCallCacheTest, SayOfEachStepWhetherItWasApplied) {
  server_.backend().RunInline();
  v1::NormalizeRequest good = Step(1);
  good.clear_step();
  v1::NormalizeRequest bad = good;
  bad.mutable_x()->clear_shape();
  SetTensor({2, 2}, {1, 10, std::nanf(""), 30}, bad.mutable_x());
  uint64_t batches = 0;
  for (int i = 0; i < 8; ++i) {
    const bool applied = i % 3 == 0;
    const v1::StateResult state = Answer(server_, applied ? good : bad).state();
    batches += applied ? 1 : 0;
    EXPECT_EQ(state.applied(), applied) << i;
    EXPECT_EQ(state.reason(), applied ? v1::REASON_APPLIED : v1::REASON_NON_FINITE) << i;
    EXPECT_EQ(state.num_batches(), batches) << i;
    EXPECT_EQ(Get("bn").state().num_batches(), batches) << i;
  }
}

TEST_F(SessionCallCacheTest, SeeNewParametersAndAnotherSessionOfTheName) {
  server_.backend().RunInline();
  v1::NormalizeRequest inference;
  inference.set_session("sessions/bn");
  SetTensor({1, 2}, {1, 10}, inference.mutable_x());
  for (int i = 0; i < 3; ++i) Answer(server_, inference);
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/bn");
  SetTensor({2}, {3, 4}, update.mutable_session()->mutable_parameters()->mutable_weight());
  update.mutable_update_mask()->add_paths("parameters.weight");
  v1::Session session;
  ASSERT_TRUE(Update(update, &session).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(Values<float>(Answer(server_, inference).outputs(0).tensor())[0], 3, 1e-4);
  }
  v1::DeleteSessionRequest deletion;
  deletion.set_name("sessions/bn");
  google::protobuf::Empty empty;
  grpc::ClientContext context;
  ASSERT_TRUE(server_.sessions().DeleteSession(&context, deletion, &empty).ok());
  v1::NormalizeResponse response;
  EXPECT_EQ(server_.Normalize(inference, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::CreateSessionRequest again = BatchNormSession("bn");
  again.mutable_session()->mutable_spec()->clear_batch_norm();
  again.mutable_session()->mutable_spec()->mutable_rms_norm();
  again.mutable_session()->clear_num_channels();
  ASSERT_TRUE(Create(again, &session).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Answer(server_, inference).applied().method(), "rms_norm");
}

TEST_F(SessionCallCacheTest, AreMomentsToo) {
  server_.backend().RunInline();
  v1::ComputeMomentsRequest request;
  request.set_session("sessions/bn");
  SetTensor({2, 2}, {1, 10, 3, 30}, request.mutable_x());
  std::string first;
  for (int i = 0; i < 3; ++i) {
    v1::ComputeMomentsResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(server_.normalizer().ComputeMoments(&context, request, &response).ok());
    EXPECT_EQ(Values<double>(response.moments().mean()), (std::vector<double>{2, 20}));
    if (i == 0) first = response.SerializeAsString();
    EXPECT_EQ(response.SerializeAsString(), first);
  }
}

}  // namespace
}  // namespace normd::e2e
