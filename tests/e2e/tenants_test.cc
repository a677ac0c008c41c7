// Several tenants of one server, who use the same ids and send the same bytes: none sees, changes, lists, counts or
// slows what another has, over any RPC.
#include <fcntl.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "normd/v1/shared_memory.grpc.pb.h"
#include "proto/wire/crc32c.h"
#include "server/base/tenant_quotas.h"
#include "server/rpc/services/method_names.h"
#include "server/security/access_control.h"
#include "server/security/token_list.h"
#include "server/shm/region_table.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/test_server.h"
#include "tests/support/temporary_file.h"

namespace normd::e2e {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The tenants "a" and "b", whose tokens have their names; who shows none is of the default tenant.
constexpr char kTenantsPolicy[] = R"(
[[tenant]]
name = "a"
identities = ["token:a"]
[[tenant]]
name = "b"
identities = ["token:b"]
[[allow]]
identities = ["*"]
methods = ["*"]
)";

class TenantsServer {
 public:
  explicit TenantsServer(RpcOptions options) : server_(With(std::move(options))) {}
  TestServer& operator*() { return server_; }
  TestServer* operator->() { return &server_; }

 private:
  RpcOptions With(RpcOptions options) {
    options.listeners = {"unix:" + policy_.folder() + "/s"};  // tokens are taken over TLS or here
    options.access = access_.get();
    options.export_chunk_bytes = 64 << 10;
    return options;
  }

  TemporaryFile tokens_{TokenLine("a", "a") + "\n" + TokenLine("b", "b") + "\n"};
  TemporaryFile policy_{kTenantsPolicy};
  SystemClock clock_;
  const std::unique_ptr<AccessControl> access_ = *AccessControl::Open(
      {.tokens_file = tokens_.path(), .policy_file = policy_.path(), .methods = rpc::AllMethodPaths()}, &clock_);
  TestServer server_;
};

std::unique_ptr<grpc::ClientContext> ContextOf(const std::string& tenant) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (!tenant.empty()) context->AddMetadata("authorization", "Bearer " + tenant);
  return context;
}

// Everything that an error shows.
std::string TextOf(const grpc::Status& status) { return status.error_message() + " " + status.error_details(); }

// A caller of one tenant: the RPCs in one line each. No reply and no error shows a key or another tenant.
class Caller {
 public:
  Caller(TestServer* server, std::string tenant) : server_(server), tenant_(std::move(tenant)) {}

  // BatchNorm with 2 channels, channels last, and `weight` for the first channel.
  grpc::Status Create(const std::string& id, float weight, v1::Session* session = nullptr) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    request.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    request.mutable_session()->set_num_channels(2);
    SetTensor({2}, {weight, 1}, request.mutable_session()->mutable_parameters()->mutable_weight());
    return Call(&v1::Sessions::Stub::CreateSession, request, session);
  }
  grpc::Status Get(const std::string& id, v1::Session* session = nullptr) {
    v1::GetSessionRequest request;
    request.set_name("sessions/" + id);
    request.set_view(v1::SESSION_VIEW_FULL);
    return Call(&v1::Sessions::Stub::GetSession, request, session);
  }
  v1::Session Session(const std::string& id) {
    v1::Session session;
    const grpc::Status status = Get(id, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(session.name(), "sessions/" + id);
    return session;
  }
  float WeightOf(const std::string& id) { return Values<float>(Session(id).parameters().weight())[0]; }
  grpc::Status List(const v1::ListSessionsRequest& request, v1::ListSessionsResponse* response = nullptr) {
    return Call(&v1::Sessions::Stub::ListSessions, request, response);
  }
  std::vector<std::string> Names(v1::SessionView view = v1::SESSION_VIEW_BASIC) {
    v1::ListSessionsRequest request;
    request.set_view(view);
    v1::ListSessionsResponse response;
    EXPECT_TRUE(List(request, &response).ok());
    std::vector<std::string> names;
    for (const v1::Session& session : response.sessions()) names.push_back(session.name());
    return names;
  }
  grpc::Status SetWeight(const std::string& id, float weight) {
    v1::UpdateSessionRequest request;
    request.mutable_session()->set_name("sessions/" + id);
    SetTensor({2}, {weight, 1}, request.mutable_session()->mutable_parameters()->mutable_weight());
    request.mutable_update_mask()->add_paths("parameters.weight");
    return Call<v1::Session>(&v1::Sessions::Stub::UpdateSession, request);
  }
  grpc::Status Reset(const std::string& id) {
    v1::ResetSessionRequest request;
    request.set_name("sessions/" + id);
    return Call<v1::Session>(&v1::Sessions::Stub::ResetSession, request);
  }
  grpc::Status Delete(const std::string& id) {
    v1::DeleteSessionRequest request;
    request.set_name("sessions/" + id);
    return Call<google::protobuf::Empty>(&v1::Sessions::Stub::DeleteSession, request);
  }
  grpc::Status Fork(const std::string& id, const std::string& fork_id, v1::Session* session = nullptr) {
    v1::ForkSessionRequest request;
    request.set_name("sessions/" + id);
    request.set_session_id(fork_id);
    return Call(&v1::Sessions::Stub::ForkSession, request, session);
  }
  grpc::Status Commit(const std::string& id, v1::StateResult* result = nullptr) {
    v1::CommitMomentsRequest request;
    request.set_session("sessions/" + id);
    v1::Moments* const moments = request.add_moments();
    SetF64({2, 2}, moments->mutable_count());
    SetF64({1, 5}, moments->mutable_mean());
    SetF64({2, 4}, moments->mutable_m2());
    return Call(&v1::Sessions::Stub::CommitMoments, request, result);
  }
  grpc::Status Export(const std::string& id, std::string* record) {
    v1::ExportSessionRequest request;
    request.set_name("sessions/" + id);
    const auto context = ContextOf(tenant_);
    const auto reader = server_->sessions().ExportSession(context.get(), request);
    for (v1::SessionChunk chunk; reader->Read(&chunk);) *record += chunk.chunk().data();
    return Checked(reader->Finish());
  }
  grpc::Status Import(const std::string& id, const std::string& record, v1::Session* session) {
    const auto context = ContextOf(tenant_);
    const auto writer = server_->sessions().ImportSession(context.get(), session);
    v1::ImportSessionRequest request;
    request.set_session_id(id);
    request.mutable_chunk()->set_data(record);
    request.mutable_chunk()->set_crc32c(wire::Crc32c(record));
    request.mutable_chunk()->set_last(true);
    writer->Write(request);
    writer->WritesDone();
    return Checked(writer->Finish());
  }
  grpc::Status Normalize(const v1::NormalizeRequest& request, v1::NormalizeResponse* response = nullptr) {
    v1::NormalizeResponse ignored;
    const auto context = ContextOf(tenant_);
    return Checked(server_->normalizer().Normalize(context.get(), request, response == nullptr ? &ignored : response));
  }
  grpc::Status Batch(const v1::BatchNormalizeRequest& request, v1::BatchNormalizeResponse* response) {
    const auto context = ContextOf(tenant_);
    return Checked(server_->normalizer().BatchNormalize(context.get(), request, response));
  }
  grpc::Status ComputeMoments(const v1::ComputeMomentsRequest& request) {
    v1::ComputeMomentsResponse ignored;
    const auto context = ContextOf(tenant_);
    return Checked(server_->normalizer().ComputeMoments(context.get(), request, &ignored));
  }
  std::unique_ptr<OpenStream> NewStream() { return std::make_unique<OpenStream>(server_->normalizer(), tenant_); }

 private:
  grpc::Status Checked(grpc::Status status) const {
    // Requests that named a key are told what they sent.
    const bool tells_key = status.error_code() != StatusCode::INVALID_ARGUMENT && !tenant_.empty();
    EXPECT_FALSE(tells_key && absl::StrContains(TextOf(status), "/" + tenant_ + "/")) << TextOf(status);
    return status;
  }
  template <typename Response, typename Request>
  grpc::Status Call(grpc::Status (v1::Sessions::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response = nullptr) {
    Response ignored;
    const auto context = ContextOf(tenant_);
    return Checked((server_->sessions().*method)(context.get(), request, response == nullptr ? &ignored : response));
  }

  TestServer* const server_;
  const std::string tenant_;
};

v1::NormalizeRequest OnSession(const std::string& id) {
  v1::NormalizeRequest request;
  request.set_session("sessions/" + id);
  SetTensor({2, 2}, {1, 10, 3, 30}, request.mutable_x());
  return request;
}

v1::NormalizeRequest Step(const std::string& id, uint64_t sequence) {
  v1::NormalizeRequest request = OnSession(id);
  request.set_mode(v1::MODE_TRAINING);
  request.mutable_step()->set_client_id("trainer");
  request.mutable_step()->set_sequence(sequence);
  return request;
}

float FirstOf(const v1::NormalizeResponse& response) { return Values<float>(response.outputs(0).tensor())[0]; }

// Tenants "a" and "b" and the default one, each with a session "s" whose weights are 2, 3 and 5: inference on a new
// session multiplies x by the weight.
class TenantsTest : public testing::Test {
 protected:
  TenantsTest() {
    server_->backend().RunInline();
    EXPECT_TRUE(a_.Create("s", 2).ok());
    EXPECT_TRUE(b_.Create("s", 3).ok());
    EXPECT_TRUE(nobody_.Create("s", 5).ok());
  }

  TenantQuotaTable quotas_;
  TenantsServer server_{{.quotas = &quotas_}};
  Caller a_{&*server_, "a"}, b_{&*server_, "b"}, nobody_{&*server_, ""};
};

TEST_F(TenantsTest, EachHasItsOwnSessionOfOneId) {
  EXPECT_EQ(a_.WeightOf("s"), 2);
  EXPECT_EQ(b_.WeightOf("s"), 3);
  EXPECT_EQ(nobody_.WeightOf("s"), 5);
  EXPECT_EQ(a_.Create("s", 9).error_code(), StatusCode::ALREADY_EXISTS);
  ASSERT_TRUE(a_.Create("only-a", 7).ok());
  for (Caller* other : {&b_, &nobody_}) {
    EXPECT_EQ(other->Get("only-a").error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->SetWeight("only-a", 8).error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Reset("only-a").error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Delete("only-a").error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Fork("only-a", "mine").error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Commit("only-a").error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Normalize(OnSession("only-a")).error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(other->Normalize(Step("only-a", 1)).error_code(), StatusCode::NOT_FOUND);
    std::string record;
    EXPECT_EQ(other->Export("only-a", &record).error_code(), StatusCode::NOT_FOUND);
    v1::ComputeMomentsRequest moments;
    moments.set_session("sessions/only-a");
    SetTensor({2, 2}, {1, 10, 3, 30}, moments.mutable_x());
    EXPECT_EQ(other->ComputeMoments(moments).error_code(), StatusCode::NOT_FOUND);
    EXPECT_TRUE(a_.ComputeMoments(moments).ok());
  }
  EXPECT_EQ(a_.WeightOf("only-a"), 7);
}

TEST_F(TenantsTest, NobodyCanNameTheKeyOfAnother) {
  for (const char* id : {"/a/s", "/b/s", "a/s", "/a/", "//a/s", "../a/s", "/", "s/"}) {
    for (Caller* caller : {&a_, &b_, &nobody_}) {
      EXPECT_EQ(caller->Get(id).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Create(id, 1).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->SetWeight(id, 1).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Reset(id).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Delete(id).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Fork(id, "mine").error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Fork("s", id).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Commit(id).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      EXPECT_EQ(caller->Normalize(OnSession(id)).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      std::string record;
      EXPECT_EQ(caller->Export(id, &record).error_code(), StatusCode::INVALID_ARGUMENT) << id;
      ASSERT_TRUE(caller->Export("s", &record).ok());
      v1::Session session;
      EXPECT_EQ(caller->Import(id, record, &session).error_code(), StatusCode::INVALID_ARGUMENT) << id;
    }
  }
  EXPECT_THAT(a_.Names(), ElementsAre("sessions/s"));
  EXPECT_THAT(b_.Names(), ElementsAre("sessions/s"));
}

TEST_F(TenantsTest, ChangesReachTheOwnSessionAlone) {
  ASSERT_TRUE(a_.SetWeight("s", 4).ok());
  ASSERT_TRUE(b_.Commit("s").ok());
  ASSERT_TRUE(b_.Normalize(Step("s", 1)).ok());
  EXPECT_EQ(a_.WeightOf("s"), 4);
  EXPECT_EQ(a_.Session("s").state().num_batches(), 0);
  EXPECT_EQ(b_.Session("s").state().num_batches(), 2);
  EXPECT_EQ(nobody_.Session("s").version(), 0);
  // The same step id and bytes are another tenant's first step and no replay.
  v1::NormalizeResponse response;
  ASSERT_TRUE(a_.Normalize(Step("s", 1), &response).ok());
  EXPECT_FALSE(response.state().replayed());
  ASSERT_TRUE(b_.Normalize(Step("s", 1), &response).ok());
  EXPECT_TRUE(response.state().replayed());
  ASSERT_TRUE(b_.Reset("s").ok());
  EXPECT_EQ(a_.Session("s").state().num_batches(), 1);
  ASSERT_TRUE(a_.Delete("s").ok());
  EXPECT_EQ(a_.Get("s").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(b_.WeightOf("s"), 3);
  EXPECT_EQ(nobody_.WeightOf("s"), 5);
}

TEST_F(TenantsTest, ListsShowTheOwnSessionsAndPageTokensAreNoUseToOthers) {
  for (const char* id : {"0", "m", "z9"}) {
    ASSERT_TRUE(a_.Create(absl::StrCat("a", id), 1).ok());
    ASSERT_TRUE(b_.Create(absl::StrCat("b", id), 1).ok());
    ASSERT_TRUE(nobody_.Create(id, 1).ok());
  }
  EXPECT_THAT(a_.Names(), ElementsAre("sessions/a0", "sessions/am", "sessions/az9", "sessions/s"));
  EXPECT_THAT(b_.Names(v1::SESSION_VIEW_FULL), ElementsAre("sessions/b0", "sessions/bm", "sessions/bz9", "sessions/s"));
  EXPECT_THAT(nobody_.Names(), ElementsAre("sessions/0", "sessions/m", "sessions/s", "sessions/z9"));
  v1::ListSessionsRequest request;
  request.set_page_size(3);
  for (Caller* owner : {&a_, &b_, &nobody_}) {
    request.clear_page_token();
    v1::ListSessionsResponse first, second;
    ASSERT_TRUE(owner->List(request, &first).ok());
    ASSERT_EQ(first.sessions_size(), 3);
    request.set_page_token(first.next_page_token());
    std::string plain;
    ASSERT_TRUE(absl::WebSafeBase64Unescape(first.next_page_token(), &plain));
    EXPECT_THAT(plain, Not(HasSubstr("/a/"))) << "no key in a token";
    for (Caller* caller : {&a_, &b_, &nobody_}) {
      if (caller == owner) continue;
      const grpc::Status status = caller->List(request);
      EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
      EXPECT_EQ(ReasonOf(status), "PAGE_TOKEN");
    }
    ASSERT_TRUE(owner->List(request, &second).ok());
    EXPECT_EQ(second.sessions_size(), 1);
    EXPECT_EQ(second.next_page_token(), "");
  }
  // A token that a caller has made up.
  request.set_page_token(absl::WebSafeBase64Escape("\n/a/a0"));
  for (Caller* caller : {&a_, &b_, &nobody_}) {
    EXPECT_EQ(caller->List(request).error_code(), StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(TenantsTest, NewSessionsBelongToTheirCallerWhoeverChoseTheId) {
  v1::Session chosen, forked;
  ASSERT_TRUE(a_.Create("", 1, &chosen).ok());
  EXPECT_THAT(chosen.name(), testing::MatchesRegex("sessions/s-[0-9a-f]+"));
  ASSERT_TRUE(a_.Fork("s", "", &forked).ok());
  EXPECT_THAT(forked.name(), testing::MatchesRegex("sessions/s-[0-9a-f]+"));
  EXPECT_EQ(a_.Names().size(), 3U);
  EXPECT_THAT(b_.Names(), ElementsAre("sessions/s"));
  ASSERT_TRUE(b_.Fork("s", "copy").ok());
  EXPECT_EQ(b_.WeightOf("copy"), 3);
  EXPECT_EQ(a_.Get("copy").error_code(), StatusCode::NOT_FOUND);
}

TEST_F(TenantsTest, AnExportedRecordBecomesTheSessionOfWhoeverImportsIt) {
  ASSERT_TRUE(a_.Normalize(Step("s", 1)).ok());
  std::string record, of_nobody;
  ASSERT_TRUE(a_.Export("s", &record).ok());
  EXPECT_THAT(record, Not(HasSubstr("/a/")));
  v1::Session imported;
  EXPECT_EQ(b_.Import("", record, &imported).error_code(), StatusCode::ALREADY_EXISTS) << "b has an s of its own";
  ASSERT_TRUE(b_.Delete("s").ok());
  ASSERT_TRUE(b_.Import("", record, &imported).ok());
  EXPECT_EQ(imported.name(), "sessions/s");
  ASSERT_TRUE(b_.Import("other", record, &imported).ok());
  EXPECT_EQ(imported.name(), "sessions/other");
  EXPECT_EQ(b_.WeightOf("s"), 2);
  EXPECT_EQ(b_.Session("other").state().num_batches(), 1);
  EXPECT_THAT(a_.Names(), ElementsAre("sessions/s"));
  ASSERT_TRUE(nobody_.Delete("s").ok());
  ASSERT_TRUE(nobody_.Import("", record, &imported).ok());
  ASSERT_TRUE(nobody_.Export("s", &of_nobody).ok());
  ASSERT_TRUE(a_.Import("back", of_nobody, &imported).ok());
  EXPECT_EQ(a_.WeightOf("back"), 2);
}

// The call cache is looked up by a request's bytes, which are the same here.
TEST_F(TenantsTest, TheSameBytesAreEachTenantsOwnCall) {
  const v1::NormalizeRequest request = OnSession("s");
  const auto expect = [&](Caller& caller, float weight) {
    v1::NormalizeResponse response;
    ASSERT_TRUE(caller.Normalize(request, &response).ok());
    EXPECT_NEAR(FirstOf(response), weight, 1e-4);
  };
  for (int i = 0; i < 4; ++i) {
    expect(a_, 2);
    expect(b_, 3);
    expect(nobody_, 5);
  }
  ASSERT_TRUE(a_.Delete("s").ok());
  EXPECT_EQ(a_.Normalize(request).error_code(), StatusCode::NOT_FOUND);
  expect(b_, 3);
  expect(nobody_, 5);
}

TEST_F(TenantsTest, TheSameBatchIsEachTenantsOwn) {
  v1::BatchNormalizeRequest batch;
  for (int i = 0; i < 3; ++i) *batch.add_items() = OnSession("s");
  *batch.add_items() = LayerNormRequest();
  for (int round = 0; round < 3; ++round) {
    for (const auto& [caller, weight] : {std::pair(&a_, 2.0F), std::pair(&b_, 3.0F), std::pair(&nobody_, 5.0F)}) {
      v1::BatchNormalizeResponse response;
      ASSERT_TRUE(caller->Batch(batch, &response).ok());
      ASSERT_EQ(response.items_size(), 4);
      for (int i = 0; i < 3; ++i) EXPECT_NEAR(FirstOf(response.items(i).response()), weight, 1e-4);
      // A unary call after a batch takes what the batch has left in the cache.
      v1::NormalizeResponse single;
      ASSERT_TRUE(caller->Normalize(OnSession("s"), &single).ok());
      EXPECT_NEAR(FirstOf(single), weight, 1e-4);
    }
  }
}

TEST_F(TenantsTest, TheSameStreamIsEachTenantsOwn) {
  v1::NormalizeRequest defaults, call;
  defaults.set_session("sessions/s");
  SetTensor({2, 2}, {1, 10, 3, 30}, call.mutable_x());
  const auto of_a = a_.NewStream(), of_b = b_.NewStream(), of_nobody = nobody_.NewStream();
  const auto expect = [&](OpenStream& stream, const v1::NormalizeRequest& request, float weight) {
    ASSERT_TRUE(stream.Send(1, request));
    const v1::StreamResponse response = stream.Receive();
    ASSERT_TRUE(response.has_reply()) << response.error().message();
    EXPECT_NEAR(FirstOf(response.reply()), weight, 1e-4);
  };
  const auto expect_all = [&](const v1::NormalizeRequest& request) {
    for (int round = 0; round < 3; ++round) {
      expect(*of_a, request, 2);
      expect(*of_b, request, 3);
      expect(*of_nobody, request, 5);
    }
  };
  expect_all(OnSession("s"));
  for (OpenStream* stream : {of_a.get(), of_b.get(), of_nobody.get()}) ASSERT_TRUE(stream->SendDefaults(0, defaults));
  expect_all(call);
  expect_all(OnSession("s"));
}

TEST_F(TenantsTest, AQuotaOfSessionsStopsItsTenantAlone) {
  quotas_.Set({{"a", {.max_sessions = 2}}, {"b", {.max_session_bytes = 3 << 10}}});
  ASSERT_TRUE(a_.Create("two", 1).ok());
  grpc::Status refused = a_.Create("three", 1);
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(refused), "LIMIT_EXCEEDED");
  EXPECT_THAT(refused.error_message(), HasSubstr("sessions of the tenant would be 3, over the limit of 2"));
  EXPECT_EQ(a_.Fork("s", "three").error_code(), StatusCode::RESOURCE_EXHAUSTED);
  std::string record;
  v1::Session imported;
  ASSERT_TRUE(a_.Export("s", &record).ok());
  EXPECT_EQ(a_.Import("three", record, &imported).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(a_.SetWeight("s", 3).ok()) << "what is there can still be used";
  EXPECT_TRUE(b_.Create("two", 1).ok());
  refused = b_.Create("three", 1);
  EXPECT_EQ(ReasonOf(refused), "LIMIT_EXCEEDED");
  EXPECT_THAT(refused.error_message(), HasSubstr("bytes of the tenant's sessions"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(nobody_.Create("n" + std::to_string(i), 1).ok());
  EXPECT_THAT(quotas_.refusals(), ElementsAre(std::pair("a", 3), std::pair("b", 1)));
  ASSERT_TRUE(a_.Delete("two").ok());
  EXPECT_TRUE(a_.Create("three", 1).ok()) << "there is room again";
  quotas_.Set({});
  EXPECT_TRUE(a_.Create("four", 1).ok()) << "quotas may change while the server runs";
}

TEST_F(TenantsTest, AQuotaOfBytesInFlightCountsAllConnectionsOfItsTenantAndNobodyElses) {
  quotas_.Set({{"a", {.max_in_flight_bytes = 3 << 20}}});
  v1::NormalizeRequest large = LayerNormRequest(64 << 10);  // 1 MiB, and as much for its reply
  EXPECT_TRUE(a_.Normalize(large).ok());
  ASSERT_TRUE(Eventually([&] { return server_->server().bytes_by_tenant().count("a") == 0; }));
  // A stream of another connection that holds its announced chunks in reserve.
  const auto stub = v1::Normalizer::NewStub(server_->NewChannel());
  OpenStream stream(*stub, "a");
  const std::vector<v1::StreamRequest> chunks = InChunks(1, large, 1 << 20);
  ASSERT_TRUE(stream.Send(chunks.front()));
  ASSERT_TRUE(Eventually([&] { return server_->server().bytes_by_tenant()["a"] >= 2 << 20; }));
  const grpc::Status refused = a_.Normalize(large);
  EXPECT_EQ(ReasonOf(refused), "NO_ROOM");
  EXPECT_THAT(refused.error_message(), HasSubstr("bytes_in_flight_of_tenant"));
  EXPECT_TRUE(a_.Normalize(LayerNormRequest()).ok()) << "small calls do not count";
  EXPECT_TRUE(b_.Normalize(large).ok());
  EXPECT_TRUE(nobody_.Normalize(large).ok());
  ASSERT_TRUE(stream.Send(chunks.back()));
  EXPECT_TRUE(stream.ReceiveWhole().has_reply());
  ASSERT_TRUE(Eventually([&] { return server_->server().bytes_by_tenant().count("a") == 0; }));
  EXPECT_TRUE(a_.Normalize(large).ok());
  // Larger than the whole quota: waiting would not help.
  EXPECT_EQ(ReasonOf(a_.Normalize(LayerNormRequest(128 << 10))), "LIMIT_EXCEEDED");
}

// A POSIX object that goes with the test.
class PosixObject {
 public:
  explicit PosixObject(size_t size_bytes) : name_("/normd-tenants-" + std::to_string(getpid())) {
    const int descriptor = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    EXPECT_EQ(ftruncate(descriptor, static_cast<off_t>(size_bytes)), 0);
    close(descriptor);
  }
  ~PosixObject() { shm_unlink(name_.c_str()); }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

// A RegisterRegion call of `tenant`.
class TenantRegistration {
 public:
  TenantRegistration(TestServer& server, const std::string& tenant, const PosixObject& object)
      : stub_(v1::SharedMemory::NewStub(server.channel())), context_(ContextOf(tenant)) {
    v1::RegisterRegionRequest request;
    request.set_posix_name(object.name());
    request.set_size_bytes(4096);
    call_ = stub_->RegisterRegion(context_.get(), request);
    v1::RegisterRegionResponse response;
    if (call_->Read(&response)) region_ = response.region();
    if (region_.empty()) refused_ = call_->Finish();
  }
  ~TenantRegistration() {
    context_->TryCancel();
    if (!region_.empty()) call_->Finish();
  }
  const std::string& region() const { return region_; }  // empty: refused
  const grpc::Status& refused() const { return refused_; }

 private:
  const std::unique_ptr<v1::SharedMemory::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::RegisterRegionResponse>> call_;
  std::string region_;
  grpc::Status refused_;
};

TEST(TenantsRegionsTest, ARegionIsThereForItsTenantAlone) {
  TenantQuotaTable quotas;
  RegionTable table({.quotas = &quotas});
  TenantsServer tenants({.regions = &table, .shared_memory_anywhere = true, .quotas = &quotas});
  TestServer& server = *tenants;
  Caller a(&server, "a"), b(&server, "b"), nobody(&server, "");
  const PosixObject object(4096);
  const TenantRegistration of_a(server, "a", object);
  ASSERT_NE(of_a.region(), "") << of_a.refused().error_message();
  v1::NormalizeRequest request = RmsNormRequest({1, 2, 3, 4});
  request.mutable_x()->mutable_shared()->set_region(of_a.region());
  request.mutable_x()->mutable_shared()->set_size_bytes(16);
  const auto output = request.add_outputs();
  output->set_kind(v1::OUTPUT_KIND_Y);
  *output->mutable_shared() = request.x().shared();
  EXPECT_TRUE(a.Normalize(request).ok());
  for (Caller* other : {&b, &nobody}) {
    const grpc::Status status = other->Normalize(request);
    EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND);
    EXPECT_EQ(ReasonOf(status), "REGION_NOT_FOUND");
  }
  quotas.Set({{"a", {.max_regions = 1}}, {"b", {.max_region_bytes = 4000}}});
  EXPECT_EQ(ReasonOf(TenantRegistration(server, "a", object).refused()), "LIMIT_EXCEEDED");
  EXPECT_EQ(ReasonOf(TenantRegistration(server, "b", object).refused()), "LIMIT_EXCEEDED");
  EXPECT_NE(TenantRegistration(server, "", object).region(), "");
  EXPECT_TRUE(a.Normalize(request).ok());
}

}  // namespace
}  // namespace normd::e2e
