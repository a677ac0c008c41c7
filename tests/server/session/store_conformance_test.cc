#include <limits>
#include <memory>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/session_key.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/store_fixture.h"

namespace normd {
namespace {

using session_test::BatchSpec;
using session_test::Commit;
using session_test::Create;
using session_test::Export;
using session_test::Get;
using session_test::Import;
using session_test::kAllStoreKinds;
using session_test::kNoPostgres;
using session_test::List;
using session_test::ManualClock;
using session_test::MomentsOf;
using session_test::NewSession;
using session_test::Step;
using session_test::StoreFixture;
using session_test::StoreKind;
using session_test::StoreKindName;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

constexpr SessionLimits kLimits = {
    .max_sessions = 4, .max_parameter_bytes = 1024, .max_clients = 8, .replay_window = 4};

// The same promises, whatever keeps the sessions.
class StoreConformanceTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(GetParam());
    if (fixture_ == nullptr) GTEST_SKIP() << kNoPostgres;
    store_ = fixture_->Open({.limits = kLimits, .sweep_interval = absl::Milliseconds(5)}, &clock_);
  }

  absl::StatusOr<SessionPtr> Update(std::string id, SessionPatch patch) {
    return session_test::Update(*store_, std::move(id), std::move(patch));
  }
  absl::StatusOr<SessionPtr> Reset(std::string id, std::optional<uint64_t> version = std::nullopt) {
    return session_test::Reset(*store_, std::move(id), version);
  }
  absl::StatusOr<SessionPtr> Delete(std::string id, std::optional<uint64_t> version = std::nullopt) {
    return session_test::Delete(*store_, std::move(id), version);
  }

  std::vector<std::string> Ids(int page_size, std::string after_id, std::map<std::string, std::string> labels) {
    std::vector<std::string> ids;
    const auto page = session_test::List(*store_, {page_size, std::move(after_id), std::move(labels)});
    EXPECT_TRUE(page.ok()) << page.status();
    for (const SessionPtr& session : *page) ids.push_back(session->id);
    return ids;
  }
  int64_t Size() { return store_->stats().sessions; }
  // What has expired goes with the next sweep.
  void WaitForSize(int64_t size) {
    while (Size() != size) absl::SleepFor(absl::Milliseconds(1));
  }

  ManualClock clock_;
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> store_;
};

INSTANTIATE_TEST_SUITE_P(All, StoreConformanceTest, ::testing::ValuesIn(kAllStoreKinds), StoreKindName);

TEST_P(StoreConformanceTest, ACreatedSessionIsNewAndFound) {
  const absl::StatusOr<SessionPtr> created = Create(*store_, NewSession("bn", BatchSpec(), 3));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_THAT((*created)->uid, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ((*created)->version, 0);
  EXPECT_EQ((*created)->numerics, kNumerics);
  EXPECT_THAT((*created)->state.var, ElementsAre(1, 1, 1));
  EXPECT_NE((*created)->parameters, nullptr);
  EXPECT_EQ((*created)->create_time, clock_.Now());
  EXPECT_EQ((*Get(*store_, "bn"))->uid, (*created)->uid);
  EXPECT_EQ(Size(), 1);
}

TEST_P(StoreConformanceTest, EveryCreationHasAnEpochOfItsOwn) {
  const std::string first = (*Create(*store_, NewSession("bn", BatchSpec(), 3)))->uid;
  ASSERT_TRUE(Delete("bn").ok());
  EXPECT_NE((*Create(*store_, NewSession("bn", BatchSpec(), 3)))->uid, first);
}

TEST_P(StoreConformanceTest, AnIdIsChosenWhereNoneIsGiven) {
  const std::string first = (*Create(*store_, NewSession("", BatchSpec(), 3)))->id;
  const std::string second = (*Create(*store_, NewSession("", BatchSpec(), 3)))->id;
  EXPECT_NE(first, second);
  EXPECT_TRUE(Get(*store_, first).ok());
}

TEST_P(StoreConformanceTest, BadIdsTakenIdsAndTooManySessionsAreRefused) {
  EXPECT_EQ(Create(*store_, NewSession("Upper", BatchSpec(), 3)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(*store_, NewSession("layer_norm", BatchSpec(), 3)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
  EXPECT_EQ(Create(*store_, NewSession("a", BatchSpec(), 3)).status().code(), absl::StatusCode::kAlreadyExists);
  for (const char* id : {"b", "c", "d"}) ASSERT_TRUE(Create(*store_, NewSession(id, BatchSpec(), 3)).ok());
  EXPECT_EQ(Create(*store_, NewSession("e", BatchSpec(), 3)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Size(), 4);
}

TEST_P(StoreConformanceTest, LimitsMoveWhileSessionsStay) {
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(Create(*store_, NewSession(id, BatchSpec(), 3)).ok());
  SessionLimits limits = kLimits;
  limits.max_sessions = 5;
  store_->SetLimits(limits, {});
  EXPECT_EQ(store_->limits().max_sessions, 5);
  EXPECT_TRUE(Create(*store_, NewSession("e", BatchSpec(), 3)).ok());
  limits.max_sessions = 2;
  store_->SetLimits(limits, {});
  EXPECT_EQ(Create(*store_, NewSession("f", BatchSpec(), 3)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Size(), 5);
  EXPECT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 2, 3, 4, 5, 6}, 3))).ok())
      << "sessions over the limit are served";
}

TEST_P(StoreConformanceTest, HugeParametersAndChannelsAreRefusedBeforeAnyAllocation) {
  Session session = NewSession("a", BatchSpec(), 3);
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {300}, .bytes = std::string(1200, '\0')};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  EXPECT_EQ(Create(*store_, session).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Create(*store_, NewSession("a", BatchSpec(), int64_t{1} << 60)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Size(), 0);
}

TEST_P(StoreConformanceTest, UnknownSessionsAreNotFoundEverywhere) {
  EXPECT_EQ(Get(*store_, "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Export(*store_, "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Update("x", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reset("x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Delete("x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Commit(*store_, Step("x", MomentsOf({1, 2}, 3))).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreConformanceTest, ACommitPublishesANewSnapshotAndLeavesTheOldOneAlone) {
  const SessionPtr before = *Create(*store_, NewSession("a", BatchSpec(), 1));
  clock_.Advance(absl::Seconds(1));
  const absl::StatusOr<CommitResult> result = Commit(*store_, Step("a", MomentsOf({1, 3, 5, 9}, 1)));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 1);
  EXPECT_EQ(result->uid, before->uid);
  EXPECT_EQ(result->durability, store_->durability());
  const SessionPtr after = *Get(*store_, "a");
  EXPECT_EQ(after->version, 1);
  EXPECT_EQ(after->update_time, clock_.Now());
  EXPECT_DOUBLE_EQ(after->state.mean[0], 0.45);
  EXPECT_EQ(before->version, 0);
  EXPECT_DOUBLE_EQ(before->state.mean[0], 0);
}

TEST_P(StoreConformanceTest, ExpectedVersionsAreChecked) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 1)).ok());
  StateUpdate update = Step("a", MomentsOf({1, 3}, 1));
  update.expected_version = 1;
  EXPECT_EQ(Commit(*store_, update).status().code(), absl::StatusCode::kAborted);
  update.expected_version = 0;
  EXPECT_TRUE(Commit(*store_, update).ok());
  SessionPatch patch;
  patch.labels.emplace();
  patch.expected_version = 0;
  EXPECT_EQ(Update("a", patch).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Reset("a", 0).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Delete("a", 0).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Delete("a", 1).ok());
}

TEST_P(StoreConformanceTest, SamplesAreCountedOnceAndKept) {
  ASSERT_TRUE(Create(*store_, NewSession("a", session_test::CountingSpec(), 1)).ok());
  for (const std::vector<double>& samples : {std::vector<double>{1, 3}, std::vector<double>{5, 9}}) {
    StateUpdate update = Step("a", MomentsOf(samples, 1), StepId{"actor", static_cast<uint64_t>(samples.back())});
    update.details.extremes = {.min = {samples.front()}, .max = {samples.back()}};
    ASSERT_TRUE(Commit(*store_, update).ok());
    EXPECT_TRUE(Commit(*store_, update)->replayed);
    update.details.extremes.max[0] += 1;
    EXPECT_EQ(Commit(*store_, update).status().code(), absl::StatusCode::kInvalidArgument) << "other data";
  }
  ASSERT_TRUE(Import(*store_, "b", *Export(*store_, "a")).ok());
  for (const char* id : {"a", "b"}) {
    const SessionPtr session = *Get(*store_, id);
    EXPECT_THAT(session->state.count, ElementsAre(4));
    EXPECT_THAT(session->state.mean, ElementsAre(4.5));
    EXPECT_THAT(session->state.var, ElementsAre(8.75));
    EXPECT_THAT(session->state.min, ElementsAre(1));
    EXPECT_THAT(session->state.max, ElementsAre(9));
  }
}

TEST_P(StoreConformanceTest, AChannelThatIsNotFiniteIsNamedHoweverOftenTheStepIsSent) {
  ASSERT_TRUE(Create(*store_, NewSession("a", session_test::CountingSpec(), 2)).ok());
  Moments moments = MomentsOf({1, 3}, 2);
  moments[1].mean = std::numeric_limits<double>::quiet_NaN();
  for (int times = 0; times < 2; ++times) {
    const absl::StatusOr<CommitResult> result = Commit(*store_, Step("a", moments, StepId{"actor", 1}));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->applied);
    EXPECT_THAT(result->skipped_channels, ElementsAre(1));
  }
  EXPECT_THAT((*Get(*store_, "a"))->state.count, ElementsAre(2, 0));
}

TEST_P(StoreConformanceTest, AFrozenSessionTakesNoChangeButItsDeletion) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 1)).ok());
  ASSERT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 3}, 1), StepId{"actor", 1})).ok());
  SessionPatch freeze;
  freeze.freeze = true;
  const SessionPtr frozen = *Update("a", freeze);
  EXPECT_TRUE(frozen->frozen);
  EXPECT_EQ(frozen->version, 2);
  SessionPatch patch;
  patch.labels.emplace();
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(Update("a", patch).status().code(), kRefused);
  EXPECT_EQ(Update("a", freeze).status().code(), kRefused);
  EXPECT_EQ(Reset("a").status().code(), kRefused);
  EXPECT_EQ(Commit(*store_, Step("a", MomentsOf({1, 3}, 1), StepId{"actor", 2})).status().code(), kRefused);
  EXPECT_TRUE(Commit(*store_, Step("a", MomentsOf({1, 3}, 1), StepId{"actor", 1}))->replayed)
      << "what was applied before is answered";
  const SessionPtr now = *Get(*store_, "a");
  EXPECT_EQ(now->version, 2);
  EXPECT_EQ(now->state.mean, frozen->state.mean);
  EXPECT_TRUE(Delete("a").ok());
}

TEST_P(StoreConformanceTest, AnUpdateChangesTheNamedFieldsAndRaisesTheVersions) {
  Session session = NewSession("a", BatchSpec(), 1);
  session.labels = {{"team", "x"}};
  ASSERT_TRUE(Create(*store_, session).ok());
  SessionPatch patch;
  patch.weight.emplace(OwnedTensor{.dtype = DType::kF32, .shape = {1}, .bytes = std::string(4, '\0')});
  const SessionPtr weighted = *Update("a", patch);
  EXPECT_TRUE(weighted->parameters->weight.has_value());
  EXPECT_EQ(weighted->version, 1);
  EXPECT_EQ(weighted->parameters_version, 1);
  EXPECT_EQ(weighted->labels.at("team"), "x");

  SessionPatch removal;
  removal.weight.emplace(std::nullopt);
  removal.labels.emplace();
  const SessionPtr removed = *Update("a", removal);
  EXPECT_FALSE(removed->parameters->weight.has_value());
  EXPECT_EQ(removed->parameters_version, 2);
  EXPECT_TRUE(removed->labels.empty());

  SessionPatch too_large;
  too_large.bias.emplace(OwnedTensor{.dtype = DType::kF32, .shape = {300}, .bytes = std::string(1200, '\0')});
  EXPECT_EQ(Update("a", too_large).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*Get(*store_, "a"))->version, 2);
}

TEST_P(StoreConformanceTest, ListPagesInIdOrderAndFiltersByLabels) {
  for (const char* id : {"c", "a", "d", "b"}) {
    Session session = NewSession(id, BatchSpec(), 1);
    session.labels = {{"team", *id < 'c' ? "x" : "y"}, {"all", "1"}};
    ASSERT_TRUE(Create(*store_, session).ok());
  }
  EXPECT_THAT(Ids(3, "", {}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Ids(3, "c", {}), ElementsAre("d"));
  EXPECT_THAT(Ids(100, "", {{"team", "y"}, {"all", "1"}}), ElementsAre("c", "d"));
  EXPECT_THAT(Ids(100, "", {{"team", "z"}}), ElementsAre());
}

TEST_P(StoreConformanceTest, TenantsHaveSessionsOfTheirOwn) {
  for (const char* key : {"s", "/a/s", "/b/s"}) ASSERT_TRUE(Create(*store_, NewSession(key, BatchSpec(), 1)).ok());
  EXPECT_EQ(Create(*store_, NewSession("/a/s", BatchSpec(), 1)).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(Commit(*store_, Step("/a/s", MomentsOf({1, 3}, 1), StepId{"c", 1})).ok());
  EXPECT_FALSE(Commit(*store_, Step("/b/s", MomentsOf({1, 3}, 1), StepId{"c", 1}))->replayed);
  ASSERT_TRUE(Reset("/b/s").ok());
  EXPECT_EQ((*Get(*store_, "/a/s"))->version, 1);
  EXPECT_EQ((*Get(*store_, "/b/s"))->version, 2);
  EXPECT_EQ((*Get(*store_, "s"))->version, 0);
  ASSERT_TRUE(Delete("/a/s").ok());
  const absl::Status missing = Get(*store_, "/a/s").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "session sessions/s does not exist") << "no error shows a key";
  EXPECT_TRUE(Get(*store_, "/b/s").ok());
  EXPECT_THAT((*Create(*store_, NewSession("/a/", BatchSpec(), 1)))->id, MatchesRegex("/a/s-[0-9a-f]+"));
  for (const char* bad : {"/a", "/", "//s", "/A/s", "/a/s/t", "/a/Bad"}) {
    EXPECT_EQ(Create(*store_, NewSession(bad, BatchSpec(), 1)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(StoreConformanceTest, ListsShowTheSessionsOfOneTenant) {
  store_ = nullptr;
  store_ = fixture_->Open({.limits = {}, .sweep_interval = absl::Milliseconds(5)}, &clock_);
  for (const char* tenant : {"", "a", "a-b", "a0", "b"}) {
    for (const char* id : {"0", "m", "zz"}) {
      ASSERT_TRUE(Create(*store_, NewSession(SessionKey(tenant, id), BatchSpec(), 1)).ok());
    }
  }
  const auto keys = [&](ListQuery query) {
    std::vector<std::string> found;
    const absl::StatusOr<std::vector<SessionPtr>> sessions = List(*store_, std::move(query));
    EXPECT_TRUE(sessions.ok()) << sessions.status();
    if (!sessions.ok()) return found;
    for (const SessionPtr& session : *sessions) found.push_back(session->id);
    return found;
  };
  for (const bool whole : {false, true}) {
    EXPECT_THAT(keys({.whole = whole}), ElementsAre("0", "m", "zz"));
    EXPECT_THAT(keys({.whole = whole, .tenant = "a"}), ElementsAre("/a/0", "/a/m", "/a/zz"));
    EXPECT_THAT(keys({.whole = whole, .tenant = "a-b"}), ElementsAre("/a-b/0", "/a-b/m", "/a-b/zz"));
    EXPECT_THAT(keys({.whole = whole, .tenant = "nobody"}), ElementsAre());
  }
  EXPECT_EQ(keys({.all_tenants = true}).size(), 15U);
  EXPECT_THAT(keys({.after_id = "/a/m", .tenant = "a"}), ElementsAre("/a/zz"));
  EXPECT_THAT(keys({.after_id = "m"}), ElementsAre("zz"));
  EXPECT_THAT(keys({.after_id = "/a/m"}), ElementsAre("0", "m", "zz"))
      << "a place elsewhere is no way out of the range";
  EXPECT_THAT(keys({.after_id = "/a/m", .tenant = "b"}), ElementsAre("/b/0", "/b/m", "/b/zz"));
  EXPECT_THAT(keys({.after_id = "zz", .tenant = "a"}), ElementsAre());
  const absl::StatusOr<ListPage> page = session_test::ListOf(*store_, {.page_size = 2, .tenant = "a"});
  EXPECT_EQ(page->next_after, "/a/m");
  EXPECT_EQ(session_test::ListOf(*store_, {.page_size = 3, .tenant = "a"})->next_after, "") << "b is no next page";
}

TEST_P(StoreConformanceTest, QuotasAreCountedForEachTenant) {
  TenantQuotaTable quotas;
  quotas.Set({{"a", {.max_sessions = 2}}, {"b", {.max_session_bytes = 2500}}});
  store_ = nullptr;
  const SessionLimits limits = {.quotas = &quotas};
  store_ = fixture_->Open({.limits = limits, .sweep_interval = absl::Milliseconds(5)}, &clock_);
  const auto create = [&](const char* key) { return Create(*store_, NewSession(key, BatchSpec(), 1)).status(); };
  for (const char* key : {"/a/1", "/a/2", "/b/1", "/b/2", "1", "2", "3"}) EXPECT_TRUE(create(key).ok()) << key;
  for (const char* key : {"/a/3", "/b/3"}) {
    const absl::Status refused = create(key);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(GetErrorDetail(refused)->reason, "LIMIT_EXCEEDED");
  }
  SessionPatch grow;
  grow.weight.emplace(OwnedTensor{.dtype = DType::kF32, .shape = {125}, .bytes = std::string(500, '\0')});
  EXPECT_EQ(Update("/b/1", grow).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Update("/a/1", grow).ok()) << "a has no quota of bytes";
  const TotalsByTenant totals = store_->tenant_totals();
  EXPECT_EQ(totals.at("").sessions, 3);
  EXPECT_EQ(totals.at("a").sessions, 2);
  EXPECT_EQ(totals.at("a").bytes, totals.at("b").bytes + 500);
  ASSERT_TRUE(Delete("/a/1").ok());
  EXPECT_TRUE(create("/a/3").ok());
  ASSERT_TRUE(Delete("/b/1").ok());
  ASSERT_TRUE(Delete("/b/2").ok());
  EXPECT_EQ(store_->tenant_totals().count("b"), 0U);
  quotas.Set({{"a", {.max_sessions = 1}}});
  EXPECT_FALSE(create("/a/4").ok());
  EXPECT_TRUE(Get(*store_, "/a/3").ok()) << "a smaller quota takes nothing away";
  if (GetParam() == StoreKind::kMemory) return;
  store_ = nullptr;
  store_ = fixture_->Open({.limits = limits, .sweep_interval = absl::Milliseconds(5)}, &clock_);
  EXPECT_EQ(store_->tenant_totals().at("a").sessions, 2) << "counted when the store is opened";
  EXPECT_EQ(store_->tenant_totals().at("").sessions, 3);
  EXPECT_FALSE(create("/a/4").ok());
}

TEST_P(StoreConformanceTest, AnExpiredSessionMakesRoomInItsTenantsQuota) {
  TenantQuotaTable quotas;
  quotas.Set({{"a", {.max_sessions = 1}}});
  store_ = nullptr;
  store_ = fixture_->Open({.limits = {.quotas = &quotas}, .sweep_interval = absl::Hours(1)}, &clock_);
  Session session = NewSession("/a/1", BatchSpec(), 1);
  session.ttl = absl::Seconds(1);
  ASSERT_TRUE(Create(*store_, session).ok());
  EXPECT_FALSE(Create(*store_, NewSession("/a/2", BatchSpec(), 1)).ok());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Create(*store_, NewSession("/a/2", BatchSpec(), 1)).ok());
}

TEST_P(StoreConformanceTest, AnExportedRecordSaysNotWhoseItWas) {
  ASSERT_TRUE(Create(*store_, NewSession("/a/s", BatchSpec(), 1)).ok());
  ASSERT_TRUE(Create(*store_, NewSession("s", BatchSpec(), 1)).ok());
  ASSERT_TRUE(Commit(*store_, Step("/a/s", MomentsOf({1, 3}, 1), StepId{"c", 1})).ok());
  const std::string record = *Export(*store_, "/a/s");
  EXPECT_EQ(record.find("/a"), std::string::npos);
  EXPECT_EQ((*Import(*store_, "/b/", record))->id, "/b/s");
  EXPECT_EQ((*Import(*store_, "/b/t", record))->id, "/b/t");
  EXPECT_EQ(Import(*store_, "", record).status().code(), absl::StatusCode::kAlreadyExists) << "the default tenant's";
  ASSERT_TRUE(Delete("s").ok());
  EXPECT_EQ((*Import(*store_, "", record))->version, 1);
}

TEST_P(StoreConformanceTest, OnlyATtlDeletesAndEveryUpdateExtendsIt) {
  Session session = NewSession("short", BatchSpec(), 1);
  session.ttl = absl::Minutes(10);
  ASSERT_TRUE(Create(*store_, session).ok());
  ASSERT_TRUE(Create(*store_, NewSession("long", BatchSpec(), 1)).ok());
  clock_.Advance(absl::Minutes(9));
  ASSERT_TRUE(Commit(*store_, Step("short", MomentsOf({1, 3}, 1))).ok());
  clock_.Advance(absl::Minutes(9));
  EXPECT_TRUE(Get(*store_, "short").ok());
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Get(*store_, "short").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Commit(*store_, Step("short", MomentsOf({1, 3}, 1))).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Ids(100, "", {}), ElementsAre("long"));
  WaitForSize(1);
  clock_.Advance(absl::Hours(24 * 365));
  EXPECT_TRUE(Get(*store_, "long").ok());
}

TEST_P(StoreConformanceTest, ATtlCanBeSetAndTakenAway) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 1)).ok());
  SessionPatch set;
  set.ttl.emplace(absl::Minutes(1));
  ASSERT_TRUE(Update("a", set).ok());
  SessionPatch unset;
  unset.ttl.emplace(std::nullopt);
  ASSERT_TRUE(Update("a", unset).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(Get(*store_, "a").ok());
  ASSERT_TRUE(Update("a", set).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(Get(*store_, "a").ok());
  EXPECT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 1)).ok());
}

TEST_P(StoreConformanceTest, AnExpiredSessionMakesRoom) {
  for (const char* id : {"a", "b", "c", "d"}) {
    Session session = NewSession(id, BatchSpec(), 1);
    session.ttl = absl::Seconds(1);
    ASSERT_TRUE(Create(*store_, session).ok());
  }
  clock_.Advance(absl::Seconds(1));
  WaitForSize(0);
  EXPECT_TRUE(Create(*store_, NewSession("e", BatchSpec(), 1)).ok());
  EXPECT_EQ(Size(), 1);
}

TEST_P(StoreConformanceTest, ImportRestoresStateBitForBitStepsIncluded) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec({.momentum = 0.3}), 3)).ok());
  for (uint64_t i = 1; i <= 3; ++i) {
    const Moments moments = MomentsOf({0.1 * static_cast<double>(i), 0.7, 1.9}, 3);
    ASSERT_TRUE(Commit(*store_, Step("a", moments, StepId{"c", i})).ok());
  }
  const std::string record = *Export(*store_, "a");
  const absl::StatusOr<SessionPtr> copy = Import(*store_, "copy", record);
  ASSERT_TRUE(copy.ok()) << copy.status();
  const SessionPtr original = *Get(*store_, "a");
  EXPECT_EQ((*copy)->state.mean, original->state.mean);
  EXPECT_EQ((*copy)->state.var, original->state.var);
  EXPECT_EQ((*copy)->state.num_batches, 3);
  EXPECT_EQ((*copy)->version, 3);
  EXPECT_NE((*copy)->uid, original->uid);
  EXPECT_TRUE(Commit(*store_, Step("copy", MomentsOf({0.1 * 3.0, 0.7, 1.9}, 3), StepId{"c", 3}))->replayed);
  EXPECT_EQ((*Get(*store_, "copy"))->version, 3);

  EXPECT_EQ(Import(*store_, "", record).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(Delete("a").ok());
  EXPECT_EQ((*Import(*store_, "", record))->id, "a");
  EXPECT_EQ(Import(*store_, "Bad", record).status().code(), absl::StatusCode::kInvalidArgument);
}

// One client's steps retried from many threads: each is applied once.
TEST_P(StoreConformanceTest, ConcurrentRetriesApplyEachStepOnce) {
  ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 4)).ok());
  constexpr int kClients = 4;
  constexpr uint64_t kSteps = 50;
  std::atomic<int> applied{0};
  std::atomic<int> replayed{0};
  std::vector<std::thread> threads;
  for (int client = 0; client < kClients; ++client) {
    // Two threads speak for each client, at different speeds.
    for (int copy = 0; copy < 2; ++copy) {
      threads.emplace_back([this, client, &applied, &replayed] {
        for (uint64_t sequence = 1; sequence <= kSteps; ++sequence) {
          const Moments moments = MomentsOf({1.0 * client, 1.0 * static_cast<double>(sequence)}, 4);
          const absl::StatusOr<CommitResult> result =
              Commit(*store_, Step("a", moments, StepId{"client" + std::to_string(client), sequence}));
          if (result.ok()) ++(result->replayed ? replayed : applied);
        }
      });
    }
  }
  threads.emplace_back([this] {
    for (int i = 0; i < 200; ++i) {
      const SessionPtr session = *Get(*store_, "a");
      EXPECT_EQ(session->version, session->state.num_batches);
      EXPECT_TRUE(Export(*store_, "a").ok());
      EXPECT_EQ(List(*store_, {})->size(), 1);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(applied, kClients * static_cast<int>(kSteps));
  EXPECT_LE(replayed, kClients * static_cast<int>(kSteps));
  EXPECT_EQ((*Get(*store_, "a"))->version, kClients * kSteps);
}

TEST_P(StoreConformanceTest, OneIdIsCreatedOnceByManyThreads) {
  std::atomic<int> created{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [this, &created] { created += Create(*store_, NewSession("a", BatchSpec(), 1)).ok() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(created, 1);
}

}  // namespace
}  // namespace normd
