// normd::Client against a small server of generated services that answers as the test says.
#include "client/cpp/client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cli/tensor_file.h"
#include "client/cpp/chunks.h"
#include "client/normctl/commands.h"
#include "client/normctl/split.h"
#include "client/normload/load.h"
#include "client/normload/normload.h"
#include "google/rpc/error_details.pb.h"
#include "normd/v1/normalizer.grpc.pb.h"
#include "normd/v1/sessions.grpc.pb.h"
#include "proto/wire/crc32c.h"

namespace normd {
namespace {

using client::Tensor;

class FakeNormalizer : public v1::Normalizer::Service {
 public:
  std::function<grpc::Status(int call, const v1::NormalizeRequest&, v1::NormalizeResponse*)> on_normalize;
  std::atomic<int> calls{0};

  grpc::Status Normalize(grpc::ServerContext* context, const v1::NormalizeRequest* request,
                         v1::NormalizeResponse* response) override {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      peers_.insert(context->peer());
      const auto session = context->client_metadata().find("normd-session");
      const bool named = session != context->client_metadata().end();
      sessions_.push_back(named ? std::string(session->second.begin(), session->second.end()) : "none");
    }
    return on_normalize(++calls, *request, response);
  }

  grpc::Status NormalizeStream(grpc::ServerContext*,
                               grpc::ServerReaderWriter<v1::StreamResponse, v1::StreamRequest>* stream) override {
    for (v1::StreamRequest request; stream->Read(&request);) {
      v1::StreamResponse response;
      if (request.call().x().has_chunked()) {
        AnswerInChunks(&request, stream);
        continue;
      }
      response.set_sequence(request.sequence());
      const grpc::Status status = on_normalize(++calls, request.call(), response.mutable_reply());
      if (!status.ok()) response.mutable_error()->set_code(status.error_code());
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  // Limits are those of a server that takes messages of as much; 0: it does not know Describe.
  int64_t max_message_bytes = 0;
  std::function<void(v1::StreamResponse&)> on_chunk;  // changes a chunk of a reply

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* response) override {
    ++describes;
    if (max_message_bytes == 0) return {grpc::StatusCode::UNIMPLEMENTED, "no limits"};
    response->mutable_limits()->set_max_message_bytes(max_message_bytes);
    response->mutable_limits()->set_max_tensor_bytes(1 << 30);
    return grpc::Status::OK;
  }
  std::atomic<int> describes{0};

  std::set<std::string> peers() {
    const std::lock_guard<std::mutex> lock(mu_);
    return peers_;
  }

  std::vector<std::string> sessions() {
    const std::lock_guard<std::mutex> lock(mu_);
    return sessions_;
  }

 private:
  using ServerStream = grpc::ServerReaderWriter<v1::StreamResponse, v1::StreamRequest>;

  // Reads x, and answers with outputs in chunks of 100 KiB.
  void AnswerInChunks(v1::StreamRequest* request, ServerStream* stream) {
    std::string data;
    v1::StreamRequest chunk;
    do {
      if (!stream->Read(&chunk)) return;
      data += chunk.chunk().data();
    } while (!chunk.chunk().last());
    request->mutable_call()->mutable_x()->set_data(data);
    v1::StreamResponse response;
    response.set_sequence(request->sequence());
    const grpc::Status status = on_normalize(++calls, request->call(), response.mutable_reply());
    std::vector<v1::StreamResponse> chunks;
    for (v1::Output& output : *response.mutable_reply()->mutable_outputs()) {
      const std::string bytes = output.tensor().data();
      output.mutable_tensor()->mutable_chunked()->set_size_bytes(bytes.size());
      for (size_t offset = 0; offset < bytes.size(); offset += 100 << 10) {
        chunks.emplace_back().set_sequence(request->sequence());
        *chunks.back().mutable_chunk() = client::CutChunk(bytes, offset, 100 << 10);
        if (on_chunk) on_chunk(chunks.back());
      }
    }
    if (!status.ok()) response.mutable_error()->set_code(status.error_code());
    stream->Write(response);
    for (const v1::StreamResponse& message : chunks) stream->Write(message);
  }

  std::mutex mu_;
  std::set<std::string> peers_;
  std::vector<std::string> sessions_;  // what the metadata of each call says
};

class FakeSessions : public v1::Sessions::Service {
 public:
  std::vector<v1::Chunk> exported;
  std::string imported, imported_id;
  std::atomic<int> calls{0};

  grpc::Status ExportSession(grpc::ServerContext*, const v1::ExportSessionRequest*,
                             grpc::ServerWriter<v1::SessionChunk>* writer) override {
    for (const v1::Chunk& chunk : exported) {
      v1::SessionChunk message;
      *message.mutable_chunk() = chunk;
      writer->Write(message);
    }
    return grpc::Status::OK;
  }

  grpc::Status ImportSession(grpc::ServerContext*, grpc::ServerReader<v1::ImportSessionRequest>* reader,
                             v1::Session* session) override {
    bool last = false;
    for (v1::ImportSessionRequest message; reader->Read(&message);) {
      if (message.chunk().offset() == 0) imported_id = message.session_id();
      if (static_cast<size_t>(message.chunk().offset()) != imported.size() ||
          wire::Crc32c(message.chunk().data()) != message.chunk().crc32c()) {
        return {grpc::StatusCode::DATA_LOSS, "a chunk is wrong"};
      }
      imported += message.chunk().data();
      last = message.chunk().last();
    }
    if (!last) return {grpc::StatusCode::INVALID_ARGUMENT, "no last chunk"};
    session->set_name("sessions/" + imported_id);
    return grpc::Status::OK;
  }

  grpc::Status ResetSession(grpc::ServerContext*, const v1::ResetSessionRequest*, v1::Session*) override {
    ++calls;
    return {grpc::StatusCode::UNAVAILABLE, "try later"};
  }

  grpc::Status GetSession(grpc::ServerContext*, const v1::GetSessionRequest* request, v1::Session* session) override {
    if (++calls == 1) return {grpc::StatusCode::UNAVAILABLE, "try later"};
    session->set_name(request->name());
    return grpc::Status::OK;
  }
};

// Returns x for every output.
grpc::Status Echo(int, const v1::NormalizeRequest& request, v1::NormalizeResponse* response) {
  response->mutable_applied()->set_kernel("fake");
  v1::Output& y = *response->add_outputs();
  y.set_kind(v1::OUTPUT_KIND_Y);
  *y.mutable_tensor() = request.x();
  for (const v1::OutputRequest& output : request.outputs()) {
    if (output.kind() == v1::OUTPUT_KIND_Y) continue;
    *response->add_outputs() = y;
    response->mutable_outputs(response->outputs_size() - 1)->set_kind(output.kind());
  }
  return grpc::Status::OK;
}

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    normalizer_.on_normalize = &Echo;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&normalizer_);
    builder.RegisterService(&sessions_);
    server_ = builder.BuildAndStart();
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.retry.initial_backoff = absl::Milliseconds(1);
    client_ = *Client::Connect(target(), options);
  }
  ~ClientTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string target() const { return absl::StrCat("127.0.0.1:", port_); }

  FakeNormalizer normalizer_;
  FakeSessions sessions_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

v1::NormalizeRequest Request(int64_t rows, int64_t columns) {
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_layer_norm()->add_normalized_shape(columns);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  *request.mutable_x() = Tensor::F32({rows, columns}, values).ToProto();
  return request;
}

TEST_F(ClientTest, ASafeCallIsTriedAgainUntilItSucceeds) {
  normalizer_.on_normalize = [](int call, const auto& request, auto* response) {
    return call < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting") : Echo(call, request, response);
  };
  const auto response = client_->Normalize(Request(2, 3));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(normalizer_.calls, 3);
}

TEST_F(ClientTest, TheSessionOfACallIsInItsMetadataForBalancers) {
  ASSERT_TRUE(client_->Normalize(Request(2, 3)).ok());
  v1::NormalizeRequest request = Request(2, 3);
  request.set_session("sessions/bn");
  ASSERT_TRUE(client_->Normalize(request).ok());
  ASSERT_TRUE(client_->Normalize(std::move(request)).ok());
  request = Request(2, 3);
  for (const std::string& odd : {std::string("no session\n"), std::string(1000, 'x'), std::string("\xc3\xa9")}) {
    request.set_session(odd);
    ASSERT_TRUE(client_->Normalize(request).ok()) << "what the server says of such a name counts";
  }
  const std::vector<std::string> expected = {"none", "sessions/bn", "sessions/bn", "none", "none", "none"};
  EXPECT_EQ(normalizer_.sessions(), expected);
}

// One that is not there any more is left out, too.
TEST_F(ClientTest, ABalancedClientCallsTheServersThatSayTheyServe) {
  grpc::EnableDefaultHealthCheckService(true);
  FakeNormalizer first, second;
  first.on_normalize = second.on_normalize = &Echo;
  int ports[2] = {};
  const auto serve = [](FakeNormalizer& service, int* port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), port);
    builder.RegisterService(&service);
    return builder.BuildAndStart();
  };
  const std::unique_ptr<grpc::Server> servers[] = {serve(first, &ports[0]), serve(second, &ports[1])};
  ClientOptions options;
  options.balance = true;
  const auto client = *Client::Connect(absl::StrCat("ipv4:127.0.0.1:", ports[0], ",127.0.0.1:", ports[1]), options);
  while (first.calls == 0 || second.calls == 0) ASSERT_TRUE(client->Normalize(Request(2, 3)).ok());
  servers[0]->GetHealthCheckService()->SetServingStatus(false);
  // The client hears of it in its own time; then the server is not called any more.
  for (int unheard = first.calls, quiet = 0; quiet < 20; ++quiet) {
    ASSERT_TRUE(client->Normalize(Request(2, 3)).ok());
    if (first.calls != unheard) quiet = 0;
    unheard = first.calls;
  }
  servers[0]->Shutdown(std::chrono::system_clock::now());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Normalize(Request(2, 3)).ok());
  servers[1]->Shutdown(std::chrono::system_clock::now());
}

TEST_F(ClientTest, ATrainingStepWithoutAnIdIsSentOnce) {
  normalizer_.on_normalize = [](int, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  };
  v1::NormalizeRequest request = Request(2, 3);
  request.set_session("sessions/a");
  request.set_mode(v1::MODE_TRAINING);
  EXPECT_TRUE(absl::IsUnavailable(client_->Normalize(request).status()));
  EXPECT_EQ(normalizer_.calls, 1);
  request.mutable_step()->set_client_id("c");
  request.mutable_step()->set_sequence(1);
  EXPECT_TRUE(absl::IsUnavailable(client_->Normalize(request).status()));
  EXPECT_EQ(normalizer_.calls, 1 + client::RetryOptions().max_attempts);
  v1::ResetSessionRequest reset;
  EXPECT_TRUE(absl::IsUnavailable(client_->ResetSession(reset).status()));
  EXPECT_EQ(sessions_.calls, 1);
}

TEST_F(ClientTest, ReadsAreTriedAgain) {
  const auto session = client_->GetSession("sessions/a");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(sessions_.calls, 2);
}

TEST_F(ClientTest, TheServersRetryDelayIsHonoured) {
  normalizer_.on_normalize = [](int call, const auto& request, auto* response) {
    if (call > 1) return Echo(call, request, response);
    google::rpc::Status details;
    details.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(300000000);
    details.add_details()->PackFrom(retry);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy", details.SerializeAsString());
  };
  const absl::Time start = absl::Now();
  ASSERT_TRUE(client_->Normalize(Request(1, 2)).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
  EXPECT_EQ(normalizer_.calls, 2);
}

TEST_F(ClientTest, TheDeadlineBoundsAllAttempts) {
  normalizer_.on_normalize = [](int, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  };
  ClientOptions options;
  options.deadline = absl::Milliseconds(400);
  options.retry.initial_backoff = absl::Milliseconds(150);
  options.retry.max_attempts = 1000;
  const auto impatient = *Client::Connect(target(), options);
  const absl::Time start = absl::Now();
  EXPECT_FALSE(impatient->Normalize(Request(1, 2)).ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_LT(normalizer_.calls, 5);
}

TEST_F(ClientTest, ErrorsCarryTheServersDetails) {
  normalizer_.on_normalize = [](int, const auto&, auto*) {
    google::rpc::Status details;
    google::rpc::BadRequest bad;
    bad.add_field_violations()->set_field("spec.layer_norm.eps");
    details.add_details()->PackFrom(bad);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "eps", details.SerializeAsString());
  };
  const absl::Status status = client_->Normalize(Request(1, 2)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  ASSERT_TRUE(client::GetErrorInfo(status).has_value());
  EXPECT_EQ(client::GetErrorInfo(status)->field, "spec.layer_norm.eps");
  EXPECT_EQ(normalizer_.calls, 1);
}

TEST_F(ClientTest, SmallAndLargeMessagesHaveTheirOwnConnections) {
  ASSERT_TRUE(client_->Normalize(Request(2, 3)).ok());
  ASSERT_TRUE(client_->Normalize(Request(3, 2)).ok());
  EXPECT_EQ(normalizer_.peers().size(), 1u);
  const auto large = client_->Normalize(Request(1024, 2048));  // a reply of 8 MiB, beyond gRPC's default limit
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(normalizer_.peers().size(), 2u);
}

TEST_F(ClientTest, NormalizeTensorReturnsY) {
  v1::NormSpec spec;
  spec.mutable_rms_norm();
  const auto y = client_->NormalizeTensor(spec, Tensor::F32({2, 1}, {1.5f, -2.0f}));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->ToFloats(), (std::vector<float>{1.5f, -2.0f}));
  normalizer_.on_normalize = [](int, const auto& request, auto* response) {
    *response->add_outputs()->mutable_tensor() = request.x();
    response->mutable_outputs(0)->set_kind(v1::OUTPUT_KIND_Y);
    response->mutable_outputs(0)->mutable_tensor()->set_shape(0, 7);
    return grpc::Status::OK;
  };
  EXPECT_TRUE(absl::IsInternal(client_->NormalizeTensor(spec, Tensor::F32({1}, {1.0f})).status()));
}

TEST_F(ClientTest, StreamsAnswerInOrderAndFinish) {
  const std::unique_ptr<NormalizeStream> stream = client_->OpenStream();
  for (uint64_t i = 1; i <= 5; ++i) {
    v1::StreamRequest request;
    request.set_sequence(i);
    *request.mutable_call() = Request(1, static_cast<int64_t>(i));
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  v1::StreamResponse response;
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.sequence(), i);
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ClientTest, AStreamMayBeDroppedOrCancelled) {
  { const std::unique_ptr<NormalizeStream> dropped = client_->OpenStream(); }
  const std::unique_ptr<NormalizeStream> stream = client_->OpenStream();
  stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(stream->Finish()));
}

v1::Chunk MakeChunk(int64_t offset, const std::string& data, bool last) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(data);
  chunk.set_last(last);
  chunk.set_crc32c(wire::Crc32c(data));
  return chunk;
}

TEST_F(ClientTest, ExportJoinsChunksAndChecksThem) {
  sessions_.exported = {MakeChunk(0, "abc", false), MakeChunk(3, "de", true)};
  const auto record = client_->ExportSession("sessions/a");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(*record, "abcde");
  sessions_.exported[1].set_crc32c(1);
  EXPECT_TRUE(absl::IsDataLoss(client_->ExportSession("sessions/a").status()));
  sessions_.exported[1] = MakeChunk(4, "de", true);
  EXPECT_TRUE(absl::IsDataLoss(client_->ExportSession("sessions/a").status()));
  sessions_.exported = {MakeChunk(0, "abc", false)};
  EXPECT_TRUE(absl::IsDataLoss(client_->ExportSession("sessions/a").status()));
}

TEST_F(ClientTest, ImportSendsEveryByteOnce) {
  std::string record(600 << 10, '\0');
  for (size_t i = 0; i < record.size(); ++i) record[i] = static_cast<char>(i * 31);
  const auto session = client_->ImportSession(record, "copy");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->name(), "sessions/copy");
  EXPECT_EQ(sessions_.imported, record);
  sessions_.imported.clear();
  EXPECT_TRUE(client_->ImportSession("", "empty").ok());
}

TEST_F(ClientTest, PiecesGiveTheBytesOfTheWhole) {
  const v1::NormalizeRequest request = Request(1000, 100);
  int pieces = 0;
  const auto response =
      client::NormalizeInPieces(*client_, request, request.spec(), 100 << 10, [&](int64_t, int64_t) { ++pieces; });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_GT(pieces, 5);
  EXPECT_EQ(normalizer_.calls, pieces);
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).tensor().data(), request.x().data());
  EXPECT_EQ(response->outputs(0).tensor().shape(0), 1000);
}

TEST_F(ClientTest, WhatMayNotBeCutTravelsInChunks) {
  normalizer_.max_message_bytes = 100 << 10;
  v1::NormalizeRequest request = Request(1000, 100);
  request.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  request.set_mode(v1::MODE_TRAINING);
  const v1::NormalizeRequest wide = Request(2, 50000);  // even one row is larger
  std::atomic<int> chunks{0};
  normalizer_.on_chunk = [&](auto&) { ++chunks; };
  ASSERT_TRUE(client_->Describe().ok());  // the limits are known from here on
  for (const v1::NormalizeRequest& whole : {request, wide}) {
    normalizer_.calls = 0;
    chunks = 0;
    const auto response = client::NormalizeInPieces(*client_, whole, whole.spec(), 100 << 10, [](int64_t, int64_t) {});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(normalizer_.calls, 1);
    EXPECT_GT(chunks, 0);
    EXPECT_TRUE(response->outputs(0).tensor().data() == whole.x().data());
  }
}

TEST_F(ClientTest, NormctlWritesTheFileToStandardOutputAndProgressAndSummaryElsewhere) {
  normalizer_.max_message_bytes = 1 << 20;
  const Tensor x = *Tensor::FromProto(Request(1000, 500).x());
  const std::string path = testing::TempDir() + "/normctl_writes.npy";
  ASSERT_TRUE(client::SaveTensor(path, x, {}).ok());
  std::ostringstream out, err;
  const int code =
      client::RunNormctl({"layer-norm", path, "-o", "-", "--progress", "--server", target()}, {out, err, 100, false});
  EXPECT_EQ(code, 0) << err.str();
  EXPECT_TRUE(out.str() == *client::ReadFile(path)) << "the server echoes";
  for (const char* part : {"MiB/s  ETA ", "100%  1.9 MiB of 1.9 MiB", "y        -  f32 [1000, 500]", "tensors sent"}) {
    EXPECT_NE(err.str().find(part), std::string::npos) << part << "\n" << err.str();
  }
  EXPECT_GT(normalizer_.calls, 1) << "sent in pieces";
  std::remove(path.c_str());
}

TEST_F(ClientTest, ATensorThatIsTooLargeIsRefusedWithWhatCanBeDone) {
  normalizer_.on_normalize = [](int, const auto&, auto*) {
    google::rpc::Status details;
    google::rpc::ErrorInfo info;
    info.set_reason("TENSOR_TOO_LARGE");
    details.add_details()->PackFrom(info);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "over the limit", details.SerializeAsString());
  };
  v1::NormalizeRequest request = Request(1000, 100);
  request.mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  const v1::NormSpec spec = request.spec();
  request.set_mode(v1::MODE_TRAINING);
  const auto refused = [&] {
    return client::NormalizeInPieces(*client_, request, spec, 100 << 10, [](int64_t, int64_t) {}).status();
  };
  EXPECT_NE(refused().message().find("--max_in_flight_bytes=2MiB or more"), absl::string_view::npos) << refused();
  EXPECT_EQ(client::GetErrorInfo(refused())->reason, "TENSOR_TOO_LARGE");
  request.set_session("sessions/a");  // instead of the spec
  EXPECT_NE(refused().message().find("normctl moments"), absl::string_view::npos) << refused();
}

TEST_F(ClientTest, ARequestOverTheServersLimitGoesInChunks) {
  normalizer_.max_message_bytes = 5 << 20;
  std::atomic<int> chunks{0};
  normalizer_.on_chunk = [&](auto&) { ++chunks; };
  for (const int64_t rows : {10, 2000, 1000}) {
    const v1::NormalizeRequest request = Request(rows, 1100);  // 2000: of 8.4 MiB; 1000: of 4.2 MiB
    chunks = 0;
    const auto response = client_->Normalize(request);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(response->outputs(0).tensor().data() == request.x().data());
    EXPECT_EQ(chunks > 0, rows == 2000);
  }
  EXPECT_EQ(normalizer_.describes, 1);
}

TEST_F(ClientTest, TheSizeOfLargeMessagesDecidesOnTheConnectionAlone) {
  normalizer_.max_message_bytes = 5 << 20;
  ClientOptions options;
  options.large_message_bytes = 1 << 30;
  const auto client = Client::Connect(target(), options);
  std::atomic<int> chunks{0};
  normalizer_.on_chunk = [&](auto&) { ++chunks; };
  ASSERT_TRUE((*client)->Normalize(Request(2000, 1100)).ok());  // of 8.4 MiB
  EXPECT_GT(chunks, 0);
}

TEST_F(ClientTest, ChunkedCallsAreRetriedAsOthers) {
  normalizer_.max_message_bytes = 1 << 20;
  normalizer_.on_normalize = [](int call, const auto& request, auto* response) {
    return call < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting") : Echo(call, request, response);
  };
  const auto response = client_->NormalizeChunked(Request(20, 30));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(normalizer_.calls, 3);
  normalizer_.calls = 0;
  v1::NormalizeRequest step = Request(20, 30);
  step.set_session("sessions/a");
  step.set_mode(v1::MODE_TRAINING);
  EXPECT_TRUE(absl::IsUnavailable(client_->NormalizeChunked(step).status()));
  EXPECT_EQ(normalizer_.calls, 1);
}

TEST_F(ClientTest, DamagedChunksOfAReplyAreDataLoss) {
  normalizer_.max_message_bytes = 1 << 20;
  normalizer_.on_chunk = [](auto& message) { message.mutable_chunk()->mutable_data()->back() ^= 1; };
  EXPECT_TRUE(absl::IsDataLoss(client_->NormalizeChunked(Request(20, 30)).status()));
  normalizer_.on_chunk = [](auto& message) { message.mutable_chunk()->set_last(false); };
  EXPECT_TRUE(absl::IsDataLoss(client_->NormalizeChunked(Request(20, 30)).status()));
}

client::LoadOptions SmallLoad(const std::string& server, const std::string& entry) {
  client::LoadOptions options;
  options.server = server;
  options.entries = {*client::ParseMixEntry(entry)};
  options.warmup = absl::ZeroDuration();
  return options;
}

TEST_F(ClientTest, LoadCountsCallsAndErrors) {
  normalizer_.on_normalize = [](int call, const auto& request, auto* response) {
    return call % 10 == 0 ? grpc::Status(grpc::StatusCode::INTERNAL, "tenth") : Echo(call, request, response);
  };
  for (const char* entry : {"shape=4x8", "shape=4x8,transport=stream"}) {
    normalizer_.calls = 0;
    client::LoadOptions options = SmallLoad(target(), entry);
    options.concurrency = 3;
    options.connections = 2;
    options.requests = 200;
    const auto server = client::LoadTarget::Connect(options);
    ASSERT_TRUE(server.ok()) << server.status();
    const client::EntryResult result = client::RunLoad(options, **server).entries[0];
    ASSERT_EQ(result.errors.count("INTERNAL"), 1u);
    EXPECT_EQ(result.latency.count() + result.errors.at("INTERNAL"), 200);
    EXPECT_GE(result.errors.at("INTERNAL"), 19);
    EXPECT_EQ(result.items, result.latency.count());
    EXPECT_EQ(result.rows, result.items * 4);
    EXPECT_EQ(result.bytes_received, result.items * 4 * 8 * 4);
  }
}

TEST_F(ClientTest, AnOpenLoopCountsFromWhenCallsWereDueAndThoseNeverSent) {
  constexpr absl::Duration kSlow = absl::Milliseconds(20);  // half of what is offered
  normalizer_.on_normalize = [kSlow](int call, const auto& request, auto* response) {
    absl::SleepFor(kSlow);
    return Echo(call, request, response);
  };
  client::LoadOptions options = SmallLoad(target(), "shape=4x8");
  options.rate = 100;
  options.arrivals = client::ArrivalKind::kConstant;
  options.duration = absl::Milliseconds(500);
  const auto server = client::LoadTarget::Connect(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const client::LoadResult result = client::RunLoad(options, **server);
  const client::Histogram& latency = result.entries[0].latency;
  EXPECT_EQ(latency.count() + result.unsent, 50) << "every call that was due is accounted for";
  EXPECT_GE(result.unsent, 24);
  EXPECT_EQ(result.lateness.count(), latency.count());
  // The call before the last one was due 10 ms times its number, and sent 20 ms times its number at best.
  const int64_t least_late_ns = absl::ToInt64Nanoseconds(kSlow / 2) * (latency.count() - 1);
  EXPECT_GE(result.lateness.max(), least_late_ns);
  EXPECT_GE(latency.max(), least_late_ns + absl::ToInt64Nanoseconds(kSlow));
  EXPECT_GE(result.waited, latency.count() - 1);
}

TEST_F(ClientTest, AMixSendsEachEntryByItsWeight) {
  std::atomic<int> small{0}, large{0};
  normalizer_.on_normalize = [&](int call, const auto& request, auto* response) {
    ++(request.x().shape(0) == 1 ? small : large);
    return Echo(call, request, response);
  };
  client::LoadOptions options = SmallLoad(target(), "weight=9,shape=1x8");
  options.entries.push_back(*client::ParseMixEntry("weight=1,shape=2x8,transport=stream"));
  options.requests = 400;
  options.concurrency = 2;
  const auto server = client::LoadTarget::Connect(options);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(small + large, 2) << "one call of each entry finds mistakes before time is taken";
  const client::LoadResult result = client::RunLoad(options, **server);
  EXPECT_EQ(result.entries[0].latency.count() + result.entries[1].latency.count(), 400);
  EXPECT_EQ(result.entries[0].latency.count(), small - 1);
  EXPECT_NEAR(small, 360, 30);
}

TEST_F(ClientTest, StepsOfEachWorkerRise) {
  std::mutex mu;
  std::map<std::string, uint64_t> last;
  int wrong = 0;
  normalizer_.on_normalize = [&](int call, const v1::NormalizeRequest& request, auto* response) {
    const std::lock_guard<std::mutex> lock(mu);
    uint64_t& before = last[request.step().client_id()];
    if (request.step().sequence() <= before || request.mode() != v1::MODE_TRAINING) ++wrong;
    before = request.step().sequence();
    return Echo(call, request, response);
  };
  client::LoadOptions options = SmallLoad(target(), "session=s,training,steps,shape=2x4");
  options.requests = 60;
  options.concurrency = 3;
  const auto server = client::LoadTarget::Connect(options);
  ASSERT_TRUE(server.ok()) << server.status();
  for (int i = 0; i < 2; ++i) client::RunLoad(options, **server);
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(last.size(), 3u) << "a session remembers a limited number of clients";
}

// The demo must be able to fail: a server that normalises nothing is caught.
struct Loaded {
  int code;
  std::string out, err;
};

// Runs normload against the server for an hour: only a signal ends it.
Loaded LoadUntilASignal(const std::string& server, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"-s", server, "--warmup=0", "--duration=1h"});
  std::ostringstream out, err;
  const int code = client::RunNormload(arguments, {out, err, 200, false});
  return {code, out.str(), err.str()};
}

TEST_F(ClientTest, ASignalEndsALoadWithTheReportOfWhatItHas) {
  normalizer_.max_message_bytes = 1 << 20;
  struct Case {
    std::vector<std::string> arguments;
    int signal;
    std::string output;
  };
  const std::string html = testing::TempDir() + "/interrupted.html";
  for (const Case& one :
       std::vector<Case>{{{"--shape=2x4"}, SIGINT, "repeats"},
                         {{"--repeats=3"}, SIGTERM, "repeats"},
                         {{"--rate=500", "--html=" + html}, SIGINT, "unsent"},
                         {{"--mix=shape=1x8", "--mix=shape=2x8"}, SIGINT, "repeats"},
                         {{"--requests=1000000"}, SIGINT, "repeats"},
                         {{"--sweep", "--loads=50", "--max-time=24h"}, SIGINT, "capacity, closed loop"},
                         {{"--json"}, SIGTERM, "\"interrupted\": \"SIGTERM\""}}) {
    normalizer_.calls = 0;
    normalizer_.on_normalize = [&one](int call, const v1::NormalizeRequest& request, v1::NormalizeResponse* response) {
      if (call == 50) kill(getpid(), one.signal);
      return Echo(call, request, response);
    };
    const Loaded loaded = LoadUntilASignal(target(), one.arguments);
    EXPECT_EQ(loaded.code, 128 + one.signal) << loaded.err;
    EXPECT_NE(loaded.out.find(one.output), std::string::npos) << loaded.out;
    const std::string name = one.signal == SIGINT ? "SIGINT" : "SIGTERM";
    EXPECT_NE(loaded.out.find("ended early by " + name), std::string::npos) << loaded.out;
    EXPECT_NE(loaded.err.find("ended by " + name + ": the report is of what was measured until then"),
              std::string::npos)
        << loaded.err;
    EXPECT_EQ(loaded.out.find("UNAVAILABLE"), std::string::npos) << "no call failed: " << loaded.out;
    EXPECT_GE(normalizer_.calls, 50);
  }
  std::ostringstream page;
  page << std::ifstream(html).rdbuf();
  EXPECT_NE(page.str().find("ended early by SIGINT"), std::string::npos);
}

TEST_F(ClientTest, ASignalDoesNotWaitForAServerThatDoesNotAnswer) {
  normalizer_.max_message_bytes = 1 << 20;
  std::promise<void> end;
  std::shared_future<void> ended = end.get_future().share();
  normalizer_.on_normalize = [ended](int call, const v1::NormalizeRequest& request, v1::NormalizeResponse* response) {
    if (call == 20) kill(getpid(), SIGINT);
    if (call >= 20) ended.wait();  // until the test's end, far beyond the call's
    return Echo(call, request, response);
  };
  const Loaded loaded = LoadUntilASignal(target(), {"--json", "--concurrency=2", "--deadline=1h"});
  end.set_value();
  EXPECT_EQ(loaded.code, 130) << loaded.err;
  const nlohmann::json json = nlohmann::json::parse(loaded.out);
  EXPECT_GE(json["cut_off"], 1) << "the other worker may have been between two calls";
  EXPECT_EQ(json["failed"], 0) << "what is cut off is no failure of the server";
  EXPECT_GT(json["calls"], 0);
}

TEST_F(ClientTest, AllCallsInFlightAreInTheServer) {
  normalizer_.max_message_bytes = 1 << 20;
  // gRPC's server takes any number of calls on a connection, and one connection is enough.
  std::ostringstream out, err;
  ASSERT_EQ(
      client::RunNormload({"-s", target(), "-c", "20", "-n", "100", "--warmup=0", "--json"}, {out, err, 100, false}), 0)
      << err.str();
  EXPECT_EQ(nlohmann::json::parse(out.str())["load"]["connections"], 1);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  builder.RegisterService(&normalizer_);
  const std::unique_ptr<grpc::Server> narrow = builder.BuildAndStart();
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-s",    absl::StrCat("127.0.0.1:", port), "-c20", "-n200", "--warmup=0",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::ostringstream report, problems;
    EXPECT_EQ(client::RunNormload(arguments, {report, problems, 100, false}), 0) << problems.str();
    return nlohmann::json::parse(report.str());
  };
  const nlohmann::json enough = run({});
  EXPECT_EQ(enough["load"]["connections"], 5);
  EXPECT_EQ(enough["load"]["max_streams"], 4);
  const nlohmann::json few = run({"--connections=2"});
  EXPECT_EQ(few["load"]["connections"], 2);
  EXPECT_NE(few["warnings"].dump().find("12 of 20 calls in flight wait in the client"), std::string::npos);
  narrow->Shutdown();
}

TEST_F(ClientTest, TheDemoCatchesAServerThatIsWrong) {
  std::ostringstream out, err;
  const int code = client::RunNormctl({"demo", "--only", "residual", "--server", target()}, {out, err, 100, false});
  EXPECT_EQ(code, client::kExitError);
  EXPECT_NE(out.str().find("FAILED: residual: the pre-norm stream equals"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("FAILED: residual: every post-norm block"), std::string::npos) << out.str();
  EXPECT_NE(err.str().find("comparisons failed"), std::string::npos) << err.str();
}

TEST(ClientConnect, RefusesBadOptions) {
  EXPECT_EQ(Client::Connect("").status().message(), "target is empty; it must be host:port or unix:/path");
  ClientOptions options;
  options.deadline = absl::ZeroDuration();
  EXPECT_FALSE(Client::Connect("127.0.0.1:1", options).ok());
  EXPECT_FALSE(Client::Connect("127.0.0.1:1", {.shared_region_bytes = 4095}).ok());
  options = {};
  options.retry.max_attempts = 0;
  EXPECT_EQ(Client::Connect("127.0.0.1:1", options).status().message(),
            "retry.max_attempts is 0; it must be at least 1");
}

TEST(ClientConnect, NoServerIsUnavailable) {
  ClientOptions options;
  options.retry.max_attempts = 2;
  options.retry.initial_backoff = absl::Milliseconds(1);
  const auto client = *Client::Connect("unix:/nonexistent/normd.sock", options);
  EXPECT_TRUE(absl::IsUnavailable(client->Describe().status()));
  EXPECT_TRUE(absl::IsUnavailable(client->CheckHealth().status()));
}

TEST(Crc32c, KnowsTheCheckValue) {
  EXPECT_EQ(wire::Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(wire::Crc32c(""), 0u);
}

}  // namespace
}  // namespace normd
