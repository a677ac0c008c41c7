// How a call is named in trailers, records and the audit log.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/empty.pb.h"
#include "proto/wire/metadata.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

using ::testing::MatchesRegex;

constexpr char kMadeId[] = "[0-9a-f]{16}";

struct Trailers {
  grpc::Status status;
  std::string request_id, traceparent, explanation;
};

class TracesTest : public testing::Test {
 protected:
  TracesTest() {
    RpcOptions options;
    options.observer.on_request_done = [this](const RequestRecord& record) {
      MutexLock lock(mu_);
      ids_.push_back(record.origin.trace == nullptr ? "" : record.origin.trace->RequestId());
    };
    options.observer.on_audit = [this](const AuditRecord& record) {
      MutexLock lock(mu_);
      audited_.push_back(record.request_id);
    };
    options.observer.sample_trace = [this] {
      ++asked_;
      return sample_.load();
    };
    options.observer.explain = [](const RequestRecord& record) { return "kernel=" + record.kernel; };
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  ~TracesTest() override { server_.reset(); }

  static std::string Text(const grpc::ClientContext& context, const std::string& key) {
    const auto& trailers = context.GetServerTrailingMetadata();
    EXPECT_LE(trailers.count(key), 1u) << key;
    const auto found = trailers.find(key);
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  Trailers Call(const std::vector<std::pair<std::string, std::string>>& headers, bool bad = false) {
    grpc::ClientContext context;
    for (const auto& [key, value] : headers) context.AddMetadata(key, value);
    v1::NormalizeRequest request = LayerNormRequest();
    if (bad) request.clear_x();
    v1::NormalizeResponse response;
    Trailers trailers;
    trailers.status = server_->normalizer().Normalize(&context, request, &response);
    trailers.request_id = Text(context, wire::kRequestIdKey);
    trailers.traceparent = Text(context, wire::kTraceparentKey);
    trailers.explanation = Text(context, wire::kExplainKey);
    return trailers;
  }

  std::string LastId() {
    MutexLock lock(mu_);
    return ids_.empty() ? "none" : ids_.back();
  }

  Mutex mu_;
  std::vector<std::string> ids_ ABSL_GUARDED_BY(mu_), audited_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> asked_{0};
  std::atomic<bool> sample_{false};
  std::unique_ptr<TestServer> server_;
};

TEST_F(TracesTest, ACallThatAsksForNothingGetsNothing) {
  const Trailers trailers = Call({});
  EXPECT_TRUE(trailers.status.ok());
  EXPECT_EQ(trailers.request_id + trailers.traceparent + trailers.explanation, "");
  EXPECT_THAT(LastId(), MatchesRegex(kMadeId));
}

TEST_F(TracesTest, TheCallersIdComesBackAndIsInTheRecord) {
  EXPECT_EQ(Call({{"x-request-id", "job-7/step=3"}}).request_id, "job-7/step=3");
  EXPECT_EQ(LastId(), "job-7/step=3");
}

TEST_F(TracesTest, ACallThatFailsHasAnId) {
  const Trailers trailers = Call({}, /*bad=*/true);
  EXPECT_EQ(trailers.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(trailers.request_id, MatchesRegex(kMadeId));
  EXPECT_EQ(LastId(), trailers.request_id);
  EXPECT_NE(Call({}, /*bad=*/true).request_id, trailers.request_id);
}

TEST_F(TracesTest, AnIdThatCannotBeUsedIsReplaced) {
  for (const std::string& id : {std::string("two words"), std::string(129, 'x')}) {
    const Trailers trailers = Call({{"x-request-id", id}}, /*bad=*/true);
    EXPECT_THAT(trailers.request_id, MatchesRegex(kMadeId)) << id;
  }
  EXPECT_EQ(Call({{"x-request-id", std::string(128, 'x')}}).request_id, std::string(128, 'x'));
}

TEST_F(TracesTest, OnlyCallsWhoseCallersHaveNotDecidedAreSampled) {
  const std::string head = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";
  sample_ = true;
  EXPECT_EQ(Call({{"traceparent", head + "0"}}).traceparent.back(), '0');
  EXPECT_EQ(Call({{"traceparent", head + "1"}}).traceparent.back(), '1');
  EXPECT_EQ(asked_, 0);
  const std::string made = Call({}).traceparent;
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(ParseTraceparent(made).has_value()) << made;
  // A traceparent that cannot be read starts a trace of its own, as the standard says.
  const std::string other = Call({{"traceparent", "00-nonsense"}}).traceparent;
  EXPECT_EQ(asked_, 2);
  EXPECT_NE(other.substr(3, 32), made.substr(3, 32));
}

TEST_F(TracesTest, TheAnswerNamesTheServersSpanAndNotTheCallers) {
  const std::string parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const std::string answer = Call({{"traceparent", parent}}).traceparent;
  EXPECT_EQ(answer.substr(0, 35), parent.substr(0, 35));
  EXPECT_NE(answer.substr(36, 16), parent.substr(36, 16));
}

TEST_F(TracesTest, AStreamHasAnIdToo) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "stream-1");
  const auto stream = server_->normalizer().NormalizeStream(&context);
  v1::StreamRequest request;
  *request.mutable_call() = LayerNormRequest();
  stream->Write(request);
  stream->WritesDone();
  v1::StreamResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Text(context, "x-request-id"), "stream-1");
  EXPECT_EQ(LastId(), "stream-1");
}

TEST_F(TracesTest, TheAuditLogHasTheId) {
  v1::DeleteSessionRequest request;
  request.set_name("sessions/none");
  google::protobuf::Empty response;
  grpc::ClientContext context;
  EXPECT_FALSE(server_->sessions().DeleteSession(&context, request, &response).ok());
  MutexLock lock(mu_);
  ASSERT_EQ(audited_.size(), 1u);
  EXPECT_EQ(audited_[0], Text(context, "x-request-id"));
}

TEST_F(TracesTest, AnExplanationNamesTheKernel) {
  const Trailers trailers = Call({{"normd-explain", "1"}});
  EXPECT_THAT(trailers.explanation, MatchesRegex("kernel=.+"));
  EXPECT_THAT(trailers.request_id, MatchesRegex(kMadeId));
  EXPECT_EQ(Call({{"normd-explain", "1"}}, /*bad=*/true).explanation, "kernel=");
}

}  // namespace
}  // namespace normd::e2e
