#include "client/normctl/json_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "client/cpp/tensor.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

TEST(JsonMessage, TensorsComeBackBitForBit) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0.1, -0.0, 5e-324, 1.7976931348623157e308, 3, inf, -inf, 1.0 / 3};
  for (const DType dtype : {v1::DTYPE_F64, v1::DTYPE_F32, v1::DTYPE_F16, v1::DTYPE_BF16}) {
    v1::Moments moments;
    *moments.mutable_mean() = Tensor::Rounded(dtype, {2, 4}, values).ToProto();
    const Json json = Json::parse(MessageJson(moments).dump());
    const absl::StatusOr<v1::Tensor> back = TensorFromJson("mean", json["mean"]);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->SerializeAsString(), moments.mean().SerializeAsString());
  }
  const auto nan = TensorFromJson("a", {{"dtype", "f64"}, {"shape", {1}}, {"values", {"NaN"}}});
  ASSERT_TRUE(nan.ok()) << nan.status();
  EXPECT_TRUE(std::isnan(Tensor::FromProto(*nan)->ToDoubles()[0]));
}

TEST(JsonMessage, EnumsAreLowerCaseWordsAndNumbersAreNumbers) {
  v1::DescribeResponse describe;
  describe.set_durability(v1::DURABILITY_PROCESS);
  describe.mutable_limits()->set_max_tensor_bytes(int64_t{1} << 62);
  describe.add_dtypes(v1::DTYPE_BF16);
  describe.add_methods()->set_default_eps_mode(v1::EPS_MODE_ADD_TO_ROOT);
  const Json json = MessageJson(describe);
  EXPECT_EQ(json["durability"], "process");
  EXPECT_EQ(json["limits"]["max_tensor_bytes"], int64_t{1} << 62);
  EXPECT_EQ(json["limits"]["max_rank"], 0);
  EXPECT_EQ(json["dtypes"], (std::vector<std::string>{"bf16"}));
  EXPECT_EQ(json["methods"][0]["default_eps_mode"], "add_to_root");
  EXPECT_EQ(json["devices"], Json::array());
}

TEST(JsonMessage, FieldsThatAreNotSetAndDefaultEnumsAreLeftOut) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_lp_norm()->set_p(std::numeric_limits<double>::infinity());
  request.mutable_max_staleness()->set_nanos(500000000);
  const Json json = MessageJson(request);
  EXPECT_EQ(json["spec"], (Json{{"lp_norm", {{"p", "Infinity"}, {"order", 0}, {"axes", Json::array()}}}}));
  EXPECT_EQ(json["max_staleness"], "0.500s");
  EXPECT_FALSE(json.contains("x"));
  EXPECT_FALSE(json.contains("mode"));
  EXPECT_FALSE(json.contains("expected_version"));
}

TEST(JsonMessage, MapsAreObjects) {
  v1::Session session;
  (*session.mutable_labels())["team"] = "vision";
  EXPECT_EQ(MessageJson(session)["labels"], (Json{{"team", "vision"}}));
}

TEST(JsonMessage, WhatIsNoTensorIsNamed) {
  const Json good = {{"dtype", "f64"}, {"shape", {2}}, {"values", {1, 2}}};
  ASSERT_TRUE(TensorFromJson("m", good).ok());
  const auto refused = [&](const char* member, const Json& value) {
    Json json = good;
    json[member] = value;
    return std::string(TensorFromJson("m", json).status().message());
  };
  EXPECT_EQ(TensorFromJson("m", Json()).status().message(),
            "m is null; it must be an object of dtype, shape and values");
  EXPECT_EQ(refused("shape", 2),
            "m is {\"dtype\":\"f64\",\"shape\":2,\"values\":[1,2]}; it must be an object of dtype, shape and values");
  EXPECT_EQ(refused("dtype", "f8"), "m.dtype is f8; it must be f32, f16, bf16 or f64");
  EXPECT_EQ(refused("shape", {-2}), "m.shape[0] is -2; it must be a whole number, at least 0");
  EXPECT_EQ(refused("shape", {3}), "m has 2 values, which do not fill shape [3]");
  EXPECT_EQ(refused("shape", {4294967296, 4294967296}),
            "m has 2 values, which do not fill shape [4294967296, 4294967296]");
  EXPECT_EQ(refused("values", {1, "two"}), "m.values[1] is \"two\"; it must be a number");
  EXPECT_EQ(refused("values", {1, nullptr}), "m.values[1] is null; it must be a number");
}

}  // namespace
}  // namespace normd::client
