#include "server/traces/span_exporter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "server/base/steady_time.h"
#include "server/base/unique_fd.h"
#include "tests/server/traces/fake_collector.h"
#include "tests/support/test_certificates.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

FinishedSpan ASpan(const std::string& name = "normd.v1.Normalizer/Normalize") {
  FinishedSpan span;
  span.trace_id = MakeTraceId();
  span.span_id = MakeSpanId();
  span.name = name;
  span.start = absl::FromUnixSeconds(1'000'000);
  span.end = span.start + absl::Microseconds(100);
  return span;
}

SpanExporterOptions OptionsFor(const std::string& url) {
  SpanExporterOptions options;
  options.collector = ParseCollectorAddress("--trace_endpoint", url).value();
  options.interval = absl::Milliseconds(10);
  options.timeout = absl::Seconds(10);
  return options;
}

std::string IdBytes(const auto& id) { return std::string(id.begin(), id.end()); }

TEST(ParseCollectorAddressTest, TakesUrlsWithAndWithoutAPort) {
  const auto target = [](const std::string& url) { return ParseCollectorAddress("--x", url)->target; };
  EXPECT_EQ(target("http://127.0.0.1:4000"), "127.0.0.1:4000");
  EXPECT_EQ(target("http://collector"), "collector:4317");
  EXPECT_EQ(target("http://collector/"), "collector:4317");
  EXPECT_EQ(target("http://[::1]"), "[::1]:4317");
  EXPECT_EQ(target("https://[::1]:99"), "[::1]:99");
  EXPECT_FALSE(ParseCollectorAddress("--x", "http://collector")->tls);
  EXPECT_TRUE(ParseCollectorAddress("--x", "https://collector")->tls);
}

TEST(ParseCollectorAddressTest, RefusesMalformedUrls) {
  for (const char* url :
       {"", "collector:4317", "grpc://collector", "http://", "http://:4317", "http://a:0", "http://a:65536",
        "http://a:b", "http://a/v1/traces", "http://u@a", "http://[::1", "http://a b"}) {
    const absl::Status status = ParseCollectorAddress("--trace_endpoint", url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--trace_endpoint")) << url;
  }
}

TEST(SpanExporterTest, SendsSpansTheirPartsAndTheirService) {
  FakeCollector collector;
  SpanExporterOptions options = OptionsFor(collector.url());
  options.resource = {{"service.name", "normd"}};
  SpanExporter exporter(std::move(options));
  FinishedSpan span = ASpan();
  span.parent_id = MakeSpanId();
  span.failed = true;
  span.error = "it broke";
  span.attributes = {{"rpc.system", std::string("grpc")}, {"normd.rows", int64_t{7}}};
  span.parts = {
      {"decode", absl::Microseconds(30)}, {"queue", absl::ZeroDuration()}, {"compute", absl::Microseconds(50)}};
  exporter.Add(span);
  const std::vector<opentelemetry::Span> sent = collector.WaitForSpans(3);
  ASSERT_EQ(sent.size(), 3u) << "a part without length is no span";
  EXPECT_EQ(collector.method(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
  EXPECT_EQ(collector.resource()["service.name"], "normd");
  EXPECT_EQ(sent[0].trace_id(), IdBytes(span.trace_id));
  EXPECT_EQ(sent[0].span_id(), IdBytes(span.span_id));
  EXPECT_EQ(sent[0].parent_span_id(), IdBytes(span.parent_id));
  EXPECT_EQ(sent[0].kind(), opentelemetry::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(sent[0].start_time_unix_nano(), 1'000'000'000'000'000u);
  EXPECT_EQ(sent[0].end_time_unix_nano(), 1'000'000'000'100'000u);
  EXPECT_EQ(sent[0].status().code(), opentelemetry::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(sent[0].status().message(), "it broke");
  EXPECT_EQ(AttributeOf(sent[0], "rpc.system"), "grpc");
  EXPECT_EQ(AttributeOf(sent[0], "normd.rows"), "7");
  EXPECT_EQ(sent[1].name(), "decode");
  EXPECT_EQ(sent[2].name(), "compute");
  EXPECT_EQ(sent[2].parent_span_id(), sent[0].span_id());
  EXPECT_EQ(sent[2].trace_id(), sent[0].trace_id());
  EXPECT_EQ(sent[2].start_time_unix_nano(), sent[1].end_time_unix_nano());
}

TEST(SpanExporterTest, SendsManySpansInFewMessages) {
  FakeCollector collector;
  SpanExporterOptions options = OptionsFor(collector.url());
  options.max_batch = 100;
  SpanExporter exporter(std::move(options));
  for (int i = 0; i < 1000; ++i) exporter.Add(ASpan());
  EXPECT_EQ(collector.WaitForSpans(1000).size(), 1000u);
  EXPECT_LE(collector.exports(), 20);
}

TEST(SpanExporterTest, SendsWaitingSpansWhenTheServerEnds) {
  FakeCollector collector;
  SpanExporterOptions options = OptionsFor(collector.url());
  options.interval = absl::Seconds(60);
  {
    SpanExporter exporter(std::move(options));
    exporter.Add(ASpan());
  }
  EXPECT_EQ(collector.WaitForSpans(1).size(), 1u);
}

TEST(SpanExporterTest, ACollectorThatIsAwayCostsSpansAndNothingElse) {
  SpanExporterOptions options = OptionsFor("http://127.0.0.1:1");
  options.timeout = absl::Milliseconds(200);
  options.max_queue = 50;
  Mutex mu;
  int losses = 0;
  options.on_lost = [&](const absl::Status& why, int64_t spans) {
    MutexLock lock(mu);
    EXPECT_FALSE(why.ok());
    EXPECT_GT(spans, 0);
    ++losses;
  };
  const absl::Time start = SteadyNow();
  {
    SpanExporter exporter(std::move(options));
    for (int i = 0; i < 1000; ++i) exporter.Add(ASpan());
    EXPECT_LT(SteadyNow() - start, absl::Seconds(5)) << "Add waits for nobody";
    EXPECT_GE(exporter.stats().dropped, 1);
    while (exporter.stats().dropped < 1000 && SteadyNow() - start < absl::Seconds(20))
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(exporter.stats().dropped, 1000);
    EXPECT_EQ(exporter.stats().exported, 0);
  }
  MutexLock lock(mu);
  EXPECT_EQ(losses, 1) << "told once, not for every batch";
}

// A variable of the environment for one test.
class ProxyVariable {
 public:
  explicit ProxyVariable(const char* value) {
    setenv("grpc_proxy", value, 1);  // NOLINT(concurrency-mt-unsafe): no other thread reads it yet
  }
  ~ProxyVariable() { unsetenv("grpc_proxy"); }  // NOLINT(concurrency-mt-unsafe)
  ProxyVariable(const ProxyVariable&) = delete;
  ProxyVariable& operator=(const ProxyVariable&) = delete;
};

TEST(SpanExporterTest, NoProxyStandsBeforeACollectorOfThisMachine) {
  const ProxyVariable proxy("http://127.0.0.1:1");
  FakeCollector collector;
  SpanExporter exporter(OptionsFor(collector.url()));
  exporter.Add(ASpan());
  EXPECT_EQ(collector.WaitForSpans(1).size(), 1u);
}

TEST(SpanExporterTest, TheProxyOfAnotherCollectorIsNamedWithTheLoss) {
  const ProxyVariable proxy("http://user:secret@127.0.0.1:1");
  SpanExporterOptions options = OptionsFor("http://collector.example");
  options.attempts = 1;
  std::string why;
  options.on_lost = [&why](const absl::Status& status, int64_t) { why = std::string(status.message()); };
  {
    SpanExporter exporter(std::move(options));
    exporter.Add(ASpan());
  }
  EXPECT_THAT(why, HasSubstr("grpc_proxy sends calls to collector.example:4317 through 127.0.0.1:1: unset it, or add "
                             "collector.example to no_proxy"));
}

TEST(SpanExporterTest, ACollectorThatDoesNotAnswerDelaysTheEndByTheFlushTimeoutAlone) {
  // The system takes the connection, and nobody says anything on it.
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  SpanExporterOptions options = OptionsFor("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  options.timeout = absl::Seconds(30);
  options.flush_timeout = absl::Milliseconds(100);
  int64_t lost = 0;
  options.on_lost = [&lost](const absl::Status&, int64_t spans) { lost += spans; };
  absl::Time start;
  {
    SpanExporter exporter(std::move(options));
    exporter.Add(ASpan());
    absl::SleepFor(absl::Milliseconds(200));  // the export is under way
    start = SteadyNow();
  }
  EXPECT_LT(SteadyNow() - start, absl::Seconds(10));
  EXPECT_EQ(lost, 1);
}

TEST(SpanExporterTest, ABatchIsTriedAgain) {
  FakeCollector collector;
  collector.Answer(grpc::Status(grpc::StatusCode::UNAVAILABLE, "not yet"));
  SpanExporterOptions options = OptionsFor(collector.url());
  options.attempts = 1000;
  SpanExporter exporter(std::move(options));
  exporter.Add(ASpan());
  const absl::Time start = SteadyNow();
  while (collector.exports() < 2 && SteadyNow() - start < absl::Seconds(20)) absl::SleepFor(absl::Milliseconds(5));
  collector.Answer(grpc::Status::OK);
  EXPECT_EQ(collector.WaitForSpans(1).size(), 1u);
}

TEST(SpanExporterTest, AnErrorThatStaysIsNotTriedAgain) {
  FakeCollector collector;
  collector.Answer(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no traces here"));
  SpanExporter exporter(OptionsFor(collector.url()));
  exporter.Add(ASpan());
  const absl::Time start = SteadyNow();
  while (exporter.stats().dropped == 0 && SteadyNow() - start < absl::Seconds(20))
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(exporter.stats().dropped, 1);
  EXPECT_EQ(collector.exports(), 1);
}

TEST(SpanExporterTest, CountsSpansThatTheCollectorRefuses) {
  FakeCollector collector;
  collector.Answer(grpc::Status::OK, /*rejected_spans=*/2);
  SpanExporterOptions options = OptionsFor(collector.url());
  options.interval = absl::Milliseconds(200);
  SpanExporter exporter(std::move(options));
  for (int i = 0; i < 5; ++i) exporter.Add(ASpan());
  const absl::Time start = SteadyNow();
  while (exporter.stats().exported == 0 && SteadyNow() - start < absl::Seconds(20))
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(exporter.stats().exported, 3);
  EXPECT_EQ(exporter.stats().dropped, 2);
}

TEST(SpanExporterTest, SpeaksTlsToCollectorsWhoseCaItKnows) {
  const TestCa ca("collectors");
  const TestCertificate certificate = ca.Issue();
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({certificate.key, certificate.certificate});
  FakeCollector collector(grpc::SslServerCredentials(tls));
  // By address: the names' library (c-ares) may leave bytes behind when a process ends, which LeakSanitizer reports.
  const std::string url = "https://127.0.0.1:" + std::to_string(collector.port());
  {
    SpanExporterOptions options = OptionsFor(url);
    options.roots = TestCa("others").certificate();
    options.timeout = absl::Seconds(1);
    options.attempts = 1;
    SpanExporter exporter(std::move(options));
    exporter.Add(ASpan("to a stranger"));
  }
  SpanExporterOptions options = OptionsFor(url);
  options.roots = ca.certificate();
  SpanExporter exporter(std::move(options));
  exporter.Add(ASpan("to a friend"));
  const std::vector<opentelemetry::Span> sent = collector.WaitForSpans(1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].name(), "to a friend");
}

}  // namespace
}  // namespace normd
