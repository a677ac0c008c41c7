#include "server/obs/session_drifts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/base/tenant_name.h"
#include "server/session/session_key.h"

namespace normd {
namespace {

using ::testing::ElementsAre;

SessionDrifts::Labels LabelsOf(std::string_view key) {
  return {.tenant = TenantLabel(TenantOf(key)), .session = IdOf(key)};
}

class SessionDriftsTest : public ::testing::Test {
 protected:
  // "tenant/session value" of each series, in order.
  std::vector<std::string> Shown() const {
    std::vector<std::string> shown;
    const std::vector<prometheus::MetricFamily> families = set_.Collect();
    for (const prometheus::ClientMetric& series : families[0].metric) {
      shown.push_back(series.label[1].value + "/" + series.label[0].value + " " +
                      std::to_string(static_cast<int>(series.gauge.value)));
    }
    return shown;
  }

  absl::Time now_ = absl::UnixEpoch();
  MetricSet set_;
  SessionDrifts drifts_{&set_, "a", "Drift.", &LabelsOf, [this] { return now_; }};
};

TEST_F(SessionDriftsTest, ShowsTheLastDriftOfEachSessionTheLargestFirst) {
  drifts_.Note("small", 1, now_);
  drifts_.Note("/vision/large", 9, now_);
  drifts_.Note("middle", 8, now_);
  drifts_.Note("middle", 5, now_);
  EXPECT_THAT(Shown(), ElementsAre("vision/large 9", "default/middle 5", "default/small 1"));
}

TEST_F(SessionDriftsTest, ShowsNoMoreThanTwenty) {
  for (int i = 0; i < 5000; ++i) drifts_.Note("s" + std::to_string(i), i, now_);
  const std::vector<std::string> shown = Shown();
  ASSERT_EQ(shown.size(), 20u);
  EXPECT_EQ(shown[0], "default/s4999 4999");
  EXPECT_EQ(shown[19], "default/s4980 4980");
}

TEST_F(SessionDriftsTest, ShowsNaNFirst) {
  drifts_.Note("far", std::numeric_limits<double>::infinity(), now_);
  drifts_.Note("lost", std::numeric_limits<double>::quiet_NaN(), now_);
  const std::vector<prometheus::MetricFamily> families = set_.Collect();
  ASSERT_EQ(families[0].metric.size(), 2u);
  EXPECT_EQ(families[0].metric[0].label[0].value, "lost");
}

TEST_F(SessionDriftsTest, ASessionThatIsTrainedNoMoreIsForgotten) {
  drifts_.Note("old", 7, now_);
  now_ += SessionDrifts::kShownFor;
  drifts_.Note("new", 1, now_);
  EXPECT_THAT(Shown(), ElementsAre("default/old 7", "default/new 1"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Shown(), ElementsAre("default/new 1"));
}

}  // namespace
}  // namespace normd
