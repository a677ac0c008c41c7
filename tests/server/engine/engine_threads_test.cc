// Where the engine does what takes time in proportion to bytes, and what it does for callers who are gone.
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/steady_time.h"
#include "tests/server/engine/fixtures.h"

namespace normd {
namespace {

using engine_test::CallTo;
using engine_test::Floats;
using engine_test::LayerSpec;

constexpr int64_t kSmall = 1024;
constexpr int64_t kLarge = WorkPool::kLargeBytes / sizeof(float);

Floats Row(int64_t elements) {
  return {.shape = {elements}, .elements = std::vector<float>(static_cast<size_t>(elements), 1.0F)};
}

class EngineThreadsTest : public engine_test::EngineFixture {
 protected:
  // LayerNorm of one row with a weight.
  Call Weighted(const Floats& row) {
    Call call = CallTo(LayerSpec({row.shape[0]}), row.View());
    call.parameters.weight = row.View();
    return call;
  }

  void CreateWeighted(const std::string& id, const Floats& row) {
    Session session = session_test::NewSession(id, LayerSpec({row.shape[0]}), 0);
    const auto* bytes = reinterpret_cast<const char*>(row.elements.data());
    OwnedParameters parameters;
    parameters.weight = OwnedTensor{DType::kF32, row.shape, std::string(bytes, row.elements.size() * sizeof(float))};
    session.parameters = std::make_shared<const OwnedParameters>(std::move(parameters));
    ASSERT_TRUE(session_test::Create(store_, session).ok());
  }

  const Floats small_ = Row(kSmall), large_ = Row(kLarge);
};

TEST_F(EngineThreadsTest, LargeParametersAreNotConvertedOnTheThreadThatSubmits) {
  ASSERT_TRUE(Run(Weighted(small_)).ok());
  EXPECT_EQ(backend_.prepared_on, std::this_thread::get_id());
  ASSERT_TRUE(Run(Weighted(large_)).ok());
  EXPECT_NE(backend_.prepared_on, std::this_thread::get_id());
}

// The memory store answers on the thread that asks, as others do on a thread of their own.
TEST_F(EngineThreadsTest, LargeParametersOfASessionAreNotConvertedOnTheThreadThatAnswersForTheStore) {
  CreateWeighted("small", small_);
  CreateWeighted("large", large_);
  ASSERT_TRUE(Run(CallTo("small", small_.View())).ok());
  EXPECT_EQ(backend_.prepared_on, std::this_thread::get_id());
  ASSERT_TRUE(Run(CallTo("large", large_.View())).ok());
  EXPECT_NE(backend_.prepared_on, std::this_thread::get_id());
}

TEST_F(EngineThreadsTest, ACancelledCallIsNeitherPreparedNorComputed) {
  CreateWeighted("s", small_);
  for (Call call : {Weighted(small_), CallTo("s", small_.View())}) {
    call.cancelled = [] { return true; };
    EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(backend_.prepared, 0);
  EXPECT_TRUE(backend_.TakeJobLists().empty());
}

TEST_F(EngineThreadsTest, NothingIsPreparedOrComputedAfterTheDeadline) {
  Call call = Weighted(small_);
  call.deadline = SteadyNow() - absl::Milliseconds(1);
  EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(backend_.prepared, 0);
  EXPECT_TRUE(backend_.TakeJobLists().empty());
}

TEST_F(EngineThreadsTest, ACallCancelledDuringPreparationIsNotComputed) {
  Call call = Weighted(small_);
  call.cancelled = [this] { return backend_.prepared > 0; };
  EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(backend_.TakeJobLists().empty());
}

// Holds every list of jobs until it is told to end the oldest one.
class HoldingBackend : public engine_test::SpyBackend {
 public:
  int64_t inline_elements() const override { return 0; }
  void Submit(std::vector<Job> jobs, Done done) override {
    started.push_back(*static_cast<const float*>(jobs.front().x));
    held_.push_back(std::move(done));
  }
  void EndOne() {
    Done done = std::move(held_.front());
    held_.pop_front();
    done(absl::OkStatus());
  }

  std::vector<float> started;  // the first element of each list, in order

 private:
  std::deque<Done> held_;
};

TEST_F(EngineThreadsTest, LargeCallsOfSeveralCallersTakeTurns) {
  HoldingBackend backend;
  DeviceScheduler scheduler(&backend);
  Resources resources;
  Engine engine(&scheduler, &store_, &resources, {.max_large_calls = 1});
  std::deque<Floats> rows;
  const std::pair<uint64_t, float> calls[] = {{1, 11}, {1, 12}, {1, 13}, {2, 21}};
  for (const auto& [caller, number] : calls) {
    rows.push_back(small_);
    rows.back().elements[0] = number;
    Call call = CallTo(LayerSpec({kSmall}), rows.back().View());
    call.caller = caller;
    engine.Submit(std::move(call), [](const absl::StatusOr<CallReply>& reply) { EXPECT_TRUE(reply.ok()); });
  }
  for (int i = 0; i < 4; ++i) backend.EndOne();
  EXPECT_EQ(backend.started, (std::vector<float>{11, 12, 21, 13}));
}

TEST_F(EngineThreadsTest, ConvertedParametersHaveTheirRoomBeforeTheyAreMade) {
  int64_t held = 0;
  Call call = Weighted(small_);
  call.reserve = [&](int64_t bytes) {
    EXPECT_EQ(backend_.prepared, 0);
    held = bytes;
    return absl::OkStatus();
  };
  ASSERT_TRUE(Run(std::move(call)).ok());
  EXPECT_EQ(held, kSmall * (4 + 8 + 4)) << "y, and the weight as f64 and as f32";
}

TEST_F(EngineThreadsTest, ParametersWithoutRoomAreNotConverted) {
  Call call = Weighted(small_);
  call.reserve = [](int64_t) { return absl::ResourceExhaustedError("full"); };
  EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(backend_.prepared, 0);
}

// A running variance is converted while the call is judged.
TEST_F(EngineThreadsTest, GivenStatisticsHaveTheirRoomBeforeTheyAreMade) {
  const Floats x = {.shape = {2, 3}, .elements = {1, 2, 3, 4, 5, 6}};
  const Floats statistics = {.shape = {3}, .elements = {1, 1, 1}};
  Call call = CallTo(session_test::BatchSpec(), x.View());
  call.running_mean = call.running_var = statistics.View();
  call.reserve = [](int64_t) { return absl::ResourceExhaustedError("full"); };
  EXPECT_EQ(Run(std::move(call)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(backend_.prepared, 0);
}

// Operations whose messages are short, whatever they copy or make.
class EngineSessionThreadsTest : public engine_test::EngineFixture {
 protected:
  static constexpr int64_t kManyChannels = WorkPool::kLargeBytes / 16;

  template <typename Start>
  std::thread::id ThreadOf(Start start) {
    std::promise<std::thread::id> promise;
    start([&promise](const auto& result) {
      EXPECT_TRUE(result.ok()) << result.status();
      promise.set_value(std::this_thread::get_id());
    });
    return promise.get_future().get();
  }

  static Session Large(const std::string& id) {
    return session_test::NewSession(id, session_test::BatchSpec(), kManyChannels);
  }
};

TEST_F(EngineSessionThreadsTest, LargeSessionsAreNotMadeOrCopiedOnTheThreadThatAsks) {
  const auto elsewhere = [this](auto start) { return ThreadOf(start) != std::this_thread::get_id(); };
  EXPECT_FALSE(elsewhere([this](auto done) {
    engine_.CreateSession(session_test::NewSession("small", session_test::BatchSpec(), 4), nullptr, done);
  }));
  EXPECT_TRUE(elsewhere([this](auto done) { engine_.CreateSession(Large("s"), nullptr, done); }));
  EXPECT_TRUE(elsewhere([this](auto done) { engine_.ForkSession("s", {.id = "fork"}, nullptr, done); }));
  SessionPatch patch;
  patch.labels.emplace();
  EXPECT_TRUE(elsewhere([&](auto done) { engine_.UpdateSession("s", patch, done); }));
  EXPECT_TRUE(elsewhere([this](auto done) { engine_.ResetSession("s", std::nullopt, done); }));
  EXPECT_TRUE(elsewhere([this](auto done) { engine_.ExportSession("s", nullptr, done); }));
  const std::string record = *session_test::Export(store_, "s");
  EXPECT_TRUE(elsewhere([&](auto done) { engine_.ImportSession("imported", record, done); }));
}

TEST_F(EngineSessionThreadsTest, StatisticsAreReservedBeforeTheyAreMade) {
  int64_t asked = 0;
  const auto refuse = [&asked](int64_t bytes) {
    asked = bytes;
    return absl::ResourceExhaustedError("no room");
  };
  const auto status_of = [](auto start) {
    std::promise<absl::Status> promise;
    start([&promise](const auto& result) { promise.set_value(result.status()); });
    return promise.get_future().get();
  };
  EXPECT_EQ(status_of([&](auto done) { engine_.CreateSession(Large("s"), refuse, done); }).message(), "no room");
  EXPECT_GE(asked, 16 * kManyChannels);
  EXPECT_FALSE(session_test::Get(store_, "s").ok());
  ASSERT_TRUE(session_test::Create(store_, Large("s")).ok());
  asked = 0;
  EXPECT_EQ(status_of([&](auto done) { engine_.ForkSession("s", {.id = "fork"}, refuse, done); }).message(), "no room");
  EXPECT_GE(asked, 16 * kManyChannels);
  EXPECT_FALSE(session_test::Get(store_, "fork").ok());
}

}  // namespace
}  // namespace normd
