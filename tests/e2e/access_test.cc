// Who may call what, attacked: every method against every kind of bad credentials.

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "normd/v1/shared_memory.pb.h"
#include "proto/wire/metadata.h"
#include "server/base/mutex.h"
#include "server/rpc/services/method_names.h"
#include "server/security/access_control.h"
#include "server/security/token_list.h"
#include "server/server.h"
#include "tests/e2e/test_server.h"
#include "tests/support/raw_http2.h"
#include "tests/support/test_certificates.h"

namespace normd::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Metadata = std::vector<std::pair<std::string, std::string>>;

constexpr char kGood[] = "normd_good", kWrong[] = "normd_wrong", kExpired[] = "normd_expired", kOther[] = "normd_other";

std::string Bearer(const std::string& token) { return "Bearer " + token; }

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string TokensText() {
  return TokenLine("admin", kGood) + "\n" + TokenLine("other", kOther) + "\n" + TokenLine("admin", kExpired) +
         " expires=2020-01-01T00:00:00Z\n";
}

constexpr char kPolicy[] = R"(
[[tenant]]
name = "others"
identities = ["token:other"]
[[deny]]
identities = ["token:other"]
methods = ["*"]
[[allow]]
identities = ["uid:*", "token:*"]
methods = ["*"]
)";

// A message of each method that changes or tells something once it is let in.
std::map<std::string, std::string> MethodMessages() {
  const std::string sessions = "/normd.v1.Sessions/", normalizer = "/normd.v1.Normalizer/";
  v1::CreateSessionRequest create;
  create.set_session_id("evil");
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(2);
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/bn");
  (*update.mutable_session()->mutable_labels())["owner"] = "evil";
  update.mutable_update_mask()->add_paths("labels");
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/bn");
  fork.set_session_id("evil");
  v1::ImportSessionRequest import;
  import.set_session_id("evil");
  import.mutable_chunk()->set_last(true);
  v1::GetSessionRequest name;  // name is the first field of all of those below
  name.set_name("sessions/bn");
  v1::BatchNormalizeRequest batch;
  *batch.add_items() = LayerNormRequest();
  v1::StreamRequest stream;
  *stream.mutable_call() = LayerNormRequest();
  v1::RegisterRegionRequest region;
  region.set_posix_name("/normd-evil");
  region.set_size_bytes(4096);
  grpc::reflection::v1::ServerReflectionRequest reflection;
  reflection.set_list_services("*");
  return {{normalizer + "Normalize", LayerNormRequest().SerializeAsString()},
          {normalizer + "BatchNormalize", batch.SerializeAsString()},
          {normalizer + "NormalizeStream", stream.SerializeAsString()},
          {normalizer + "ComputeMoments", LayerNormRequest().SerializeAsString()},
          {normalizer + "Describe", ""},
          {sessions + "CreateSession", create.SerializeAsString()},
          {sessions + "GetSession", name.SerializeAsString()},
          {sessions + "ListSessions", ""},
          {sessions + "UpdateSession", update.SerializeAsString()},
          {sessions + "ResetSession", name.SerializeAsString()},
          {sessions + "ForkSession", fork.SerializeAsString()},
          {sessions + "CommitMoments", name.SerializeAsString()},
          {sessions + "ExportSession", name.SerializeAsString()},
          {sessions + "ImportSession", import.SerializeAsString()},
          {sessions + "DeleteSession", name.SerializeAsString()},
          {sessions + "WatchSession", name.SerializeAsString()},
          {"/normd.v1.SharedMemory/RegisterRegion", region.SerializeAsString()},
          {"/grpc.health.v1.Health/Check", ""},
          {"/grpc.health.v1.Health/Watch", ""},
          {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", reflection.SerializeAsString()},
          {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", reflection.SerializeAsString()}};
}

// The methods that the .proto files declare.
std::set<std::string> DeclaredMethods() {
  std::set<std::string> paths;
  for (const google::protobuf::Descriptor* message :
       {v1::NormalizeRequest::descriptor(), v1::Session::descriptor(), v1::RegisterRegionRequest::descriptor(),
        grpc::health::v1::HealthCheckRequest::descriptor(), grpc::reflection::v1::ServerReflectionRequest::descriptor(),
        grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()}) {
    for (int i = 0; i < message->file()->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor* service = message->file()->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        paths.insert("/" + service->full_name() + "/" + service->method(j)->name());
      }
    }
  }
  return paths;
}

// Calls the method with one message, reads at most one reply, and returns how the call ended.
grpc::Status CallOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                      const std::string& message, const Metadata& metadata) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  const auto call = stub.PrepareCall(&context, path, &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  wait();
  const grpc::Slice slice(message);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  wait();
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  if (wait()) context.TryCancel();  // it was let in; a stream would not end
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  return status;
}

struct Attack {
  std::string name;
  Metadata metadata;
  bool over_tcp = false;
  grpc::StatusCode code = grpc::StatusCode::UNAUTHENTICATED;
};

std::vector<Attack> Attacks() {
  const auto shows = [](const std::string& value) { return Metadata{{"authorization", value}}; };
  return {{"no credentials", {}, /*over_tcp=*/true},
          {"a good token in plain text", shows(Bearer(kGood)), /*over_tcp=*/true},
          {"a wrong token in plain text", shows(Bearer(kWrong)), /*over_tcp=*/true},
          {"a wrong token", shows(Bearer(kWrong))},
          {"an expired token", shows(Bearer(kExpired))},
          {"no scheme", shows(kGood)},
          {"another scheme", shows(std::string("Basic ") + kGood)},
          {"no token", shows("Bearer ")},
          {"an empty header", shows("")},
          {"two tokens in one header", shows(Bearer(kGood) + " " + kGood)},
          {"two headers", {{"authorization", Bearer(kGood)}, {"authorization", Bearer(kGood)}}},
          {"a token of 8 KiB", shows(Bearer(std::string(8 << 10, 'x')))},
          {"the token of another tenant, which may not call", shows(Bearer(kOther)), false,
           grpc::StatusCode::PERMISSION_DENIED}};
}

class AccessTest : public testing::Test {
 protected:
  AccessTest() {
    WriteFile(folder_.path() + "/tokens", TokensText());
    WriteFile(folder_.path() + "/policy", kPolicy);
    access_ = AccessControl::Open({.tokens_file = folder_.path() + "/tokens",
                                   .policy_file = folder_.path() + "/policy",
                                   .methods = rpc::AllMethodPaths()},
                                  &clock_)
                  .value();
    RpcOptions options;
    options.listeners = {"unix:" + folder_.path() + "/s", "127.0.0.1:0"};
    options.access = access_.get();
    options.observer.on_bytes_in_flight = [this](int64_t bytes) {
      held_bytes_ = bytes;
      if (bytes > 0) ++reservations_;
    };
    options.observer.tenant_index = [](const std::string& tenant) { return static_cast<int>(tenant.size()); };
    options.observer.on_request_done = [this](const RequestRecord& record) {
      if (record.origin.trace->span.sampled) {
        ++(record.code == absl::StatusCode::kUnauthenticated ? traced_strangers_ : traced_callers_);
      }
      MutexLock lock(mu_);
      requests_.push_back(record);
      requests_.back().rpc = {};  // ends with the call, and so does its trace
      requests_.back().origin.trace = nullptr;
    };
    options.observer.sample_trace = [] { return true; };
    options.observer.on_audit = [this](const AuditRecord& record) {
      MutexLock lock(mu_);
      audit_.push_back(record);
    };
    server_ = std::make_unique<TestServer>(std::move(options));
    tcp_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->server().ports()[1]),
                               grpc::InsecureChannelCredentials());
    v1::CreateSessionRequest create;
    create.set_session_id("bn");
    create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    create.mutable_session()->set_num_channels(2);
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status created = server_->sessions().CreateSession(&context, create, &session);
    EXPECT_TRUE(created.ok()) << created.error_message();
  }

  std::vector<AuditRecord> TakeAudit() {
    MutexLock lock(mu_);
    return std::exchange(audit_, {});
  }

  std::vector<RequestRecord> TakeRequests() {
    MutexLock lock(mu_);
    return std::exchange(requests_, {});
  }

  // All that the server's sessions have.
  std::string State() {
    v1::ListSessionsRequest request;
    request.set_view(v1::SESSION_VIEW_FULL);
    v1::ListSessionsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(server_->sessions().ListSessions(&context, request, &response).ok());
    return response.SerializeAsString();
  }

  TemporaryFolder folder_;
  SystemClock clock_;
  std::atomic<int> reservations_{0};
  std::atomic<int> traced_strangers_{0}, traced_callers_{0};
  std::atomic<int64_t> held_bytes_{0};
  Mutex mu_;
  std::vector<AuditRecord> audit_ ABSL_GUARDED_BY(mu_);
  std::vector<RequestRecord> requests_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<TestServer> server_;
  std::shared_ptr<grpc::Channel> tcp_;
};

TEST_F(AccessTest, TheTableOfAttacksHasEveryMethod) {
  std::set<std::string> listed;
  for (const auto& [path, message] : MethodMessages()) listed.insert(path);
  EXPECT_EQ(listed, DeclaredMethods());
  const std::vector<std::string> known = rpc::AllMethodPaths();
  EXPECT_EQ(std::set<std::string>(known.begin(), known.end()), DeclaredMethods());
}

TEST_F(AccessTest, EveryMethodRefusesBadCredentialsAndNothingHappens) {
  const std::string before = State();
  // The server lets go of a call's bytes after the caller has its reply.
  ASSERT_TRUE(Eventually([this] { return held_bytes_ == 0; }));
  reservations_ = 0;
  for (const auto& [path, message] : MethodMessages()) {
    for (const Attack& attack : Attacks()) {
      Metadata metadata = attack.metadata;
      // A call that is let in reserves this much before it reads.
      metadata.emplace_back(wire::kMessageBytesKey, "1048576");
      const grpc::Status status = CallOnce(attack.over_tcp ? tcp_ : server_->channel(), path, message, metadata);
      EXPECT_EQ(status.error_code(), attack.code) << path << " with " << attack.name << ": " << status.error_message();
      EXPECT_THAT(status.error_message() + status.error_details(),
                  Not(AnyOf(HasSubstr(kGood), HasSubstr(kWrong), HasSubstr(kExpired), HasSubstr(kOther))));
    }
  }
  // Headers this long break their connection, so the refusal itself may not arrive.
  for (const auto& [path, message] : MethodMessages()) {
    const grpc::Status status =
        CallOnce(server_->NewChannel(), path, message, {{"authorization", Bearer(std::string(1 << 20, 'x'))}});
    EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNAVAILABLE));
  }
  EXPECT_EQ(reservations_, 0);
  EXPECT_EQ(State(), before);
  // The table means something: the same calls are let in with a good token.
  for (const auto& [path, message] : MethodMessages()) {
    const grpc::Status status = CallOnce(server_->channel(), path, message, {{"authorization", Bearer(kGood)}});
    EXPECT_THAT(status.error_code(), Not(AnyOf(grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::PERMISSION_DENIED)))
        << path << ": " << status.error_message();
  }
  EXPECT_NE(State(), before);
}

TEST_F(AccessTest, StrangersAreNotTraced) {
  const std::string path = "/normd.v1.Normalizer/Describe";
  const std::pair<std::string, std::string> traced = {"traceparent",
                                                      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
  traced_callers_ = 0;
  EXPECT_EQ(CallOnce(tcp_, path, "", {traced}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(CallOnce(tcp_, path, "", {}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(traced_strangers_, 0);
  CallOnce(server_->channel(), path, "", {{"authorization", Bearer(kGood)}, traced});
  EXPECT_EQ(traced_callers_, 1);
}

TEST_F(AccessTest, AMethodThatDoesNotExistTellsStrangersNothing) {
  const std::string path = "/normd.v1.Sessions/DropAll";
  EXPECT_EQ(CallOnce(tcp_, path, "", {}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(CallOnce(server_->channel(), path, "", {{"authorization", Bearer(kOther)}}).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(CallOnce(server_->channel(), path, "", {}).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AccessTest, AHeaderOfArbitraryBytesIsRefused) {
  RawHttp2 client(server_->target());
  ASSERT_TRUE(client.SendPreface());
  const std::vector<std::string> values = {std::string("Bearer \0\x01\x02", 10), "Bearer \xff\xfe", "\x80",
                                           "Bearer\t" + std::string(kGood), Bearer(kGood) + "\r\nx: y"};
  uint32_t stream = 1;
  for (const std::string& value : values) {
    ASSERT_TRUE(client.SendHeaders(stream, "/normd.v1.Sessions/ListSessions", {{"authorization", value}}));
    client.SendData(stream, std::string(5, '\0'), std::chrono::seconds(1), /*end_stream=*/true);
    ASSERT_TRUE(client.WaitForEnd(stream, std::chrono::seconds(20))) << stream;
    EXPECT_FALSE(client.LastHeadersContain(stream, "sessions/bn"));
    stream += 2;
  }
  // Of these values HTTP/2 itself forbids the first and the last (RFC 9113, 8.2.1): nghttp2 resets their streams.
  const size_t forbidden = TestedTransport() == TransportKind::kNative ? 2 : 0;
  EXPECT_EQ(access_->stats().denied[static_cast<size_t>(Denial::kUnknownToken)] +
                access_->stats().denied[static_cast<size_t>(Denial::kMalformedCredentials)],
            static_cast<int64_t>(values.size() - forbidden));
}

TEST_F(AccessTest, ErrorsSayWhatIsAskedForAndPermissionsSayWhoAndWhat) {
  const std::string path = "/normd.v1.Normalizer/Describe";
  EXPECT_EQ(CallOnce(tcp_, path, "", {}).error_message(),
            "credentials are missing; give a bearer token over TLS or the Unix socket");
  EXPECT_EQ(CallOnce(server_->channel(), path, "", {{"authorization", Bearer(kOther)}}).error_message(),
            "method /normd.v1.Normalizer/Describe is not allowed to token:other by this server's policy");
}

TEST_F(AccessTest, ATokenThatIsTakenAwayStopsWorkingAtTheNextCallOfAnOpenConnection) {
  const std::string path = "/normd.v1.Normalizer/Describe";
  const Metadata good = {{"authorization", Bearer(kGood)}};
  EXPECT_TRUE(CallOnce(server_->channel(), path, "", good).error_code() != grpc::StatusCode::UNAUTHENTICATED);
  WriteFile(folder_.path() + "/tokens", "");
  access_->Reload();
  EXPECT_EQ(CallOnce(server_->channel(), path, "", good).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessTest, CallsUnderWayAreJudgedByOnePolicyOrTheOther) {
  const std::string policies[] = {kPolicy, "[[allow]]\nidentities = [\"token:other\"]\nmethods = [\"*\"]\n"};
  std::atomic<bool> done{false};
  std::atomic<int> calls{0}, wrong{0};
  std::vector<std::thread> callers;
  for (const char* token : {kGood, kOther}) {
    callers.emplace_back([this, token, &done, &calls, &wrong] {
      const auto stub = v1::Normalizer::NewStub(server_->NewChannel());
      while (!done) {
        grpc::ClientContext context;
        context.AddMetadata("authorization", Bearer(token));
        v1::NormalizeResponse response;
        const grpc::StatusCode code = stub->Normalize(&context, LayerNormRequest(), &response).error_code();
        if (code != grpc::StatusCode::OK && code != grpc::StatusCode::PERMISSION_DENIED) ++wrong;
        ++calls;
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    WriteFile(folder_.path() + "/policy", policies[i % 2]);
    access_->Reload();
    const int before = calls;
    EXPECT_TRUE(Eventually([&] { return calls > before + 2; }));
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(AccessTest, ChangesOfSessionsAndDeniedCallsAreAudited) {
  const std::vector<AuditRecord> creation = TakeAudit();
  ASSERT_EQ(creation.size(), 1U);
  EXPECT_EQ(creation[0].method, "/normd.v1.Sessions/CreateSession");
  EXPECT_EQ(creation[0].session, "sessions/bn");
  EXPECT_EQ(creation[0].identity->name, "uid:" + std::to_string(geteuid()));
  EXPECT_EQ(creation[0].code, absl::StatusCode::kOk);
  for (const auto& [path, message] : MethodMessages()) {
    CallOnce(server_->channel(), path, message, {{"authorization", Bearer(kGood)}});
    CallOnce(server_->channel(), path, message, {{"authorization", Bearer(kWrong)}});
  }
  std::map<std::string, std::vector<std::string>> let_in;  // by method
  std::map<std::string, int> denied;
  for (const AuditRecord& record : TakeAudit()) {
    if (record.denied.empty()) {
      EXPECT_EQ(record.identity->name, "token:admin");
      let_in[record.method.substr(record.method.rfind('/') + 1)].push_back(record.source + ">" + record.session);
    } else {
      EXPECT_EQ(record.denied, "unknown_token");
      EXPECT_EQ(record.code, absl::StatusCode::kUnauthenticated);
      EXPECT_EQ(record.identity, nullptr);
      ++denied[record.method];
    }
  }
  const std::map<std::string, std::vector<std::string>> expected = {{"CreateSession", {">sessions/evil"}},
                                                                    {"UpdateSession", {">sessions/bn"}},
                                                                    {"ResetSession", {">sessions/bn"}},
                                                                    {"DeleteSession", {">sessions/bn"}},
                                                                    {"ExportSession", {">sessions/bn"}},
                                                                    {"ImportSession", {">sessions/evil"}},
                                                                    {"RegisterRegion", {">"}}};
  for (const auto& [method, sessions] : expected) EXPECT_EQ(let_in[method], sessions) << method;
  EXPECT_EQ(let_in.count("ForkSession"), 1U);
  EXPECT_EQ(let_in.size(), expected.size() + 1);
  EXPECT_EQ(denied.size(), MethodMessages().size());
}

TEST_F(AccessTest, RequestsAreReportedWithTheTenantOfTheirCallerAndDeniedOnesToo) {
  const std::string path = "/normd.v1.Normalizer/Describe";
  TakeRequests();
  CallOnce(server_->channel(), path, "", {{"authorization", Bearer(kWrong)}});
  CallOnce(server_->channel(), path, "", {{"authorization", Bearer(kOther)}});
  CallOnce(server_->channel(), path, "", {});
  const std::vector<RequestRecord> requests = TakeRequests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].code, absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(requests[0].origin.tenant, kNoTenant);
  EXPECT_EQ(requests[1].code, absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(requests[1].origin.tenant, 6) << "the length of the tenant others";
  EXPECT_EQ(requests[2].origin.tenant, 0) << "the default tenant";
  for (const RequestRecord& request : requests) {
    EXPECT_EQ(request.origin.transport, Transport::kUnix);
    EXPECT_GT(request.total, absl::ZeroDuration());
  }
}

// The whole program's object, with its log at debug, its audit log and its metrics.
TEST(AccessLogTest, NoTokenIsInAnyLineThatTheServerWrites) {
  TemporaryFolder folder;
  WriteFile(folder.path() + "/tokens", TokensText());
  WriteFile(folder.path() + "/policy", kPolicy);
  const std::string socket = "unix:" + folder.path() + "/run/s";
  const absl::StatusOr<Config> config =
      ParseConfig({"--listen=127.0.0.1:0," + socket, "--admin_listen=", "--session_store=memory", "--shared_memory=off",
                   "--tokens_file=" + folder.path() + "/tokens", "--policy_file=" + folder.path() + "/policy",
                   "--audit_log=" + folder.path() + "/audit"},
                  {});
  ASSERT_TRUE(config.ok()) << config.status();
  std::ostringstream out;
  SystemClock clock;
  Log log({.level = LogLevel::kDebug, .out = &out}, &clock);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(*config, &log);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto tcp = grpc::CreateChannel((*server)->listeners()[0].substr(5), grpc::InsecureChannelCredentials());
  const auto unix_socket = grpc::CreateChannel(socket, grpc::InsecureChannelCredentials());
  for (const auto& [path, message] : MethodMessages()) {
    for (const Attack& attack : Attacks()) {
      CallOnce(attack.over_tcp ? tcp : unix_socket, path, message, attack.metadata);
    }
    CallOnce(unix_socket, path, message, {{"authorization", Bearer(kGood)}});
  }
  WriteFile(folder.path() + "/tokens", std::string("admin ") + kGood + "\n");
  WriteFile(folder.path() + "/policy", "[[alow]]\n");
  (*server)->ReloadFiles();
  server->reset();
  const std::string audit = ReadWhole(folder.path() + "/audit");
  EXPECT_THAT(audit, HasSubstr("method=/normd.v1.Sessions/CreateSession identity=token:admin tenant=default peer="));
  EXPECT_THAT(audit, HasSubstr("denied=token_in_plain_text"));
  EXPECT_THAT(out.str(), HasSubstr("DEBUG request"));
  EXPECT_THAT(out.str(), HasSubstr("line 1: has no sha256:"));
  EXPECT_THAT(out.str(), HasSubstr("line 1: alow is no key of a policy; did you mean allow?"));
  for (const char* token : {kGood, kWrong, kExpired, kOther}) {
    EXPECT_THAT(audit, Not(HasSubstr(token)));
    EXPECT_THAT(out.str(), Not(HasSubstr(token)));
  }
}

}  // namespace
}  // namespace normd::e2e
