#include "client/cli/did_you_mean.h"

#include <gtest/gtest.h>

#include <vector>

namespace normd::client {
namespace {

const std::vector<std::string> kNames = {"layer-norm", "rms-norm", "p-rms-norm", "health"};

TEST(DidYouMean, FindsWhatWasMeant) {
  for (const char* written : {"layernorm", "LayerNorm", "layer-nrm", "layer_norm", "LAYER-NORM", "layer-mrn"}) {
    EXPECT_EQ(DidYouMean(written, kNames), ": did you mean layer-norm?") << written;
  }
  EXPECT_EQ(DidYouMean("RMSNorm", kNames), ": did you mean rms-norm?");
  EXPECT_EQ(DidYouMean("heath", kNames), ": did you mean health?");
}

TEST(DidYouMean, FindsNothingThatIsFarOff) {
  EXPECT_EQ(DidYouMean("soft", kNames), "");
  EXPECT_EQ(DidYouMean("", kNames), "");
  EXPECT_EQ(DidYouMean("--", kNames), "");
  EXPECT_EQ(DidYouMean(std::string(100000, 'q'), kNames), "");
  EXPECT_EQ(DidYouMean("health", {}), "");
}

}  // namespace
}  // namespace normd::client
