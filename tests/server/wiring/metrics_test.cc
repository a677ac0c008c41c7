#include "server/wiring/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/obs/process.h"
#include "server/wiring/stats.h"
#include "tests/support/series.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

// Requests by method, without the methods that were never called.
std::map<std::string, double> RequestsByMethod(const std::string& text) {
  std::map<std::string, double> requests;
  for (const std::string& line : Lines(text)) {
    if (line.rfind("normd_requests_total{", 0) != 0) continue;
    const double count = std::stod(line.substr(line.rfind(' ')));
    const size_t method = line.find("method=\"") + 8;
    if (count > 0) requests[line.substr(method, line.find('"', method) - method)] += count;
  }
  return requests;
}

MetricsOptions Options() {
  return {.methods = {"A/One", "A/Two"},
          .norms = {"layer_norm", "rms_norm"},
          .version = "1",
          .numerics = "exact-1",
          .isa = "avx2"};
}

TEST(Metrics, TextIsExpositionFormat) {
  Metrics metrics(Options());
  metrics.CountRequest(0, 1, absl::StatusCode::kInvalidArgument);
  metrics.ObservePhase(0, Phase::kCompute, absl::Microseconds(30));
  const std::regex comment(R"(# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|histogram)))");
  const std::regex sample(R"re([a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+(Inf)?)re");
  const std::string text = metrics.Text();
  for (const std::string& line : Lines(text)) {
    EXPECT_TRUE(std::regex_match(line, line[0] == '#' ? comment : sample)) << line;
  }
  EXPECT_EQ(text.back(), '\n');
}

TEST(Metrics, ShowsEveryDeclaredMetricFromTheStartAndNoOther) {
  Metrics metrics(Options());
  std::set<std::string> shown;
  for (const std::string& line : Lines(metrics.Text())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "#" && words[1] == "TYPE") shown.insert(words[2]);
  }
  std::set<std::string> declared;
  for (const MetricInfo& info : AllMetrics()) declared.insert(info.name);
  EXPECT_EQ(declared.size(), AllMetrics().size()) << "a name is there twice";
  EXPECT_EQ(shown, declared);
  for (const std::string& name : declared) EXPECT_THAT(MetricsMarkdown(), HasSubstr("| `" + name + "` |"));
}

TEST(Metrics, CountsEachKindOfEvent) {
  Metrics metrics(Options());
  const int two = metrics.MethodIndex("A/Two");
  const int rms = metrics.NormIndex("rms_norm");
  metrics.CountRequest(two, rms, absl::StatusCode::kOk);
  metrics.CountRequest(two, rms, absl::StatusCode::kOk);
  metrics.CountRequest(two, rms, absl::StatusCode::kNotFound);
  metrics.ObservePhase(two, Phase::kDecode, absl::Milliseconds(2));
  metrics.CountRequestBytes(100);
  metrics.CountResponseBytes(50);
  metrics.CountRows(rms, 12);
  metrics.CountBatch(5, 2);
  metrics.KnowTenants({"vision"});
  metrics.CountOrigin({.transport = Transport::kUnix, .tenant = metrics.TenantIndex("nobody")});
  metrics.CountOrigin({.transport = Transport::kTls, .tenant = kNoTenant});
  metrics.CountOrigin({.transport = Transport::kTls, .tenant = metrics.TenantIndex("vision")});
  metrics.CountRefusal("QUEUE_AGE");
  metrics.CountRefusal("");
  metrics.CountDeviceJobs(DeviceLabel::kCuda, 8);
  metrics.CountDeviceFallback(FallbackLabel::kFull);
  metrics.ObserveBatchSize(9);
  metrics.CountBatchDropped(DropLabel::kExpired);
  Stats stats;
  stats.store.sessions = 3;
  stats.store.loads = 4;
  stats.in_flight_bytes = 77;
  stats.tenants.sessions = {{"vision", 7}, {"nobody", 2}};
  metrics.SetStats(stats);
  stats.store.loads = 6;
  stats.store.failed_groups = 1;
  stats.regions = {.regions = 2, .bytes = 4096};
  metrics.SetStats(stats);
  metrics.ObserveStoreGroup(64, absl::Milliseconds(2));
  metrics.CountStep(StepLabel::kReplayed);
  metrics.CountNotFinite();
  metrics.NoteDrift("/vision/bn", 2.5);
  metrics.ObserveStoreRead(absl::Microseconds(150));
  metrics.ObserveStoreCheckpoint(absl::Milliseconds(20));
  const std::string text = metrics.Text();
  EXPECT_EQ(SeriesValue(text, R"(normd_requests_total{code="OK",method="A/Two",norm="rms_norm"})"), 2);
  EXPECT_EQ(SeriesValue(text, R"(normd_requests_total{code="NOT_FOUND",method="A/Two",norm="rms_norm"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_request_duration_seconds_count{method="A/Two",phase="decode"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_request_duration_seconds_bucket{method="A/Two",phase="decode",le="0.001"})"), 0);
  EXPECT_EQ(SeriesValue(text, R"(normd_request_duration_seconds_bucket{method="A/Two",phase="decode",le="0.002"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_transport_requests_total{protocol="grpc",transport="unix"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_transport_requests_total{protocol="grpc",transport="tcp"})"), 0);
  EXPECT_EQ(SeriesValue(text, R"(normd_transport_requests_total{protocol="grpc",transport="tls"})"), 2);
  EXPECT_EQ(SeriesValue(text, R"(normd_tenant_requests_total{tenant="other"})"), 2);
  EXPECT_EQ(SeriesValue(text, R"(normd_tenant_requests_total{tenant="vision"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_tenant_sessions{tenant="vision"})"), 7) << "one list of tenants for all metrics";
  EXPECT_EQ(SeriesValue(text, R"(normd_tenant_sessions{tenant="other"})"), 2);
  EXPECT_EQ(SeriesValue(text, R"(normd_refusals_total{reason="QUEUE_AGE"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_refusals_total{reason="other"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_refusals_total{reason="STEP_TOO_OLD"})"), 0);
  EXPECT_EQ(SeriesValue(text, "normd_batch_items_failed_total"), 2);
  EXPECT_EQ(SeriesValue(text, R"(normd_steps_total{outcome="replayed"})"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_steps_total{outcome="applied"})"), 0);
  EXPECT_EQ(SeriesValue(text, "normd_not_finite_total"), 1);
  EXPECT_EQ(SeriesValue(text, R"(normd_session_drift{session="bn",tenant="vision"})"), 2.5);
  EXPECT_EQ(SeriesValue(text, "normd_store_read_seconds_sum"), 0.00015);
  EXPECT_EQ(SeriesValue(text, "normd_store_checkpoint_seconds_count"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_request_bytes_total"), 100);
  EXPECT_EQ(SeriesValue(text, "normd_response_bytes_total"), 50);
  EXPECT_EQ(SeriesValue(text, R"(normd_rows_total{norm="rms_norm"})"), 12);
  EXPECT_EQ(SeriesValue(text, "normd_batch_items_sum"), 5);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_jobs_total{device="cpu"})"), 0);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_jobs_total{device="cuda"})"), 8);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_fallbacks_total{reason="lost"})"), 0);
  EXPECT_EQ(SeriesValue(text, R"(normd_device_fallbacks_total{reason="full"})"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_batch_size_sum"), 9);
  EXPECT_EQ(SeriesValue(text, R"(normd_batch_dropped_total{reason="cancelled"})"), 0);
  EXPECT_EQ(SeriesValue(text, R"(normd_batch_dropped_total{reason="expired"})"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_sessions"), 3);
  EXPECT_EQ(SeriesValue(text, "normd_session_loads_total"), 6);
  EXPECT_EQ(SeriesValue(text, "normd_store_failed_groups_total"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_store_group_changes_sum"), 64);
  EXPECT_EQ(SeriesValue(text, "normd_store_group_seconds_count"), 1);
  EXPECT_EQ(SeriesValue(text, "normd_in_flight_bytes"), 77);
  EXPECT_EQ(SeriesValue(text, "normd_shared_memory_regions"), 2);
  EXPECT_EQ(SeriesValue(text, "normd_shared_memory_bytes"), 4096);
  EXPECT_EQ(SeriesValue(text, R"(normd_build_info{isa="avx2",numerics="exact-1",version="1"})"), 1);
  EXPECT_THAT(RequestsByMethod(metrics.Text()), ElementsAre(Pair("A/Two", 3)));
  EXPECT_EQ(metrics.moved_bytes(), 150);
}

TEST(Metrics, NamesEveryPhase) {
  Metrics metrics(Options());
  const std::pair<Phase, const char*> phases[] = {
      {Phase::kReceive, "receive"}, {Phase::kDecode, "decode"}, {Phase::kQueue, "queue"}, {Phase::kCompute, "compute"},
      {Phase::kCommit, "commit"},   {Phase::kEncode, "encode"}, {Phase::kWrite, "write"}, {Phase::kTotal, "total"}};
  static_assert(std::size(phases) == kPhases);
  for (const auto& [phase, name] : phases) {
    const std::string series = R"(normd_request_duration_seconds_count{method="A/Two",phase=")" + std::string(name);
    EXPECT_EQ(SeriesValue(metrics.Text(), series + "\"}"), -1) << "made before its first use";
    metrics.ObservePhase(1, phase, absl::Microseconds(1));
    EXPECT_EQ(SeriesValue(metrics.Text(), series + "\"}"), 1);
  }
}

TEST(Metrics, AFreshServerShowsARequestCounterForEveryMethod) {
  const std::string text = Metrics(Options()).Text();
  for (const char* method : {"A/One", "A/Two", "other"}) {
    const std::string labels = R"({code="OK",method=")" + std::string(method) + R"(",norm="none"})";
    EXPECT_EQ(SeriesValue(text, "normd_requests_total" + labels), 0) << method;
  }
  EXPECT_EQ(SeriesValue(text, R"(normd_request_duration_seconds_count{method="A/One",phase="total"})"), 0);
}

TEST(Metrics, ItsBucketsGoFromAMicrosecondToAHundredSeconds) {
  Metrics metrics(Options());
  for (const absl::Duration duration : {absl::Nanoseconds(900), absl::Microseconds(1), absl::Nanoseconds(1001),
                                        absl::Microseconds(50), absl::Seconds(100), absl::Seconds(101)}) {
    metrics.ObservePhase(0, Phase::kDecode, duration);
  }
  const std::string text = metrics.Text();
  const std::string bucket = R"(normd_request_duration_seconds_bucket{method="A/One",phase="decode",le=)";
  EXPECT_EQ(SeriesValue(text, bucket + R"("1e-06"})"), 2);
  EXPECT_EQ(SeriesValue(text, bucket + R"("2e-06"})"), 3);
  EXPECT_EQ(SeriesValue(text, bucket + R"("2e-05"})"), 3);
  EXPECT_EQ(SeriesValue(text, bucket + R"("5e-05"})"), 4);
  EXPECT_EQ(SeriesValue(text, bucket + R"("100"})"), 5);
  EXPECT_EQ(SeriesValue(text, bucket + R"("+Inf"})"), 6);
}

TEST(Metrics, BoundsTheSeriesWhateverCallersSend) {
  Metrics metrics(Options());
  for (int i = 0; i < 100; ++i) {
    const int method = metrics.MethodIndex("Made/Up" + std::to_string(i));
    const int norm = metrics.NormIndex("made_up" + std::to_string(i));
    metrics.CountRequest(method, norm, static_cast<absl::StatusCode>(100 + i));
    metrics.ObservePhase(method, Phase::kTotal, absl::Seconds(1));
    metrics.CountRows(norm, 1);
  }
  const std::string text = metrics.Text();
  EXPECT_EQ(SeriesValue(text, R"(normd_requests_total{code="UNKNOWN",method="other",norm="none"})"), 100);
  EXPECT_EQ(SeriesValue(text, R"(normd_rows_total{norm="none"})"), 100);
  EXPECT_EQ(text.find("ade/Up"), std::string::npos);
}

TEST(Metrics, LosesNothingWhenSeveralThreadsMakeTheSameSeries) {
  Metrics metrics(Options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1000; ++i) {
        metrics.CountRequest(1, i % 3, static_cast<absl::StatusCode>(i % 17));
        metrics.ObservePhase(i % 3, static_cast<Phase>(i % kPhases), absl::Microseconds(i));
        if (i % 250 != 0) continue;
        Stats stats;
        stats.store.loads = i + 1;
        metrics.SetStats(stats);
        metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(RequestsByMethod(metrics.Text()), ElementsAre(Pair("A/Two", 4000)));
  EXPECT_EQ(SeriesValue(metrics.Text(), "normd_session_loads_total"), 751) << "growth is added once";
}

TEST(Metrics, ReadsTheProcess) {
  Metrics metrics(Options());
  Stats stats;
  for (int scrape = 0; scrape < 2; ++scrape) {
    stats.process = ReadProcessStats();
    metrics.SetStats(stats);
  }
  const std::string text = metrics.Text();
  EXPECT_GT(SeriesValue(text, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(SeriesValue(text, "process_open_fds"), 3);
  EXPECT_GT(SeriesValue(text, "process_max_fds"), 3);
  EXPECT_GE(SeriesValue(text, "process_threads"), 1);
  EXPECT_GT(SeriesValue(text, "process_start_time_seconds"), 1.6e9);
  EXPECT_GE(SeriesValue(text, "process_cpu_seconds_total"), 0);
  EXPECT_LT(SeriesValue(text, "process_cpu_seconds_total"), 3600) << "added once, not at every reading";
}

}  // namespace
}  // namespace normd
