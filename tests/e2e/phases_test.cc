// The phases of a request add up to its time, however many calls it holds.
#include <atomic>
#include <optional>

#include "server/rpc/edge/observer.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

class PhasesTest : public testing::Test {
 protected:
  PhasesTest() {
    RpcOptions options;
    options.observer.on_request_done = [this](const RequestRecord& record) {
      MutexLock lock(mu_);
      record_ = record;
      changed_.SignalAll();
    };
    options.observer.on_request_written = [this](const RequestRecord& record) {
      MutexLock lock(mu_);
      written_ = record;
      changed_.SignalAll();
    };
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  ~PhasesTest() override { server_.reset(); }

  // The record of the request when its reply was written.
  RequestRecord TakeWritten() {
    MutexLock lock(mu_);
    while (!written_.has_value()) changed_.Wait(mu_);
    return *std::exchange(written_, std::nullopt);
  }

  v1::BatchNormalizeResponse Run(const v1::BatchNormalizeRequest& request) {
    TakeRecordIfAny();
    v1::BatchNormalizeResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(server_->normalizer().BatchNormalize(&context, request, &response).ok());
    return response;
  }
  RequestRecord TakeRecord() {
    MutexLock lock(mu_);
    while (!record_.has_value()) changed_.Wait(mu_);
    return *std::exchange(record_, std::nullopt);
  }
  void TakeRecordIfAny() {
    MutexLock lock(mu_);
    record_.reset();
  }

  Mutex mu_;
  CondVar changed_;
  std::optional<RequestRecord> record_ ABSL_GUARDED_BY(mu_);
  std::optional<RequestRecord> written_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<TestServer> server_;
};

void ExpectPhasesToAddUp(const RequestRecord& record) {
  const absl::Duration known = record.decode + record.compute + record.commit + record.encode;
  EXPECT_GT(record.decode, absl::ZeroDuration());
  EXPECT_GT(record.compute, absl::ZeroDuration());
  EXPECT_GT(record.encode, absl::ZeroDuration());
  EXPECT_LT(known, record.total) << "the rest is the time in queues";
}

int64_t Sum(const v1::Timings& timings) {
  return timings.decode_ns() + timings.queue_ns() + timings.compute_ns() + timings.commit_ns() + timings.encode_ns();
}

TEST_F(PhasesTest, OfABatchAddUpToItsTotal) {
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 64; ++i) {
    *request.add_items() = RmsNormRequest(std::vector<float>(20'000, 1.0F));
    request.mutable_items(i)->set_want_timings(true);
  }
  const v1::BatchNormalizeResponse response = Run(request);
  const RequestRecord record = TakeRecord();
  EXPECT_EQ(record.batch_items, 64);
  ExpectPhasesToAddUp(record);
  // What an item says of itself is no longer than all of them took, and is the time of those it travelled with.
  for (const v1::BatchItemResult& item : response.items()) {
    EXPECT_LE(Sum(item.response().timings()), absl::ToInt64Nanoseconds(record.total));
    EXPECT_EQ(item.response().timings().compute_ns(), response.items(0).response().timings().compute_ns());
  }
}

TEST_F(PhasesTest, OfTrainingStepsInABatchAddUpToItsTotal) {
  v1::CreateSessionRequest create;
  create.set_session_id("bn");
  create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
  create.mutable_session()->set_num_channels(4);
  grpc::ClientContext context;
  v1::Session session;
  ASSERT_TRUE(server_->sessions().CreateSession(&context, create, &session).ok());
  v1::BatchNormalizeRequest request;
  for (int i = 0; i < 64; ++i) {
    v1::NormalizeRequest& item = *request.add_items();
    item.set_session("sessions/bn");
    item.set_mode(v1::MODE_TRAINING);
    *item.mutable_x() = LayerNormRequest(3).x();
  }
  TakeRecord();  // of the session's creation
  Run(request);
  const RequestRecord record = TakeRecord();
  EXPECT_GT(record.commit, absl::ZeroDuration());
  ExpectPhasesToAddUp(record);
}

TEST_F(PhasesTest, GoFromTheHeadersToTheLastByteWritten) {
  v1::NormalizeResponse response;
  ASSERT_TRUE(server_->Normalize(LayerNormRequest(3), &response).ok());
  const RequestRecord done = TakeRecord();
  const RequestRecord written = TakeWritten();
  EXPECT_GT(done.receive, absl::ZeroDuration());
  EXPECT_EQ(done.write, absl::ZeroDuration());
  EXPECT_GE(done.total, done.receive + done.decode + done.queue + done.compute + done.encode);
  EXPECT_GT(written.write, absl::ZeroDuration());
  EXPECT_EQ(written.total, done.total + written.write);
  EXPECT_EQ(written.origin.transport, Transport::kTcp);
}

TEST_F(PhasesTest, ARefusedRequestIsWrittenToo) {
  v1::NormalizeRequest bad = LayerNormRequest();
  bad.clear_x();
  v1::NormalizeResponse response;
  EXPECT_FALSE(server_->Normalize(bad, &response).ok());
  const RequestRecord written = TakeWritten();
  EXPECT_EQ(written.code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(written.reason, "MISSING_FIELD");
  EXPECT_GT(written.total, absl::ZeroDuration());
}

TEST_F(PhasesTest, EveryItemOfAStreamIsWrittenOnce) {
  std::atomic<int> written{0};
  RpcOptions options;
  options.observer.on_request_done = [](const RequestRecord&) {};
  options.observer.on_request_written = [&written](const RequestRecord& record) {
    EXPECT_EQ(record.receive, absl::ZeroDuration()) << "a stream waits between its messages";
    ++written;
  };
  {
    TestServer server(std::move(options));
    grpc::ClientContext context;
    const auto stream = server.normalizer().NormalizeStream(&context);
    for (uint64_t i = 0; i < 5; ++i) {
      v1::StreamRequest request;
      request.set_sequence(i);
      *request.mutable_call() = LayerNormRequest(i == 3 ? 0 : 2);
      if (i == 3) request.mutable_call()->clear_x();
      stream->Write(request);
    }
    stream->WritesDone();
    v1::StreamResponse response;
    int replies = 0;
    while (stream->Read(&response)) ++replies;
    EXPECT_EQ(replies, 5);
    EXPECT_TRUE(stream->Finish().ok());
  }
  EXPECT_EQ(written, 5);
}

}  // namespace
}  // namespace normd::e2e
