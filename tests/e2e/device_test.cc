// Devices over the wire: what a caller learns of what ran a call, and how calls wait for a device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/steady_time.h"
#include "tests/e2e/open_stream.h"
#include "tests/e2e/test_server.h"
#include "tests/support/fake_device.h"

namespace normd::e2e {
namespace {

using Launches = std::vector<std::vector<float>>;

// RMSNorm of one row that begins with `number`, by which the device tells calls apart.
v1::NormalizeRequest Row(int number, int length, v1::Device device) {
  std::vector<float> values(static_cast<size_t>(length), 1.0F);
  values[0] = static_cast<float>(number);
  v1::NormalizeRequest request = RmsNormRequest(values);
  request.set_device(device);
  return request;
}

std::string YOf(const v1::NormalizeResponse& response) {
  return response.outputs_size() == 1 ? response.outputs(0).tensor().data() : "no y";
}

bool IsOfTheCpu(const v1::Applied& applied) {
  return applied.device() == v1::DEVICE_CPU && applied.kernel().substr(0, 4) == "cpu/";
}

// A server with a device that costs nothing, and so is AUTO's choice for all that does not run inline.
class DeviceTest : public testing::Test {
 protected:
  ~DeviceTest() override {
    // A test that failed may have left some there, and the server waits for its calls.
    while (device_.held() > 0) device_.Release();
    server_.reset();
  }

  void Start(const QueueOptions& queue = {}) {
    RpcOptions options;
    options.queues = 1;  // see Connection::RoundTrip
    SchedulerObserver observer;
    observer.on_jobs = [this](Device device, int64_t jobs) {
      if (device == Device::kCuda) given_ += jobs;
    };
    observer.queues.on_dropped = [this](absl::StatusCode why) {
      MutexLock lock(mu_);
      dropped_.push_back(why);
    };
    const std::vector<ScheduledDevice> devices = {
        {.backend = &device_, .cost = {.fixed_us = 0, .bytes_per_us = 1e9}, .queue = queue}};
    server_ = std::make_unique<TestServer>(std::move(options), devices, std::move(observer));
  }

  v1::NormalizeResponse Answer(const v1::NormalizeRequest& request) {
    v1::NormalizeResponse response;
    const grpc::Status status = server_->Normalize(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // What every device should make of such a row.
  std::string YOfTheCpu(int number, int length) { return YOf(Answer(Row(number, length, v1::DEVICE_CPU))); }

  // The numbers of the rows in each launch, in order.
  Launches Launched() const {
    Launches launches;
    for (const auto& launch : device_.launches()) {
      std::vector<float>& numbers = launches.emplace_back();
      for (const FakeDevice::Seen& seen : launch) numbers.push_back(seen.first);
    }
    return launches;
  }
  std::vector<absl::StatusCode> Dropped() {
    MutexLock lock(mu_);
    return dropped_;
  }

  FakeDevice device_;
  std::atomic<int64_t> given_{0};  // jobs that were, to the device or its queue
  Mutex mu_;
  std::vector<absl::StatusCode> dropped_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<TestServer> server_;
};

TEST_F(DeviceTest, AReplyShowsDeviceAndKernel) {
  device_.holds = false;
  Start();
  for (const v1::Device asked : {v1::DEVICE_AUTO, v1::DEVICE_CUDA}) {
    const v1::NormalizeResponse response = Answer(Row(7, 4, asked));
    EXPECT_EQ(response.applied().device(), v1::DEVICE_CUDA);
    EXPECT_EQ(response.applied().kernel(), "cuda/fake");
    EXPECT_FALSE(response.applied().device_fallback());
    EXPECT_EQ(YOf(response), YOfTheCpu(7, 4));
  }
  const v1::Applied applied = Answer(Row(8, 4, v1::DEVICE_CPU)).applied();
  EXPECT_TRUE(IsOfTheCpu(applied)) << applied.ShortDebugString();
  EXPECT_FALSE(applied.device_fallback());
  EXPECT_EQ(Launched(), (Launches{{7}, {7}}));
}

TEST_F(DeviceTest, AReplyShowsThatTheCpuRanWhatADeviceHadNoRoomFor) {
  device_.holds = false;
  device_.judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("no room on the device"); };
  Start();
  const v1::NormalizeResponse response = Answer(Row(7, 4, v1::DEVICE_AUTO));
  EXPECT_EQ(Launched(), (Launches{{7}})) << "the device was the choice";
  EXPECT_TRUE(IsOfTheCpu(response.applied())) << response.applied().ShortDebugString();
  EXPECT_TRUE(response.applied().device_fallback());
  EXPECT_EQ(YOf(response), YOfTheCpu(7, 4));
  v1::NormalizeResponse none;
  EXPECT_EQ(server_->Normalize(Row(7, 4, v1::DEVICE_CUDA), &none).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "nothing else runs what names the device";
}

// A call that was prepared before and is small runs inline; but not one that names the device.
TEST_F(DeviceTest, ASmallCallThatNamesADeviceRunsThereEachTime) {
  device_.holds = false;
  Start();
  server_->backend().RunInline();
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(Answer(Row(7, 4, v1::DEVICE_CUDA)).applied().device(), v1::DEVICE_CUDA);
    EXPECT_TRUE(IsOfTheCpu(Answer(Row(7, 4, v1::DEVICE_AUTO)).applied()));
    EXPECT_EQ(device_.launches().size(), i);
  }
}

TEST_F(DeviceTest, AMissingDeviceIsRefusedByName) {
  TestServer server;
  v1::NormalizeResponse response;
  const grpc::Status status = server.Normalize(Row(7, 4, v1::DEVICE_CUDA), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "DEVICE_NOT_AVAILABLE");
}

TEST_F(DeviceTest, ACallWithoutADeadlineWaitsForCompanyAsLongAsItMay) {
  constexpr absl::Duration kDelay = absl::Milliseconds(200);
  device_.holds = false;
  Start({.limits = {.max_delay = kDelay}});
  const absl::Time begin = SteadyNow();
  EXPECT_EQ(Answer(Row(7, 4, v1::DEVICE_CUDA)).applied().device(), v1::DEVICE_CUDA);
  EXPECT_GE(SteadyNow() - begin, kDelay);
}

// ---- The device's queue

// A connection of its own, on which calls are asked one after the other before any is answered. All calls have the
// deadline.
class Connection {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  Connection(const TestServer& server, TimePoint deadline)
      : stub_(v1::Normalizer::NewStub(server.NewChannel())), deadline_(deadline) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual void Ask(const v1::NormalizeRequest& request) = 0;
  // Takes back all that was asked. Nothing is asked after that.
  virtual void Cancel() = 0;
  // Of each call the y, or its error's message, in order. Waits for them.
  virtual std::vector<std::string> Answers() = 0;

  // The one thread that serves all has by then seen what was sent here, and done what it does at once.
  void RoundTrip() {
    grpc::ClientContext context;
    v1::DescribeResponse response;
    EXPECT_TRUE(stub_->Describe(&context, v1::DescribeRequest(), &response).ok());
  }

 protected:
  v1::Normalizer::Stub& stub() { return *stub_; }
  TimePoint deadline() const { return deadline_; }

 private:
  const std::unique_ptr<v1::Normalizer::Stub> stub_;
  const TimePoint deadline_;
};

class UnaryCalls final : public Connection {
 public:
  using Connection::Connection;

  void Ask(const v1::NormalizeRequest& request) override {
    OneCall& call = *calls_.emplace_back(std::make_unique<OneCall>());
    call.context.set_deadline(deadline());
    call.request = request;
    call.status = std::async(std::launch::async,
                             [this, &call] { return stub().Normalize(&call.context, call.request, &call.response); });
  }
  void Cancel() override {
    for (const auto& call : calls_) {
      call->context.TryCancel();
      EXPECT_EQ(call->status.get().error_code(), grpc::StatusCode::CANCELLED);
    }
    calls_.clear();
  }
  std::vector<std::string> Answers() override {
    std::vector<std::string> answers;
    for (const auto& call : calls_) {
      const grpc::Status status = call->status.get();
      answers.push_back(status.ok() ? YOf(call->response) : status.error_message());
    }
    calls_.clear();
    return answers;
  }

 private:
  struct OneCall {
    grpc::ClientContext context;
    v1::NormalizeRequest request;
    v1::NormalizeResponse response;
    std::future<grpc::Status> status;  // last: waits for its thread, which uses the others
  };

  std::vector<std::unique_ptr<OneCall>> calls_;
};

class StreamItems final : public Connection {
 public:
  StreamItems(const TestServer& server, TimePoint deadline) : Connection(server, deadline), stream_(stub(), deadline) {}

  void Ask(const v1::NormalizeRequest& request) override { EXPECT_TRUE(stream_.Send(++asked_, request)); }
  void Cancel() override {
    stream_.context().TryCancel();
    EXPECT_EQ(stream_.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  std::vector<std::string> Answers() override {
    std::vector<std::string> answers;
    for (uint64_t i = 1; i <= asked_; ++i) {
      const v1::StreamResponse response = stream_.Receive();
      EXPECT_EQ(response.sequence(), i);
      answers.push_back(response.has_reply() ? YOf(response.reply()) : response.error().message());
    }
    return answers;
  }

 private:
  OpenStream stream_;
  uint64_t asked_ = 0;
};

enum class Way : uint8_t { kUnary, kStream };

class DeviceQueueTest : public DeviceTest, public testing::WithParamInterface<Way> {
 protected:
  // The time is what a test that fails waits for an answer.
  std::unique_ptr<Connection> Connect(std::chrono::seconds timeout = std::chrono::seconds(60)) const {
    const auto deadline = std::chrono::system_clock::now() + timeout;
    if (GetParam() == Way::kUnary) return std::make_unique<UnaryCalls>(*server_, deadline);
    return std::make_unique<StreamItems>(*server_, deadline);
  }

  // The call is in the device, or waits for it, when this returns.
  void Ask(Connection& connection, int number, int length) {
    connection.Ask(Row(number, length, v1::DEVICE_CUDA));
    ++asked_;
    EXPECT_TRUE(Eventually([this] { return given_ == asked_; })) << number;
    connection.RoundTrip();
  }

  // Lets the device run, one after the other, what it holds, until it has had so many launches.
  void RunLaunches(size_t count) {
    EXPECT_TRUE(Eventually([this, count] {
      if (device_.held() > 0) device_.Release();
      return device_.launches().size() >= count && device_.held() == 0;
    }));
  }

 private:
  int64_t asked_ = 0;
};

TEST_P(DeviceQueueTest, ConnectionsTakeTurns) {
  Start({.max_in_flight = 1});
  const auto one = Connect();
  const auto other = Connect();
  // Rows of another length each, so that none share a launch.
  for (const int number : {1, 2, 3, 4}) Ask(*one, number, 4 + number);
  for (const int number : {5, 6}) Ask(*other, number, 4 + number);
  EXPECT_EQ(Launched(), (Launches{{1}})) << "the others wait";
  RunLaunches(6);
  EXPECT_EQ(Launched(), (Launches{{1}, {2}, {5}, {3}, {6}, {4}}));
  EXPECT_EQ(one->Answers(),
            (std::vector<std::string>{YOfTheCpu(1, 5), YOfTheCpu(2, 6), YOfTheCpu(3, 7), YOfTheCpu(4, 8)}));
  EXPECT_EQ(other->Answers(), (std::vector<std::string>{YOfTheCpu(5, 9), YOfTheCpu(6, 10)}));
}

TEST_P(DeviceQueueTest, RowsOfOneLengthThatWaitTogetherAreOneLaunchInOrderOfTurns) {
  Start({.max_in_flight = 1});
  const auto one = Connect();
  const auto other = Connect();
  Ask(*one, 1, 4);
  for (const int number : {2, 3}) Ask(*one, number, 8);
  Ask(*other, 4, 8);
  Ask(*other, 5, 4);
  EXPECT_EQ(Launched(), (Launches{{1}})) << "the others wait";
  RunLaunches(3);
  EXPECT_EQ(Launched(), (Launches{{1}, {2, 4, 3}, {5}}));
  EXPECT_EQ(one->Answers(), (std::vector<std::string>{YOfTheCpu(1, 4), YOfTheCpu(2, 8), YOfTheCpu(3, 8)}));
  EXPECT_EQ(other->Answers(), (std::vector<std::string>{YOfTheCpu(4, 8), YOfTheCpu(5, 4)}));
}

TEST_P(DeviceQueueTest, WhatIsCancelledWhileItWaitsIsNeverLaunched) {
  Start({.max_in_flight = 1});
  const auto one = Connect();
  const auto other = Connect();
  Ask(*one, 1, 5);
  Ask(*other, 2, 6);
  Ask(*one, 3, 7);
  other->Cancel();
  other->RoundTrip();
  EXPECT_TRUE(Dropped().empty()) << "nobody looks before there is room";
  RunLaunches(2);
  EXPECT_TRUE(Eventually([this] { return !Dropped().empty(); }));
  EXPECT_EQ(Dropped(), std::vector<absl::StatusCode>{absl::StatusCode::kCancelled});
  EXPECT_EQ(Launched(), (Launches{{1}, {3}}));
  EXPECT_EQ(one->Answers(), (std::vector<std::string>{YOfTheCpu(1, 5), YOfTheCpu(3, 7)}));
}

TEST_P(DeviceQueueTest, WhatWaitsForCompanyIsLaunchedHalfwayToItsDeadline) {
  device_.holds = false;
  Start({.limits = {.max_delay = absl::Seconds(20)}});
  const auto connection = Connect(std::chrono::seconds(4));
  Ask(*connection, 7, 4);
  EXPECT_EQ(Launched(), Launches()) << "it waits";
  EXPECT_EQ(connection->Answers(), std::vector<std::string>{YOfTheCpu(7, 4)});
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceQueueTest, testing::Values(Way::kUnary, Way::kStream),
                         [](const auto& way) { return std::string(way.param == Way::kUnary ? "Unary" : "Stream"); });

}  // namespace
}  // namespace normd::e2e
