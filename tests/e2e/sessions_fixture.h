// A server with a session, and the calls of normd.v1.Sessions in one line each.
#ifndef NORMD_TESTS_E2E_SESSIONS_FIXTURE_H_
#define NORMD_TESTS_E2E_SESSIONS_FIXTURE_H_

#include <atomic>
#include <string>
#include <vector>

#include "tests/e2e/test_server.h"

namespace normd::e2e {

// A server with a BatchNorm session "bn" of 2 channels, channels last.
class SessionsTest : public testing::Test {
 protected:
  SessionsTest() {
    v1::CreateSessionRequest request = BatchNormSession("bn");
    const grpc::Status status = Create(request, &created_);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  static v1::CreateSessionRequest BatchNormSession(const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::Session* const session = request.mutable_session();
    session->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    session->set_num_channels(2);
    (*session->mutable_labels())["model"] = "a";
    (*session->mutable_labels())["layer"] = id;
    SetTensor({2}, {1, 2}, session->mutable_parameters()->mutable_weight());
    return request;
  }

  grpc::Status Create(const v1::CreateSessionRequest& request, v1::Session* session) {
    grpc::ClientContext context;
    return server_.sessions().CreateSession(&context, request, session);
  }
  v1::Session Get(const std::string& id) {
    v1::GetSessionRequest request;
    request.set_name("sessions/" + id);
    request.set_view(v1::SESSION_VIEW_FULL);
    v1::Session session;
    grpc::ClientContext context;
    const grpc::Status status = server_.sessions().GetSession(&context, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }
  grpc::Status Update(const v1::UpdateSessionRequest& request, v1::Session* session) {
    grpc::ClientContext context;
    return server_.sessions().UpdateSession(&context, request, session);
  }
  grpc::Status List(const v1::ListSessionsRequest& request, v1::ListSessionsResponse* response) {
    grpc::ClientContext context;
    return server_.sessions().ListSessions(&context, request, response);
  }
  grpc::Status Commit(const v1::CommitMomentsRequest& request, v1::StateResult* result) {
    grpc::ClientContext context;
    return server_.sessions().CommitMoments(&context, request, result);
  }
  // One training step on "bn" with the batch [[1, 10], [3, 30]].
  static v1::NormalizeRequest Step(uint64_t sequence) {
    v1::NormalizeRequest request;
    request.set_session("sessions/bn");
    request.set_mode(v1::MODE_TRAINING);
    SetTensor({2, 2}, {1, 10, 3, 30}, request.mutable_x());
    request.mutable_step()->set_client_id("trainer");
    request.mutable_step()->set_sequence(sequence);
    return request;
  }
  std::vector<v1::SessionChunk> Export(const std::string& id) {
    v1::ExportSessionRequest request;
    request.set_name("sessions/" + id);
    grpc::ClientContext context;
    const auto reader = server_.sessions().ExportSession(&context, request);
    std::vector<v1::SessionChunk> chunks;
    v1::SessionChunk chunk;
    while (reader->Read(&chunk)) chunks.push_back(chunk);
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return chunks;
  }
  grpc::Status Import(const std::string& id, const std::vector<v1::SessionChunk>& chunks, v1::Session* session) {
    grpc::ClientContext context;
    const auto writer = server_.sessions().ImportSession(&context, session);
    for (size_t i = 0; i < chunks.size(); ++i) {
      v1::ImportSessionRequest request;
      if (i == 0) request.set_session_id(id);
      *request.mutable_chunk() = chunks[i].chunk();
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  RpcOptions Options() {
    RpcOptions options;
    options.export_chunk_bytes = 64 << 10;
    options.observer.on_version_sent = [this](absl::Duration lag) {
      EXPECT_GE(lag, absl::ZeroDuration());
      EXPECT_LT(lag, absl::Minutes(1));
      ++awaited_versions_sent_;
    };
    return options;
  }

  std::atomic<int> awaited_versions_sent_{0};  // to streams of WatchSession that had one before
  TestServer server_{Options()};
  v1::Session created_;
};

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_SESSIONS_FIXTURE_H_
