// What a server tells of single requests: spans for a collector, lines about slow requests, explanations.
#include "server/wiring/tracing.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "normd/v1/normalizer.grpc.pb.h"
#include "server/server.h"
#include "tests/server/traces/fake_collector.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCallersTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class TracingTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> args) {
    args.insert(args.end(), {"--session_store=memory", "--listen=127.0.0.1:0", "--admin_listen=127.0.0.1:0"});
    const absl::StatusOr<Config> config = ParseConfig(args, {});
    ASSERT_TRUE(config.ok()) << config.status();
    auto server = Server::Start(*config, &log_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    for (const std::string& listener : server_->listeners()) {
      if (!listener.starts_with("grpc=")) continue;
      const std::string target = listener.substr(5);
      stub_ = v1::Normalizer::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
    }
  }

  // Normalises a row, and returns what the trailers say under `key`.
  std::string Call(const std::vector<std::pair<std::string, std::string>>& headers = {}, const std::string& key = "") {
    v1::NormalizeRequest request;
    request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(2);
    request.mutable_x()->set_dtype(v1::DTYPE_F32);
    request.mutable_x()->add_shape(2);
    request.mutable_x()->set_data(std::string(8, '\0'));
    grpc::ClientContext context;
    for (const auto& [name, value] : headers) context.AddMetadata(name, value);
    v1::NormalizeResponse response;
    const grpc::Status status = stub_->Normalize(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    const auto found = context.GetServerTrailingMetadata().find(key);
    return found == context.GetServerTrailingMetadata().end() ? ""
                                                              : std::string(found->second.data(), found->second.size());
  }

  std::ostringstream out_;
  SystemClock clock_;
  Log log_{LogOptions{.out = &out_}, &clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Normalizer::Stub> stub_;
};

TEST_F(TracingTest, ARequestOfATraceBecomesASpanBelowItsCallers) {
  FakeCollector collector;
  Start({"--trace_endpoint=" + collector.url(), "--trace_sample=0"});
  const std::string answer = Call({{"traceparent", kCallersTrace}, {"x-request-id", "job-7"}}, "traceparent");
  const std::vector<opentelemetry::Span> spans = collector.WaitForSpans(2);
  ASSERT_FALSE(spans.empty());
  const opentelemetry::Span& span = spans[0];
  const TraceParent caller = ParseTraceparent(kCallersTrace).value();
  EXPECT_EQ(span.name(), "normd.v1.Normalizer/Normalize");
  EXPECT_EQ(span.trace_id(), std::string(caller.trace_id.begin(), caller.trace_id.end()));
  EXPECT_EQ(span.parent_span_id(), std::string(caller.span_id.begin(), caller.span_id.end()));
  const TraceParent said = ParseTraceparent(answer).value();
  EXPECT_EQ(span.span_id(), std::string(said.span_id.begin(), said.span_id.end())) << "the trailers name this span";
  EXPECT_TRUE(said.sampled);
  EXPECT_EQ(AttributeOf(span, "rpc.service"), "normd.v1.Normalizer");
  EXPECT_EQ(AttributeOf(span, "rpc.method"), "Normalize");
  EXPECT_EQ(AttributeOf(span, "rpc.grpc.status_code"), "0");
  EXPECT_EQ(AttributeOf(span, "normd.request_id"), "job-7");
  EXPECT_EQ(AttributeOf(span, "normd.norm"), "layer_norm");
  EXPECT_EQ(AttributeOf(span, "normd.device"), "cpu");
  EXPECT_NE(AttributeOf(span, "normd.kernel"), "");
  EXPECT_EQ(AttributeOf(span, "normd.rows"), "1");
  std::vector<std::string> parts;
  for (const opentelemetry::Span& part : spans) {
    parts.push_back(part.name());
    EXPECT_GE(part.start_time_unix_nano(), span.start_time_unix_nano());
    EXPECT_LE(part.end_time_unix_nano(), span.end_time_unix_nano() + 1) << part.name();
  }
  EXPECT_THAT(parts, AllOf(Contains("receive"), Contains("decode"), Contains("compute"), Contains("write")));
  EXPECT_EQ(collector.resource()["service.name"], "normd");
}

TEST_F(TracingTest, TheShareOfOtherCallsIsTheOptions) {
  FakeCollector collector;
  Start({"--trace_endpoint=" + collector.url(), "--trace_sample=1"});
  const std::string answer = Call({}, "traceparent");
  ASSERT_TRUE(ParseTraceparent(answer).has_value()) << "a chosen call learns its trace";
  EXPECT_FALSE(collector.WaitForSpans(1).empty());
  Config config = server_->config();
  config.trace_sample = 0;
  server_->Reload(config);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Call({}, "traceparent"), "");
}

TEST_F(TracingTest, ACallerThatDoesNotRecordItsTraceIsBelieved) {
  FakeCollector collector;
  Start({"--trace_endpoint=" + collector.url(), "--trace_sample=1"});
  std::string quiet = kCallersTrace;
  quiet.back() = '0';
  const std::string answer = Call({{"traceparent", quiet}}, "traceparent");
  EXPECT_FALSE(ParseTraceparent(answer)->sampled);
  server_.reset();  // sends what waits
  EXPECT_EQ(collector.exports(), 0);
}

TEST_F(TracingTest, WithoutACollectorATraceGoesOnAndNothingIsRecorded) {
  Start({"--trace_sample=1"});
  const std::string answer = Call({{"traceparent", kCallersTrace}}, "traceparent");
  EXPECT_EQ(answer.substr(0, 36), std::string(kCallersTrace).substr(0, 36)) << "the same trace";
  EXPECT_FALSE(ParseTraceparent(answer)->sampled);
  EXPECT_EQ(Call({}, "traceparent"), "");
}

TEST_F(TracingTest, EveryAnswerOfAStreamIsASpan) {
  FakeCollector collector;
  Start({"--trace_endpoint=" + collector.url(), "--trace_sample=0"});
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kCallersTrace);
  const auto stream = stub_->NormalizeStream(&context);
  for (uint64_t i = 0; i < 3; ++i) {
    v1::StreamRequest request;
    request.set_sequence(i);
    request.mutable_call()->mutable_spec()->mutable_layer_norm();
    stream->Write(request);  // without x: an error of the item's
  }
  stream->WritesDone();
  v1::StreamResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  server_.reset();  // sends what waits
  std::vector<opentelemetry::Span> spans = collector.WaitForSpans(3);
  std::erase_if(spans, [](const auto& span) { return span.kind() != opentelemetry::Span::SPAN_KIND_SERVER; });
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_NE(spans[0].span_id(), spans[1].span_id());
  EXPECT_NE(spans[1].span_id(), spans[2].span_id());
  EXPECT_EQ(AttributeOf(spans[0], "normd.reason"), "MISSING_FIELD");
  EXPECT_EQ(spans[0].status().code(), opentelemetry::Status::STATUS_CODE_UNSET) << "the caller's mistake";
}

TEST_F(TracingTest, ASpanNamesTheServiceOfAnotherPackage) {
  FakeCollector collector;
  Config config;
  config.trace_endpoint = collector.url();
  absl::StatusOr<std::unique_ptr<Tracing>> tracing = Tracing::Open(config, &log_, &clock_);
  ASSERT_TRUE(tracing.ok()) << tracing.status();
  CallTrace trace;
  trace.span.sampled = true;
  RequestRecord record;
  record.rpc = "Health/Watch";
  record.origin = {.trace = &trace, .path = "/grpc.health.v1.Health/Watch"};
  (*tracing)->Written(record);
  record.rpc = "unknown";
  record.origin.path = "/grpc.health.v1.Health/NoSuch";
  (*tracing)->Written(record);
  tracing->reset();  // sends what waits
  const std::vector<opentelemetry::Span> spans = collector.WaitForSpans(2);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name(), "grpc.health.v1.Health/Watch");
  EXPECT_EQ(AttributeOf(spans[0], "rpc.service"), "grpc.health.v1.Health");
  EXPECT_EQ(AttributeOf(spans[0], "rpc.method"), "Watch");
  EXPECT_EQ(spans[1].name(), "unknown");
  EXPECT_EQ(AttributeOf(spans[1], "rpc.service"), "");
}

TEST_F(TracingTest, SlowRequestsAreLoggedWithTheirPhasesAndIds) {
  testing::internal::CaptureStderr();
  Start({"--slow_request=1h"});
  Call({{"x-request-id", "job-7"}});
  server_.reset();  // what it had to say was said
  Start({"--slow_request=1h"});
  Config config = server_->config();
  config.slow_request = absl::Nanoseconds(1);
  server_->Reload(config);
  Call({{"traceparent", kCallersTrace}, {"x-request-id", "job-8"}});
  server_.reset();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, AllOf(HasSubstr("WARN slow request rpc=Normalizer/Normalize"), HasSubstr("request_id=job-8"),
                           HasSubstr("trace_id=4bf92f3577b34da6a3ce929d0e0e4736"), HasSubstr("norm=layer_norm"),
                           HasSubstr("receive_us="), HasSubstr("write_us=")));
  EXPECT_THAT(lines, Not(HasSubstr("job-7")));
}

TEST_F(TracingTest, ExplainsACallToACallerThatAsks) {
  Start({});
  const std::string text = Call({{"normd-explain", "1"}}, "normd-explain");
  EXPECT_THAT(text, AllOf(HasSubstr(R"("rpc":"Normalizer/Normalize")"), HasSubstr(R"("norm":"layer_norm")"),
                          HasSubstr(R"("device":"cpu")"), HasSubstr(R"("kernel":")"), HasSubstr(R"("numerics":")"),
                          HasSubstr(R"("rows":1)"), HasSubstr(R"("compute_us":)"), HasSubstr(R"("total_us":)")));
  EXPECT_NE(Call({{"normd-explain", "true"}}, "x-request-id"), "");
  EXPECT_EQ(Call({{"normd-explain", "0"}}, "normd-explain"), "");
  EXPECT_EQ(Call({}, "normd-explain"), "");
}

TEST_F(TracingTest, OptionsThatCannotWorkAreRefused) {
  const auto error = [](const std::vector<std::string>& args) {
    return std::string(ParseConfig(args, {}).status().message());
  };
  EXPECT_THAT(error({"--trace_endpoint=collector:4317"}), HasSubstr("--trace_endpoint"));
  EXPECT_THAT(error({"--trace_ca=/ca.pem"}), HasSubstr("--trace_endpoint"));
  EXPECT_THAT(error({"--trace_ca=/ca.pem", "--trace_endpoint=http://a"}), HasSubstr("--trace_ca"));
  for (const char* wrong : {"-0.1", "1.5", "nan", "half"}) {
    EXPECT_THAT(error({std::string("--trace_sample=") + wrong}), HasSubstr("0 to 1")) << wrong;
  }
  EXPECT_THAT(error({"--slow_request=-1s"}), Not(HasSubstr("OK")));
  const absl::StatusOr<Config> config =
      ParseConfig({"--trace_endpoint=https://a", "--trace_ca=/nowhere", "--session_store=memory",
                   "--listen=127.0.0.1:0", "--admin_listen="},
                  {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(std::string(Server::Start(*config, &log_).status().message()), HasSubstr("--trace_ca /nowhere"));
}

}  // namespace
}  // namespace normd
