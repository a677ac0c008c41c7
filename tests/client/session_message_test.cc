#include "client/normctl/session_message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace normd::client {
namespace {

v1::Session SessionToShow() {
  v1::Session session;
  session.set_name("sessions/bn");
  session.set_uid("u1");
  session.set_version(7);
  session.set_frozen(true);
  session.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_FIRST);
  session.mutable_spec()->mutable_batch_norm()->set_eps(0.25);
  session.set_num_channels(2);
  session.mutable_create_time()->set_seconds(3661);
  session.set_durability(v1::DURABILITY_POWER);
  *session.mutable_state()->mutable_mean() = Tensor::F64({2}, {0.5, -1}).ToProto();
  session.mutable_state()->set_num_batches(uint64_t{1} << 60);
  return session;
}

std::string Shown(const std::vector<std::string>& arguments) {
  CommandSpec spec;
  spec.flags = ServerFlags();
  std::ostringstream out, err;
  const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
  EXPECT_TRUE(ShowSession(SessionToShow(), *args, {out, err, 80, false}).ok());
  return out.str();
}

TEST(SessionMessage, ShowsTheAttributesInEffectAndMarksTheDefaults) {
  const std::string text = Shown({});
  const auto line = [&](const std::string& name, const std::string& value) {
    std::string padded = name;
    padded.resize(26, ' ');
    EXPECT_NE(("\n" + text).find("\n" + padded + " " + value + "\n"), std::string::npos) << name << "\n" << text;
  };
  line("name", "sessions/bn");
  line("method", "batch_norm");
  line("version", "7");
  line("frozen", "true");
  line("eps", "0.25");
  line("eps_mode", "inside_sqrt (default)");
  line("layout", "channels_first");
  line("weight_offset", "0 (default)");
  line("running.momentum", "0.1 (default)");
  line("running.variance", "unbiased (default)");
  line("num_channels", "2");
  line("state.mean", "f64 [2]  0.5 -1");
  EXPECT_EQ(text.find('{'), std::string::npos) << text;
}

TEST(SessionMessage, JsonHasNumbersAndLowerCaseWords) {
  const nlohmann::json json = nlohmann::json::parse(Shown({"--json"}), nullptr, false);
  const nlohmann::json& spec = json["spec"]["batch_norm"];
  EXPECT_EQ(json["version"], 7);
  EXPECT_EQ(json["frozen"], true);
  EXPECT_EQ(json["state"]["num_batches"], uint64_t{1} << 60);
  EXPECT_EQ(json["durability"], "power");
  EXPECT_EQ(json["create_time"], "1970-01-01T01:01:01Z");
  EXPECT_EQ(spec["eps"], 0.25);
  EXPECT_EQ(spec["eps_mode"], "inside_sqrt");
  EXPECT_EQ(spec["layout"], "channels_first");
  EXPECT_EQ(spec["running"]["momentum"], 0.1);
  EXPECT_EQ(json["defaulted"],
            (std::vector<std::string>{"eps_mode", "cast_order", "weight_offset", "running.momentum",
                                      "running.momentum_of", "running.variance", "running.single_value"}));
}

}  // namespace
}  // namespace normd::client
