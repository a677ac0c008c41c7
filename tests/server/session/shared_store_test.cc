// Several servers on one PostgreSQL: no update is lost, none is applied twice, and what one has committed the other
// sees.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/memory/memory_store.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/store_fixture.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixture's words are this file's

Moments StepMoments(int client, uint64_t sequence) {
  return MomentsOf({1.0 * client, 0.5 * static_cast<double>(sequence), 3}, 5);
}

// From 1 to 9 samples for each of 5 channels, whose mean rises from 3 to 7.
Moments SampledMoments(uint64_t step) {
  std::mt19937_64 random(step);
  std::vector<double> values(1 + random() % 9);
  for (double& value : values) value = std::normal_distribution<double>(3, 2)(random);
  return MomentsOf(values, 5);
}

// The bits that are shown. None of the values is halfway between two f64, where the order of steps would decide.
void ExpectSame(const RunningState& expected, const RunningState& actual) {
  EXPECT_EQ(actual.count, expected.count);
  EXPECT_EQ(actual.num_batches, expected.num_batches);
  EXPECT_EQ(actual.mean, expected.mean);
  EXPECT_EQ(actual.m2, expected.m2);
  EXPECT_EQ(actual.var, expected.var);
}

std::string ReasonOf(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->reason : status.ToString();
}

class SharedStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(StoreKind::kPostgres);
    if (fixture_ == nullptr) GTEST_SKIP() << kNoPostgres;
    one_ = fixture_->Open({}, &clock_);
    two_ = fixture_->Open({}, &clock_);
    ASSERT_TRUE(Create(*one_, NewSession("a", BatchSpec({.momentum = 0.3}), 5)).ok());
  }

  ManualClock clock_;
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> one_, two_;
};

TEST_F(SharedStoreTest, ServersSeeEachOthersCommits) {
  for (uint64_t i = 1; i <= 10; ++i) {
    SessionStore& store = i % 2 == 0 ? *one_ : *two_;
    const auto result = Commit(store, Step("a", StepMoments(0, i), StepId{"c", i}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->version, i);
    EXPECT_EQ((*Get(*one_, "a"))->version, i);
    EXPECT_EQ((*Get(*two_, "a"))->version, i);
    EXPECT_EQ((*Get(*one_, "a"))->state.mean, (*Get(*two_, "a"))->state.mean);
  }
}

TEST_F(SharedStoreTest, ARetryThroughTheOtherServerIsAReplay) {
  ASSERT_TRUE(Get(*two_, "a").ok());  // in its memory, from before
  ASSERT_TRUE(Commit(*one_, Step("a", StepMoments(0, 1), StepId{"c", 1})).ok());
  const auto retry = Commit(*two_, Step("a", StepMoments(0, 1), StepId{"c", 1}));
  ASSERT_TRUE(retry.ok()) << retry.status();
  EXPECT_TRUE(retry->replayed);
  EXPECT_EQ(retry->version, 1);
  EXPECT_EQ(ReasonOf(Commit(*two_, Step("a", StepMoments(0, 2), StepId{"c", 1})).status()), "STEP_REUSED");
}

TEST_F(SharedStoreTest, AnExpectedVersionIsJudgedByTheNewestRow) {
  ASSERT_TRUE(Get(*two_, "a").ok());
  ASSERT_TRUE(Commit(*one_, Step("a", StepMoments(0, 1))).ok());
  StateUpdate update = Step("a", StepMoments(0, 2));
  update.expected_version = 0;
  const absl::Status stale = Commit(*two_, update).status();
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorDetail(stale)->limit, "1, the session's version");
  ASSERT_TRUE(Commit(*one_, Step("a", StepMoments(0, 2))).ok());
  // The other's memory says 1; the row says 2.
  update.expected_version = 2;
  EXPECT_TRUE(Commit(*two_, update).ok());
}

TEST_F(SharedStoreTest, StalenessIsAllowedNoFurtherThanAsked) {
  ASSERT_EQ((*Get(*two_, "a"))->version, 0);
  ASSERT_TRUE(Commit(*one_, Step("a", StepMoments(0, 1))).ok());
  EXPECT_EQ((*Get(*two_, "a", absl::Minutes(1)))->version, 0) << "memory serves";
  EXPECT_EQ((*Get(*two_, "a"))->version, 1);
  ASSERT_TRUE(Commit(*one_, Step("a", StepMoments(0, 2))).ok());
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ((*Get(*two_, "a", absl::Minutes(1)))->version, 2) << "too old by now";
}

TEST_F(SharedStoreTest, ConcurrentClientsOnBothLoseAndDoubleNothing) {
  constexpr int kClients = 4;
  constexpr uint64_t kSteps = 40;
  // For each version, whose step made it.
  std::vector<std::pair<int, uint64_t>> made(kClients * kSteps);
  std::vector<std::thread> threads;
  for (int client = 0; client < kClients; ++client) {
    threads.emplace_back([&, client] {
      for (uint64_t i = 1; i <= kSteps; ++i) {
        // Every step is sent to both, as by a client that lost an answer.
        const StateUpdate update = Step("a", StepMoments(client, i), StepId{"c" + std::to_string(client), i});
        const auto first = Commit(client % 2 == 0 ? *one_ : *two_, update);
        const auto second = Commit(client % 2 == 0 ? *two_ : *one_, update);
        ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
        EXPECT_FALSE(first->replayed);
        EXPECT_TRUE(second->replayed);
        EXPECT_EQ(first->version, second->version);
        made[first->version - 1] = {client, i};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MemoryStore expected(SessionLimits(), &clock_);
  ASSERT_TRUE(Create(expected, NewSession("a", BatchSpec({.momentum = 0.3}), 5)).ok());
  for (const auto& [client, i] : made) {
    ASSERT_NE(i, 0) << "a version that no step made";
    ASSERT_TRUE(Commit(expected, Step("a", StepMoments(client, i))).ok());
  }
  EXPECT_EQ((*Get(*one_, "a"))->version, kClients * kSteps);
  EXPECT_EQ((*Get(*one_, "a"))->state.mean, (*Get(expected, "a"))->state.mean);
  EXPECT_EQ((*Get(*two_, "a"))->state.var, (*Get(expected, "a"))->state.var);
  EXPECT_GT(one_->stats().conflicts + two_->stats().conflicts, 0) << "they never met: nothing was tried";
}

// Three servers merge what their clients contribute as the rows come; in each round in another order.
TEST_F(SharedStoreTest, SamplesThroughThreeServersDoNotDependOnTheirOrder) {
  constexpr int kRounds = 50;
  constexpr uint64_t kSteps = 30;
  const std::unique_ptr<SessionStore> three = fixture_->Open({}, &clock_);
  const std::array<SessionStore*, 3> servers = {one_.get(), two_.get(), three.get()};
  std::mt19937_64 random(20261127);
  std::vector<uint64_t> order(kSteps);
  std::iota(order.begin(), order.end(), 1);
  MemoryStore expected(SessionLimits(), &clock_);
  ASSERT_TRUE(Create(expected, NewSession("s", CountingSpec(), 5)).ok());
  for (const uint64_t i : order) ASSERT_TRUE(Commit(expected, Step("s", SampledMoments(i))).ok());
  const RunningState truth = (*Get(expected, "s"))->state;
  for (int round = 0; round < kRounds; ++round) {
    const std::string id = "s" + std::to_string(round);
    ASSERT_TRUE(Create(*one_, NewSession(id, CountingSpec(), 5)).ok());
    std::vector<std::thread> clients;
    for (size_t client = 0; client < servers.size(); ++client) {
      clients.emplace_back([&, client] {
        for (size_t i = client; i < kSteps; i += servers.size()) {
          const StepId step = {"c" + std::to_string(client), i + 1};
          const auto result = Commit(*servers[client], Step(id, SampledMoments(order[i]), step));
          EXPECT_TRUE(result.ok()) << result.status();
        }
      });
    }
    for (std::thread& client : clients) client.join();
    for (SessionStore* const server : servers) ExpectSame(truth, (*Get(*server, id))->state);
    std::shuffle(order.begin(), order.end(), random);
  }
}

TEST_F(SharedStoreTest, ADeletedSessionIsGoneForTheOtherToo) {
  const std::string uid = (*Get(*two_, "a"))->uid;
  ASSERT_TRUE(Delete(*one_, "a").ok());
  EXPECT_EQ(ReasonOf(Commit(*two_, Step("a", StepMoments(0, 1))).status()), "SESSION_NOT_FOUND");
  ASSERT_TRUE(Create(*one_, NewSession("a", BatchSpec(), 5)).ok());
  EXPECT_NE((*Get(*two_, "a"))->uid, uid);
  StateUpdate late = Step("a", StepMoments(0, 1));
  late.uid = uid;
  EXPECT_EQ(ReasonOf(Commit(*two_, late).status()), "SESSION_NOT_FOUND") << "its moments were another session's";
}

TEST_F(SharedStoreTest, OneIdIsCreatedOnce) {
  std::atomic<int> created{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = Create(i % 2 == 0 ? *one_ : *two_, NewSession("b", BatchSpec(), 5)).status();
      EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kAlreadyExists) << status;
      created += status.ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(created, 1);
}

TEST_F(SharedStoreTest, ParametersChangedThroughOneAreTheOthersToo) {
  ASSERT_TRUE(Get(*two_, "a").ok());
  SessionPatch patch;
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF32, .shape = {5}, .bytes = std::string(20, 'w')});
  ASSERT_TRUE(session_test::Update(*one_, "a", patch).ok());
  EXPECT_EQ((*Get(*two_, "a"))->parameters->weight->bytes, std::string(20, 'w'));
  EXPECT_EQ((*Get(*two_, "a"))->parameters_version, 1) << "or a prepared layer would be taken for the new one";
}

}  // namespace
}  // namespace normd
