// normd.v1.Sessions through the wire: create, update, list, reset, fork, delete.
#include <algorithm>
#include <functional>

#include "absl/strings/escaping.h"
#include "tests/e2e/sessions_fixture.h"

namespace normd::e2e {
namespace {

TEST_F(SessionsTest, CreateAnswersWithWhatTheServerChose) {
  EXPECT_EQ(created_.name(), "sessions/bn");
  EXPECT_NE(created_.uid(), "");
  EXPECT_EQ(created_.version(), 0u);
  EXPECT_EQ(created_.numerics(), kNumerics);
  EXPECT_EQ(created_.durability(), v1::DURABILITY_MEMORY);
  EXPECT_GT(created_.create_time().seconds(), 1'500'000'000);
  EXPECT_FALSE(created_.has_expire_time());
  EXPECT_FALSE(created_.has_state()) << "tensors are for the FULL view";
  const v1::Session full = Get("bn");
  EXPECT_EQ(Values<double>(full.state().mean()), (std::vector<double>{0, 0}));
  EXPECT_EQ(Values<double>(full.state().var()), (std::vector<double>{1, 1}));
  EXPECT_EQ(Values<float>(full.parameters().weight()), (std::vector<float>{1, 2}));
  EXPECT_EQ(full.labels().at("model"), "a");
  EXPECT_TRUE(full.spec().has_batch_norm());

  v1::Session unnamed;
  v1::CreateSessionRequest request = BatchNormSession("");
  ASSERT_TRUE(Create(request, &unnamed).ok());
  EXPECT_GT(unnamed.name().size(), std::string("sessions/").size());
  v1::Session again;
  EXPECT_EQ(Create(BatchNormSession("bn"), &again).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(SessionsTest, CreateTakesRunningStatisticsOfATrainedModel) {
  v1::CreateSessionRequest request = BatchNormSession("trained");
  request.mutable_session()->clear_parameters();
  SetF64({1, 2}, request.mutable_session()->mutable_state()->mutable_mean());
  SetF64({4, 9}, request.mutable_session()->mutable_state()->mutable_var());
  v1::Session session;
  grpc::Status status = Create(request, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Values<double>(Get("trained").state().var()), (std::vector<double>{4, 9}));
  request.set_session_id("negative");
  SetF64({4, -9}, request.mutable_session()->mutable_state()->mutable_var());
  status = Create(request, &session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(status).substr(0, 17), "session.state.var") << status.error_message();
}

TEST_F(SessionsTest, CreateNamesTheFieldOfEveryMistake) {
  struct Mistake {
    std::string field;
    std::function<void(v1::CreateSessionRequest&)> spoil;
  };
  const std::vector<Mistake> mistakes = {
      {"session_id", [](auto& r) { r.set_session_id("Upper"); }},
      {"session_id", [](auto& r) { r.set_session_id("layer_norm"); }},
      {"session.spec", [](auto& r) { r.mutable_session()->clear_spec(); }},
      {"session.spec.batch_norm.eps",
       [](auto& r) { r.mutable_session()->mutable_spec()->mutable_batch_norm()->set_eps(-1); }},
      {"session.num_channels", [](auto& r) { r.mutable_session()->clear_num_channels(); }},
      {"session.default_dtype", [](auto& r) { r.mutable_session()->set_default_dtype(static_cast<v1::DType>(20)); }},
      {"session.labels", [](auto& r) { (*r.mutable_session()->mutable_labels())["a b"] = "c"; }},
      {"session.ttl", [](auto& r) { r.mutable_session()->mutable_ttl()->set_seconds(-1); }},
      {"session.parameters.weight",
       [](auto& r) {
         SetTensor({3}, {1, 2, 3}, r.mutable_session()->mutable_parameters()->mutable_weight());
       }},
      {"session.parameters.running_mean",
       [](auto& r) {
         SetTensor({2}, {1, 2}, r.mutable_session()->mutable_parameters()->mutable_running_mean());
       }},
  };
  for (const Mistake& mistake : mistakes) {
    v1::CreateSessionRequest request = BatchNormSession("new");
    mistake.spoil(request);
    v1::Session session;
    const grpc::Status status = Create(request, &session);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << mistake.field << status.error_message();
    EXPECT_EQ(FieldOf(status), mistake.field) << status.error_message();
  }
}

TEST_F(SessionsTest, UpdateChangesWhatTheMaskNamesAndNothingElse) {
  v1::UpdateSessionRequest request;
  request.mutable_session()->set_name("sessions/bn");
  SetTensor({2}, {3, 4}, request.mutable_session()->mutable_parameters()->mutable_weight());
  SetTensor({2}, {5, 6}, request.mutable_session()->mutable_parameters()->mutable_bias());
  (*request.mutable_session()->mutable_labels())["model"] = "b";
  request.mutable_session()->mutable_ttl()->set_seconds(3600);
  request.mutable_update_mask()->add_paths("parameters.bias");
  v1::Session session;
  grpc::Status status = Update(request, &session);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::Session full = Get("bn");
  EXPECT_EQ(Values<float>(full.parameters().weight()), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values<float>(full.parameters().bias()), (std::vector<float>{5, 6}));
  EXPECT_EQ(full.labels().at("model"), "a");
  EXPECT_FALSE(full.has_expire_time());
  EXPECT_EQ(full.version(), 1u);

  request.mutable_update_mask()->clear_paths();
  request.mutable_update_mask()->add_paths("labels");
  request.mutable_update_mask()->add_paths("ttl");
  request.mutable_update_mask()->add_paths("parameters");
  request.mutable_session()->mutable_parameters()->clear_bias();
  ASSERT_TRUE(Update(request, &session).ok());
  full = Get("bn");
  EXPECT_EQ(Values<float>(full.parameters().weight()), (std::vector<float>{3, 4}));
  EXPECT_FALSE(full.parameters().has_bias());
  EXPECT_EQ(full.labels().size(), 1u);
  EXPECT_EQ(full.labels().at("model"), "b");
  EXPECT_EQ(full.expire_time().seconds() - full.update_time().seconds(), 3600);

  request.set_expected_version(1);
  EXPECT_EQ(Update(request, &session).error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(SessionsTest, UpdateRefusesOtherPathsByName) {
  for (const char* path : {"spec", "state", "*", "parameters.running_mean", "name", ""}) {
    v1::UpdateSessionRequest request;
    request.mutable_session()->set_name("sessions/bn");
    request.mutable_update_mask()->add_paths(path);
    v1::Session session;
    const grpc::Status status = Update(request, &session);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << path;
    EXPECT_EQ(FieldOf(status), "update_mask");
    EXPECT_NE(status.error_message().find(std::string("\"") + path + "\""), std::string::npos);
  }
  v1::UpdateSessionRequest request;
  request.mutable_session()->set_name("sessions/bn");
  v1::Session session;
  EXPECT_EQ(FieldOf(Update(request, &session)), "update_mask");
  request.mutable_update_mask()->add_paths("parameters.weight");
  SetTensor({3}, {1, 2, 3}, request.mutable_session()->mutable_parameters()->mutable_weight());
  EXPECT_EQ(FieldOf(Update(request, &session)), "session.parameters.weight");
}

TEST_F(SessionsTest, ListPagesAndFiltersByLabel) {
  for (int i = 0; i < 9; ++i) {
    v1::CreateSessionRequest request = BatchNormSession("s" + std::to_string(i));
    if (i % 3 == 0) (*request.mutable_session()->mutable_labels())["model"] = "b";
    v1::Session session;
    ASSERT_TRUE(Create(request, &session).ok());
  }
  std::vector<std::string> names;
  v1::ListSessionsRequest request;
  request.set_page_size(4);
  int pages = 0;
  do {
    v1::ListSessionsResponse response;
    const grpc::Status status = List(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(response.sessions_size(), 4);
    for (const v1::Session& session : response.sessions()) names.push_back(session.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(names.size(), 10u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));

  v1::ListSessionsRequest filtered;
  filtered.set_filter("model=b AND layer=s3");
  v1::ListSessionsResponse response;
  ASSERT_TRUE(List(filtered, &response).ok());
  ASSERT_EQ(response.sessions_size(), 1);
  EXPECT_EQ(response.sessions(0).name(), "sessions/s3");
  EXPECT_EQ(response.next_page_token(), "");
  filtered.set_filter("model=b");
  filtered.set_page_size(1);
  ASSERT_TRUE(List(filtered, &response).ok());
  filtered.set_page_token(response.next_page_token());
  filtered.set_filter("model=a");
  EXPECT_EQ(FieldOf(List(filtered, &response)), "page_token");
  for (const std::string& after :
       {std::string("Not an id"), std::string("a\0b", 3), std::string("\xff"), std::string()}) {
    filtered.set_filter("model=b");
    filtered.set_page_token(absl::WebSafeBase64Escape("model=b\n" + after));
    EXPECT_EQ(FieldOf(List(filtered, &response)), "page_token") << "no server has given it";
  }
  std::string terms = "k0=v";
  for (int i = 1; i < 65; ++i) terms += " AND k" + std::to_string(i) + "=v";
  v1::ListSessionsRequest many;
  many.set_filter(terms);
  EXPECT_EQ(FieldOf(List(many, &response)), "filter") << "65 terms";
  for (const char* filter : {"model", "=b", "model=b OR layer=s3", "model=b AND ", "model=b AND model=b"}) {
    v1::ListSessionsRequest bad;
    bad.set_filter(filter);
    EXPECT_EQ(FieldOf(List(bad, &response)), "filter") << filter;
  }
  v1::ListSessionsRequest negative;
  negative.set_page_size(-1);
  EXPECT_EQ(FieldOf(List(negative, &response)), "page_size");
}

TEST_F(SessionsTest, ResetForkAndDelete) {
  v1::NormalizeResponse normalized;
  ASSERT_TRUE(server_.Normalize(Step(1), &normalized).ok());

  v1::ForkSessionRequest fork;
  fork.set_name("sessions/bn");
  fork.set_session_id("bn-2");
  v1::Session forked;
  grpc::ClientContext fork_context;
  ASSERT_TRUE(server_.sessions().ForkSession(&fork_context, fork, &forked).ok());
  EXPECT_NE(forked.uid(), created_.uid());
  EXPECT_EQ(Get("bn-2").state().SerializeAsString(), Get("bn").state().SerializeAsString());
  EXPECT_EQ(Get("bn-2").parameters().SerializeAsString(), Get("bn").parameters().SerializeAsString());

  v1::ResetSessionRequest reset;
  reset.set_name("sessions/bn");
  v1::Session after;
  grpc::ClientContext reset_context;
  ASSERT_TRUE(server_.sessions().ResetSession(&reset_context, reset, &after).ok());
  EXPECT_EQ(after.version(), 2u);
  EXPECT_EQ(after.uid(), created_.uid());
  EXPECT_EQ(Values<double>(Get("bn").state().mean()), (std::vector<double>{0, 0}));
  EXPECT_EQ(Get("bn-2").state().num_batches(), 1u) << "a fork is another session";

  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/bn");
  remove.set_expected_version(1);
  google::protobuf::Empty empty;
  grpc::ClientContext stale_context;
  EXPECT_EQ(server_.sessions().DeleteSession(&stale_context, remove, &empty).error_code(), grpc::StatusCode::ABORTED);
  remove.set_expected_version(2);
  grpc::ClientContext remove_context;
  EXPECT_TRUE(server_.sessions().DeleteSession(&remove_context, remove, &empty).ok());
  EXPECT_EQ(server_.Normalize(Step(2), &normalized).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(SessionsTest, StalenessIsBoundedAndASessionAlwaysMeetsIt) {
  v1::NormalizeResponse response;
  ASSERT_TRUE(server_.Normalize(Step(1), &response).ok());
  v1::NormalizeRequest request = Step(1);
  request.set_mode(v1::MODE_INFERENCE);
  request.clear_step();
  request.mutable_max_staleness()->set_seconds(5);
  ASSERT_TRUE(server_.Normalize(request, &response).ok());
  EXPECT_EQ(response.applied().session_version(), 1u);
  for (const int64_t seconds : {int64_t{-1}, int64_t{3601}, INT64_MAX}) {
    request.mutable_max_staleness()->set_seconds(seconds);
    EXPECT_EQ(FieldOf(server_.Normalize(request, &response)), "max_staleness") << seconds;
  }
  request.mutable_max_staleness()->set_seconds(0);
  request.mutable_max_staleness()->set_nanos(-1);
  EXPECT_EQ(FieldOf(server_.Normalize(request, &response)), "max_staleness");
}

TEST_F(SessionsTest, UnknownSessionsAreNotFoundByEveryMethod) {
  const std::string name = "sessions/nobody";
  v1::Session session;
  v1::GetSessionRequest get;
  get.set_name(name);
  grpc::ClientContext get_context;
  EXPECT_EQ(server_.sessions().GetSession(&get_context, get, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name(name);
  update.mutable_update_mask()->add_paths("labels");
  EXPECT_EQ(Update(update, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::ForkSessionRequest fork;
  fork.set_name(name);
  grpc::ClientContext fork_context;
  EXPECT_EQ(server_.sessions().ForkSession(&fork_context, fork, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::ExportSessionRequest request;
  request.set_name(name);
  grpc::ClientContext export_context;
  const auto reader = server_.sessions().ExportSession(&export_context, request);
  v1::SessionChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace normd::e2e
