#include "client/normctl/state_dict.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "google/protobuf/util/message_differencer.h"

namespace normd::client {
namespace {

using google::protobuf::util::MessageDifferencer;

// Values that any arithmetic would change.
const std::vector<double> kOdd = {0.1, -0.0, 5e-324, 1.7976931348623157e308, 1.0 / 3};
const std::vector<double> kPositive = {1e-300, 0, 2.2250738585072014e-308, 3.0000000000000004, 1e300};

v1::Session StateDictSession() {
  v1::Session session;
  session.set_name("sessions/bn");
  session.set_version(7);
  v1::BatchNorm& spec = *session.mutable_spec()->mutable_batch_norm();
  spec.set_eps(1e-5);
  spec.set_layout(v1::LAYOUT_CHANNELS_FIRST);
  spec.mutable_running()->set_momentum(0.1 + 1e-17);
  session.set_num_channels(5);
  session.set_default_dtype(v1::DTYPE_BF16);
  session.set_numerics("exact-1");
  (*session.mutable_labels())["team"] = "a \"b\"";
  *session.mutable_parameters()->mutable_weight() =
      Tensor::Rounded(v1::DTYPE_F16, {5}, std::vector<double>{1, 2, 3, 4, 5}).ToProto();
  *session.mutable_parameters()->mutable_bias() = Tensor::F32({5}, {1.5f, -2, 3, 4, 0.1f}).ToProto();
  *session.mutable_state()->mutable_mean() = Tensor::F64({5}, kOdd).ToProto();
  *session.mutable_state()->mutable_var() = Tensor::F64({5}, kPositive).ToProto();
  session.mutable_state()->set_num_batches(12);
  return session;
}

absl::StatusOr<v1::Session> Read(const std::string& bytes, absl::string_view prefix = "") {
  const absl::StatusOr<Safetensors> file = ParseSafetensors(bytes);
  return file.ok() ? FromStateDict(*file, {std::string(prefix)}) : file.status();
}

// What a state_dict keeps of a session.
v1::Session Kept(v1::Session session) {
  session.clear_name();
  session.clear_version();
  session.clear_numerics();
  return session;
}

TEST(StateDict, ComesBackBitForBit) {
  for (const char* prefix : {"", "layer1.bn1."}) {
    const absl::StatusOr<std::string> bytes = ToStateDict(StateDictSession(), prefix, false);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<v1::Session> back = Read(*bytes, prefix);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*back, Kept(StateDictSession()))) << back->DebugString();
    EXPECT_EQ(back->state().mean().data(), StateDictSession().state().mean().data());  // -0.0 equals 0.0, its bits not
  }
}

TEST(StateDict, HasTheNamesDTypesAndShapesOfTorch) {
  const std::string bytes = *ToStateDict(StateDictSession(), "m.", false);
  const absl::StatusOr<Safetensors> file = ParseSafetensors(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors.size(), 5u);
  EXPECT_EQ(file->tensors.at("m.weight").dtype, "F16");
  EXPECT_EQ(file->tensors.at("m.bias").dtype, "F32");
  EXPECT_EQ(file->tensors.at("m.running_mean").dtype, "F64");
  EXPECT_EQ(file->tensors.at("m.running_var").shape, std::vector<int64_t>{5});
  EXPECT_EQ(file->tensors.at("m.num_batches_tracked").dtype, "I64");
  EXPECT_TRUE(file->tensors.at("m.num_batches_tracked").shape.empty());
  EXPECT_EQ(file->metadata.at("format"), "pt");
  EXPECT_EQ(file->metadata.at("normd.num_channels"), "5");
  EXPECT_EQ(file->metadata.at("normd.numerics"), "exact-1");
  EXPECT_EQ(file->metadata.at("normd.labels"), R"({"team":"a \"b\""})");
}

TEST(StateDict, RoundsStatisticsWhenAskedTo) {
  const std::string bytes = *ToStateDict(StateDictSession(), "", true);
  const absl::StatusOr<Safetensors> file = ParseSafetensors(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("running_mean").dtype, "F32");
  EXPECT_EQ(file->tensors.at("weight").dtype, "F16");
  const absl::StatusOr<v1::Session> back = Read(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  const std::vector<double> mean = Tensor::FromProto(back->state().mean())->ToDoubles();
  EXPECT_EQ(mean[0], static_cast<double>(0.1f));
  EXPECT_TRUE(std::isinf(mean[3]));
}

TEST(StateDict, PowerNormKeepsPhi) {
  v1::Session session;
  session.mutable_spec()->mutable_power_norm();
  session.set_num_channels(2);
  *session.mutable_state()->mutable_phi() = Tensor::F64({2}, {0.1, 3}).ToProto();
  session.mutable_state()->set_num_batches(9);
  const std::string bytes = *ToStateDict(session, "", false);
  EXPECT_EQ(ParseSafetensors(bytes)->tensors.count("running_phi"), 1u);
  EXPECT_TRUE(MessageDifferencer::Equals(*Read(bytes), session));
}

TEST(StateDict, ALayerWithoutTensorsIsItsMetadata) {
  v1::Session session;
  session.mutable_spec()->mutable_lp_norm()->set_order(1);
  const absl::StatusOr<v1::Session> back = Read(*ToStateDict(session, "", false));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*back, session));
}

TEST(StateDict, MoreBatchesThanI64HoldsAreRefused) {
  v1::Session session = StateDictSession();
  session.mutable_state()->set_num_batches(uint64_t{1} << 63);
  const absl::Status status = ToStateDict(session, "", false).status();
  EXPECT_NE(status.message().find("num_batches_tracked is 9223372036854775808"), absl::string_view::npos) << status;
  EXPECT_FALSE(ToStateDict(StateDictSession(), "\xff.", false).ok());
}

// A file of another program: tensors by name, each with its bytes.
struct Part {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string data;
};
std::string FileOf(const std::vector<Part>& parts, std::map<std::string, std::string> metadata = {}) {
  Safetensors file;
  file.metadata = std::move(metadata);
  for (const Part& part : parts) file.tensors[part.name] = {part.dtype, part.shape, part.data};
  return *WriteSafetensors(file);
}
std::string F32(const std::vector<float>& values) { return Tensor::F32({}, values).data; }
std::string I64(int64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

TEST(StateDict, ReadsWhatTorchWrites) {
  const std::string bytes = FileOf({{"bn.bias", "F32", {2}, F32({0, 0.5f})},
                                    {"bn.num_batches_tracked", "I64", {}, I64(3)},
                                    {"bn.running_mean", "F32", {2}, F32({0.1f, 2})},
                                    {"bn.running_var", "F32", {2}, F32({1, 3.5f})},
                                    {"bn.weight", "F32", {2}, F32({1, 1})},
                                    {"fc.weight", "U8", {3}, "abc"}},
                                   {{"format", "pt"}});
  absl::StatusOr<v1::Session> session = Read(bytes, "bn.");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_FALSE(session->has_spec());
  EXPECT_EQ(session->state().num_batches(), 3u);
  EXPECT_EQ(Tensor::FromProto(session->state().mean())->ToDoubles(), (std::vector<double>{0.1f, 2}));
  EXPECT_EQ(session->state().mean().dtype(), v1::DTYPE_F64);
  session->mutable_spec()->mutable_batch_norm();
  ASSERT_TRUE(ResolveChannels(*session).ok());
  EXPECT_EQ(session->num_channels(), 2);
}

TEST(StateDict, WidensHalvesExactly) {
  const Tensor half = Tensor::Rounded(v1::DTYPE_F16, {2}, std::vector<double>{5.9604644775390625e-08, 65504});
  const Tensor brain = Tensor::Rounded(v1::DTYPE_BF16, {2}, std::vector<double>{1e-40, 3.3895313892515355e38});
  const absl::StatusOr<v1::Session> session =
      Read(FileOf({{"running_mean", "F16", {2}, half.data}, {"running_var", "BF16", {1, 2, 1, 1}, brain.data}}));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Tensor::FromProto(session->state().mean())->ToDoubles(), half.ToDoubles());
  EXPECT_EQ(Tensor::FromProto(session->state().var())->ToDoubles(), brain.ToDoubles());
  EXPECT_EQ(session->state().var().shape_size(), 1);
  EXPECT_EQ(session->state().num_batches(), 0u);  // num_batches_tracked is missing
}

void ExpectStateDictRefused(const std::vector<Part>& parts, const std::string& part,
                            const std::map<std::string, std::string>& metadata = {}) {
  const absl::StatusOr<v1::Session> session = Read(FileOf(parts, metadata));
  ASSERT_FALSE(session.ok()) << part;
  EXPECT_NE(session.status().message().find(part), absl::string_view::npos) << session.status();
}

TEST(StateDict, RefusesTensorsThatDisagree) {
  const Part mean = {"running_mean", "F32", {2}, F32({1, 2})}, var = {"running_var", "F32", {2}, F32({1, 2})};
  ExpectStateDictRefused({mean, {"running_var", "F32", {3}, F32({1, 2, 3})}},
                         "running_var has 3 values, but running_mean has 2");
  ExpectStateDictRefused({mean, var, {"weight", "F32", {1}, F32({1})}}, "running_mean has 2 values, but weight has 1");
  ExpectStateDictRefused({mean}, "running_var is missing");
  ExpectStateDictRefused({var}, "running_mean is missing");
  ExpectStateDictRefused({mean, {"running_var", "F32", {2, 2}, F32({1, 2, 3, 4})}}, "running_var has shape [2, 2]");
  ExpectStateDictRefused({{"running_mean", "I64", {}, I64(1)}, var}, "running_mean.dtype is I64");
  ExpectStateDictRefused({mean, var, {"num_batches_tracked", "I64", {}, I64(-1)}},
                         "num_batches_tracked is -1; it must be at least 0");
  ExpectStateDictRefused({mean, var, {"num_batches_tracked", "F32", {}, F32({1})}},
                         "num_batches_tracked has dtype F32");
  ExpectStateDictRefused({mean, var, {"num_batches_tracked", "I64", {2}, I64(1) + I64(1)}},
                         "num_batches_tracked has 2 values");
  ExpectStateDictRefused({{"weight", "F32", {1}, F32({1})}, {"num_batches_tracked", "I64", {}, I64(1)}},
                         "has no running statistics");
  ExpectStateDictRefused({}, "no weight, running_mean or the like: the file has no tensors");
  ExpectStateDictRefused({{"bn.weight", "F32", {1}, F32({1})}}, "it has bn.weight");
}

TEST(StateDict, ReadsTheNamesOfOtherPrograms) {
  const std::vector<std::vector<std::string>> programs = {
      {"gamma", "beta", "moving_mean", "moving_variance"},          // Keras, TensorFlow, MindSpore
      {"gamma:0", "beta:0", "moving_mean:0", "moving_variance:0"},  // variables of TensorFlow
      {"gamma", "beta", "moving_mean", "moving_var"},               // MXNet
      {"scale", "bias", "mean", "var"},                             // Flax
      {"weight", "bias", "_mean", "_variance"}};                    // Paddle
  for (const std::vector<std::string>& names : programs) {
    const absl::StatusOr<v1::Session> session = Read(FileOf({{"bn/" + names[0], "F32", {2}, F32({1, 2})},
                                                             {"bn/" + names[1], "F32", {2}, F32({3, 4})},
                                                             {"bn/" + names[2], "F32", {2}, F32({5, 6})},
                                                             {"bn/" + names[3], "F32", {2}, F32({7, 8})}}),
                                                     "bn/");
    ASSERT_TRUE(session.ok()) << names[0] << session.status();
    EXPECT_EQ(Tensor::FromProto(session->parameters().weight())->ToDoubles(), (std::vector<double>{1, 2}));
    EXPECT_EQ(Tensor::FromProto(session->parameters().bias())->ToDoubles(), (std::vector<double>{3, 4}));
    EXPECT_EQ(Tensor::FromProto(session->state().mean())->ToDoubles(), (std::vector<double>{5, 6}));
    EXPECT_EQ(Tensor::FromProto(session->state().var())->ToDoubles(), (std::vector<double>{7, 8}));
  }
}

TEST(StateDict, ATensorByTwoNamesIsRefused) {
  const Part mean = {"running_mean", "F32", {1}, F32({1})}, var = {"running_var", "F32", {1}, F32({1})};
  const Part weight = {"weight", "F32", {1}, F32({1})}, bias = {"bias", "F32", {1}, F32({1})};
  const auto named = [](const char* name) { return Part{name, "F32", {1}, F32({2})}; };
  ExpectStateDictRefused({weight, named("gamma")}, "weight and gamma are both the layer's weight");
  ExpectStateDictRefused({weight, named("scale")}, "weight and scale are both the layer's weight");
  ExpectStateDictRefused({bias, named("beta")}, "bias and beta are both the layer's bias");
  ExpectStateDictRefused({mean, var, named("moving_mean")}, "running_mean and moving_mean are both");
  ExpectStateDictRefused({mean, var, named("moving_variance")}, "running_var and moving_variance are both");
  ExpectStateDictRefused({named("gamma"), named("gamma:0")}, "gamma and gamma:0 are both");
  ExpectStateDictRefused({named("moving_mean")}, "running_var is missing, but there is moving_mean");
  ExpectStateDictRefused({named("gamma"), {"beta", "F32", {2}, F32({1, 2})}}, "beta has 2 values, but gamma has 1");
}

// Flax keeps parameters and running statistics in two collections.
TEST(StateDict, ALayerMayBeBehindTwoPrefixes) {
  const std::string bytes = FileOf({{"params.bn.scale", "F32", {1}, F32({2})},
                                    {"batch_stats.bn.mean", "F32", {1}, F32({3})},
                                    {"batch_stats.bn.var", "F32", {1}, F32({4})}});
  const absl::StatusOr<v1::Session> session =
      FromStateDict(*ParseSafetensors(bytes), {"params.bn.", "batch_stats.bn."});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(session->parameters().has_weight());
  EXPECT_EQ(Tensor::FromProto(session->state().var())->ToDoubles(), (std::vector<double>{4}));
}

TEST(StateDict, RefusesMetadataOfAnotherForm) {
  const std::vector<Part> weight = {{"weight", "F32", {1}, F32({1})}};
  ExpectStateDictRefused(weight, "normd.spec", {{"normd.spec", "{"}});
  ExpectStateDictRefused(weight, "normd.spec", {{"normd.spec", R"({"soft_norm":{}})"}});
  ExpectStateDictRefused(weight, "normd.num_channels", {{"normd.num_channels", "-1"}});
  ExpectStateDictRefused(weight, "normd.num_channels is many; it must be a whole number",
                         {{"normd.num_channels", "many"}});
  ExpectStateDictRefused(weight, "normd.default_dtype is f8; it must be f32", {{"normd.default_dtype", "f8"}});
  ExpectStateDictRefused(weight, "normd.labels", {{"normd.labels", "[]"}});
  ExpectStateDictRefused(weight, "normd.labels", {{"normd.labels", R"({"a":1})"}});
}

TEST(StateDict, ChannelsComeFromTheTensorsAndMustAgree) {
  v1::Session session = StateDictSession();
  session.set_num_channels(4);
  EXPECT_EQ(ResolveChannels(session).message(), "weight has 5 values, but __metadata__.normd.num_channels is 4");
  session.mutable_spec()->mutable_group_norm()->set_affine_per_group(true);  // one value a group
  EXPECT_TRUE(ResolveChannels(session).ok());
  EXPECT_EQ(session.num_channels(), 4);
  session.mutable_spec()->mutable_layer_norm();
  EXPECT_TRUE(ResolveChannels(session).ok());
  EXPECT_EQ(session.num_channels(), 0);
}

}  // namespace
}  // namespace normd::client
