// What only stores that outlive the process promise: restarts, leaving memory, damage, groups, and, for a shared one,
// several servers at once.
#include "server/session/durable/durable_store.h"

#include <atomic>
#include <limits>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/memory/memory_store.h"
#include "server/session/record/record.h"
#include "server/session/running_state.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/store_fixture.h"
#include "tests/support/eventually.h"

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
  Session session = NewSession("a", BatchSpec({.momentum = 0.3}), 3);
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
  EXPECT_EQ(after->uid, before->uid);
  EXPECT_EQ(after->version, 6);
  EXPECT_EQ(after->parameters_version, 1);
  EXPECT_EQ(after->state.mean, before->state.mean);
  EXPECT_EQ(after->state.var, before->state.var);
  EXPECT_EQ(after->labels, before->labels);
  EXPECT_EQ(*Export(*store_, "a"), record) << "bit for bit";
  EXPECT_EQ(store_->stats().sessions, 1);
  const auto replay = Commit(*store_, Step("a", StepMoments(5), StepId{"c", 5}));
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->replayed);
  EXPECT_EQ(replay->version, 6);
  EXPECT_EQ(ErrorOf(Commit(*store_, Step("a", StepMoments(6), StepId{"c", 5})).status()), "STEP_REUSED");
  TakeSteps(6, 6);
}

// Of statistics that count samples, what is below the f64 that they show is kept, too.
TEST_P(DurableStoreTest, SamplesGoOnAfterARestartAnImportAndAForkAsIfThereWasNone) {
  ASSERT_TRUE(Create(*store_, NewSession("a", CountingSpec({.prior_count = 1e-4}), 3)).ok());
  RunningState expected = (*Get(*store_, "a"))->state;
  std::string id = "a";
  for (uint64_t i = 1; i <= 30; ++i) {
    ASSERT_TRUE(Commit(*store_, Step(id, StepMoments(i), StepId{"c", i})).ok());
    ASSERT_TRUE(ApplyStep(CountingSpec(), 3, StepMoments(i), &expected).ok());
    if (i % 10 == 3) Open({});
    if (i % 10 == 6) {
      const std::string copy = "imported-" + std::to_string(i);
      ASSERT_TRUE(Import(*store_, copy, *Export(*store_, id)).ok());
      id = copy;
    }
    if (i % 10 == 9) {
      Session fork = **Get(*store_, id);
      fork.id = id = "forked-" + std::to_string(i);
      ASSERT_TRUE(Create(*store_, fork).ok());
    }
  }
  const RunningState actual = (*Get(*store_, id))->state;
  EXPECT_EQ(actual.mean, expected.mean);
  EXPECT_EQ(actual.var, expected.var);
  EXPECT_EQ(actual.count_low, expected.count_low);
  EXPECT_EQ(actual.mean_low, expected.mean_low);
  EXPECT_EQ(actual.m2_low, expected.m2_low);
  EXPECT_THAT(actual.mean_low, ::testing::Not(::testing::Each(0.0)));
}

TEST_P(DurableStoreTest, PowerNormKeepsThePhiBeforeTheLastStepOverARestart) {
  ASSERT_TRUE(Create(*store_, NewSession("p", PowerSpec(/*warmup_iters=*/0), 2)).ok());
  const auto first = Commit(*store_, Step("p", MomentsOf({1, 2}, 2), StepId{"c", 1}));
  const auto second = Commit(*store_, Step("p", MomentsOf({3, 2}, 2), StepId{"c", 2}));
  ASSERT_TRUE(second.ok());
  Open({});
  EXPECT_EQ(Commit(*store_, Step("p", MomentsOf({3, 2}, 2), StepId{"c", 2}))->divisor, second->divisor);
  EXPECT_TRUE(Commit(*store_, Step("p", MomentsOf({1, 2}, 2), StepId{"c", 1}))->divisor.empty()) << "too old to know";
}

TEST_P(DurableStoreTest, ADeletedSessionStaysDeletedAndItsSuccessorIsAnother) {
  const std::string uid = (*Create(*store_, NewSession("a", BatchSpec(), 3)))->uid;
  TakeSteps(1, 2);
  ASSERT_TRUE(session_test::Delete(*store_, "a").ok());
  Open({});
  EXPECT_EQ(ErrorOf(Get(*store_, "a").status()), "SESSION_NOT_FOUND");
  const SessionPtr successor = *Create(*store_, NewSession("a", BatchSpec(), 3));
  EXPECT_NE(successor->uid, uid);
  TakeSteps(1, 1);
  StateUpdate late = Step("a", StepMoments(3), StepId{"c", 3});
  late.uid = uid;
  EXPECT_EQ(ErrorOf(Commit(*store_, late).status()), "SESSION_NOT_FOUND");
}

TEST_P(DurableStoreTest, IdleSessionsLeaveMemoryAndComeBack) {
  std::atomic<int64_t> evicted{0};
  std::atomic<int> loaded{0};
  DurableStoreOptions options = {.residency = {.idle_timeout = absl::Minutes(1)},
                                 .sweep_interval = absl::Milliseconds(5)};
  options.observer.on_evicted = [&evicted](int64_t sessions) { evicted += sessions; };
  options.observer.on_loaded = [&loaded](const std::string&) { ++loaded; };
  Open(std::move(options));
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  TakeSteps(1, 3);
  EXPECT_EQ(store_->stats().resident_sessions, 1);
  clock_.Advance(absl::Minutes(2));
  while (store_->stats().resident_sessions != 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->stats().sessions, 1) << "only a ttl deletes";
  EXPECT_EQ(store_->stats().resident_bytes, 0);
  EXPECT_EQ((*Get(*store_, "a"))->version, 3);
  EXPECT_EQ(store_->stats().resident_sessions, 1);
  EXPECT_EQ(store_->stats().loads, 1);
  EXPECT_TRUE(Eventually([&evicted] { return evicted == 1; })) << "it is told when the session has left";
  EXPECT_EQ(loaded, 1);
  clock_.Advance(absl::Minutes(2));
  while (store_->stats().resident_sessions != 0) absl::SleepFor(absl::Milliseconds(1));
  TakeSteps(4, 4);
  EXPECT_TRUE(Commit(*store_, Step("a", StepMoments(3), StepId{"c", 3}))->replayed);
}

TEST_P(DurableStoreTest, MemoryIsBoundedAndNothingIsLost) {
  Open({.residency = {.max_bytes = 20'000}});
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Create(*store_, NewSession("s" + std::to_string(i), BatchSpec(), 64)).ok());
  }
  EXPECT_LE(store_->stats().resident_bytes, 20'000);
  EXPECT_LT(store_->stats().resident_sessions, 12);
  EXPECT_EQ(store_->stats().sessions, 40);
  for (int i = 0; i < 40; ++i) {
    const std::string id = "s" + std::to_string(i);
    ASSERT_TRUE(Commit(*store_, Step(id, MomentsOf({1, 3}, 64))).ok());
    ASSERT_EQ((*Get(*store_, id))->version, 1);
  }
}

TEST_P(DurableStoreTest, ChangesOfOneSessionInAGroupAreOneRow) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  std::vector<std::thread> threads;
  constexpr uint64_t kSteps = 100;
  for (int client = 0; client < 8; ++client) {
    threads.emplace_back([this, client] {
      std::vector<Answer<CommitResult>> results;
      for (uint64_t i = 1; i <= kSteps; ++i) {
        results.push_back(StartCommit(*store_, Step("a", StepMoments(i), StepId{"c" + std::to_string(client), i})));
      }
      for (auto& result : results) {
        const absl::StatusOr<CommitResult> r = result.get();
        EXPECT_TRUE(r.ok() && r->applied && !r->replayed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreStats stats = store_->stats();
  EXPECT_EQ((*Get(*store_, "a"))->version, 8 * kSteps);
  EXPECT_EQ((*Get(*store_, "a"))->state.num_batches, 8 * kSteps);
  EXPECT_EQ(stats.rows, stats.groups);
  EXPECT_LT(stats.rows, static_cast<int64_t>(8 * kSteps) / 2) << "the steps were not folded";
}

// Each step's effect is that of the steps one after another, folded or not.
TEST_P(DurableStoreTest, AFoldedGroupIsTheSameAsSingleSteps) {
  MemoryStore expected(SessionLimits(), &clock_);
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec({.momentum = 0.3}), 3)).ok());
  ASSERT_TRUE(Create(expected, NewSession("a", BatchSpec({.momentum = 0.3}), 3)).ok());
  std::vector<Answer<CommitResult>> results;
  for (uint64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(Commit(expected, Step("a", StepMoments(i), StepId{"c", i})).ok());
    results.push_back(StartCommit(*store_, Step("a", StepMoments(i), StepId{"c", i})));
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
    store_->Create(NewSession("a", BatchSpec(), 3), [created](auto r) { created->set_value(r.status()); });
    auto stepped = expect();
    store_->Commit(Step("a", StepMoments(1), StepId{"c", 1}), [stepped](auto r) { stepped->set_value(r.status()); });
    auto deleted = expect();
    store_->Delete("a", std::nullopt, [deleted](auto r) { deleted->set_value(r.status()); });
  }
  for (auto& result : results) EXPECT_EQ(result.get(), absl::OkStatus());
  EXPECT_EQ(store_->stats().sessions, 0);
  EXPECT_EQ(store_->stats().bytes, 0);
  Open({});
  EXPECT_EQ(store_->stats().sessions, 0);
}

TEST_P(DurableStoreTest, ADamagedRecordIsDataLossAndTheOthersGoOn) {
  std::atomic<int> told{0};
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Create(*store_, NewSession(id, BatchSpec(), 3)).ok());
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
  EXPECT_EQ(ErrorOf(Create(*store_, NewSession("b", BatchSpec(), 3)).status()), "SESSION_EXISTS");
  EXPECT_TRUE(Commit(*store_, Step("a", StepMoments(1))).ok());
  EXPECT_EQ(List(*store_, {})->size(), 1);
  EXPECT_GE(store_->stats().damaged, 5);
  EXPECT_EQ(told, store_->stats().damaged);
  EXPECT_TRUE(session_test::Delete(*store_, "b").ok()) << "the way out";
  EXPECT_TRUE(Create(*store_, NewSession("b", BatchSpec(), 3)).ok());
}

TEST_P(DurableStoreTest, QuotasCountWhatIsThereAfterARestart) {
  const SessionLimits limits = {.max_sessions = 3, .max_total_bytes = 6000};
  Open({.limits = limits});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 100)).ok());
  ASSERT_TRUE(Create(*store_, NewSession("b", BatchSpec(), 100)).ok());
  Open({.limits = limits});
  const int64_t bytes = store_->stats().bytes;
  EXPECT_EQ(bytes, 2 * (1024 + 1600));
  EXPECT_EQ(Create(*store_, NewSession("c", BatchSpec(), 100)).status().code(), absl::StatusCode::kResourceExhausted);
  SessionPatch patch;
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF64, .shape = {100}, .bytes = std::string(800, '\0')});
  EXPECT_EQ(session_test::Update(*store_, "a", patch).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->stats().bytes, bytes);
  EXPECT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 2}, 100))).ok()) << "a quota never stops training";
  ASSERT_TRUE(session_test::Delete(*store_, "b").ok());
  EXPECT_TRUE(session_test::Update(*store_, "a", patch).ok());
}

TEST_P(DurableStoreTest, AFullQueueRefusesAndTheNextOneIsServed) {
  Open({.max_queued = 4});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
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

// A step of three channels with exact sums.
StateUpdate ExactStep(std::optional<StepId> step = std::nullopt) {
  GroupSums sums(DType::kF32, 3);
  for (NarrowExactSums& channel : sums.narrow()) {
    for (const float x : {0.1F, 1e9F, -1e9F}) channel.Add(x);
  }
  StateUpdate update = Step("a", sums.NearestMoments(), std::move(step));
  update.details.exact = std::make_shared<const GroupSums>(std::move(sums));
  return update;
}

TEST_P(DurableStoreTest, ExactSumsTakeRoomInTheQueue) {
  constexpr int kSteps = 200;
  Open({.max_queued_bytes = kSteps * 3 * static_cast<int64_t>(sizeof(Moment))});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  const auto refused_of = [this](const StateUpdate& update) {
    std::atomic<int> refused{0};
    std::atomic<int> done{0};
    for (int i = 0; i < kSteps; ++i) {
      store_->Commit(update, [&](absl::StatusOr<CommitResult> r) {
        EXPECT_TRUE(r.ok() || r.status().code() == absl::StatusCode::kResourceExhausted) << r.status();
        refused += r.ok() ? 0 : 1;
        ++done;
      });
    }
    while (done < kSteps) absl::SleepFor(absl::Milliseconds(1));
    return refused.load();
  };
  EXPECT_EQ(refused_of(Step("a", StepMoments(1))), 0);
  EXPECT_GT(refused_of(ExactStep()), 0);
}

TEST_P(DurableStoreTest, AnExactStepIsReplayedAfterARestart) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  ASSERT_TRUE(Commit(*store_, ExactStep(StepId{"c", 1})).ok());
  const RunningState before = (*Get(*store_, "a"))->state;
  EXPECT_DOUBLE_EQ(before.mean[2], 0.1 * (0.1F / 3.0)) << "sums in f64 round 1e9 + 0.1";
  Open({});
  const auto again = Commit(*store_, ExactStep(StepId{"c", 1}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->replayed);
  EXPECT_EQ(again->version, 1);
  EXPECT_EQ((*Get(*store_, "a"))->state.mean, before.mean);
  StateUpdate other = ExactStep(StepId{"c", 1});
  other.details.exact = nullptr;
  EXPECT_EQ(ErrorOf(Commit(*store_, other).status()), "STEP_REUSED");
}

TEST_P(DurableStoreTest, ACancelledUpdateIsDroppedBeforeItJoinsAGroup) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  StateUpdate update = Step("a", StepMoments(1), StepId{"c", 1});
  update.cancelled = [] { return true; };
  EXPECT_EQ(Commit(*store_, update).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*Get(*store_, "a"))->version, 0);
  TakeSteps(1, 1);
}

TEST_P(DurableStoreTest, ATtlDeletesTheRowEvenIfNobodyAsks) {
  Open({.sweep_interval = absl::Milliseconds(5)});
  Session session = NewSession("a", BatchSpec(), 3);
  session.ttl = absl::Minutes(1);
  ASSERT_TRUE(Create(*store_, session).ok());
  ASSERT_TRUE(Create(*store_, NewSession("b", BatchSpec(), 3)).ok());
  clock_.Advance(absl::Minutes(2));
  // The two are counted one after the other.
  while (store_->stats().sessions != 1 || store_->stats().expired == 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->stats().expired, 1);
  clock_.Advance(-absl::Minutes(2));
  EXPECT_EQ(ErrorOf(Get(*store_, "a").status()), "SESSION_NOT_FOUND") << "not only hidden";
}

// One sweep takes as many as a transaction; the rest does not wait for the next one.
TEST_P(DurableStoreTest, ExpiryKeepsUpWithMoreThanOneSweepTakes) {
  constexpr int kSessions = 2500;
  Open({.limits = {.max_sessions = kSessions}, .sweep_interval = absl::Hours(1)});
  std::atomic<int> created{0};
  for (int i = 0; i < kSessions; ++i) {
    Session session = NewSession("s" + std::to_string(i), BatchSpec(), 1);
    session.ttl = absl::Seconds(1);
    store_->Create(session, [&created](auto r) { created += r.ok() ? 1 : 0; });
  }
  while (created < kSessions) absl::SleepFor(absl::Milliseconds(1));
  clock_.Advance(absl::Minutes(1));
  // Makes the store look for expired sessions, which finds more than it takes at a time; the next sweep by the clock
  // would be in an hour.
  const auto one_more = Create(*store_, NewSession("one-more", BatchSpec(), 1));
  ASSERT_TRUE(one_more.ok()) << one_more.status();
  const absl::Time late = absl::Now() + absl::Minutes(1);
  while (store_->stats().sessions != 1 && absl::Now() < late) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->stats().expired, kSessions);
}

TEST_P(DurableStoreTest, ACreationOverTheLimitLooksForExpiredSessionsFirst) {
  Open({.limits = {.max_sessions = 3}, .sweep_interval = absl::Hours(1)});
  for (const char* id : {"a", "b", "c"}) {
    Session session = NewSession(id, BatchSpec(), 1);
    session.ttl = absl::Seconds(1);
    ASSERT_TRUE(Create(*store_, session).ok());
  }
  EXPECT_EQ(Create(*store_, NewSession("d", BatchSpec(), 1)).status().code(), absl::StatusCode::kResourceExhausted);
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Create(*store_, NewSession("d", BatchSpec(), 1)).ok());
  EXPECT_EQ(store_->stats().sessions, 1);
}

// 40 clients step in turns, a few more than are kept; what the rows hold is what memory held.
TEST_P(DurableStoreTest, ManyClientsAreKeptAcrossRestartsAndRetire) {
  const DurableStoreOptions options = {.limits = {.max_clients = 30, .max_retired_clients = 100, .replay_window = 4}};
  Open({.limits = options.limits});
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  const auto step = [this](int client, uint64_t sequence) {
    return Commit(*store_, Step("a", StepMoments(sequence), StepId{"c" + std::to_string(client), sequence}));
  };
  for (uint64_t sequence = 1; sequence <= 6; ++sequence) {
    for (int client = 0; client < 40; ++client) ASSERT_TRUE(step(client, sequence)->applied);
    const std::string record = *Export(*store_, "a");
    if (sequence % 2 == 0) Open({.limits = options.limits});
    EXPECT_EQ(*Export(*store_, "a"), record);
  }
  for (int client = 10; client < 40; ++client) {
    EXPECT_TRUE(step(client, 6)->replayed) << client;
    EXPECT_EQ(ErrorOf(step(client, 2).status()), "STEP_TOO_OLD") << client;
  }
  for (int client = 0; client < 10; ++client) EXPECT_EQ(ErrorOf(step(client, 6).status()), "STEP_TOO_OLD") << client;
  const std::string record = *Export(*store_, "a");
  const SessionPtr copy = *Import(*store_, "copy", record);
  EXPECT_EQ(copy->version, 240);
  EXPECT_TRUE(Commit(*store_, Step("copy", StepMoments(6), StepId{"c39", 6}))->replayed);
  EXPECT_EQ(ErrorOf(Commit(*store_, Step("copy", StepMoments(6), StepId{"c3", 6})).status()), "STEP_TOO_OLD");
  ASSERT_TRUE(session_test::Delete(*store_, "a").ok());
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  EXPECT_TRUE(step(3, 1)->applied) << "another session, which knows nobody";
  Open({.limits = options.limits});
  EXPECT_TRUE(step(3, 1)->replayed);
  EXPECT_TRUE(Commit(*store_, Step("copy", StepMoments(6), StepId{"c39", 6}))->replayed);
  EXPECT_EQ(store_->stats().damaged, 0);
}

TEST_P(DurableStoreTest, ALostClientRowIsDamageAndNotAForgottenStep) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  for (int client = 0; client < 10; ++client) {
    ASSERT_TRUE(Commit(*store_, Step("a", StepMoments(1), StepId{"c" + std::to_string(client), 1})).ok());
  }
  store_.reset();
  fixture_->Execute("DELETE FROM clients WHERE slot = 3");
  Open({});
  EXPECT_EQ(ErrorOf(Commit(*store_, Step("a", StepMoments(1), StepId{"c2", 1})).status()), "DATA_LOSS");
}

TEST_P(DurableStoreTest, TheStateOfAnotherSessionIsDamage) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(Create(*store_, NewSession(id, BatchSpec(), 3)).ok());
  store_.reset();
  fixture_->Execute(
      "UPDATE states SET state = (SELECT t.state FROM states t, sessions s WHERE t.key = s.key AND s.id = 'a')");
  Open({});
  EXPECT_TRUE(Get(*store_, "a").ok());
  EXPECT_EQ(ErrorOf(Get(*store_, "b").status()), "DATA_LOSS");
  const absl::StatusOr<ListPage> page = ListOf(*store_, {});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->sessions.size(), 1);
  EXPECT_EQ(page->damaged, 1) << "a list says what it leaves out";
}

TEST_P(DurableStoreTest, ARowThatHoldsNoBlobIsDamage) {
  if (GetParam() != StoreKind::kSqlite) GTEST_SKIP() << "PostgreSQL keeps the types of its columns";
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  store_.reset();
  fixture_->Execute("UPDATE states SET state = 7");
  Open({});
  EXPECT_EQ(ErrorOf(ListOf(*store_, {}).status()), "DATA_LOSS");
  EXPECT_EQ(ErrorOf(Get(*store_, "a").status()), "DATA_LOSS");
}

TEST_P(DurableStoreTest, AListHasNoTensorsUnlessItIsAskedForThemAndThenFewBytesAtATime) {
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {25'000}, .bytes = std::string(100'000, 'w')};
  for (int i = 0; i < 10; ++i) {
    Session session = NewSession("s" + std::to_string(i), BatchSpec(), 25'000);
    session.parameters = std::make_shared<const OwnedParameters>(parameters);
    ASSERT_TRUE(Create(*store_, session).ok());
  }
  Open({});
  const absl::StatusOr<ListPage> basic = ListOf(*store_, {.page_size = 7});
  ASSERT_TRUE(basic.ok()) << basic.status();
  EXPECT_EQ(basic->sessions.size(), 7);
  EXPECT_EQ(basic->next_after, "s6");
  for (const SessionPtr& session : basic->sessions) {
    EXPECT_FALSE(session->parameters->weight.has_value());
    EXPECT_TRUE(session->state.mean.empty());
    EXPECT_EQ(session->num_channels, 25'000);
  }
  EXPECT_EQ(store_->stats().loads, 0);
  std::vector<std::string> ids;
  ListQuery query = {.page_size = 7, .whole = true, .max_bytes = 1'200'000};
  int pages = 0;
  do {
    const absl::StatusOr<ListPage> page = ListOf(*store_, query);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_LE(page->sessions.size(), 2u) << "half a megabyte each";
    for (const SessionPtr& session : page->sessions) {
      ids.push_back(session->id);
      EXPECT_EQ(session->parameters->weight->bytes.size(), 100'000u);
      EXPECT_EQ(session->state.var.size(), 25'000u);
    }
    query.after_id = page->next_after;
    ++pages;
  } while (!query.after_id.empty());
  EXPECT_EQ(pages, 5);
  EXPECT_EQ(ids.size(), 10);
}

TEST_P(DurableStoreTest, AReadWhoseCallerHasGoneIsNotMade) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  Open({});
  const auto gone = Wait<SessionPtr>([this](auto done) {
    store_->Get(
        "a", absl::ZeroDuration(), [] { return true; }, std::move(done));
  });
  EXPECT_EQ(gone.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(store_->stats().loads, 0);
  EXPECT_TRUE(Get(*store_, "a").ok());
}

TEST_P(DurableStoreTest, AFullQueueOfReadsRefuses) {
  Open({.max_queued_reads = 0});
  EXPECT_EQ(Get(*store_, "a").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(List(*store_, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

// A callback that takes long keeps its own session's answers waiting, and nobody else's.
TEST_P(DurableStoreTest, AnswersOfOtherSessionsDoNotWaitForASlowCallback) {
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(Create(*store_, NewSession("s" + std::to_string(i), BatchSpec(), 3)).ok());
  }
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  store_->Commit(Step("s0", StepMoments(1)), [released](auto) { released.wait(); });
  std::vector<int> order;
  std::atomic<int> own{0};
  for (int i = 0; i < 3; ++i) {
    store_->Commit(Step("s0", StepMoments(2)), [&order, &own, i](auto) {
      order.push_back(i);
      ++own;
    });
  }
  std::atomic<int> answered{0};
  for (int i = 1; i < 16; ++i) {
    store_->Commit(Step("s" + std::to_string(i), StepMoments(1)), [&answered](auto) { ++answered; });
  }
  while (answered < 8) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(own, 0) << "in order";
  release.set_value();
  while (own < 3 || answered < 15) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST_P(DurableStoreTest, AnExportIsMadeOnlyWhereThereIsRoomForIt) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  int64_t asked = 0;
  const auto refused = Wait<std::string>([&](auto done) {
    store_->Export(
        "a",
        [&asked](int64_t bytes) {
          asked = bytes;
          return absl::ResourceExhaustedError("a test");
        },
        std::move(done));
  });
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(asked, 2 * 1024);
}

TEST_P(DurableStoreTest, AnUpdateOfASessionThatWasMadeAnewIsAborted) {
  SessionPatch patch;
  patch.uid = (*Create(*store_, NewSession("a", BatchSpec(), 3)))->uid;
  patch.labels.emplace();
  ASSERT_TRUE(session_test::Update(*store_, "a", patch).ok());
  ASSERT_TRUE(session_test::Delete(*store_, "a").ok());
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 4)).ok());
  EXPECT_EQ(ErrorOf(session_test::Update(*store_, "a", patch).status()), "SESSION_REPLACED");
}

TEST_P(DurableStoreTest, WhatIsQueuedIsWrittenBeforeTheStoreCloses) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
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
  Session session = NewSession("a", BatchSpec({.cumulative = true}), 2);
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
  EXPECT_EQ(store_->stats().damaged, 0);
}

TEST_P(DurableStoreTest, ARowThatSomebodyElseHasWrittenIsReadAnew) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  TakeSteps(1, 1);
  fixture_->Execute("UPDATE states SET revision = revision + 5");
  TakeSteps(2, 2);
  EXPECT_EQ(store_->stats().conflicts, 1);
  Open({});
  EXPECT_EQ((*Get(*store_, "a"))->version, 2);
}

TEST_P(DurableStoreTest, AnImportIsCheckedLikeACreation) {
  Session session = NewSession("a", BatchSpec(), 1);
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
