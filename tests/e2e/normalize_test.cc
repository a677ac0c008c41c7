// Normalize, ComputeMoments and Describe through the wire.
#include <cmath>
#include <functional>
#include <set>

#include "kernels/methods.h"
#include "tests/e2e/method_cases.h"
#include "tests/e2e/test_server.h"
#include "tests/support/run_case.h"

namespace normd::e2e {
namespace {

TEST(NormalizeTest, AnswersTheNormalisedTensorAndWhatWasApplied) {
  TestServer server;
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(LayerNormRequest(2), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.outputs_size(), 1);
  const v1::Output& output = response.outputs(0);
  EXPECT_EQ(output.kind(), v1::OUTPUT_KIND_Y);
  EXPECT_EQ(output.tensor().dtype(), v1::DTYPE_F32);
  ASSERT_EQ(output.tensor().shape_size(), 2);
  EXPECT_EQ(output.tensor().shape(0), 2);
  const std::vector<float> y = Values<float>(output.tensor());
  ASSERT_EQ(y.size(), 8u);
  for (int row = 0; row < 2; ++row) {
    const double scale = row + 1;
    for (int i = 0; i < 4; ++i) {
      const double want = (i - 1.5) * scale / std::sqrt(1.25 * scale * scale + 1e-5);
      EXPECT_NEAR(y[static_cast<size_t>(row * 4 + i)], want, 1e-7);
    }
  }
  const v1::Applied& applied = response.applied();
  EXPECT_EQ(applied.method(), "layer_norm");
  EXPECT_EQ(applied.eps(), 1e-5);
  EXPECT_EQ(applied.eps_mode(), v1::EPS_MODE_INSIDE_SQRT);
  EXPECT_EQ(applied.cast_order(), v1::CAST_ORDER_AFFINE_THEN_CAST);
  EXPECT_EQ(applied.mode(), v1::MODE_INFERENCE);
  EXPECT_EQ(applied.precision(), v1::PRECISION_EXACT);
  EXPECT_EQ(applied.rounding(), v1::ROUNDING_NEAREST);
  EXPECT_EQ(applied.device(), v1::DEVICE_CPU);
  EXPECT_EQ(applied.kernel().substr(0, 4), "cpu/");
  EXPECT_EQ(applied.numerics(), kNumerics);
  EXPECT_FALSE(response.has_state());
  EXPECT_FALSE(response.has_timings());
}

TEST(NormalizeTest, SaysWhichResultsAreBounded) {
  TestServer server;
  v1::NormalizeRequest fast = LayerNormRequest();
  fast.set_precision(v1::PRECISION_FAST);
  v1::NormalizeRequest odd = LayerNormRequest();
  odd.mutable_spec()->mutable_lp_norm()->set_p(2.5);
  for (const v1::NormalizeRequest& request : {fast, odd}) {
    v1::NormalizeResponse response;
    ASSERT_TRUE(server.Normalize(request, &response).ok());
    EXPECT_EQ(response.applied().rounding(), v1::ROUNDING_BOUNDED) << request.spec().DebugString();
  }
}

TEST(NormalizeTest, GivesTheBytesOfTheKernelsForEveryMethodAndDtype) {
  TestServer server;
  const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1});
  for (const Case& base : OneCaseOfEachMethod()) {
    for (const DType dtype : kAllDTypes) {
      Case c = base;
      c.dtype = dtype;
      SCOPED_TRACE(c.Name());
      const absl::StatusOr<NormPlan> plan = PlanOf(c);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      const CaseData data = MakeData(c, *plan, 1);
      const absl::StatusOr<Outputs> want = RunCase(*backend, c, data);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      v1::NormalizeRequest request = RequestOf(c, *plan, data);
      request.add_outputs()->set_kind(v1::OUTPUT_KIND_INV_STD);
      request.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
      v1::NormalizeResponse response;
      const grpc::Status status = server.Normalize(request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      ASSERT_EQ(response.outputs_size(), 2);
      EXPECT_EQ(response.outputs(0).kind(), v1::OUTPUT_KIND_INV_STD);
      EXPECT_TRUE(response.outputs(0).tensor().data() == want->inverse_std);
      EXPECT_EQ(response.outputs(1).kind(), v1::OUTPUT_KIND_Y);
      EXPECT_TRUE(response.outputs(1).tensor().data() == want->y);
      EXPECT_EQ(response.applied().method(), Info(c.spec.method()).name);
    }
  }
}

TEST(NormalizeTest, AnswersMomentsTimingsAndResidualWhenAsked) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  SetTensor({1, 4}, {1, 1, 1, 1}, request.mutable_residual()->mutable_tensor());
  request.mutable_residual()->set_scale(2);
  request.set_want_timings(true);
  for (const v1::OutputKind kind : {v1::OUTPUT_KIND_Y, v1::OUTPUT_KIND_H, v1::OUTPUT_KIND_MOMENTS}) {
    request.add_outputs()->set_kind(kind);
  }
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.outputs_size(), 3);
  EXPECT_EQ(Values<float>(response.outputs(1).tensor()), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(response.outputs(2).kind(), v1::OUTPUT_KIND_MOMENTS);
  EXPECT_EQ(Values<double>(response.outputs(2).moments().count()), std::vector<double>{4});
  EXPECT_EQ(Values<double>(response.outputs(2).moments().mean()), std::vector<double>{4.5});
  EXPECT_EQ(Values<double>(response.outputs(2).moments().m2()), std::vector<double>{5});
  EXPECT_EQ(response.applied().residual_rounding(), v1::RESIDUAL_ROUNDING_ROUND_FIRST);
  EXPECT_GT(response.timings().decode_ns(), 0);
  EXPECT_GT(response.timings().compute_ns(), 0);
  EXPECT_GT(response.timings().encode_ns(), 0);
}

TEST(NormalizeTest, ValidateOnlyComputesNothing) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  request.set_validate_only(true);
  v1::NormalizeResponse response;
  ASSERT_TRUE(server.Normalize(request, &response).ok());
  EXPECT_EQ(response.outputs_size(), 0);
  EXPECT_EQ(response.applied().method(), "layer_norm");
  EXPECT_EQ(server.backend().submitted(), 0);
}

TEST(NormalizeTest, AnEmptyTensorGivesAnEmptyTensor) {
  TestServer server;
  for (const bool with_data : {true, false}) {
    v1::NormalizeRequest request = LayerNormRequest();
    request.mutable_x()->set_shape(0, 0);
    if (with_data) request.mutable_x()->set_data("");
    if (!with_data) request.mutable_x()->clear_data();
    v1::NormalizeResponse response;
    const grpc::Status status = server.Normalize(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.outputs_size(), 1);
    EXPECT_EQ(response.outputs(0).tensor().shape(0), 0);
    EXPECT_EQ(response.outputs(0).tensor().shape(1), 4);
    EXPECT_EQ(response.outputs(0).tensor().data(), "");
  }
}

TEST(NormalizeTest, LargeTensorsTravelWhole) {
  TestServer server;
  std::vector<float> values(2 << 20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1.0F : -1.0F;
  v1::NormalizeRequest request = RmsNormRequest(values);
  request.mutable_spec()->mutable_rms_norm()->set_eps(0);
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.outputs(0).tensor().data() == request.x().data());
}

struct Refusal {
  std::string field;
  std::string reason;
  std::function<void(v1::NormalizeRequest&)> spoil;
};

TEST(NormalizeTest, SaysAMistakeInOneSentence) {
  const std::pair<std::string, std::function<void(v1::NormalizeRequest&)>> mistakes[] = {
      {"spec.layer_norm.eps is -1; it must be finite and at least 0",
       [](auto& r) { r.mutable_spec()->mutable_layer_norm()->set_eps(-1); }},
      {"spec.layer_norm.normalized_shape is missing; give normalized_shape or axes",
       [](auto& r) { r.mutable_spec()->mutable_layer_norm()->clear_normalized_shape(); }},
      {"spec.layer_norm.axes and normalized_shape are both given; give one of them",
       [](auto& r) { r.mutable_spec()->mutable_layer_norm()->add_axes(-1); }},
      {"session is \"bn\"; write sessions/{id}", [](auto& r) { r.set_session("bn"); }},
      {"x has rank 0; the rank must be between 1 and 8", [](auto& r) { r.mutable_x()->clear_shape(); }},
      {"x is missing; give a tensor", [](auto& r) { r.clear_x(); }},
      {"mask is given, but layer_norm takes no mask; leave it out",
       [](auto& r) {
         r.mutable_mask()->add_shape(1);
         r.mutable_mask()->set_data("1");
       }},
  };
  TestServer server;
  for (const auto& [sentence, make] : mistakes) {
    v1::NormalizeRequest request = LayerNormRequest();
    make(request);
    v1::NormalizeResponse response;
    EXPECT_EQ(server.Normalize(request, &response).error_message(), sentence);
  }
}

TEST(NormalizeTest, NamesTheFieldOfEveryMistake) {
  const std::vector<Refusal> refusals = {
      {"spec", "", [](auto& r) { r.clear_target(); }},
      {"spec", "", [](auto& r) { r.mutable_spec()->Clear(); }},
      {"x", "", [](auto& r) { r.clear_x(); }},
      {"x.dtype", "", [](auto& r) { r.mutable_x()->set_dtype(v1::DTYPE_UNSPECIFIED); }},
      {"x.dtype", "", [](auto& r) { r.mutable_x()->set_dtype(static_cast<v1::DType>(99)); }},
      {"x.shape", "", [](auto& r) { r.mutable_x()->clear_shape(); }},
      {"x.shape", "RANK_OUT_OF_RANGE",
       [](auto& r) {
         r.mutable_x()->clear_shape();
         r.mutable_spec()->mutable_layer_norm()->clear_normalized_shape();  // as clients derive it from the shape
       }},
      {"x.shape", "", [](auto& r) { r.mutable_x()->mutable_shape()->Resize(9, 1); }},
      {"x.shape[0]", "", [](auto& r) { r.mutable_x()->set_shape(0, -1); }},
      {"x.shape", "", [](auto& r) { r.mutable_x()->set_shape(0, int64_t{1} << 62); }},
      {"x.data", "", [](auto& r) { r.mutable_x()->mutable_data()->pop_back(); }},
      {"x.data", "", [](auto& r) { r.mutable_x()->set_shape(0, 1 << 30); }},
      {"x.data", "", [](auto& r) { r.mutable_x()->clear_data(); }},
      {"mode", "UNKNOWN_ENUM_VALUE", [](auto& r) { r.set_mode(static_cast<v1::Mode>(7)); }},
      {"precision", "UNKNOWN_ENUM_VALUE", [](auto& r) { r.set_precision(static_cast<v1::Precision>(-1)); }},
      {"device", "UNKNOWN_ENUM_VALUE", [](auto& r) { r.set_device(static_cast<v1::Device>(4)); }},
      {"outputs[0].kind", "UNKNOWN_ENUM_VALUE", [](auto& r) { r.add_outputs(); }},
      {"outputs[1].kind", "DUPLICATE_OUTPUT",
       [](auto& r) {
         r.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
         r.add_outputs()->set_kind(v1::OUTPUT_KIND_Y);
       }},
      {"residual.tensor", "", [](auto& r) { r.mutable_residual(); }},
      {"parameters.weight.data", "",
       [](auto& r) {
         SetTensor({4}, {1, 2, 3}, r.mutable_parameters()->mutable_weight());
       }},
      {"parameters.bias", "",
       [](auto& r) {
         SetTensor({3}, {1, 2, 3}, r.mutable_parameters()->mutable_bias());
       }},
      {"spec.layer_norm.eps", "", [](auto& r) { r.mutable_spec()->mutable_layer_norm()->set_eps(-1); }},
      {"spec.layer_norm.eps_mode", "",
       [](auto& r) { r.mutable_spec()->mutable_layer_norm()->set_eps_mode(static_cast<v1::EpsMode>(9)); }},
      {"session", "SESSION_NAME_FORM", [](auto& r) { r.set_session("a"); }},
      {"step.client_id", "", [](auto& r) { r.mutable_step()->set_sequence(1); }},
  };
  TestServer server;
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.field);
    v1::NormalizeRequest request = LayerNormRequest();
    refusal.spoil(request);
    v1::NormalizeResponse response;
    const grpc::Status status = server.Normalize(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(FieldOf(status), refusal.field) << status.error_message();
    const auto info = Detail<google::rpc::ErrorInfo>(DetailsOf(status));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->domain(), "normd");
    EXPECT_EQ(info->metadata().at("field"), refusal.field);
    EXPECT_EQ(info->metadata().count("value"), 1u);
    EXPECT_NE(info->metadata().at("limit"), "");
    EXPECT_EQ(info->reason(), refusal.reason.empty() ? info->reason() : refusal.reason);
    EXPECT_NE(info->reason(), "");
  }
  server.ExpectAlive();
}

TEST(NormalizeTest, SaysByNameWhichPayloadsAreNotForIt) {
  TestServer server;
  for (const char* field : {"x.shared", "x.chunked"}) {
    v1::NormalizeRequest request = LayerNormRequest();
    if (std::string(field) == "x.shared") request.mutable_x()->mutable_shared()->set_region("r");
    if (std::string(field) == "x.chunked") request.mutable_x()->mutable_chunked()->set_size_bytes(16);
    v1::NormalizeResponse response;
    const grpc::Status status = server.Normalize(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(FieldOf(status), field);
  }
}

TEST(NormalizeTest, AnUnknownSessionIsNotFoundByName) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  request.set_session("sessions/nobody");
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  const auto resource = Detail<google::rpc::ResourceInfo>(DetailsOf(status));
  ASSERT_TRUE(resource.has_value());
  EXPECT_EQ(resource->resource_type(), "normd.v1.Session");
  EXPECT_EQ(resource->resource_name(), "sessions/nobody");
}

TEST(NormalizeTest, ParametersAreRefusedBesideASession) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  request.set_session("sessions/a");
  SetTensor({4}, {1, 2, 3, 4}, request.mutable_parameters()->mutable_weight());
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status), "parameters");
}

TEST(NormalizeTest, ACallersLongTextIsCutInErrors) {
  TestServer server;
  v1::NormalizeRequest request = LayerNormRequest();
  std::string name = "sessions/";
  for (int i = 0; i < 20'000; ++i) name += "\xc3\xa4";  // two bytes each: a cut must not split one
  request.set_session(name);
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
  EXPECT_LT(status.error_message().size(), 1100u);
  EXPECT_EQ(ReasonOf(status), "SESSION_NOT_FOUND");
}

TEST(ComputeMomentsTest, GivesTheStatisticsHalfAlone) {
  TestServer server;
  v1::ComputeMomentsRequest request;
  request.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  SetTensor({4, 2}, {1, 10, 2, 10, 3, 10, 4, 10}, request.mutable_x());
  grpc::ClientContext context;
  v1::ComputeMomentsResponse response;
  const grpc::Status status = server.normalizer().ComputeMoments(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.applied().method(), "batch_norm");
  EXPECT_EQ(Values<double>(response.moments().count()), (std::vector<double>{4, 4}));
  EXPECT_EQ(Values<double>(response.moments().mean()), (std::vector<double>{2.5, 10}));
  EXPECT_EQ(Values<double>(response.moments().m2()), (std::vector<double>{5, 0}));
}

TEST(DescribeTest, ListsMethodsLimitsAndDevices) {
  TestServer server({.max_message_bytes = 1 << 20,
                     .server_version = "1.2.3",
                     .devices = {{.name = "cpu", .usable = true, .detail = "avx"}}});
  grpc::ClientContext context;
  v1::DescribeResponse response;
  ASSERT_TRUE(server.normalizer().Describe(&context, v1::DescribeRequest(), &response).ok());
  EXPECT_EQ(response.server_version(), "1.2.3");
  EXPECT_EQ(response.numerics(), kNumerics);
  std::set<std::string> names;
  for (const v1::MethodDescription& method : response.methods()) names.insert(method.name());
  EXPECT_EQ(names.size(), std::size(kAllMethods));
  EXPECT_EQ(names.count("p_rms_norm"), 1u);
  EXPECT_EQ(response.dtypes_size(), 4);
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_TRUE(response.devices(0).usable());
  EXPECT_EQ(response.limits().max_message_bytes(), 1 << 20);
  EXPECT_EQ(response.limits().max_rank(), 8);
  EXPECT_EQ(response.durability(), v1::DURABILITY_MEMORY);
}

}  // namespace
}  // namespace normd::e2e
