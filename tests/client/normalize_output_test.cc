#include "client/normctl/normalize_output.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace normd::client {
namespace {

std::string SummaryOf(v1::Rounding rounding, const std::string& numerics) {
  v1::NormalizeResponse response;
  v1::Applied& applied = *response.mutable_applied();
  applied.set_method("layer_norm");
  applied.set_mode(v1::MODE_INFERENCE);
  applied.set_precision(v1::PRECISION_EXACT);
  applied.set_rounding(rounding);
  applied.set_numerics(numerics);
  std::ostringstream out;
  PrintSummary(response, {}, out);
  return out.str();
}

TEST(NormalizeOutputTest, SaysTheRoundingWhereTheServerSaysIt) {
  const std::string newer = SummaryOf(v1::ROUNDING_NEAREST, "exact-4");
  EXPECT_NE(newer.find("inference, exact: nearest (exact-4)\n"), std::string::npos) << newer;
  const std::string older = SummaryOf(v1::ROUNDING_UNSPECIFIED, "exact-3.1");
  EXPECT_NE(older.find("inference, exact (exact-3.1)\n"), std::string::npos) << older;
}

}  // namespace
}  // namespace normd::client
