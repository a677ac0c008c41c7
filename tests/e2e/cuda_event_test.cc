// Regions of CUDA memory with an event, from the client to the backend: a call starts when its events have completed,
// and one whose event never completes holds nobody else up.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <future>

#include "tests/e2e/cuda_server.h"

namespace normd::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kTensorBytes = 48;  // of LayerNormRequest(3)

// A client with x, and y behind it, in CUDA memory.
class Pair {
 public:
  explicit Pair(CudaServer* server, bool has_event = true, absl::Duration deadline = absl::Seconds(60))
      : cuda_(&server->cuda()),
        memory_(cuda_->Allocate(2 * kTensorBytes)),
        event_(has_event ? cuda_->CreateEvent() : ""),
        client_(server->NewClient({.deadline = deadline})) {
    const std::string x = LayerNormRequest(3).x().data();
    std::memcpy(cuda_->Owned(memory_), x.data(), x.size());
    region_ = client_->RegisterCuda(Memory()).value();
  }

  client::CudaMemory Memory() const {
    return {
        .ipc_handle = memory_, .device = CudaServer::kDevice, .size_bytes = 2 * kTensorBytes, .event_handle = event_};
  }
  v1::NormalizeRequest Request() const {
    v1::NormalizeRequest request = LayerNormRequest(3);
    client::SetShared({region_.get(), 0, kTensorBytes}, request.mutable_x());
    AddY(&request);
    return request;
  }
  void AddY(v1::NormalizeRequest* request) const {
    v1::OutputRequest* const y = request->add_outputs();
    y->set_kind(v1::OUTPUT_KIND_Y);
    client::SetShared({region_.get(), kTensorBytes, kTensorBytes}, y);
  }
  std::string y() const { return {reinterpret_cast<const char*>(cuda_->Owned(memory_)) + kTensorBytes, kTensorBytes}; }
  void Record() { cuda_->Record(event_); }
  void Complete() { cuda_->Complete(event_); }
  // Unregisters the region.
  void Reset() { region_.reset(); }
  Client& client() { return *client_; }
  const std::string& event() const { return event_; }

  std::future<absl::Status> Send(const v1::NormalizeRequest& request) {
    return std::async(std::launch::async, [this, request] { return client_->Normalize(request).status(); });
  }
  std::future<absl::Status> Send() { return Send(Request()); }

 private:
  FakeCuda* const cuda_;
  const std::string memory_, event_;
  const std::unique_ptr<Client> client_;
  std::unique_ptr<client::CudaRegion> region_;
};

class CudaEventEndToEnd : public ::testing::Test {
 protected:
  // Whether `sent` still waits after the server has asked some more times for the events that it waits for.
  bool Waits(const std::future<absl::Status>& sent) {
    const int64_t queries = server_.cuda().event_queries();
    const bool asked = Eventually([&] { return server_.cuda().event_queries() >= queries + 10; });
    return asked && sent.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }
  std::string Want() { return server_.NewClient()->Normalize(LayerNormRequest(3)).value().outputs(0).tensor().data(); }

  CudaServer server_;
};

TEST_F(CudaEventEndToEnd, ACallStartsWhenTheEventOfItsRegionHasCompleted) {
  Pair pair(&server_);
  pair.Record();
  std::future<absl::Status> sent = pair.Send();
  EXPECT_TRUE(Waits(sent));
  EXPECT_THAT(server_.backend().TakeJobs(), IsEmpty());
  pair.Complete();
  EXPECT_TRUE(sent.get().ok());
  EXPECT_THAT(server_.backend().TakeJobs(), ElementsAre("x y, device 1"));
  EXPECT_TRUE(pair.y() == Want());
}

TEST_F(CudaEventEndToEnd, WithoutAnEventOrBeforeItsFirstRecordNothingWaits) {
  Pair with(&server_), without(&server_, /*has_event=*/false);
  EXPECT_TRUE(without.Send().get().ok());
  EXPECT_EQ(server_.cuda().event_queries(), 0);
  EXPECT_TRUE(with.Send().get().ok());
  EXPECT_EQ(server_.cuda().event_queries(), 1);
  with.Record();
  with.Complete();
  EXPECT_TRUE(with.Send().get().ok());
  EXPECT_EQ(server_.cuda().event_queries(), 2) << "x and y have one event";
}

TEST_F(CudaEventEndToEnd, ACallWaitsForTheEventsOfAllItsRegions) {
  Pair x(&server_), y(&server_);
  x.Record();
  y.Record();
  v1::NormalizeRequest request = x.Request();
  request.clear_outputs();
  y.AddY(&request);
  std::future<absl::Status> sent = x.Send(request);
  EXPECT_TRUE(Waits(sent));
  x.Complete();
  EXPECT_TRUE(Waits(sent)) << "y may still be read by its owner";
  y.Complete();
  EXPECT_TRUE(sent.get().ok());
}

TEST_F(CudaEventEndToEnd, BatchesStreamsAndMomentsWait) {
  Pair pair(&server_);
  v1::BatchNormalizeRequest batch;
  *batch.add_items() = LayerNormRequest(2);
  *batch.add_items() = pair.Request();
  v1::ComputeMomentsRequest reduce;
  *reduce.mutable_spec() = pair.Request().spec();
  *reduce.mutable_x() = pair.Request().x();
  v1::StreamRequest call;
  *call.mutable_call() = pair.Request();
  const std::vector<std::function<absl::Status()>> all = {
      [&] { return pair.client().BatchNormalize(batch).status(); },
      [&] { return pair.client().ComputeMoments(reduce).status(); },
      [&] {
        const std::unique_ptr<NormalizeStream> stream = pair.client().OpenStream();
        v1::StreamResponse response;
        const bool answered = stream->Write(call) && stream->Read(&response) && response.has_reply();
        return answered ? stream->Finish() : absl::UnknownError("no reply");
      }};
  for (const auto& send : all) {
    pair.Record();
    std::future<absl::Status> sent = std::async(std::launch::async, send);
    EXPECT_TRUE(Waits(sent));
    EXPECT_THAT(server_.backend().TakeJobs(), IsEmpty());
    pair.Complete();
    const absl::Status status = sent.get();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_THAT(server_.backend().TakeJobs(), SizeIs(1));
  }
}

// More calls wait for ever than the server computes at one time, or has launches in the device.
TEST_F(CudaEventEndToEnd, EventsThatNeverCompleteHoldNobodyElseUp) {
  std::vector<std::unique_ptr<Pair>> hostile;
  std::vector<std::future<absl::Status>> stuck;
  for (int i = 0; i < 8; ++i) {
    hostile.push_back(std::make_unique<Pair>(&server_));
    hostile.back()->Record();
    stuck.push_back(hostile.back()->Send());
  }
  EXPECT_TRUE(Waits(stuck.back()));
  Pair without(&server_, /*has_event=*/false), with(&server_);
  EXPECT_TRUE(without.Send().get().ok());
  with.Record();
  with.Complete();
  EXPECT_TRUE(with.Send().get().ok());
  EXPECT_TRUE(server_.NewClient()->Normalize(LayerNormRequest(3)).ok());
  for (const std::unique_ptr<Pair>& pair : hostile) pair->Complete();
  for (std::future<absl::Status>& sent : stuck) EXPECT_TRUE(sent.get().ok());
}

TEST_F(CudaEventEndToEnd, TheDeadlineEndsTheWaitAndTheRegionClosesItsEvent) {
  Pair pair(&server_, /*has_event=*/true, absl::Milliseconds(300));
  pair.Record();
  EXPECT_EQ(pair.Send().get().code(), absl::StatusCode::kDeadlineExceeded);
  pair.Reset();
  // The memory of the region is closed after its event.
  EXPECT_TRUE(Eventually([&] { return server_.cuda().events_open_now() == 0 && server_.cuda().open_now() == 0; }));
  EXPECT_EQ(server_.cuda().events_opened(), 1);
}

TEST_F(CudaEventEndToEnd, ACallThatWaitsKeepsTheEventOfARegionThatIsGone) {
  Pair pair(&server_);
  pair.Record();
  std::future<absl::Status> sent = pair.Send();
  EXPECT_TRUE(Waits(sent));
  pair.Reset();
  EXPECT_TRUE(Waits(sent));
  EXPECT_EQ(server_.cuda().events_open_now(), 1);
  pair.Complete();
  EXPECT_TRUE(sent.get().ok());
  EXPECT_TRUE(Eventually([&] { return server_.cuda().events_open_now() == 0; }));
}

TEST_F(CudaEventEndToEnd, ADrainDoesNotWaitForEventsLongerThanForOtherCalls) {
  Pair pair(&server_);
  pair.Record();
  std::future<absl::Status> sent = pair.Send();
  EXPECT_TRUE(Waits(sent));
  const absl::Time start = absl::Now();
  server_.server().Shutdown(absl::Milliseconds(100));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_FALSE(sent.get().ok());
}

// ---- what cannot be registered

TEST_F(CudaEventEndToEnd, BadEventsAreRefusedByFieldAndLeaveNothingOpen) {
  const Pair pair(&server_);
  for (const std::string& handle : {std::string(63, 'x'), std::string(65, 'x')}) {
    client::CudaMemory memory = pair.Memory();
    memory.event_handle = handle;
    const absl::Status status = server_.NewClient()->RegisterCuda(memory).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(client::GetErrorInfo(status)->field, "cuda.event_handle");
    EXPECT_EQ(client::GetErrorInfo(status)->reason, "BAD_CUDA_HANDLE");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("has " + std::to_string(handle.size()) + " bytes; it must have 64 bytes, or 0"));
  }
  client::CudaMemory memory = pair.Memory();
  memory.event_handle = std::string(64, 'x');
  EXPECT_EQ(server_.NewClient()->RegisterCuda(memory).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server_.cuda().events_opened(), 1);
  EXPECT_EQ(server_.cuda().open_now(), 1);
  EXPECT_EQ(server_.table().stats().regions, 1);
}

TEST_F(CudaEventEndToEnd, AnEventNeedsCudaMemory) {
  for (const char* posix_name : {"", "/normd-x"}) {
    v1::RegisterRegionRequest request;
    request.set_posix_name(posix_name);
    request.set_size_bytes(1);
    request.mutable_cuda()->set_event_handle(server_.cuda().CreateEvent());
    const grpc::Status status = server_.Refusal(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(FieldOf(status), "cuda.event_handle");
  }
  EXPECT_EQ(server_.cuda().events_opened(), 0);
}

}  // namespace
}  // namespace normd::e2e
