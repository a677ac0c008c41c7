// Exactly once, without a store around it.
#include "server/session/stored_session.h"

#include <memory>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/record/record.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using session_test::BatchSpec;
using session_test::MomentsOf;
using session_test::PowerSpec;
using session_test::Step;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

StoredSession Stored(const NormSpec& spec, int64_t channels) {
  Session session = session_test::NewSession("s", spec, channels);
  session.uid = "e";
  session.parameters = std::make_shared<const OwnedParameters>();
  session.state = InitialState(spec, channels);
  session.numerics = std::string(kNumerics);
  StoredSession stored;
  stored.published = std::make_shared<const Session>(std::move(session));
  return stored;
}

class StoredSessionTest : public ::testing::Test {
 protected:
  absl::StatusOr<CommitResult> Commit(const std::string& client, uint64_t sequence, const Moments& moments) {
    return CommitStep(Step("s", moments, StepId{client, sequence}), limits_, absl::UnixEpoch(), &stored_);
  }

  static std::string Reason(const absl::StatusOr<CommitResult>& result) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(result.status());
    return detail.has_value() ? detail->reason : result.status().ToString();
  }

  const Moments first_ = MomentsOf({1, 3, 5, 9}, 2);
  const Moments second_ = MomentsOf({2, 4, 4}, 2);
  SessionLimits limits_ = {.max_clients = 2, .replay_window = 3};
  StoredSession stored_ = Stored(BatchSpec(), 2);
};

TEST_F(StoredSessionTest, AReplayReturnsTheStoredOutcomeAndAppliesNothing) {
  const absl::StatusOr<CommitResult> fresh = Commit("a", 1, first_);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_TRUE(fresh->applied);
  EXPECT_FALSE(fresh->replayed);
  EXPECT_EQ(fresh->version, 1);
  ASSERT_TRUE(Commit("a", 2, second_).ok());
  const SessionPtr before = stored_.published;

  const absl::StatusOr<CommitResult> replay = Commit("a", 1, first_);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->replayed);
  EXPECT_TRUE(replay->applied);
  EXPECT_EQ(replay->version, 1);
  EXPECT_EQ(replay->num_batches, 1);
  EXPECT_EQ(stored_.published, before);
}

TEST_F(StoredSessionTest, AReplayWithOtherMomentsIsRefused) {
  ASSERT_TRUE(Commit("a", 1, first_).ok());
  EXPECT_EQ(Commit("a", 1, second_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(stored_.published->version, 1);
}

TEST_F(StoredSessionTest, AReplayComesBeforeTheExpectedVersion) {
  StateUpdate update = Step("s", first_, StepId{"a", 1});
  update.expected_version = 0;
  ASSERT_TRUE(CommitStep(update, limits_, absl::UnixEpoch(), &stored_).ok());
  const absl::StatusOr<CommitResult> replay = CommitStep(update, limits_, absl::UnixEpoch(), &stored_);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->replayed);
  update.step->sequence = 2;
  EXPECT_EQ(CommitStep(update, limits_, absl::UnixEpoch(), &stored_).status().code(), absl::StatusCode::kAborted);
}

TEST_F(StoredSessionTest, OnlyTheLastKOutcomesAreReplayed) {
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) ASSERT_TRUE(Commit("a", sequence, first_).ok());
  for (uint64_t sequence = 2; sequence <= 4; ++sequence) EXPECT_TRUE(Commit("a", sequence, first_)->replayed);
  EXPECT_EQ(Commit("a", 1, first_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stored_.published->version, 4);
}

TEST_F(StoredSessionTest, GapsAreAllowedAndNotFilledLater) {
  ASSERT_TRUE(Commit("a", 10, first_).ok());
  EXPECT_EQ(Commit("a", 9, second_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Commit("a", 1000, second_).ok());
}

TEST_F(StoredSessionTest, ClientsHaveSequencesOfTheirOwn) {
  ASSERT_TRUE(Commit("a", 5, first_).ok());
  ASSERT_TRUE(Commit("b", 1, first_).ok());
  EXPECT_EQ(stored_.published->version, 2);
  EXPECT_TRUE(Commit("a", 6, first_).ok());
  EXPECT_TRUE(Commit("b", 1, first_)->replayed);
}

TEST_F(StoredSessionTest, ANewClientRetiresTheOneThatWasSilentLongest) {
  for (const char* client : {"a", "b"}) ASSERT_TRUE(Commit(client, 5, first_).ok());
  ASSERT_TRUE(Commit("a", 6, second_).ok());
  ASSERT_TRUE(Commit("c", 1, first_).ok()) << "b retires";
  EXPECT_TRUE(Commit("a", 6, second_)->replayed);
  EXPECT_EQ(Reason(Commit("b", 5, first_)), "STEP_TOO_OLD") << "it was applied, and its outcome is not known any more";
  EXPECT_EQ(Reason(Commit("b", 4, first_)), "STEP_TOO_OLD");
  EXPECT_EQ(stored_.published->version, 4);
  ASSERT_TRUE(Commit("b", 6, first_)->applied) << "a newer step comes back, and a retires";
  EXPECT_TRUE(Commit("b", 6, first_)->replayed);
  EXPECT_EQ(Reason(Commit("a", 6, second_)), "STEP_TOO_OLD");
  EXPECT_EQ(stored_.published->version, 5);
}

TEST_F(StoredSessionTest, AForgottenClientLeavesAFloorUnderWhichStepsAreRefused) {
  limits_.max_retired_clients = 2;
  for (const char* client : {"a", "b", "c", "d"}) ASSERT_TRUE(Commit(client, 7, first_).ok());
  ASSERT_TRUE(Commit("new", 1, first_).ok()) << "a was forgotten for it, and after that the floor is 7";
  EXPECT_EQ(Reason(Commit("a", 7, first_)), "STEP_TOO_OLD");
  EXPECT_EQ(Reason(Commit("newer", 7, first_)), "STEP_TOO_OLD") << "it could be one that was forgotten";
  EXPECT_TRUE(Commit("newer", 8, first_)->applied);
  EXPECT_EQ(Reason(Commit("c", 7, first_)), "STEP_TOO_OLD");
  EXPECT_EQ(stored_.published->version, 6);
}

TEST_F(StoredSessionTest, AStepAppliesOnceHoweverManyClientsRetire) {
  limits_.max_retired_clients = 8;
  std::set<std::pair<int, uint64_t>> applied;
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const int client = static_cast<int>(random() % 24);
    const uint64_t sequence = 1 + static_cast<uint64_t>(i) / 64 + random() % 8;
    const absl::StatusOr<CommitResult> result = Commit("c" + std::to_string(client), sequence, first_);
    if (!result.ok()) continue;
    EXPECT_NE(applied.insert({client, sequence}).second, result->replayed) << client << " " << sequence;
    if (i % 100 == 0) stored_ = *ParseRecord(SerializeRecord(stored_));
  }
  EXPECT_EQ(stored_.published->version, applied.size());
  EXPECT_GT(applied.size(), 1000u);
}

TEST_F(StoredSessionTest, TimeNeverGoesBack) {
  const absl::Time late = absl::UnixEpoch() + absl::Hours(1);
  ASSERT_TRUE(CommitStep(Step("s", first_), limits_, late, &stored_).ok());
  ASSERT_TRUE(CommitStep(Step("s", second_), limits_, absl::UnixEpoch(), &stored_).ok());
  EXPECT_EQ(stored_.published->update_time, late);
  ResetState(absl::UnixEpoch(), &stored_);
  EXPECT_EQ(stored_.published->update_time, late);
}

TEST_F(StoredSessionTest, AStepIdMustHaveAClientAndASequence) {
  EXPECT_EQ(GetErrorDetail(Commit("", 1, first_).status())->field, "step.client_id");
  EXPECT_EQ(GetErrorDetail(Commit(std::string(129, 'x'), 1, first_).status())->field, "step.client_id");
  EXPECT_EQ(GetErrorDetail(Commit("a", 0, first_).status())->field, "step.sequence");
  EXPECT_TRUE(Commit(std::string(128, 'x'), UINT64_MAX, first_).ok());
}

TEST_F(StoredSessionTest, ARefusedStepTakesNoSequence) {
  ASSERT_FALSE(Commit("a", 1, MomentsOf({3}, 2)).ok());
  EXPECT_TRUE(stored_.steps.empty());
  EXPECT_FALSE(Commit("a", 1, first_)->replayed);
}

TEST_F(StoredSessionTest, ANonFiniteStepIsAnOutcomeToo) {
  Moments poisoned = first_;
  poisoned[0].mean = std::numeric_limits<double>::quiet_NaN();
  const absl::StatusOr<CommitResult> fresh = Commit("a", 1, poisoned);
  ASSERT_TRUE(fresh.ok());
  EXPECT_FALSE(fresh->applied);
  EXPECT_EQ(fresh->version, 0);
  const absl::StatusOr<CommitResult> replay = Commit("a", 1, poisoned);
  EXPECT_TRUE(replay->replayed);
  EXPECT_FALSE(replay->applied);
  EXPECT_EQ(replay->reason, Reason::kNonFinite);
}

TEST_F(StoredSessionTest, ResetKeepsStepIdsAndRaisesTheVersion) {
  ASSERT_TRUE(Commit("a", 1, first_).ok());
  ResetState(absl::UnixEpoch(), &stored_);
  EXPECT_EQ(stored_.published->version, 2);
  EXPECT_EQ(stored_.published->uid, "e");
  EXPECT_EQ(stored_.published->state.num_batches, 0);
  EXPECT_THAT(stored_.published->state.mean, ElementsAre(0, 0));
  EXPECT_TRUE(Commit("a", 1, first_)->replayed);
  EXPECT_EQ(stored_.published->state.num_batches, 0);
}

TEST_F(StoredSessionTest, MomentsOfAnotherEpochFindNoSession) {
  StateUpdate update = Step("s", first_);
  update.uid = "another";
  EXPECT_EQ(CommitStep(update, limits_, absl::UnixEpoch(), &stored_).status().code(), absl::StatusCode::kNotFound);
}

class PowerNormReplayTest : public StoredSessionTest {
 protected:
  PowerNormReplayTest() { stored_ = Stored(PowerSpec(2), 1); }

  static Moments Squares(double v) { return {{.count = 4, .mean = 0, .m2 = 4 * v}}; }
};

TEST_F(PowerNormReplayTest, DuringWarmUpEveryReplayKnowsItsDivisor) {
  EXPECT_THAT(Commit("a", 1, Squares(3))->divisor, ElementsAre(3));
  EXPECT_THAT(Commit("a", 2, Squares(5))->divisor, ElementsAre(5));
  EXPECT_THAT(Commit("a", 1, Squares(3))->divisor, ElementsAre(3));
}

TEST_F(PowerNormReplayTest, AfterWarmUpOnlyTheLastStepKeepsItsDivisor) {
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(Commit("a", i, Squares(3)).ok());
  const std::vector<double> phi_before_third = stored_.published->state.phi;
  EXPECT_EQ(Commit("a", 3, Squares(5))->divisor, phi_before_third);
  EXPECT_EQ(Commit("a", 3, Squares(5))->divisor, phi_before_third);
  const std::vector<double> phi_before_fourth = stored_.published->state.phi;
  EXPECT_EQ(Commit("b", 1, Squares(7))->divisor, phi_before_fourth);
  EXPECT_EQ(Commit("b", 1, Squares(7))->divisor, phi_before_fourth);
  EXPECT_THAT(Commit("a", 3, Squares(5))->divisor, IsEmpty());
  EXPECT_TRUE(Commit("a", 3, Squares(5))->replayed);
}

TEST_F(PowerNormReplayTest, AStepWithoutAnIdOrAResetForgetsTheLastDivisor) {
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(Commit("a", i, Squares(3)).ok());
  ASSERT_TRUE(CommitStep(Step("s", Squares(9)), limits_, absl::UnixEpoch(), &stored_).ok());
  EXPECT_THAT(Commit("a", 3, Squares(3))->divisor, IsEmpty());
  ASSERT_TRUE(Commit("a", 4, Squares(3)).ok());
  ResetState(absl::UnixEpoch(), &stored_);
  EXPECT_THAT(Commit("a", 4, Squares(3))->divisor, IsEmpty());
}

TEST_F(PowerNormReplayTest, ANonFiniteStepDividesByTheOldPhiAndIsReplayedSo) {
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(Commit("a", i, Squares(3)).ok());
  const std::vector<double> phi = stored_.published->state.phi;
  const Moments poisoned = Squares(std::numeric_limits<double>::infinity());
  EXPECT_EQ(Commit("a", 4, poisoned)->divisor, phi);
  EXPECT_EQ(Commit("a", 4, poisoned)->divisor, phi);
  EXPECT_THAT(Commit("a", 3, Squares(3))->divisor, IsEmpty());
}

TEST_F(PowerNormReplayTest, AReplayAfterExportAndImportKnowsTheDivisorToo) {
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(Commit("a", i, Squares(3)).ok());
  const std::vector<double> divisor = Commit("a", 3, Squares(3))->divisor;
  ASSERT_EQ(divisor.size(), 1);
  absl::StatusOr<StoredSession> again = ParseRecord(SerializeRecord(stored_));
  ASSERT_TRUE(again.ok()) << again.status();
  stored_ = *std::move(again);
  EXPECT_EQ(Commit("a", 3, Squares(3))->divisor, divisor);
  EXPECT_THAT(Commit("a", 3, Squares(3))->divisor, ElementsAre(divisor[0]));
}

}  // namespace
}  // namespace normd
