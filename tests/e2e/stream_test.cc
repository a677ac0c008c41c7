// NormalizeStream: order, defaults, bad items, backpressure, ends.
#include <thread>

#include "absl/time/clock.h"

#include "tests/e2e/open_stream.h"

namespace normd::e2e {
namespace {

v1::NormalizeRequest JustX(const v1::NormalizeRequest& request) {
  v1::NormalizeRequest x;
  *x.mutable_x() = request.x();
  return x;
}

TEST(StreamTest, AnswersInOrderOfArrivalWithTheBytesOfSingleCalls) {
  TestServer server;
  OpenStream stream(server);
  constexpr uint64_t kSequences[] = {7, 3, 0, 7};  // the caller's own business
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(stream.Send(kSequences[i], LayerNormRequest(static_cast<int>(i) + 1)));
  stream.HalfClose();
  for (size_t i = 0; i < 4; ++i) {
    const v1::StreamResponse response = stream.Receive();
    EXPECT_EQ(response.sequence(), kSequences[i]);
    v1::NormalizeResponse alone;
    ASSERT_TRUE(server.Normalize(LayerNormRequest(static_cast<int>(i) + 1), &alone).ok());
    EXPECT_EQ(response.reply().SerializeAsString(), alone.SerializeAsString());
  }
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, KeepsTheOrderWhenTheBackendDoesNot) {
  TestServer server;
  server.backend().Close();
  OpenStream stream(server);
  for (uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(stream.Send(i, LayerNormRequest(static_cast<int>(i))));
  server.backend().WaitForSubmitted(10);
  server.backend().Open();  // runs the last one first
  for (uint64_t i = 1; i <= 10; ++i) {
    const v1::StreamResponse response = stream.Receive();
    EXPECT_EQ(response.sequence(), i);
    EXPECT_EQ(response.reply().outputs(0).tensor().shape(0), static_cast<int64_t>(i));
  }
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, ABadItemIsAnsweredAndTheStreamGoesOn) {
  TestServer server;
  OpenStream stream(server);
  v1::NormalizeRequest bad = LayerNormRequest();
  bad.mutable_x()->mutable_data()->pop_back();
  ASSERT_TRUE(stream.Send(1, LayerNormRequest()));
  ASSERT_TRUE(stream.Send(2, bad));
  ASSERT_TRUE(stream.Send(4, LayerNormRequest()));
  stream.HalfClose();
  EXPECT_TRUE(stream.Receive().has_reply());
  const v1::StreamResponse refused = stream.Receive();
  EXPECT_EQ(refused.sequence(), 2u);
  EXPECT_EQ(refused.error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(refused.error()), "call.x.data");
  const v1::StreamResponse good = stream.Receive();
  EXPECT_EQ(good.sequence(), 4u);
  EXPECT_TRUE(good.has_reply());
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, DefaultsFillWhatACallLeavesOut) {
  TestServer server;
  OpenStream stream(server);
  v1::NormalizeRequest defaults = LayerNormRequest();
  defaults.clear_x();
  defaults.add_outputs()->set_kind(v1::OUTPUT_KIND_MEAN);
  SetTensor({4}, {1, 1, 2, 2}, defaults.mutable_parameters()->mutable_weight());
  ASSERT_TRUE(stream.SendDefaults(0, defaults));
  ASSERT_TRUE(stream.Send(1, JustX(LayerNormRequest())));
  v1::NormalizeRequest own_outputs = JustX(LayerNormRequest());
  own_outputs.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
  ASSERT_TRUE(stream.Send(2, own_outputs));
  ASSERT_TRUE(stream.Send(3, RmsNormRequest({3, 4})));  // its own spec, so not the defaults' weight of 4
  stream.HalfClose();

  const v1::StreamResponse mean = stream.Receive();
  ASSERT_TRUE(mean.has_reply()) << mean.error().message();
  ASSERT_EQ(mean.reply().outputs_size(), 1);
  EXPECT_EQ(Values<float>(mean.reply().outputs(0).tensor()), std::vector<float>{2.5});

  const v1::StreamResponse y = stream.Receive();
  ASSERT_EQ(y.reply().outputs_size(), 1);
  v1::NormalizeRequest whole = LayerNormRequest();
  *whole.mutable_parameters() = defaults.parameters();
  v1::NormalizeResponse alone;
  ASSERT_TRUE(server.Normalize(whole, &alone).ok());
  EXPECT_EQ(y.reply().outputs(0).tensor().data(), alone.outputs(0).tensor().data());

  const v1::StreamResponse rms = stream.Receive();
  ASSERT_TRUE(rms.has_reply()) << rms.error().message();
  EXPECT_EQ(rms.reply().applied().method(), "rms_norm");
  EXPECT_EQ(rms.reply().outputs(0).kind(), v1::OUTPUT_KIND_MEAN);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, BadDefaultsAreAnsweredAndTheOldOnesStay) {
  TestServer server;
  OpenStream stream(server);
  v1::NormalizeRequest defaults = LayerNormRequest();
  defaults.clear_x();
  ASSERT_TRUE(stream.SendDefaults(1, defaults));
  ASSERT_TRUE(stream.SendDefaults(2, LayerNormRequest()));  // with x
  defaults.mutable_step()->set_client_id("a");
  ASSERT_TRUE(stream.SendDefaults(3, defaults));
  defaults.clear_step();
  defaults.mutable_spec()->mutable_layer_norm()->set_eps_mode(static_cast<v1::EpsMode>(9));
  ASSERT_TRUE(stream.SendDefaults(4, defaults));
  ASSERT_TRUE(stream.Send(5, JustX(LayerNormRequest())));
  stream.HalfClose();
  const char* const fields[] = {"defaults.request.x", "defaults.request.step",
                                "defaults.request.spec.layer_norm.eps_mode"};
  for (uint64_t i = 0; i < 3; ++i) {
    const v1::StreamResponse response = stream.Receive();
    EXPECT_EQ(response.sequence(), i + 2);
    EXPECT_EQ(FieldOf(response.error()), fields[i]);
  }
  EXPECT_TRUE(stream.Receive().has_reply());
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, AnEmptyItemEndsTheStreamAfterWhatCameBefore) {
  TestServer server;
  server.backend().Close();
  OpenStream stream(server);
  ASSERT_TRUE(stream.Send(1, LayerNormRequest()));
  server.backend().WaitForSubmitted(1);
  ASSERT_TRUE(stream.Send(v1::StreamRequest()));
  server.backend().Open();
  EXPECT_TRUE(stream.Receive().has_reply());
  EXPECT_TRUE(stream.AtEnd());
  const grpc::Status status = stream.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "item");
}

TEST(StreamTest, ReadsNoFurtherThanItsWindow) {
  TestServer server({.max_stream_calls = 4});
  server.backend().Close();
  OpenStream stream(server);
  std::thread writer([&stream] {
    for (uint64_t i = 1; i <= 20; ++i) stream.Send(i, LayerNormRequest());
    stream.HalfClose();
  });
  server.backend().WaitForSubmitted(4);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(server.backend().submitted(), 4);
  server.backend().Open();
  for (uint64_t i = 1; i <= 20; ++i) EXPECT_EQ(stream.Receive().sequence(), i);
  writer.join();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(StreamTest, TrainingStepsMoveTheStateInTheOrderOfTheStream) {
  TestServer server;
  v1::CreateSessionRequest create;
  create.set_session_id("bn");
  v1::BatchNorm* const spec = create.mutable_session()->mutable_spec()->mutable_batch_norm();
  spec->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(1);
  v1::Session session;
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().CreateSession(&context, create, &session).ok());

  OpenStream stream(server);
  v1::NormalizeRequest defaults;
  defaults.set_session("sessions/bn");
  defaults.set_mode(v1::MODE_TRAINING);
  ASSERT_TRUE(stream.SendDefaults(0, defaults));
  server.backend().Close();
  for (uint64_t i = 1; i <= 8; ++i) {
    v1::NormalizeRequest call;
    const auto value = static_cast<float>(i);
    SetTensor({2, 1}, {value, 2 * value}, call.mutable_x());
    call.mutable_step()->set_client_id("me");
    call.mutable_step()->set_sequence(i);
    ASSERT_TRUE(stream.Send(i, call));
  }
  stream.HalfClose();
  server.backend().WaitForSubmitted(1);
  server.backend().Open();
  double running = 0;
  for (uint64_t i = 1; i <= 8; ++i) {
    const v1::StreamResponse response = stream.Receive();
    ASSERT_TRUE(response.has_reply()) << response.error().message();
    EXPECT_EQ(response.reply().state().version(), i);
    EXPECT_FALSE(response.reply().state().replayed());
    running = (1 - 0.1) * running + 0.1 * (1.5 * static_cast<double>(i));
  }
  EXPECT_TRUE(stream.Finish().ok());
  v1::GetSessionRequest get;
  get.set_name("sessions/bn");
  get.set_view(v1::SESSION_VIEW_FULL);
  grpc::ClientContext get_context;
  ASSERT_TRUE(server.sessions().GetSession(&get_context, get, &session).ok());
  EXPECT_NEAR(Values<double>(session.state().mean())[0], running, 1e-12);
}

TEST(StreamTest, ACallerWhoGoesAwayLeavesNothingBehind) {
  TestServer server;
  server.backend().Close();
  {
    OpenStream stream(server);
    for (uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(stream.Send(i, LayerNormRequest()));
    server.backend().WaitForSubmitted(5);
    stream.context().TryCancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  server.backend().Open();
  server.ExpectAlive();
}

}  // namespace
}  // namespace normd::e2e
