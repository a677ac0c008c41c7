// What normd::Client sends again beyond single calls: within its budget, and sessions that it creates under an id.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "google/rpc/error_details.pb.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"

namespace normd {
namespace {

const grpc::Status kUnavailable(grpc::StatusCode::UNAVAILABLE, "gone");
const grpc::Status kExists(grpc::StatusCode::ALREADY_EXISTS, "session exists");

class FakeServer : public v1::Normalizer::Service, public v1::Sessions::Service {
 public:
  std::atomic<int> calls{0};
  std::function<grpc::Status(int call)> answer = [](int) { return grpc::Status::OK; };
  v1::Session stored;

  grpc::Status Normalize(grpc::ServerContext*, const v1::NormalizeRequest*, v1::NormalizeResponse*) override {
    return answer(++calls);
  }
  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest*, v1::Session* session) override {
    *session = stored;
    return answer(++calls);
  }
  grpc::Status ForkSession(grpc::ServerContext*, const v1::ForkSessionRequest*, v1::Session* session) override {
    *session = stored;
    return answer(++calls);
  }
  grpc::Status GetSession(grpc::ServerContext*, const v1::GetSessionRequest* request, v1::Session* session) override {
    EXPECT_EQ(request->name(), "sessions/a");
    *session = stored;
    return grpc::Status::OK;
  }
};

class RetriesTest : public testing::Test {
 protected:
  RetriesTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::Normalizer::Service*>(&fake_));
    builder.RegisterService(static_cast<v1::Sessions::Service*>(&fake_));
    server_ = builder.BuildAndStart();
    fake_.stored.set_name("sessions/a");
    fake_.stored.mutable_spec()->mutable_batch_norm();
    fake_.stored.set_num_channels(3);
    (*fake_.stored.mutable_labels())["model"] = "m";
  }
  ~RetriesTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::unique_ptr<Client> Connect(const client::RetryOptions& retry = {}) const {
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.retry = retry;
    options.retry.initial_backoff = options.retry.max_backoff = absl::Milliseconds(1);
    return *Client::Connect(absl::StrCat("127.0.0.1:", port_), options);
  }

  // What `fake_.stored` is an answer to.
  static v1::CreateSessionRequest Creation() {
    v1::CreateSessionRequest request;
    request.set_session_id("a");
    request.mutable_session()->mutable_spec()->mutable_batch_norm();
    request.mutable_session()->set_num_channels(3);
    (*request.mutable_session()->mutable_labels())["model"] = "m";
    return request;
  }
  // The first try is carried out, and its answer lost.
  void LoseTheFirstAnswer() {
    fake_.answer = [](int call) { return call == 1 ? kUnavailable : kExists; };
  }

  FakeServer fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

v1::NormalizeRequest SafeRequest() {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  return request;
}

TEST_F(RetriesTest, AServerThatStaysAwayIsNotAskedAgainForEver) {
  const auto client = Connect({.budget_tokens = 10, .budget_return = 1});
  fake_.answer = [](int) { return kUnavailable; };
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(absl::IsUnavailable(client->Normalize(SafeRequest()).status()));
  EXPECT_EQ(fake_.calls, 20 + 5) << "each once, and half of the tokens";
  // What succeeds gives back.
  fake_.answer = [](int) { return grpc::Status::OK; };
  EXPECT_TRUE(client->Normalize(SafeRequest()).ok());
  fake_.calls = 0;
  fake_.answer = [](int) { return kUnavailable; };
  EXPECT_FALSE(client->Normalize(SafeRequest()).ok());
  EXPECT_EQ(fake_.calls, 2);
}

TEST_F(RetriesTest, ALimitIsNotAskedAgain) {
  fake_.answer = [](int) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "sessions: over the limit"); };
  EXPECT_TRUE(absl::IsResourceExhausted(Connect()->CreateSession(Creation()).status()));
  EXPECT_EQ(fake_.calls, 1);
}

TEST_F(RetriesTest, ASessionUnderAnIdOfTheCallersIsCreatedAgain) {
  fake_.answer = [](int call) { return call == 1 ? kUnavailable : grpc::Status::OK; };
  const auto session = Connect()->CreateSession(Creation());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->name(), "sessions/a");
  EXPECT_EQ(fake_.calls, 2);
}

TEST_F(RetriesTest, ASessionWithoutAnIdIsCreatedOnce) {
  fake_.answer = [](int) { return kUnavailable; };
  v1::CreateSessionRequest request = Creation();
  request.clear_session_id();
  EXPECT_TRUE(absl::IsUnavailable(Connect()->CreateSession(request).status()));
  EXPECT_EQ(fake_.calls, 1);
}

TEST_F(RetriesTest, AnIdTakenByTheCallsOwnFirstTryIsASuccess) {
  LoseTheFirstAnswer();
  const auto created = Connect()->CreateSession(Creation());
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->num_channels(), 3);
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/b");
  fork.set_session_id("a");
  fake_.calls = 0;
  EXPECT_TRUE(Connect()->ForkSession(fork).ok());
}

TEST_F(RetriesTest, AnIdTakenByAnotherIsStillTaken) {
  fake_.answer = [](int) { return kExists; };
  EXPECT_TRUE(absl::IsAlreadyExists(Connect()->CreateSession(Creation()).status())) << "nothing was tried before";
  for (const bool labels : {false, true}) {
    LoseTheFirstAnswer();
    fake_.calls = 0;
    v1::CreateSessionRequest other = Creation();
    if (labels) (*other.mutable_session()->mutable_labels())["model"] = "other";
    if (!labels) other.mutable_session()->set_num_channels(4);
    EXPECT_TRUE(absl::IsAlreadyExists(Connect()->CreateSession(other).status()));
  }
}

}  // namespace
}  // namespace normd
