// normd::RunningMoments on a real server: every sample counts once, whoever adds it, and whatever becomes of the
// server.
#include "client/cpp/running_moments.h"

#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/restarting_server.h"

namespace normd::e2e {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunningMomentsServerTest : public testing::Test {
 protected:
  std::unique_ptr<RunningMoments> Open(RunningMomentsOptions options = {}) {
    auto moments = RunningMoments::Open(*client_, "obs", 2, std::move(options));
    EXPECT_TRUE(moments.ok()) << moments.status();
    return *std::move(moments);
  }
  v1::Session Stored() { return client_->GetSession("sessions/obs", v1::SESSION_VIEW_FULL).value(); }

  RestartingServer server_;
  std::unique_ptr<Client> client_ = server_.NewClient();
};

TEST_F(RunningMomentsServerTest, TwoContributorsSeeTheSamplesOfBoth) {
  const auto one = Open(), other = Open();
  ASSERT_TRUE(one->Update(std::vector<float>{0, 5}).ok());
  ASSERT_TRUE(other->Update(std::vector<double>{2, 7}).ok());
  for (const auto& moments : {one.get(), other.get()}) ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  ASSERT_TRUE(one->Refresh().ok());
  // The figures of the contract: prior_count 1e-4, then 0 and 2.
  const auto snapshot = one->snapshot();
  EXPECT_EQ(snapshot->version, 2u);
  EXPECT_THAT(snapshot->count, ElementsAre(DoubleEq(2.0001), DoubleEq(2.0001)));
  EXPECT_THAT(snapshot->mean, ElementsAre(DoubleEq(2 / 2.0001), DoubleEq(12 / 2.0001)));
  EXPECT_THAT(snapshot->min, ElementsAre(0, 5));
  EXPECT_THAT(snapshot->max, ElementsAre(2, 7));
  EXPECT_EQ(snapshot->digest, Stored().digest());
  EXPECT_EQ(snapshot->digest.size(), 64u);
}

TEST_F(RunningMomentsServerTest, AServerThatIsAwayDelaysAndLosesNothing) {
  const auto moments = Open({.flush_samples = 16, .flush_interval = absl::Milliseconds(5)});
  std::mt19937 random(20240607);
  std::normal_distribution<double> normal(3, 2);
  long double sum = 0;
  int64_t rows = 0;
  const auto update = [&] {
    std::vector<double> batch(2 * 10);
    for (double& x : batch) x = normal(random);
    for (size_t i = 0; i < batch.size(); i += 2) sum += batch[i];
    rows += 10;
    ASSERT_TRUE(moments->Update(batch).ok());
  };
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) update();
    server_.Stop();  // with a contribution on its way, or with samples that wait
    for (int i = 0; i < 5; ++i) update();
    EXPECT_FALSE(moments->Flush(absl::Milliseconds(50)).ok());
    server_.Start();
    ASSERT_TRUE(moments->Flush(absl::Seconds(60)).ok());
  }
  const auto snapshot = moments->snapshot();
  EXPECT_DOUBLE_EQ(snapshot->count[0], static_cast<double>(rows) + 1e-4);
  EXPECT_NEAR(snapshot->mean[0], static_cast<double>(sum / (rows + 1e-4L)), 1e-12);
  EXPECT_EQ(snapshot->version, Stored().version());
}

TEST_F(RunningMomentsServerTest, AChannelThatIsNotFiniteIsLeftAlone) {
  const auto moments = Open({.prior_count = 0});
  ASSERT_TRUE(moments->Update(std::vector<double>{1, 2, 3, std::numeric_limits<double>::quiet_NaN()}).ok());
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(2, 0));
  ASSERT_TRUE(moments->Update(std::vector<double>{5, 6}).ok());
  ASSERT_TRUE(moments->Flush(absl::Seconds(30)).ok());
  EXPECT_THAT(moments->snapshot()->count, ElementsAre(3, 1));
  EXPECT_THAT(moments->snapshot()->mean, ElementsAre(3, 6));
}

TEST_F(RunningMomentsServerTest, FrozenStatisticsHaveADigestAndTakeNoSamples) {
  const auto moments = Open({.channel_names = {"speed", "angle"}});
  ASSERT_TRUE(moments->Update(std::vector<double>{1, 2}).ok());
  const auto frozen = moments->Freeze(absl::Seconds(30));
  ASSERT_TRUE(frozen.ok()) << frozen.status();
  EXPECT_EQ((*frozen)->digest, Stored().digest());
  EXPECT_THAT(Stored().channel_names(), ElementsAre("speed", "angle"));
  ASSERT_TRUE(moments->Update(std::vector<double>{1, 2}).ok());
  EXPECT_THAT(std::string(moments->Flush(absl::Seconds(30)).message()), HasSubstr("frozen"));
  EXPECT_FALSE(moments->Update(std::vector<double>{1, 2}).ok());
}

TEST_F(RunningMomentsServerTest, ItOutlivesItsClient) {
  const auto moments = Open();
  client_.reset();
  ASSERT_TRUE(moments->Update(std::vector<double>{1, 2}).ok());
  EXPECT_TRUE(moments->Flush(absl::Seconds(30)).ok());
}

}  // namespace
}  // namespace normd::e2e
