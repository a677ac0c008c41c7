// The phases of a request add up to its time, however many calls it holds.
#include <optional>

#include "server/rpc/transport/observer.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {
namespace {

class PhasesTest : public testing::Test {
 protected:
  PhasesTest() {
    GrpcServerOptions options;
    options.observer.on_request_done = [this](const RequestRecord& record) {
      MutexLock lock(mu_);
      record_ = record;
      changed_.SignalAll();
    };
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  ~PhasesTest() override { server_.reset(); }

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

}  // namespace
}  // namespace normd::e2e
