// PostgresTable against a real server: see postgres_fixture.h.
#include "server/session/postgres/postgres_table.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "tests/server/session/postgres_fixture.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;
using Kind = RowChange::Kind;

TEST_F(PostgresTableTest, WhatWasInsertedIsReadAndReadAgainOnlyWhenItChanged) {
  auto table = Open();
  EXPECT_TRUE(table->shared());
  const auto versions = Write(*table, {Insert("b", "two"), Insert("a", "one")});
  ASSERT_TRUE(versions[0].has_value() && versions[1].has_value());
  EXPECT_EQ(versions[0]->revision, 1);
  EXPECT_NE(versions[0]->key, versions[1]->key);
  const SessionRow row = LoadOne(*table, "b");
  EXPECT_EQ(row.version, *versions[0]);
  EXPECT_FALSE(row.unchanged);
  EXPECT_EQ(row.head, "head of b");
  EXPECT_EQ(row.state, "two");
  EXPECT_TRUE(LoadOne(*table, "b", row.version).unchanged);
  EXPECT_EQ(LoadOne(*table, "b", row.version).state, "");
  EXPECT_FALSE(LoadOne(*table, "b", *versions[1]).unchanged);
  const std::vector<RowRequest> requests = {{.id = "none"}, {.id = "a"}, {.id = "b", .known = row.version}};
  EXPECT_THAT(Ids(*table->Load(requests, 1 << 30)), ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_THAT(*table->Load({}, 1 << 30), IsEmpty());
  EXPECT_THAT(*table->Write({}), IsEmpty());
}

TEST_F(PostgresTableTest, EveryKindOfChangeRaisesTheRevisionAndWritesItsFields) {
  auto table = Open();
  const RowVersion first = *Write(*table, {Insert("a", "one", {{"k", "1"}})})[0];
  const RowVersion second = *Write(*table, {State("a", first, "two")})[0];
  EXPECT_EQ(second, (RowVersion{first.key, 2}));
  EXPECT_EQ(LoadOne(*table, "a").state, "two");
  const RowChange all = {.kind = Kind::kAll,
                         .id = "a",
                         .expected = second,
                         .head = "another head",
                         .state = "three",
                         .labels = LabelText({{"k", "2"}}),
                         .bytes = 77,
                         .expires_at = kNow};
  EXPECT_THAT(Write(*table, {all})[0], Optional(RowVersion{first.key, 3}));
  const SessionRow row = LoadOne(*table, "a");
  EXPECT_EQ(row.head, "another head");
  EXPECT_EQ(row.state, "three");
  EXPECT_EQ(table->Totals()->all.bytes, 77);
  EXPECT_THAT(*table->Expired(kNow, 10), ElementsAre("a"));
  const RowChange gone = {.kind = Kind::kDelete, .id = "a", .expected = row.version};
  EXPECT_THAT(Write(*table, {gone})[0], Optional(RowVersion{}));
  EXPECT_EQ(LoadOne(*table, "a").version, RowVersion{});
  EXPECT_THAT(Write(*table, {gone})[0], Eq(std::nullopt));
}

TEST_F(PostgresTableTest, StatesWrittenTogetherKeepTheirOwnExpiryAndOrder) {
  auto table = Open();
  const auto made = Write(*table, {Insert("c"), Insert("a"), Insert("b")});
  std::vector<RowChange> changes = {State("c", *made[0], "3"), State("a", *made[1], "1"), State("b", *made[2], "")};
  changes[1].expires_at = kNow;
  const auto versions = Write(*table, changes);
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(versions[i], Optional(RowVersion{made[i]->key, 2}));
  EXPECT_THAT(*table->Expired(kNow, 10), ElementsAre("a"));
  EXPECT_EQ(LoadOne(*table, "a").state, "1");
  EXPECT_EQ(LoadOne(*table, "b").state, "");
  EXPECT_EQ(LoadOne(*table, "c").state, "3");
  changes[1] = State("a", *versions[1], "4");
  Write(*table, {changes[1]});
  EXPECT_THAT(*table->Expired(kNow, 10), IsEmpty());
}

TEST_F(PostgresTableTest, AConflictLeavesTheOtherChangesWritten) {
  auto table = Open();
  const auto made = Write(*table, {Insert("a"), Insert("b"), Insert("c"), Insert("d")});
  const RowVersion stale = {made[1]->key, 7}, foreign = {made[3]->key + 100, 1};
  const RowChange all = {.kind = Kind::kAll, .id = "c", .expected = stale, .head = "lost", .state = "lost"};
  const RowChange gone = {.kind = Kind::kDelete, .id = "d", .expected = foreign};
  const auto versions = Write(*table, {State("b", stale, "lost"), State("a", *made[0], "kept"), all, gone,
                                       Insert("a", "lost"), Insert("e", "kept")});
  EXPECT_THAT(versions, ElementsAre(Eq(std::nullopt), Optional(RowVersion{made[0]->key, 2}), Eq(std::nullopt),
                                    Eq(std::nullopt), Eq(std::nullopt), ::testing::Ne(std::nullopt)));
  EXPECT_EQ(LoadOne(*table, "a").state, "kept");
  EXPECT_EQ(LoadOne(*table, "b").state, "state");
  EXPECT_EQ(LoadOne(*table, "c").head, "head of c");
  EXPECT_EQ(LoadOne(*table, "d").state, "state");
  EXPECT_EQ(LoadOne(*table, "e").state, "kept");
}

TEST_F(PostgresTableTest, ADeleteMakesRoomForAnInsertOfTheSameIdAfterIt) {
  auto table = Open();
  const RowVersion first = *Write(*table, {Insert("a", "old")})[0];
  const RowChange gone = {.kind = Kind::kDelete, .id = "a", .expected = first};
  const auto versions = Write(*table, {Insert("z"), gone, Insert("a", "new"), Insert("0")});
  EXPECT_THAT(versions[1], Optional(RowVersion{}));
  ASSERT_TRUE(versions[2].has_value());
  EXPECT_GT(versions[2]->key, first.key);
  EXPECT_EQ(versions[2]->revision, 1);
  EXPECT_EQ(LoadOne(*table, "a", first).state, "new");
}

TEST_F(PostgresTableTest, PagesAreInTheBytewiseOrderOfIdsWithoutTheExpired) {
  auto table = Open();
  RowChange expired = Insert("a5"), later = Insert("a6");
  expired.expires_at = kNow;
  later.expires_at = kNow + absl::Microseconds(1);
  Write(*table, {Insert("a-1"), Insert("a.1"), Insert("a1"), Insert("a_1"), Insert("B"), expired, later});
  EXPECT_THAT(PageIds(*table, {}), ElementsAre("B", "a-1", "a.1", "a1", "a6", "a_1"));
  EXPECT_THAT(PageIds(*table, {.page_size = 2, .after_id = "a-1"}), ElementsAre("a.1", "a1"));
  EXPECT_THAT(PageIds(*table, {.after_id = "a_1"}), IsEmpty());
  EXPECT_THAT(*table->Expired(kNow, 10), ElementsAre("a5"));
  EXPECT_THAT(*table->Expired(kNow + absl::Seconds(1), 1), ElementsAre("a5"));
  EXPECT_THAT(*table->Expired(kNow - absl::Microseconds(1), 10), IsEmpty());
}

TEST_F(PostgresTableTest, ARowNeverExpiresBeforeItsNanosecond) {
  auto table = Open();
  RowChange row = Insert("a");
  row.expires_at = kNow + absl::Nanoseconds(1500);
  Write(*table, {row});
  EXPECT_THAT(*table->Expired(kNow + absl::Nanoseconds(1499), 10), IsEmpty());
  EXPECT_THAT(*table->Expired(kNow + absl::Microseconds(2), 10), ElementsAre("a"));
}

TEST_F(PostgresTableTest, PagesAreFilteredByEveryLabel) {
  auto table = Open();
  Write(*table, {Insert("a", "", {{"team", "x"}, {"zone", "1"}}), Insert("b", "", {{"team", "xy"}, {"zone", "1"}}),
                 Insert("c", "", {{"team", "\u00e9%_"}}), Insert("d")});
  EXPECT_THAT(PageIds(*table, {.labels = {{"team", "x"}}}), ElementsAre("a"));
  EXPECT_THAT(PageIds(*table, {.labels = {{"zone", "1"}}}), ElementsAre("a", "b"));
  EXPECT_THAT(PageIds(*table, {.labels = {{"team", "xy"}, {"zone", "1"}}}), ElementsAre("b"));
  EXPECT_THAT(PageIds(*table, {.labels = {{"team", "xy"}, {"zone", "2"}}}), IsEmpty());
  EXPECT_THAT(PageIds(*table, {.labels = {{"team", "\u00e9%_"}}}), ElementsAre("c"));
}

TEST_F(PostgresTableTest, TotalsAreOfAllRows) {
  auto table = Open();
  EXPECT_EQ(table->Totals()->all.sessions, 0);
  EXPECT_EQ(table->Totals()->all.bytes, 0);
  RowChange large = Insert("a");
  large.bytes = int64_t{1} << 40;
  Write(*table, {large, Insert("b")});
  EXPECT_EQ(table->Totals()->all.sessions, 2);
  EXPECT_EQ(table->Totals()->all.bytes, (int64_t{1} << 40) + 10);
}

TEST_F(PostgresTableTest, BytesOfEveryValueAndEmptyOnesComeBack) {
  auto table = Open();
  std::string every(256, '\0');
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<char>(i);
  RowChange binary = Insert("a", every), empty = Insert("b", "");
  binary.head = every;
  empty.head = "";
  Write(*table, {binary, empty});
  EXPECT_EQ(LoadOne(*table, "a").head, every);
  EXPECT_EQ(LoadOne(*table, "a").state, every);
  EXPECT_EQ(LoadOne(*table, "b").version.revision, 1);
  EXPECT_EQ(LoadOne(*table, "b").state, "");
  EXPECT_FALSE(LoadOne(*table, "b").unchanged);
}

TEST_F(PostgresTableTest, ManyAndLargeRowsAreWrittenAtOnce) {
  auto table = Open();
  std::vector<RowChange> changes;
  for (int i = 0; i < 500; ++i) changes.push_back(Insert(Concat("s", i), std::string(4096, 'x')));
  changes.push_back(Insert("large", std::string(1 << 20, 'L')));
  const auto versions = Write(*table, changes);
  EXPECT_EQ(std::count(versions.begin(), versions.end(), std::nullopt), 0);
  changes.back() = State("large", *versions.back(), std::string((1 << 20) + 1, 'M'));
  for (size_t i = 0; i < 500; ++i) changes[i] = State(changes[i].id, *versions[i], Concat("new ", i));
  const auto next = Write(*table, changes);
  for (size_t i = 0; i < next.size(); ++i) {
    ASSERT_THAT(next[i], Optional(RowVersion{versions[i]->key, 2})) << i;
  }
  EXPECT_EQ(LoadOne(*table, "large").state, std::string((1 << 20) + 1, 'M'));
  EXPECT_EQ(LoadOne(*table, "s499").state, "new 499");
  EXPECT_EQ(PageIds(*table, {.page_size = 1000}).size(), 501u);
}

TEST_F(PostgresTableTest, AFailedStatementUndoesTheWholeWrite) {
  auto table = Open();
  const RowVersion version = *Write(*table, {Insert("b", "old")})[0];
  RowChange bad = Insert("c");
  bad.labels = "\xff";  // not UTF-8: PostgreSQL refuses it
  const auto result = table->Write(std::vector<RowChange>{Insert("a"), State("b", version, "new"), bad, Insert("d")});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(result.status().message(), HasSubstr("22021"));
  EXPECT_EQ(LoadOne(*table, "b").state, "old");
  EXPECT_THAT(PageIds(*table, {}), ElementsAre("b"));
  EXPECT_THAT(Write(*table, {State("b", version, "new")})[0], Optional(RowVersion{version.key, 2}));
}

TEST_F(PostgresTableTest, NothingIsWrittenOutsideATransaction) {
  auto table = Open();
  Write(*table, {Insert("a")});
  PostgresConnection connection({.url = options_.url});
  ASSERT_TRUE(connection.Connect().ok());
  EXPECT_FALSE(connection.Execute("DELETE FROM sessions").ok());
  EXPECT_THAT(PageIds(*table, {}), ElementsAre("a"));
}

TEST_F(PostgresTableTest, RowsOfVersion1AreThereAfterTheMigration) {
  ASSERT_TRUE(admin_->Connect().ok());
  ASSERT_TRUE(MigratePostgres(1, admin_.get()).ok());
  Admin(
      "BEGIN READ WRITE; INSERT INTO sessions VALUES (41, 'old', '', 5, 'h'); INSERT INTO states VALUES (41, 9, NULL, "
      "'s'); COMMIT");
  EXPECT_TRUE(Admin("SELECT to_regclass('sessions_bytes')").IsNull(0, 0));
  auto table = Open();
  EXPECT_FALSE(Admin("SELECT to_regclass('sessions_bytes')").IsNull(0, 0));
  EXPECT_EQ(Admin("SELECT version FROM normd_schema").Int64(0, 0), kPostgresSchema);
  EXPECT_EQ(LoadOne(*table, "old").version, (RowVersion{41, 9}));
  EXPECT_EQ(table->Totals()->all.bytes, 5);
  EXPECT_THAT(Write(*table, {State("old", {41, 9}, "t")})[0], Optional(RowVersion{41, 10}));
}

TEST_F(PostgresTableTest, RowsOfVersion2TakeClientsAfterTheMigration) {
  ASSERT_TRUE(admin_->Connect().ok());
  ASSERT_TRUE(MigratePostgres(2, admin_.get()).ok());
  Admin(
      "BEGIN READ WRITE; INSERT INTO sessions VALUES (41, 'old', '', 5, 'h'); INSERT INTO states VALUES (41, 9, NULL, "
      "'s'); COMMIT");
  auto table = Open();
  RowChange step = State("old", {41, 9}, "t");
  step.clients = {{1, "client"}};
  EXPECT_THAT(Write(*table, {step})[0], Optional(RowVersion{41, 10}));
  EXPECT_EQ(LoadOne(*table, "old").clients.size(), 1);
}

TEST_F(PostgresTableTest, ANewerSchemaIsRefusedAndLeftAsItIs) {
  Open();
  Admin("BEGIN READ WRITE; UPDATE normd_schema SET version = 1234; COMMIT");
  const absl::Status status = PostgresTable::Open(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("1234"));
  EXPECT_THAT(status.message(), HasSubstr(Concat(kPostgresSchema)));
  EXPECT_EQ(Admin("SELECT version FROM normd_schema").Int64(0, 0), 1234);
}

TEST_F(PostgresTableTest, ReplicasMayOpenTheSameEmptySchemaAtOnce) {
  std::vector<std::unique_ptr<PostgresTable>> tables(6);
  std::vector<std::thread> threads;
  for (auto& table : tables) threads.emplace_back([&] { table = Open(); });
  for (std::thread& thread : threads) thread.join();
  Write(*tables[0], {Insert("a")});
  for (auto& table : tables) EXPECT_EQ(LoadOne(*table, "a").version.revision, 1);
}

// Each raises what it read last, over the same sessions in an order of its own: every success is one revision.
TEST_F(PostgresTableTest, ReplicasThatWriteTheSameRowsLoseNothingAndDoNotDeadlock) {
  constexpr int kReplicas = 4, kRounds = 40, kSessions = 12;
  std::vector<RowChange> inserts;
  for (int i = 0; i < kSessions; ++i) inserts.push_back(Insert(Concat("s", i)));
  Write(*Open(), inserts);
  std::vector<int64_t> won(kReplicas);
  const auto replica = [&](int number) {
    auto table = Open();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<RowChange> changes;
      for (int i = 0; i < kSessions; ++i) {
        const std::string id = Concat("s", (i * 5 + number + round) % kSessions);
        changes.push_back(State(id, LoadOne(*table, id).version, Concat(number)));
      }
      changes.push_back(Insert(Concat("new", round)));  // the first replica there makes it
      const auto versions = Write(*table, changes);
      won[number] += static_cast<int64_t>(versions.size()) - std::count(versions.begin(), versions.end(), std::nullopt);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kReplicas; ++i) threads.emplace_back(replica, i);
  for (std::thread& thread : threads) thread.join();
  const int64_t revisions = Admin("SELECT sum(revision)::bigint FROM states").Int64(0, 0);
  EXPECT_EQ(revisions, std::accumulate(won.begin(), won.end(), int64_t{kSessions}));
}

TEST_F(PostgresTableTest, ALostConnectionIsMadeAgain) {
  options_.url += "&application_name=" + schema_;
  auto table = Open();
  const RowVersion version = *Write(*table, {Insert("a")})[0];
  TerminateBackends();
  absl::StatusOr<std::vector<SessionRow>> rows;
  for (int i = 0; i < 20; ++i) {
    const std::vector<RowRequest> requests = {{.id = "a"}};
    rows = table->Load(requests, 1 << 30);
    if (rows.ok()) break;
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kUnavailable) << rows.status();
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_THAT(Ids(*rows), ElementsAre("a"));
  EXPECT_TRUE(Write(*table, {State("a", version, "b")})[0].has_value());
}

TEST_F(PostgresTableTest, ErrorsNameNoPartOfTheUrl) {
  options_.url = "postgresql://secretuser:secretpass@/secretdb?host=/secrethost&port=4321";
  std::string logged;
  options_.log = [&](std::string_view message) { logged += message; };
  const absl::Status unreachable = PostgresTable::Open(options_).status();
  EXPECT_EQ(unreachable.code(), absl::StatusCode::kUnavailable);
  options_.url = "postgresql://secretuser:secretpass@[secrethost";
  const absl::Status malformed = PostgresTable::Open(options_).status();
  EXPECT_EQ(malformed.code(), absl::StatusCode::kInvalidArgument);
  for (const absl::Status& status : {unreachable, malformed}) {
    EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("4321")));
  }
  EXPECT_THAT(logged, HasSubstr("secrethost"));
}

TEST_F(PostgresTableTest, ALockThatIsNotGivenUpIsUnavailable) {
  options_.lock_timeout = absl::Milliseconds(100);
  auto table = Open();
  const RowVersion version = *Write(*table, {Insert("a")})[0];
  Admin("BEGIN READ WRITE; SELECT FROM states FOR UPDATE");
  const auto result = table->Write(std::vector<RowChange>{State("a", version, "b")});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(result.status().message(), HasSubstr("55P03"));
  Admin("COMMIT");
  EXPECT_TRUE(Write(*table, {State("a", version, "b")})[0].has_value());
}

TEST_F(PostgresTableTest, ReportsTheServersTimeAtTheStartAndWithEverySweep) {
  std::vector<absl::Time> told;
  options_.on_time = [&told](absl::Time now) { told.push_back(now); };
  auto table = Open();
  ASSERT_EQ(told.size(), 1);
  ASSERT_TRUE(table->Expired(kNow, 10).ok());
  ASSERT_EQ(told.size(), 2);
  EXPECT_GT(told[0], absl::FromUnixSeconds(1'700'000'000));
  EXPECT_GT(told[1], told[0]);
}

TEST_F(PostgresTableTest, ClientsAreWrittenOnlyWithTheStateThatTheyBelongTo) {
  auto table = Open();
  RowChange insert = Insert("a");
  for (int64_t slot = 1; slot <= 5; ++slot) insert.clients.push_back({slot, "client " + std::to_string(slot)});
  const RowVersion first = *Write(*table, {insert, Insert("b")})[0];
  EXPECT_EQ(LoadOne(*table, "a").clients.size(), 5);
  EXPECT_TRUE(LoadOne(*table, "b").clients.empty());
  RowChange step = State("a", first, "new");
  step.clients = {{2, "changed"}, {3, ""}, {9, std::string("\0added", 6)}};
  const RowVersion second = *Write(*table, {step})[0];
  std::map<int64_t, std::string> rows;
  const SessionRow written = LoadOne(*table, "a");
  for (const ClientRow& row : written.clients) rows[row.slot] = row.record;
  const std::map<int64_t, std::string> expected = {
      {1, "client 1"}, {2, "changed"}, {4, "client 4"}, {5, "client 5"}, {9, std::string("\0added", 6)}};
  EXPECT_EQ(rows, expected);
  // Somebody else was first: its revision is now what this change would have made.
  RowChange late = State("a", first, "late");
  late.clients = {{1, "lost"}, {4, ""}};
  EXPECT_EQ(Write(*table, {late})[0], std::nullopt);
  const SessionRow kept = LoadOne(*table, "a");
  EXPECT_EQ(kept.clients.size(), 5);
  for (const ClientRow& row : kept.clients) EXPECT_EQ(row.record, expected.at(row.slot));
  Write(*table, {{.kind = Kind::kDelete, .id = "a", .expected = second}});
  Write(*table, {Insert("a")});
  EXPECT_TRUE(LoadOne(*table, "a").clients.empty());
}

TEST_F(PostgresTableTest, AReadingIsBoundedByBytesAndTakesOneInAnyCase) {
  auto table = Open();
  for (const char* id : {"a", "b", "c"}) Write(*table, {Insert(id, std::string(1000, 'x'))});
  const std::vector<RowRequest> requests = {{"a", {}}, {"b", {}}, {"c", {}}};
  const auto left_out = [&](int64_t max_bytes) {
    std::vector<std::string> ids;
    const std::vector<SessionRow> rows = *table->Load(requests, max_bytes);
    for (const SessionRow& row : rows) {
      if (row.left_out) ids.push_back(row.id);
      EXPECT_EQ(row.left_out, row.state.empty());
    }
    return ids;
  };
  EXPECT_THAT(left_out(1), ::testing::UnorderedElementsAre("b", "c"));
  EXPECT_THAT(left_out(2500), ::testing::UnorderedElementsAre("c"));
  EXPECT_THAT(left_out(4000), IsEmpty());
}

TEST_F(PostgresTableTest, TheDurabilityIsSynchronousCommit) {
  Open();
  Admin("BEGIN READ WRITE; ALTER TABLE sessions ADD seen text DEFAULT current_setting('synchronous_commit'); COMMIT");
  const auto seen = [&](const std::string& id, Durability durability) {
    options_.durability = durability;
    Write(*Open(), {Insert(id)});
    return std::string(Admin("SELECT seen FROM sessions WHERE id = '" + id + "'").Bytes(0, 0));
  };
  EXPECT_EQ(seen("process", Durability::kProcess), "off");
  EXPECT_EQ(seen("power", Durability::kPower), "on");
  options_.url += "%20-csynchronous_commit%3Dremote_apply";
  EXPECT_EQ(seen("stronger", Durability::kPower), "remote_apply");
  EXPECT_EQ(seen("weaker", Durability::kProcess), "off");
}

// A replica that is stopped at any moment of a write, locks and all, delays the others by no more than the time-out.
TEST_F(PostgresTableTest, ASleepingReplicaDoesNotHoldLocks) {
  options_.idle_in_transaction_session_timeout = absl::Milliseconds(200);
  constexpr int kSessions = 20;
  auto table = Open();
  std::vector<RowChange> changes;
  for (int i = 0; i < kSessions; ++i) changes.push_back(Insert(Concat("s", i), std::string(1 << 16, 'x')));
  Write(*table, changes);
  for (RowChange& change : changes) change.kind = Kind::kAll;  // a statement each: there is a between
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      absl::StatusOr<std::unique_ptr<PostgresTable>> sleeper = PostgresTable::Open(options_);
      for (;;) {
        for (RowChange& change : changes) change.expected = LoadOne(**sleeper, change.id).version;
        (void)(*sleeper)->Write(changes);
      }
    }
    absl::SleepFor(absl::Milliseconds(100 + 7 * round));
    kill(child, SIGSTOP);
    const absl::Time stopped = absl::Now();
    for (int i = 0; i < kSessions; ++i) {
      const RowVersion version = LoadOne(*table, Concat("s", i)).version;
      (void)Write(*table, {State(Concat("s", i), version, "awake")});
    }
    EXPECT_LT(absl::Now() - stopped, absl::Seconds(2)) << "round " << round;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace normd
