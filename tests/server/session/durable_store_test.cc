// What only stores that outlive the process promise: restarts, leaving memory, damage, groups, and, for a shared one,
// several servers at once.
#include "server/session/durable_store.h"

#include <atomic>
#include <limits>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/errors.h"
#include "server/session/memory_store.h"
#include "server/session/record.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/store_fixture.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixture's words are this file's
using ::testing::ElementsAre;

class DurableStoreTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(GetParam());
    if (fixture_ == nullptr) GTEST_SKIP() << kNoPostgres;
    Open({});
  }
  void Open(DurableStoreOptions options) {
    store_.reset();
    store_ = fixture_->Open(std::move(options), &clock_);
  }
  void TakeSteps(uint64_t from, uint64_t to) {
    for (uint64_t i = from; i <= to; ++i) {
      const auto result = Commit(*store_, Step("a", StepMoments(i), StepId{"c", i}));
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_FALSE(result->replayed);
    }
  }
  static Moments StepMoments(uint64_t i) { return MomentsOf({0.1 * static_cast<double>(i), 0.7, 1.9}, 3); }
  std::string ErrorOf(const absl::Status& status) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    return detail.has_value() ? detail->reason : status.ToString();
  }

  ManualClock clock_;
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> store_;
};

INSTANTIATE_TEST_SUITE_P(All, DurableStoreTest, ::testing::ValuesIn(kDurableStoreKinds), StoreKindName);

TEST_P(DurableStoreTest, ARestartKeepsEveryBitTheEpochAndTheStepIds) {
  Session session = NewSession("a", BatchNormSpec({.momentum = 0.3}), 3);
  session.labels = {{"team", "x"}};
  OwnedParameters parameters;
  parameters.weight =
      OwnedTensor{.dtype = DType::kF32, .shape = {3}, .bytes = std::string("\0\1\2\3\4\5\6\7\0\1\2\3", 12)};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  ASSERT_TRUE(Create(*store_, session).ok());
  SessionPatch patch;
  patch.bias.emplace(parameters.weight);
  ASSERT_TRUE(session_test::Update(*store_, "a", patch).ok());
  TakeSteps(1, 5);
  const SessionPtr before = *Get(*store_, "a");
  const std::string record = *Export(*store_, "a");

  Open({});
  const SessionPtr after = *Get(*store_, "a");
  EXPECT_EQ(after->epoch, before->epoch);
  EXPECT_EQ(after->version, 6);
  EXPECT_EQ(after->parameters_version, 1);
  EXPECT_EQ(after->state.mean, before->state.mean);
  EXPECT_EQ(after->state.var, before->state.var);
  EXPECT_EQ(after->labels, before->labels);
  EXPECT_EQ(*Export(*store_, "a"), record) << "bit for bit";
  EXPECT_EQ(store_->figures().sessions, 1);
  const auto replay = Commit(*store_, Step("a", StepMoments(5), StepId{"c", 5}));
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->replayed);
  EXPECT_EQ(replay->version, 6);
  EXPECT_EQ(ErrorOf(Commit(*store_, Step("a", StepMoments(6), StepId{"c", 5})).status()), "STEP_REUSED");
  TakeSteps(6, 6);
}

TEST_P(DurableStoreTest, PowerNormKeepsThePhiBeforeTheLastStepOverARestart) {
  ASSERT_TRUE(Create(*store_, NewSession("p", PowerNormSpec(/*warmup_iters=*/0), 2)).ok());
  const auto first = Commit(*store_, Step("p", MomentsOf({1, 2}, 2), StepId{"c", 1}));
  const auto second = Commit(*store_, Step("p", MomentsOf({3, 2}, 2), StepId{"c", 2}));
  ASSERT_TRUE(second.ok());
  Open({});
  EXPECT_EQ(Commit(*store_, Step("p", MomentsOf({3, 2}, 2), StepId{"c", 2}))->divisor, second->divisor);
  EXPECT_TRUE(Commit(*store_, Step("p", MomentsOf({1, 2}, 2), StepId{"c", 1}))->divisor.empty()) << "too old to know";
}

TEST_P(DurableStoreTest, ADeletedSessionStaysDeletedAndItsSuccessorIsAnother) {
  const std::string epoch = (*Create(*store_, NewSession("a", BatchNormSpec(), 3)))->epoch;
  TakeSteps(1, 2);
  ASSERT_TRUE(session_test::Delete(*store_, "a").ok());
  Open({});
  EXPECT_EQ(ErrorOf(Get(*store_, "a").status()), "SESSION_NOT_FOUND");
  const SessionPtr successor = *Create(*store_, NewSession("a", BatchNormSpec(), 3));
  EXPECT_NE(successor->epoch, epoch);
  TakeSteps(1, 1);
  StateUpdate late = Step("a", StepMoments(3), StepId{"c", 3});
  late.epoch = epoch;
  EXPECT_EQ(ErrorOf(Commit(*store_, late).status()), "SESSION_NOT_FOUND");
}

TEST_P(DurableStoreTest, IdleSessionsLeaveMemoryAndComeBack) {
  std::atomic<int64_t> evicted{0};
  std::atomic<int> loaded{0};
  DurableStoreOptions options = {.idle_timeout = absl::Minutes(1), .sweep_interval = absl::Milliseconds(5)};
  options.observer.on_evicted = [&evicted](int64_t sessions) { evicted += sessions; };
  options.observer.on_loaded = [&loaded](const std::string&) { ++loaded; };
  Open(std::move(options));
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  TakeSteps(1, 3);
  EXPECT_EQ(store_->figures().resident_sessions, 1);
  clock_.Advance(absl::Minutes(2));
  while (store_->figures().resident_sessions != 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->figures().sessions, 1) << "only a ttl deletes";
  EXPECT_EQ(store_->figures().resident_bytes, 0);
  EXPECT_EQ((*Get(*store_, "a"))->version, 3);
  EXPECT_EQ(store_->figures().resident_sessions, 1);
  EXPECT_EQ(store_->figures().loads, 1);
  EXPECT_EQ(evicted, 1);
  EXPECT_EQ(loaded, 1);
  clock_.Advance(absl::Minutes(2));
  while (store_->figures().resident_sessions != 0) absl::SleepFor(absl::Milliseconds(1));
  TakeSteps(4, 4);
  EXPECT_TRUE(Commit(*store_, Step("a", StepMoments(3), StepId{"c", 3}))->replayed);
}

TEST_P(DurableStoreTest, MemoryIsBoundedAndNothingIsLost) {
  Open({.max_resident_bytes = 20'000});
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Create(*store_, NewSession("s" + std::to_string(i), BatchNormSpec(), 64)).ok());
  }
  EXPECT_LE(store_->figures().resident_bytes, 20'000);
  EXPECT_LT(store_->figures().resident_sessions, 12);
  EXPECT_EQ(store_->figures().sessions, 40);
  for (int i = 0; i < 40; ++i) {
    const std::string id = "s" + std::to_string(i);
    ASSERT_TRUE(Commit(*store_, Step(id, MomentsOf({1, 3}, 64))).ok());
    ASSERT_EQ((*Get(*store_, id))->version, 1);
  }
}

TEST_P(DurableStoreTest, ChangesOfOneSessionInAGroupAreOneRow) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  std::vector<std::thread> threads;
  constexpr uint64_t kSteps = 100;
  for (int client = 0; client < 8; ++client) {
    threads.emplace_back([this, client] {
      std::vector<std::future<absl::StatusOr<CommitResult>>> results;
      for (uint64_t i = 1; i <= kSteps; ++i) {
        auto promise = std::make_shared<std::promise<absl::StatusOr<CommitResult>>>();
        results.push_back(promise->get_future());
        store_->Commit(Step("a", StepMoments(i), StepId{"c" + std::to_string(client), i}),
                       [promise](absl::StatusOr<CommitResult> r) { promise->set_value(std::move(r)); });
      }
      for (auto& result : results) {
        const absl::StatusOr<CommitResult> r = result.get();
        EXPECT_TRUE(r.ok() && r->applied && !r->replayed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreFigures figures = store_->figures();
  EXPECT_EQ((*Get(*store_, "a"))->version, 8 * kSteps);
  EXPECT_EQ((*Get(*store_, "a"))->state.num_batches, 8 * kSteps);
  EXPECT_EQ(figures.rows, figures.groups);
  EXPECT_LT(figures.rows, static_cast<int64_t>(8 * kSteps) / 2) << "the steps were not folded";
}

// Each step's effect is that of the steps one after another, folded or not.
TEST_P(DurableStoreTest, AFoldedGroupIsTheSameAsSingleSteps) {
  MemoryStore expected(SessionLimits(), &clock_);
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec({.momentum = 0.3}), 3)).ok());
  ASSERT_TRUE(Create(expected, NewSession("a", BatchNormSpec({.momentum = 0.3}), 3)).ok());
  std::vector<std::future<absl::StatusOr<CommitResult>>> results;
  for (uint64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(Commit(expected, Step("a", StepMoments(i), StepId{"c", i})).ok());
    auto promise = std::make_shared<std::promise<absl::StatusOr<CommitResult>>>();
    results.push_back(promise->get_future());
    store_->Commit(Step("a", StepMoments(i), StepId{"c", i}),
                   [promise](absl::StatusOr<CommitResult> r) { promise->set_value(std::move(r)); });
  }
  for (uint64_t i = 1; i <= 200; ++i) EXPECT_EQ(results[i - 1].get()->version, i);
  EXPECT_EQ((*Get(*store_, "a"))->state.mean, (*Get(expected, "a"))->state.mean);
  EXPECT_EQ((*Get(*store_, "a"))->state.var, (*Get(expected, "a"))->state.var);
}

TEST_P(DurableStoreTest, CreateStepDeleteAndCreateAgainInOneGroup) {
  std::vector<std::future<absl::Status>> results;
  const auto expect = [&results]() {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    results.push_back(promise->get_future());
    return promise;
  };
  for (int round = 0; round < 20; ++round) {
    auto created = expect();
    store_->Create(NewSession("a", BatchNormSpec(), 3), [created](auto r) { created->set_value(r.status()); });
    auto stepped = expect();
    store_->Commit(Step("a", StepMoments(1), StepId{"c", 1}), [stepped](auto r) { stepped->set_value(r.status()); });
    auto deleted = expect();
    store_->Delete("a", std::nullopt, [deleted](auto r) { deleted->set_value(r.status()); });
  }
  for (auto& result : results) EXPECT_EQ(result.get(), absl::OkStatus());
  EXPECT_EQ(store_->figures().sessions, 0);
  EXPECT_EQ(store_->figures().bytes, 0);
  Open({});
  EXPECT_EQ(store_->figures().sessions, 0);
}

TEST_P(DurableStoreTest, ADamagedRecordIsDataLossAndTheOthersGoOn) {
  std::atomic<int> told{0};
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Create(*store_, NewSession(id, BatchNormSpec(), 3)).ok());
  store_.reset();
  const std::string blob = GetParam() == StoreKind::kSqlite ? "x'0102'" : "'\\x0102'";
  fixture_->Execute("UPDATE states SET state = " + blob + " WHERE key = (SELECT key FROM sessions WHERE id = 'b')");
  fixture_->Execute("UPDATE sessions SET id = 'd' WHERE id = 'c'");
  DurableStoreOptions options;
  options.observer.on_damaged = [&told](const std::string&, const absl::Status&) { ++told; };
  Open(std::move(options));
  EXPECT_EQ(ErrorOf(Get(*store_, "b").status()), "DATA_LOSS");
  EXPECT_EQ(ErrorOf(Get(*store_, "d").status()), "DATA_LOSS") << "a record under another id";
  EXPECT_EQ(ErrorOf(Export(*store_, "b").status()), "DATA_LOSS");
  EXPECT_EQ(ErrorOf(Commit(*store_, Step("b", StepMoments(1))).status()), "DATA_LOSS");
  EXPECT_EQ(ErrorOf(session_test::Reset(*store_, "b").status()), "DATA_LOSS") << "never a silent reset";
  EXPECT_EQ(ErrorOf(Create(*store_, NewSession("b", BatchNormSpec(), 3)).status()), "SESSION_EXISTS");
  EXPECT_TRUE(Commit(*store_, Step("a", StepMoments(1))).ok());
  EXPECT_EQ(List(*store_, {})->size(), 1);
  EXPECT_GE(store_->figures().damaged, 5);
  EXPECT_EQ(told, store_->figures().damaged);
  EXPECT_TRUE(session_test::Delete(*store_, "b").ok()) << "the way out";
  EXPECT_TRUE(Create(*store_, NewSession("b", BatchNormSpec(), 3)).ok());
}

TEST_P(DurableStoreTest, QuotasCountWhatIsThereAfterARestart) {
  const SessionLimits limits = {.max_sessions = 3, .max_total_bytes = 6000};
  Open({.limits = limits});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 100)).ok());
  ASSERT_TRUE(Create(*store_, NewSession("b", BatchNormSpec(), 100)).ok());
  Open({.limits = limits});
  const int64_t bytes = store_->figures().bytes;
  EXPECT_EQ(bytes, 2 * (1024 + 1600));
  EXPECT_EQ(Create(*store_, NewSession("c", BatchNormSpec(), 100)).status().code(),
            absl::StatusCode::kResourceExhausted);
  SessionPatch patch;
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF64, .shape = {100}, .bytes = std::string(800, '\0')});
  EXPECT_EQ(session_test::Update(*store_, "a", patch).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->figures().bytes, bytes);
  EXPECT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 2}, 100))).ok()) << "a quota never stops training";
  ASSERT_TRUE(session_test::Delete(*store_, "b").ok());
  EXPECT_TRUE(session_test::Update(*store_, "a", patch).ok());
}

TEST_P(DurableStoreTest, AFullQueueRefusesAndTheNextOneIsServed) {
  Open({.max_queued = 4});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  std::atomic<int> refused{0};
  std::atomic<int> done{0};
  for (uint64_t i = 1; i <= 200; ++i) {
    store_->Commit(Step("a", StepMoments(i)), [&](absl::StatusOr<CommitResult> r) {
      EXPECT_TRUE(r.ok() || r.status().code() == absl::StatusCode::kResourceExhausted) << r.status();
      refused += r.ok() ? 0 : 1;
      ++done;
    });
  }
  while (done < 200) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GT(refused, 0);
  EXPECT_EQ((*Get(*store_, "a"))->version, 200 - refused);
  EXPECT_TRUE(Commit(*store_, Step("a", StepMoments(1))).ok());
}

TEST_P(DurableStoreTest, ACancelledUpdateIsDroppedBeforeItJoinsAGroup) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  StateUpdate update = Step("a", StepMoments(1), StepId{"c", 1});
  update.cancelled = [] { return true; };
  EXPECT_EQ(Commit(*store_, update).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*Get(*store_, "a"))->version, 0);
  TakeSteps(1, 1);
}

TEST_P(DurableStoreTest, ATtlDeletesTheRowEvenIfNobodyAsks) {
  Open({.sweep_interval = absl::Milliseconds(5)});
  Session session = NewSession("a", BatchNormSpec(), 3);
  session.ttl = absl::Minutes(1);
  ASSERT_TRUE(Create(*store_, session).ok());
  ASSERT_TRUE(Create(*store_, NewSession("b", BatchNormSpec(), 3)).ok());
  clock_.Advance(absl::Minutes(2));
  while (store_->figures().sessions != 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->figures().expired, 1);
  clock_.Advance(-absl::Minutes(2));
  EXPECT_EQ(ErrorOf(Get(*store_, "a").status()), "SESSION_NOT_FOUND") << "not only hidden";
}

TEST_P(DurableStoreTest, WhatIsQueuedIsWrittenBeforeTheStoreCloses) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  std::atomic<int> done{0};
  for (uint64_t i = 1; i <= 500; ++i) {
    store_->Commit(Step("a", StepMoments(i), StepId{"c", i}), [&](auto r) { done += r.ok() ? 1 : 0; });
  }
  Open({});
  EXPECT_EQ(done, 500);
  EXPECT_EQ((*Get(*store_, "a"))->version, 500);
}

// What was accepted and acknowledged is never called damaged afterwards.
TEST_P(DurableStoreTest, OddStatesAreReadAsTheyWereWritten) {
  Session session = NewSession("a", BatchNormSpec({.cumulative = true}), 2);
  session.state.mean = {0, 0};
  session.state.var = {std::numeric_limits<double>::infinity(), 1};
  ASSERT_TRUE(Create(*store_, session).ok());
  ASSERT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 2}, 2))).ok());
  session.id = "b";
  session.state.num_batches = uint64_t{1} << 63;
  ASSERT_TRUE(Create(*store_, session).ok());
  Open({});
  EXPECT_EQ((*Get(*store_, "a"))->version, 1);
  EXPECT_EQ((*Get(*store_, "b"))->state.num_batches, uint64_t{1} << 63);
  EXPECT_EQ(store_->figures().damaged, 0);
}

TEST_P(DurableStoreTest, ARowThatSomebodyElseHasWrittenIsReadAnew) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchNormSpec(), 3)).ok());
  TakeSteps(1, 1);
  fixture_->Execute("UPDATE states SET revision = revision + 5");
  TakeSteps(2, 2);
  EXPECT_EQ(store_->figures().conflicts, 1);
  Open({});
  EXPECT_EQ((*Get(*store_, "a"))->version, 2);
}

TEST_P(DurableStoreTest, AnImportIsCheckedLikeACreation) {
  Session session = NewSession("a", BatchNormSpec(), 1);
  session.labels = {{"team", "x"}};
  session.parameters = std::make_shared<const OwnedParameters>();
  session.state = InitialState(session.spec, 1);
  StoredSession stored;
  for (const std::string& value : {std::string("a\0b", 3), std::string("a\nb=c"), std::string(64, 'x')}) {
    session.labels["team"] = value;
    stored.published = std::make_shared<const Session>(session);
    const absl::Status status = Import(*store_, "", SerializeRecord(stored)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(GetErrorDetail(status)->field, "labels.team");
  }
}

}  // namespace
}  // namespace normd
