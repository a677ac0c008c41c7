#include "server/wiring/telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>

#include "kernels/cpu/targets.h"
#include "kernels/plan.h"
#include "server/base/clock.h"
#include "server/base/version.h"
#include "tests/support/series.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ObserverTest : public ::testing::Test {
 protected:
  RequestRecord Record() const {
    RequestRecord record;
    record.rpc = "Normalizer/Normalize";
    record.norm_method = "layer_norm";
    record.request_bytes = 100;
    record.response_bytes = 90;
    record.rows = 4;
    record.decode = absl::Microseconds(10);
    record.compute = absl::Microseconds(20);
    record.receive = absl::Microseconds(5);
    record.queue = absl::Microseconds(30);
    record.write = absl::Microseconds(8);
    record.total = absl::Microseconds(100);
    record.origin.transport = Transport::kUnix;
    return record;
  }
  RpcObserver Observer(LogLevel level) {
    log_ = std::make_unique<Log>(LogOptions{.level = level, .out = &out_}, &clock_);
    return MakeObserver(&metrics_, log_.get());
  }

  SystemClock clock_;
  std::ostringstream out_;
  Metrics metrics_{DefaultMetricsOptions()};
  std::unique_ptr<Log> log_;
};

TEST_F(ObserverTest, TurnsARecordIntoMetrics) {
  const RpcObserver observer = Observer(LogLevel::kInfo);
  observer.on_request_done(Record());
  const std::string compute = R"(normd_request_duration_seconds_count{method="Normalizer/Normalize",phase="compute"})";
  EXPECT_EQ(SeriesValue(metrics_.Text(), compute), -1) << "known when the reply is written";
  observer.on_request_written(Record());
  const std::string text = metrics_.Text();
  EXPECT_EQ(SeriesValue(text, R"(normd_requests_total{code="OK",method="Normalizer/Normalize",norm="layer_norm"})"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_request_bytes_total"), 100);
  EXPECT_EQ(SeriesValue(text, "normd_response_bytes_total"), 90);
  EXPECT_EQ(SeriesValue(text, R"(normd_rows_total{norm="layer_norm"})"), 4);
  EXPECT_EQ(SeriesValue(text, R"(normd_transport_requests_total{protocol="grpc",transport="unix"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_tenant_requests_total{tenant="default"})"), 1);
  const std::string series = R"(normd_request_duration_seconds_sum{method="Normalizer/Normalize",phase=)";
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("decode"})"), 1e-5);
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("compute"})"), 2e-5);
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("receive"})"), 5e-6);
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("queue"})"), 3e-5);
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("write"})"), 8e-6);
  EXPECT_DOUBLE_EQ(SeriesValue(text, series + R"("total"})"), 1e-4);
  EXPECT_EQ(SeriesValue(text, series + R"("commit"})"), -1) << "there was none";
  EXPECT_EQ(out_.str(), "") << "requests are logged at debug only";
}

// A server that refuses most calls at once must not look fast.
TEST_F(ObserverTest, MeasuresCallsThatSucceedAlone) {
  const RpcObserver observer = Observer(LogLevel::kInfo);
  RequestRecord refused = Record();
  refused.code = absl::StatusCode::kResourceExhausted;
  observer.on_request_written(refused);
  const std::string total = R"(normd_request_duration_seconds_count{method="Normalizer/Normalize",phase="total"})";
  EXPECT_LE(SeriesValue(metrics_.Text(), total), 0);
  observer.on_request_written(Record());
  EXPECT_EQ(SeriesValue(metrics_.Text(), total), 1);
}

// Said by the log as well as by the caller's error.
TEST_F(ObserverTest, WarnsOfConnectionsOverALimit) {
  Observer(LogLevel::kWarn).on_connection_limit("--max_connections, 2", "10.0.0.1");
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("WARN connections are closed"), HasSubstr("--max_connections, 2"),
                                HasSubstr("10.0.0.1")));
}

TEST_F(ObserverTest, CountsRefusalsByTheirReason) {
  const RpcObserver observer = Observer(LogLevel::kInfo);
  observer.on_request_done(Record());
  RequestRecord refused = Record();
  refused.code = absl::StatusCode::kFailedPrecondition;
  refused.reason = "STEP_TOO_OLD";
  observer.on_request_done(refused);
  refused.reason = "";
  observer.on_request_done(refused);
  EXPECT_EQ(SeriesValue(metrics_.Text(), R"(normd_refusals_total{reason="STEP_TOO_OLD"})"), 1);
  EXPECT_EQ(SeriesValue(metrics_.Text(), R"(normd_refusals_total{reason="other"})"), 1);
}

TEST_F(ObserverTest, LogsRequestsAtDebugAndOurOwnTroubleAlways) {
  RequestRecord bad = Record();
  bad.code = absl::StatusCode::kInvalidArgument;
  bad.message = "x: wrong";
  RequestRecord broken = Record();
  broken.code = absl::StatusCode::kInternal;
  broken.message = "it broke" + std::string(5000, '!');

  const RpcObserver quiet = Observer(LogLevel::kInfo);
  quiet.on_request_done(bad);
  EXPECT_EQ(out_.str(), "");
  quiet.on_request_done(broken);
  EXPECT_THAT(out_.str(), HasSubstr("ERROR request failed"));
  EXPECT_THAT(out_.str(), HasSubstr("it broke"));
  EXPECT_LT(out_.str().size(), 1000u) << "text of callers is cut";

  const RpcObserver loud = Observer(LogLevel::kDebug);
  loud.on_request_done(bad);
  EXPECT_THAT(out_.str(), HasSubstr("DEBUG request"));
  EXPECT_THAT(out_.str(), HasSubstr("x: wrong"));
}

TEST_F(ObserverTest, CountsJobsByDeviceFallbacksAndDrops) {
  Log log({.out = &out_}, &clock_);
  const SchedulerObserver observer = MakeSchedulerObserver(&metrics_, &log);
  observer.on_jobs(Device::kCpu, 3);
  observer.on_jobs(Device::kCuda, 5);
  observer.on_fallback(FallbackReason::kLost);
  observer.on_fallback(FallbackReason::kFull);
  observer.on_fallback(FallbackReason::kFull);
  observer.on_lost("cuda:1", absl::UnavailableError("it fell off the bus"));
  observer.queues.on_launch(17);
  observer.queues.on_dropped(absl::StatusCode::kCancelled);
  observer.queues.on_dropped(absl::StatusCode::kDeadlineExceeded);
  observer.queues.on_dropped(absl::StatusCode::kDeadlineExceeded);
  const std::string text = metrics_.Text();
  EXPECT_EQ(SeriesValue(text, R"(normd_device_jobs_total{device="cpu"})"), 3);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_jobs_total{device="cuda"})"), 5);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_fallbacks_total{reason="lost"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_fallbacks_total{reason="full"})"), 2);
  EXPECT_EQ(SeriesValue(text, "normd_batch_size_sum"), 17);
  EXPECT_EQ(SeriesValue(text, R"(normd_batch_dropped_total{reason="cancelled"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_batch_dropped_total{reason="expired"})"), 2);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("cuda:1"), HasSubstr("it fell off the bus")));
}

TEST_F(ObserverTest, CountsStepsAndTheirDrift) {
  const EngineObserver observer = MakeEngineObserver(&metrics_);
  observer.on_step({.session = "a", .drift = 3.0});
  observer.on_step({.session = "a", .reason = Reason::kNonFinite});
  observer.on_step({.session = "b", .replayed = true, .reason = Reason::kNonFinite});
  observer.on_not_finite();
  const std::string text = metrics_.Text();
  EXPECT_EQ(SeriesValue(text, R"(normd_steps_total{outcome="applied"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_steps_total{outcome="not_finite"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_steps_total{outcome="replayed"})"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_not_finite_total"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_session_drift{session="a",tenant="default"})"), 3);
  EXPECT_EQ(SeriesValue(text, R"(normd_session_drift{session="b",tenant="default"})"), -1);
}

TEST_F(ObserverTest, CountsContributionsTheirSamplesAndTheLagOfWatchers) {
  const EngineObserver observer = MakeEngineObserver(&metrics_);
  observer.on_step({.session = "a", .samples = 2048});
  observer.on_step({.session = "a", .samples = 0.5});
  observer.on_step({.session = "a"});
  Log log({.out = &out_}, &clock_);
  MakeObserver(&metrics_, &log).on_version_sent(absl::Milliseconds(5));
  const std::string text = metrics_.Text();
  EXPECT_EQ(SeriesValue(text, "normd_contributions_total"), 2);
  EXPECT_EQ(SeriesValue(text, "normd_samples_total"), 2049);
  EXPECT_DOUBLE_EQ(SeriesValue(text, "normd_watch_lag_seconds_sum"), 5e-3);
}

TEST_F(ObserverTest, CountsNoMoreSamplesThanADoubleHoldsExactly) {
  const EngineObserver observer = MakeEngineObserver(&metrics_);
  observer.on_step({.session = "a", .samples = 3});
  for (int i = 0; i < 10; ++i) observer.on_step({.session = "a", .samples = 1e18});
  const std::string text = metrics_.Text();
  EXPECT_EQ(SeriesValue(text, "normd_contributions_total"), 11);
  EXPECT_EQ(SeriesValue(text, "normd_samples_total"), 9007199254740992.0);
}

TEST_F(ObserverTest, CountsTheGroupsReadsAndCheckpointsOfTheStore) {
  Log log({.out = &out_}, &clock_);
  const StoreObserver observer = MakeStoreObserver(&metrics_, &log);
  observer.on_group(64, absl::Milliseconds(2));
  observer.on_read(absl::Milliseconds(3));
  observer.on_checkpoint(absl::Milliseconds(4));
  EXPECT_DOUBLE_EQ(SeriesValue(metrics_.Text(), "normd_store_read_seconds_sum"), 3e-3);
  EXPECT_DOUBLE_EQ(SeriesValue(metrics_.Text(), "normd_store_checkpoint_seconds_sum"), 4e-3);
  EXPECT_EQ(SeriesValue(metrics_.Text(), "normd_store_group_changes_sum"), 64);
  EXPECT_DOUBLE_EQ(SeriesValue(metrics_.Text(), "normd_store_group_seconds_sum"), 2e-3);
}

TEST_F(ObserverTest, ReportsVersionNumericsAndIsa) {
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("normd_build_info{isa=\"" + std::string(ActiveCpuTargetName()) + "\",numerics=\"" +
                        std::string(kNumerics) + "\",version=\"" + std::string(Version()) + "\"} 1\n"));
}

}  // namespace
}  // namespace normd
