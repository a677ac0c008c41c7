// What takes time in proportion to bytes leaves the queue's thread, which serves everybody: seen by the thread that a
// request is answered from.
#include <string>
#include <thread>
#include <vector>

#include "normd/v1/shared_memory.grpc.pb.h"
#include "tests/e2e/open_stream.h"

namespace normd::e2e {
namespace {

constexpr int64_t kLargeElements = WorkPool::kLargeBytes / sizeof(float);

// A server with one queue, so one thread, and the threads that requests were answered from.
class LargeWorkTest : public testing::Test {
 protected:
  LargeWorkTest() {
    RpcOptions options;
    options.queues = 1;
    options.observer.on_request_done = [this](const RequestRecord&) {
      MutexLock lock(mu_);
      answered_on_.push_back(std::this_thread::get_id());
      changed_.SignalAll();
    };
    server_ = std::make_unique<TestServer>(std::move(options));
    grpc::ClientContext context;
    v1::DescribeResponse response;
    EXPECT_TRUE(server_->normalizer().Describe(&context, {}, &response).ok());
    queue_ = TakeThread();
  }
  ~LargeWorkTest() override { server_.reset(); }

  // The thread that the one request since the last call of this was answered from.
  std::thread::id TakeThread() {
    MutexLock lock(mu_);
    while (answered_on_.empty()) changed_.Wait(mu_);
    EXPECT_EQ(answered_on_.size(), 1u);
    const std::thread::id thread = answered_on_.back();
    answered_on_.clear();
    return thread;
  }

  // A request that is refused once it was decoded.
  static v1::NormalizeRequest Refused(int64_t elements) {
    v1::NormalizeRequest request = RmsNormRequest(std::vector<float>(static_cast<size_t>(elements), 1.0F));
    request.mutable_spec()->mutable_rms_norm()->set_eps(-1);
    return request;
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<std::thread::id> answered_on_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<TestServer> server_;
  std::thread::id queue_;
};

TEST_F(LargeWorkTest, OfAMessageIsThePools) {
  v1::NormalizeResponse response;
  EXPECT_FALSE(server_->Normalize(Refused(4), &response).ok());
  EXPECT_EQ(TakeThread(), queue_);
  EXPECT_FALSE(server_->Normalize(Refused(kLargeElements), &response).ok());
  EXPECT_NE(TakeThread(), queue_);
}

// An item costs what a KiB costs, however small it is, and whether it is a mistake or not.
TEST_F(LargeWorkTest, OfManySmallItemsIsThePools) {
  for (const bool mistakes : {true, false}) {
    for (const int items : {8, 300}) {
      v1::BatchNormalizeRequest request;
      for (int i = 0; i < items; ++i) {
        v1::NormalizeRequest* const item = request.add_items();
        if (!mistakes) *item = LayerNormRequest();
      }
      ASSERT_LT(static_cast<int64_t>(request.ByteSizeLong()), WorkPool::kLargeBytes / 8);
      grpc::ClientContext context;
      v1::BatchNormalizeResponse response;
      ASSERT_TRUE(server_->normalizer().BatchNormalize(&context, request, &response).ok());
      ASSERT_EQ(response.items_size(), items);
      const std::thread::id thread = TakeThread();
      // What is computed is answered from the backend's thread, however small it is.
      if (items == 8 && !mistakes) continue;
      EXPECT_EQ(thread != queue_, items > 8) << "mistakes: " << mistakes;
    }
  }
}

TEST_F(LargeWorkTest, OfAListThatMayLookAtManySessionsIsThePools) {
  v1::ListSessionsRequest few, many, filtered;
  few.set_page_size(10);
  many.set_page_size(1000);
  filtered.set_filter("a=b");
  for (const v1::ListSessionsRequest* list : {&few, &many, &filtered}) {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    ASSERT_TRUE(server_->sessions().ListSessions(&context, *list, &response).ok());
    EXPECT_EQ(TakeThread() != queue_, list != &few) << list->ShortDebugString();
  }
}

TEST_F(LargeWorkTest, OfASessionIsThePools) {
  for (const int64_t elements : {int64_t{4}, kLargeElements}) {
    const bool large = elements == kLargeElements;
    v1::CreateSessionRequest create;
    create.set_session_id(large ? "large" : "small");
    create.mutable_session()->mutable_spec()->mutable_layer_norm()->add_normalized_shape(elements);
    SetTensor({elements}, std::vector<float>(static_cast<size_t>(elements), 1.0F),
              create.mutable_session()->mutable_parameters()->mutable_weight());
    grpc::ClientContext create_context, get_context;
    v1::Session session;
    ASSERT_TRUE(server_->sessions().CreateSession(&create_context, create, &session).ok());
    EXPECT_EQ(TakeThread() != queue_, large) << "creating";
    v1::GetSessionRequest get;
    get.set_name(session.name());
    get.set_view(v1::SESSION_VIEW_FULL);
    ASSERT_TRUE(server_->sessions().GetSession(&get_context, get, &session).ok());
    EXPECT_EQ(session.parameters().weight().data().size(), elements * sizeof(float));
    EXPECT_EQ(TakeThread() != queue_, large) << "reading";
  }
}

TEST_F(LargeWorkTest, OfPooledMomentsIsThePools) {
  // Moments of three f64 a channel, which are as many bytes as large work has.
  for (const int64_t channels : {int64_t{4}, WorkPool::kLargeBytes / 24 + 1}) {
    const bool large = channels > 4;
    v1::CreateSessionRequest create;
    create.set_session_id(large ? "many" : "few");
    create.mutable_session()->mutable_spec()->mutable_batch_norm()->set_layout(v1::LAYOUT_CHANNELS_LAST);
    create.mutable_session()->set_num_channels(channels);
    grpc::ClientContext create_context, context;
    v1::Session session;
    ASSERT_TRUE(server_->sessions().CreateSession(&create_context, create, &session).ok());
    TakeThread();
    v1::CommitMomentsRequest commit;
    commit.set_session(session.name());
    v1::Moments* const moments = commit.add_moments();
    const std::vector<double> values(static_cast<size_t>(channels), 2.0);
    for (v1::Tensor* tensor : {moments->mutable_count(), moments->mutable_mean(), moments->mutable_m2()}) {
      tensor->set_dtype(v1::DTYPE_F64);
      tensor->add_shape(channels);
      tensor->set_data(values.data(), values.size() * sizeof(double));
    }
    v1::StateResult result;
    const grpc::Status status = server_->sessions().CommitMoments(&context, commit, &result);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(result.applied());
    EXPECT_EQ(TakeThread() != queue_, large);
  }
}

TEST_F(LargeWorkTest, OfAChunksChecksumIsThePoolsAndTheOrderStays) {
  OpenStream stream(*server_);
  v1::NormalizeRequest call = RmsNormRequest(std::vector<float>(4 * kLargeElements, 1.0F));
  std::vector<v1::StreamRequest> damaged = InChunks(1, call, WorkPool::kLargeBytes);
  damaged.back().mutable_chunk()->set_crc32c(damaged.back().chunk().crc32c() + 1);
  ASSERT_TRUE(stream.SendAll(damaged));
  EXPECT_EQ(ReasonOf(stream.Receive().error()), "CHUNK_CRC");
  EXPECT_NE(TakeThread(), queue_);
  // Large and small messages by turns.
  std::vector<v1::StreamRequest> whole = InChunks(2, call, WorkPool::kLargeBytes);
  ASSERT_TRUE(stream.SendAll(whole));
  ASSERT_TRUE(stream.Send(3, LayerNormRequest()));
  ASSERT_TRUE(stream.Send(4, RmsNormRequest(std::vector<float>(kLargeElements, 1.0F))));
  ASSERT_TRUE(stream.Send(5, LayerNormRequest()));
  for (uint64_t sequence = 2; sequence <= 5; ++sequence) {
    const v1::StreamResponse response = stream.ReceiveWhole();
    EXPECT_TRUE(response.has_reply()) << response.error().message();
    EXPECT_EQ(response.sequence(), sequence);
  }
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

}  // namespace
}  // namespace normd::e2e
