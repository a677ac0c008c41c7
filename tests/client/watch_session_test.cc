// normd::SessionWatch against a server that sends what the test says: what it returns, and how it outlives servers.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "normd/v1/sessions.grpc.pb.h"

namespace normd {
namespace {

const grpc::Status kLost(grpc::StatusCode::UNAVAILABLE, "lost");

class WatchedSessions : public v1::Sessions::Service {
 public:
  using Writer = grpc::ServerWriter<v1::Session>;
  std::function<grpc::Status(int call, const v1::WatchSessionRequest&, Writer*)> on_watch;
  std::atomic<int> calls{0};

  grpc::Status WatchSession(grpc::ServerContext* context, const v1::WatchSessionRequest* request,
                            Writer* writer) override {
    const grpc::Status status = on_watch(++calls, *request, writer);
    while (status.ok() && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return status;
  }

  static void Send(uint64_t version, const std::string& uid, Writer* writer) {
    v1::Session session;
    session.set_name("sessions/a");
    session.set_uid(uid);
    session.set_version(version);
    writer->Write(session);
  }
};

class WatchSessionTest : public testing::Test {
 protected:
  WatchSessionTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
  }
  ~WatchSessionTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::unique_ptr<Client> Connect(absl::Duration backoff = absl::Milliseconds(1), int max_attempts = 5) const {
    ClientOptions options;
    options.retry.initial_backoff = options.retry.max_backoff = backoff;
    options.retry.max_attempts = max_attempts;
    return *Client::Connect(absl::StrCat("127.0.0.1:", port_), options);
  }

  WatchedSessions fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

uint64_t VersionOf(const absl::StatusOr<v1::Session>& session) {
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? session->version() : 0;
}

TEST_F(WatchSessionTest, VersionsComeInTheirOrderAfterTheOneThatIsKnown) {
  fake_.on_watch = [](int, const v1::WatchSessionRequest& request, auto* writer) {
    EXPECT_EQ(request.name(), "sessions/a");
    EXPECT_TRUE(request.has_after_version());
    EXPECT_EQ(request.after_version(), 7u);
    for (const uint64_t version : {8, 9}) WatchedSessions::Send(version, "u", writer);
    return grpc::Status::OK;
  };
  const auto client = Connect();
  const auto watch = client->WatchSession("sessions/a", {.after_version = 7});
  EXPECT_EQ(VersionOf(watch->Next()), 8u);
  EXPECT_EQ(VersionOf(watch->Next()), 9u);
}

TEST_F(WatchSessionTest, ALostServerIsCalledAgainAndNoVersionIsReturnedTwice) {
  fake_.on_watch = [](int call, const v1::WatchSessionRequest& request, auto* writer) {
    EXPECT_FALSE(request.has_after_version());
    if (call == 1) WatchedSessions::Send(4, "u", writer);
    if (call <= 8) return kLost;  // more often than a single call is tried
    WatchedSessions::Send(4, "u", writer);
    WatchedSessions::Send(6, "u", writer);
    return grpc::Status::OK;
  };
  const auto client = Connect();
  const auto watch = client->WatchSession("sessions/a");
  EXPECT_EQ(VersionOf(watch->Next()), 4u);
  EXPECT_EQ(VersionOf(watch->Next()), 6u);
  EXPECT_EQ(fake_.calls, 9);
}

TEST_F(WatchSessionTest, ASessionThatWasCreatedAgainInTheMeantimeEndsTheWatch) {
  fake_.on_watch = [](int call, const v1::WatchSessionRequest&, auto* writer) {
    WatchedSessions::Send(call == 1 ? 4 : 0, call == 1 ? "u" : "other", writer);
    return kLost;
  };
  const auto client = Connect();
  const auto watch = client->WatchSession("sessions/a");
  EXPECT_EQ(VersionOf(watch->Next()), 4u);
  EXPECT_TRUE(absl::IsAborted(watch->Next().status()));
  EXPECT_TRUE(absl::IsAborted(watch->Next().status()));
  EXPECT_EQ(fake_.calls, 2);
}

TEST_F(WatchSessionTest, AnErrorThatStaysEndsTheWatch) {
  fake_.on_watch = [](int, const v1::WatchSessionRequest&, auto*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "gone");
  };
  const auto client = Connect();
  const auto watch = client->WatchSession("sessions/a");
  EXPECT_TRUE(absl::IsNotFound(watch->Next().status()));
  EXPECT_TRUE(absl::IsNotFound(watch->Next().status()));
  EXPECT_EQ(fake_.calls, 1);
}

TEST_F(WatchSessionTest, AnotherThreadEndsAWatchThatWaitsForAVersion) {
  fake_.on_watch = [](int, const v1::WatchSessionRequest&, auto*) { return grpc::Status::OK; };
  const auto client = Connect();
  const auto watch = client->WatchSession("sessions/a");
  std::thread other([&] {
    while (fake_.calls == 0) absl::SleepFor(absl::Milliseconds(1));
    watch->Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(watch->Next().status()));
  other.join();
  EXPECT_TRUE(absl::IsCancelled(watch->Next().status()));
}

TEST_F(WatchSessionTest, AnotherThreadEndsAWatchThatWaitsForAServer) {
  fake_.on_watch = [](int, const v1::WatchSessionRequest&, auto*) { return kLost; };
  const auto client = Connect(absl::Hours(1));
  const auto watch = client->WatchSession("sessions/a");
  std::thread other([&] {
    while (fake_.calls == 0) absl::SleepFor(absl::Milliseconds(1));
    watch->Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(watch->Next().status()));
  other.join();
}

TEST_F(WatchSessionTest, PatienceAndASingleAttemptEndWithTheReason) {
  fake_.on_watch = [](int, const v1::WatchSessionRequest&, auto*) { return kLost; };
  const auto client = Connect(absl::Milliseconds(20));
  const auto watch = client->WatchSession("sessions/a", {.patience = absl::Milliseconds(100)});
  EXPECT_TRUE(absl::IsUnavailable(watch->Next().status()));
  EXPECT_GT(fake_.calls, 1);
  fake_.calls = 0;
  const auto once = Connect(absl::Milliseconds(1), 1);
  EXPECT_TRUE(absl::IsUnavailable(once->WatchSession("sessions/a")->Next().status()));
  EXPECT_EQ(fake_.calls, 1);
}

}  // namespace
}  // namespace normd
