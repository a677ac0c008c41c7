#include "proto/text/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace normd {
namespace {

const std::vector<std::string_view> kOptions = {"queues", "data_dir", "max_sessions", "max_regions"};
const std::vector<std::string_view> kCommands = {"layer-norm", "rms-norm", "p-rms-norm", "health"};

TEST(NearestName, FindsWhatWasMeant) {
  EXPECT_EQ(NearestName("queue", kOptions), "queues");
  EXPECT_EQ(NearestName("quueues", kOptions), "queues");
  EXPECT_EQ(NearestName("datadir", kOptions), "data_dir");
  EXPECT_EQ(NearestName("max_session", kOptions), "max_sessions");
  EXPECT_EQ(NearestName("max_regoins", kOptions), "max_regions");
  EXPECT_EQ(NearestName("heath", kCommands), "health");
}

TEST(NearestName, IgnoresCaseDashesAndUnderscores) {
  for (const char* written : {"layernorm", "LayerNorm", "layer-nrm", "layer_norm", "LAYER-NORM", "layer-mrn"}) {
    EXPECT_EQ(NearestName(written, kCommands), "layer-norm") << written;
  }
  EXPECT_EQ(NearestName("RMSNorm", kCommands), "rms-norm");
}

TEST(NearestName, FindsNothingThatIsFarOff) {
  for (const std::string& written :
       {std::string("bogus"), std::string("soft"), std::string(), std::string("--"), std::string(100000, 'q')}) {
    EXPECT_EQ(NearestName(written, kOptions), "") << written.substr(0, 9);
    EXPECT_EQ(NearestName(written, kCommands), "") << written.substr(0, 9);
  }
  EXPECT_EQ(NearestName("queue", {}), "");
}

}  // namespace
}  // namespace normd
