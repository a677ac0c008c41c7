#include "server/session/record/record.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "normd/store/v1/record.pb.h"
#include "proto/wire/crc32c.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/constants.h"

namespace normd {
namespace {

using Record = store::v1::SessionRecord;

StoredSession Sample(const NormSpec& spec) {
  Session session = session_test::NewSession("sample", spec, 2);
  session.uid = "0123456789abcdef0123456789abcdef";
  session.default_dtype = DType::kBF16;
  session.labels = {{"team", "x"}, {"model", "y"}, {"a", "b"}};
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF16, .shape = {2}, .bytes = "abcd"};
  session.parameters = std::make_shared<const OwnedParameters>(parameters);
  session.state = InitialState(spec, 2);
  session.create_time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  session.update_time = absl::FromUnixNanos(-5);
  session.ttl = absl::Nanoseconds(1'500'000'001);
  session.numerics = "exact-1";
  StoredSession stored;
  stored.published = std::make_shared<const Session>(std::move(session));
  for (uint64_t i = 1; i <= 3; ++i) {
    const StateUpdate update = session_test::Step(
        "sample", session_test::MomentsOf({0.1, 0.7 * static_cast<double>(i)}, 2), StepId{"client", i});
    EXPECT_TRUE(CommitStep(update, SessionLimits(), absl::FromUnixNanos(-5), &stored).ok());
  }
  return stored;
}

std::string Sealed(Record record) {
  record.set_crc32c(0);
  return SealRecord(record.SerializeAsString());
}

// The two pieces of a half as stores keep it.
std::vector<std::string_view> Pieces(std::string_view half) {
  uint32_t first = 0;
  for (size_t i = 4; i >= 1; --i) first = first << 8 | static_cast<uint8_t>(half[i]);
  return {half.substr(5, first), half.substr(5 + first)};
}

// The sample with one thing changed, and a checksum that fits.
absl::Status ParseChanged(const NormSpec& spec, const std::function<void(Record&)>& change) {
  Record record;
  EXPECT_TRUE(record.ParseFromString(SerializeRecord(Sample(spec))));
  change(record);
  return ParseRecord(Sealed(record)).status();
}

// "" unless INVALID_ARGUMENT.
std::string Field(const NormSpec& spec, const std::function<void(Record&)>& change) {
  const absl::Status status = ParseChanged(spec, change);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail.has_value() ? detail->field : "";
}

const NormSpec kBatch = session_test::BatchSpec({.momentum = 0.3});
const NormSpec kPower = session_test::PowerSpec(1);
TEST(RecordTest, EverySessionComesBackAsItWas) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    const StoredSession stored = Sample(spec);
    const std::string bytes = SerializeRecord(stored);
    const absl::StatusOr<StoredSession> again = ParseRecord(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    const Session& a = *stored.published;
    const Session& b = *again->published;
    EXPECT_EQ(b.id, a.id);
    EXPECT_EQ(b.uid, a.uid);
    EXPECT_EQ(b.version, 3);
    EXPECT_EQ(b.default_dtype, DType::kBF16);
    EXPECT_EQ(b.labels, a.labels);
    EXPECT_EQ(b.parameters->weight->bytes, "abcd");
    EXPECT_FALSE(b.parameters->bias.has_value());
    EXPECT_EQ(b.create_time, a.create_time);
    EXPECT_EQ(b.update_time, a.update_time);
    EXPECT_EQ(b.ttl, a.ttl);
    EXPECT_EQ(b.state.mean, a.state.mean);
    EXPECT_EQ(b.state.var, a.state.var);
    EXPECT_EQ(b.state.phi, a.state.phi);
    EXPECT_EQ(again->phi_before.phi, stored.phi_before.phi);
    EXPECT_EQ(again->phi_before.version, stored.phi_before.version);
    EXPECT_EQ(again->steps.clients().at("client").outcomes.size(), 3);
    EXPECT_EQ(SerializeRecord(*again), bytes) << "equal sessions give equal bytes";
  }
}

TEST(RecordTest, SessionsThatCountSamplesComeBackAsTheyWere) {
  StoredSession stored = Sample(session_test::CountingSpec({.prior_count = 1e-4}));
  Session session = *stored.published;
  session.frozen = true;
  session.channel_names = std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"speed", "\u03c9"});
  session.state.min = {-std::numeric_limits<double>::infinity(), 1};
  stored.published = std::make_shared<const Session>(session);
  const absl::StatusOr<StoredSession> exported = ParseRecord(SerializeRecord(stored));
  const absl::StatusOr<StoredSession> kept = ParseParts(SerializeHead(session), SerializeState(stored));
  for (const absl::StatusOr<StoredSession>* again : {&exported, &kept}) {
    ASSERT_TRUE(again->ok()) << again->status();
    const Session& b = *(*again)->published;
    EXPECT_TRUE(b.frozen);
    EXPECT_EQ(*b.channel_names, *session.channel_names);
    EXPECT_EQ(b.state.mean, session.state.mean);
    EXPECT_EQ(b.state.count, session.state.count);
    EXPECT_EQ(b.state.m2, session.state.m2);
    EXPECT_EQ(b.state.count_low, session.state.count_low);
    EXPECT_EQ(b.state.mean_low, session.state.mean_low);
    EXPECT_EQ(b.state.m2_low, session.state.m2_low);
    EXPECT_NE(b.state.mean_low, std::vector<double>(2)) << "there is something to keep";
    EXPECT_EQ(b.state.var, session.state.var) << "derived, bit for bit";
    EXPECT_EQ(b.state.min, session.state.min);
    EXPECT_TRUE(std::isnan(b.state.max[0])) << "the steps gave no extremes";
    EXPECT_EQ(b.spec.running().samples.prior_count, 1e-4);
  }
}

// As a server wrote it that did not know the low parts, or read it: such a server shows the same numbers.
TEST(RecordTest, ARecordWithoutLowPartsShowsTheSameStatistics) {
  const StoredSession stored = Sample(session_test::CountingSpec({.prior_count = 1e-4}));
  Record record;
  ASSERT_TRUE(record.ParseFromString(SerializeRecord(stored)));
  EXPECT_EQ(record.schema(), 3) << "older servers read it";
  EXPECT_EQ(record.count_low_size(), 2);
  record.clear_count_low();
  record.clear_mean_low();
  record.clear_m2_low();
  const absl::StatusOr<StoredSession> again = ParseRecord(Sealed(record));
  ASSERT_TRUE(again.ok()) << again.status();
  const RunningState& state = again->published->state;
  EXPECT_EQ(state.count, stored.published->state.count);
  EXPECT_EQ(state.mean, stored.published->state.mean);
  EXPECT_EQ(state.m2, stored.published->state.m2);
  EXPECT_TRUE(state.count_low.empty() && state.mean_low.empty() && state.m2_low.empty());
}

TEST(RecordTest, LowPartsThatAreAllZeroAreNotWritten) {
  Record record;
  ASSERT_TRUE(record.ParseFromString(SerializeRecord(Sample(session_test::CountingSpec()))));
  EXPECT_EQ(record.count_low_size(), 0) << "whole numbers";
  EXPECT_EQ(record.mean_low_size(), 2);
}

// The version of the numerics is what it was when the session was made; each of them goes on.
TEST(RecordTest, SessionsOfEveryNumericsGoOn) {
  const std::string_view versions[] = {"exact-1", "exact-2", "exact-3", "exact-3.1", kNumerics};
  for (const std::string_view numerics : versions) {
    StoredSession stored = Sample(session_test::BatchSpec());
    Session older = *stored.published;
    older.numerics = std::string(numerics);
    stored.published = std::make_shared<const Session>(std::move(older));
    absl::StatusOr<StoredSession> read = ParseRecord(SerializeRecord(stored));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->published->numerics, numerics);
    const StateUpdate step = session_test::Step("sample", session_test::MomentsOf({0.1, 0.7}, 2), StepId{"client", 4});
    ASSERT_TRUE(CommitStep(step, SessionLimits(), absl::FromUnixNanos(7), &*read).ok());
    EXPECT_EQ(read->published->numerics, numerics);
    EXPECT_EQ(read->published->state.num_batches, 4);
  }
}

TEST(RecordTest, OnlyWhatOlderServersDoNotKnowHasSchema3) {
  const auto schema = [](const StoredSession& stored) {
    Record record;
    EXPECT_TRUE(record.ParseFromString(SerializeRecord(stored)));
    return record.schema();
  };
  StoredSession stored = Sample(kBatch);
  EXPECT_EQ(schema(stored), 1);
  EXPECT_EQ(schema(Sample(session_test::CountingSpec())), 3);
  EXPECT_EQ(schema(Sample(session_test::BatchSpec({.clip = 5}))), 3);
  Session frozen = *stored.published;
  frozen.frozen = true;
  stored.published = std::make_shared<const Session>(frozen);
  EXPECT_EQ(schema(stored), 3);
}

TEST(RecordTest, AClipAndAPolicyOfNanSurvive) {
  RunningSpec running = session_test::CountingSpec().running();
  running.normalize_with = NormalizeWith::kRunning;
  running.nan_policy = NanPolicy::kSkip;
  running.clip = 2.5;
  const absl::StatusOr<StoredSession> again = ParseRecord(SerializeRecord(Sample(session_test::BatchSpec(running))));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->published->spec.running().nan_policy, NanPolicy::kSkip);
  EXPECT_EQ(again->published->spec.running().clip, 2.5);
}

TEST(RecordTest, OddBitsSurvive) {
  StoredSession stored = Sample(session_test::BatchSpec({.momentum = {}, .accept_non_finite = true}));
  Session session = *stored.published;
  session.state.mean = {-0.0, std::bit_cast<double>(uint64_t{0x7ff8000000001234})};
  session.state.var = {std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::infinity()};
  stored.published = std::make_shared<const Session>(session);
  const absl::StatusOr<StoredSession> again = ParseRecord(SerializeRecord(stored));
  ASSERT_TRUE(again.ok()) << again.status();
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(std::bit_cast<uint64_t>(again->published->state.mean[c]), std::bit_cast<uint64_t>(session.state.mean[c]));
    EXPECT_EQ(std::bit_cast<uint64_t>(again->published->state.var[c]), std::bit_cast<uint64_t>(session.state.var[c]));
  }
}

TEST(RecordTest, EveryDamagedByteIsFound) {
  const StoredSession stored = Sample(kBatch);
  const std::string bytes = SerializeRecord(stored);
  const std::string head = SerializeHead(*stored.published);
  const std::string state = SerializeState(stored);
  for (const int flip : {0x01, 0x10, 0x80}) {
    const auto damaged = [flip](std::string text, size_t i) {
      text[i] = static_cast<char>(text[i] ^ flip);
      return text;
    };
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_EQ(ParseRecord(damaged(bytes, i)).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
    }
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(ParseParts(head, damaged(state, i)).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
    }
    for (size_t i = 0; i < head.size(); ++i) {
      EXPECT_EQ(ParseParts(damaged(head, i), state).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
    }
  }
}

TEST(RecordTest, TheHalvesAreTheRecord) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    const StoredSession stored = Sample(spec);
    const absl::StatusOr<StoredSession> whole = ParseParts(SerializeHead(*stored.published), SerializeState(stored));
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(SerializeRecord(*whole), SerializeRecord(stored));
    EXPECT_FALSE(ParseParts(SerializeHead(*stored.published), "").ok());
    EXPECT_FALSE(ParseParts("", SerializeState(stored)).ok());
  }
}

// States are written by hand, for speed: what protobuf reads of them is what it writes of the whole.
TEST(RecordTest, AStateHasTheBytesThatProtobufWrites) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    StoredSession stored = Sample(spec);
    Record whole;
    ASSERT_TRUE(whole.ParseFromString(SerializeRecord(stored)));
    Record state;
    const std::string half = SerializeState(stored);
    for (const std::string_view piece : Pieces(half)) {
      Record part;
      ASSERT_TRUE(part.ParseFromArray(piece.data(), static_cast<int>(piece.size())));
      state.MergeFrom(part);
    }
    Record expected;
    expected.set_version(whole.version());
    *expected.mutable_mean() = whole.mean();
    *expected.mutable_var() = whole.var();
    *expected.mutable_phi() = whole.phi();
    *expected.mutable_phi_before() = whole.phi_before();
    expected.set_num_batches(whole.num_batches());
    *expected.mutable_clients() = whole.clients();
    *expected.mutable_update_time() = whole.update_time();
    state.clear_crc32c_with_epoch();
    EXPECT_EQ(state.SerializeAsString(), expected.SerializeAsString());
  }
}

TEST(RecordTest, TheFirstBytesOfBothPartsSufficeForAList) {
  StoredSession stored = Sample(kBatch);
  Session large = *stored.published;
  OwnedParameters parameters;
  parameters.weight = OwnedTensor{.dtype = DType::kF32, .shape = {100'000}, .bytes = std::string(400'000, 'w')};
  large.parameters = std::make_shared<const OwnedParameters>(parameters);
  stored.published = std::make_shared<const Session>(large);
  const std::string head = SerializeHead(large).substr(0, kHeadSummaryBytes);
  const std::string state = SerializeState(stored).substr(0, kStateSummaryBytes);
  const absl::StatusOr<SessionPtr> summary = ParseSummary(head, state);
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_NE(*summary, nullptr);
  EXPECT_EQ((*summary)->id, large.id);
  EXPECT_EQ((*summary)->version, 3);
  EXPECT_EQ((*summary)->labels, large.labels);
  EXPECT_EQ((*summary)->update_time, large.update_time);
  EXPECT_EQ((*summary)->ttl, large.ttl);
  EXPECT_FALSE((*summary)->parameters->weight.has_value());
  EXPECT_THAT((*summary)->state.mean, ::testing::IsEmpty());
  for (size_t i = 5; i < 60; ++i) {
    std::string damaged = state;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    const absl::StatusOr<SessionPtr> read = ParseSummary(head, damaged);
    if (!read.ok()) continue;
    EXPECT_EQ((*read)->version, 3) << "byte " << i << " is not of the summary";
  }
}

// Labels as many and as long as they may be.
TEST(RecordTest, TheLargestSummaryIsWithinTheFirstBytes) {
  StoredSession stored = Sample(kBatch);
  Session session = *stored.published;
  session.id = std::string(63, 'x');
  session.version = session.state.num_batches = UINT64_MAX;
  session.labels.clear();
  for (int i = 0; i < 64; ++i) session.labels[std::to_string(100 + i) + std::string(60, 'k')] = std::string(63, 'v');
  session.update_time = absl::FromUnixNanos(-1);
  stored.published = std::make_shared<const Session>(session);
  const std::string head = SerializeHead(session).substr(0, kHeadSummaryBytes);
  const std::string state = SerializeState(stored).substr(0, kStateSummaryBytes);
  EXPECT_NE(*ParseSummary(head, state), nullptr);
}

TEST(RecordTest, APieceOfAnotherSessionIsDamage) {
  const StoredSession stored = Sample(kBatch);
  Session other = *stored.published;
  other.uid = "ffffffffffffffffffffffffffffffff";
  const absl::Status status = ParseParts(SerializeHead(other), SerializeState(stored)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

TEST(RecordTest, HalvesOfOlderServersAreRead) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    const StoredSession stored = Sample(spec);
    Record head;
    ASSERT_TRUE(head.ParseFromString(SerializeRecord(stored)));
    Record state;
    state.set_version(head.version());
    state.mutable_mean()->Swap(head.mutable_mean());
    state.mutable_var()->Swap(head.mutable_var());
    state.mutable_phi()->Swap(head.mutable_phi());
    state.mutable_phi_before()->Swap(head.mutable_phi_before());
    state.set_num_batches(head.num_batches());
    state.mutable_clients()->Swap(head.mutable_clients());
    state.mutable_update_time()->Swap(head.mutable_update_time());
    for (Record* half : {&head, &state}) half->clear_crc32c();
    head.clear_version();
    head.clear_num_batches();
    head.clear_update_time();
    const absl::StatusOr<StoredSession> read = ParseParts(Sealed(head), Sealed(state));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(SerializeRecord(*read), SerializeRecord(stored));
    EXPECT_EQ(*ParseSummary(Sealed(head), Sealed(state)), nullptr) << "the store reads them as a whole";
  }
}

// Sessions with many clients have a row for each.
class ClientRowsTest : public ::testing::Test {
 protected:
  ClientRowsTest() {
    for (int i = 0; i < 20; ++i) TakeStep(i, 1);
    Write();
  }
  void TakeStep(int client, uint64_t sequence) {
    const StateUpdate update = session_test::Step("sample", session_test::MomentsOf({1, 2}, 2),
                                                  StepId{"client" + std::to_string(client), sequence});
    ASSERT_TRUE(CommitStep(update, limits_, absl::UnixEpoch(), &stored_).ok());
  }
  // As a table has it afterwards.
  size_t Write() {
    const std::vector<ClientRow> changes = TakeClientRows(&stored_);
    for (const ClientRow& row : changes) {
      rows_.erase(row.slot);
      if (!row.record.empty()) rows_[row.slot] = row.record;
    }
    SerializeState(stored_, &state_);
    return changes.size();
  }
  absl::StatusOr<StoredSession> Read() const {
    std::vector<ClientRow> rows;
    for (const auto& [slot, record] : rows_) rows.push_back({slot, record});
    return ParseParts(SerializeHead(*stored_.published), state_, rows);
  }

  SessionLimits limits_ = {.max_clients = 12, .max_retired_clients = 10};
  StoredSession stored_ = Sample(kBatch);
  std::string state_;
  std::map<int64_t, std::string> rows_;
};

TEST_F(ClientRowsTest, ComeBackAsTheyWere) {
  for (int round = 0; round < 40; ++round) {
    TakeStep(round, 10 + static_cast<uint64_t>(round));
    Write();
    const absl::StatusOr<StoredSession> read = Read();
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(SerializeRecord(*read), SerializeRecord(stored_)) << "round " << round;
    if (round % 3 == 0) stored_ = *read;
  }
  EXPECT_EQ(rows_.size(), 22u);
}

TEST_F(ClientRowsTest, AStepWritesItsOwnClientsRowAlone) {
  limits_.max_clients = 1000;
  for (int i = 0; i < 1000; ++i) TakeStep(i, 5);
  Write();
  const size_t state_bytes = state_.size();
  for (uint64_t sequence = 6; sequence < 60; ++sequence) {
    TakeStep(17, sequence);
    EXPECT_EQ(Write(), 1u);
    EXPECT_LT(state_.size(), state_bytes + 8);
  }
  EXPECT_LT(state_bytes, 200u);
}

TEST_F(ClientRowsTest, AMissingOldForeignOrDamagedRowIsDamage) {
  const auto good = rows_;
  rows_.erase(rows_.begin());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << "missing";
  rows_ = good;
  TakeStep(19, 2);
  Write();
  const auto newer = rows_;
  rows_ = good;
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << "as they were before the last step";
  rows_ = newer;
  ASSERT_TRUE(Read().ok());
  rows_.begin()->second[1] ^= 1;
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss);
  rows_ = newer;
  rows_[1000] = rows_.begin()->second;
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << "one too many";
}

TEST(RecordTest, AStepLeavesTheHeadAlone) {
  StoredSession stored = Sample(kBatch);
  const std::string head = SerializeHead(*stored.published);
  const std::string state = SerializeState(stored);
  const StateUpdate update = session_test::Step("sample", session_test::MomentsOf({1, 2}, 2), StepId{"client", 9});
  ASSERT_TRUE(CommitStep(update, SessionLimits(), absl::FromUnixNanos(7), &stored).ok());
  EXPECT_EQ(SerializeHead(*stored.published), head);
  EXPECT_NE(SerializeState(stored), state);
}

TEST(RecordTest, ACutRecordIsDamage) {
  const std::string bytes = SerializeRecord(Sample(kBatch));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseRecord(bytes.substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size << " bytes";
  }
}

TEST(RecordTest, RandomBytesAreDamage) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(ParseRecord(bytes).ok());
  }
}

TEST(RecordTest, AnotherSchemaIsRefused) {
  for (const uint32_t schema : {0u, kRecordSchema + 1}) {
    const absl::Status status = ParseChanged(kBatch, [=](Record& r) { r.set_schema(schema); });
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << schema;
  }
}

TEST(RecordTest, ASpecThatOlderServersDoNotKnowHasASchemaThatTheyRefuse) {
  const auto schema_of = [](const LpNormSpec& method) {
    Session session = session_test::NewSession("lp", {.attributes = method}, 0);
    session.parameters = std::make_shared<const OwnedParameters>();
    StoredSession stored;
    stored.published = std::make_shared<const Session>(std::move(session));
    Record record;
    EXPECT_TRUE(record.ParseFromString(SerializeRecord(stored)));
    return record.schema();
  };
  EXPECT_EQ(schema_of({.order = 2, .axis = 0}), 1u);
  EXPECT_EQ(schema_of({.p = 3.0}), 2u);
  EXPECT_EQ(schema_of({.axes = {0, 1}}), 2u);
}

TEST(RecordTest, ValuesThatCannotBeAreRefusedByName) {
  EXPECT_TRUE(ParseChanged(kBatch, [](Record&) {}).ok());
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_id("../etc"); }), "session_id");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.clear_spec(); }), "spec");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.mutable_spec()->mutable_batch_norm()->set_eps(-1); }),
            "spec.batch_norm.eps");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_num_channels(0); }), "num_channels");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_num_channels(int64_t{1} << 60); }), "state.mean");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.add_mean(0); }), "state.mean");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.clear_var(); }), "state.var");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_var(1, -1e-300); }), "state.var[1]");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_var(0, kNan); }), "state.var[0]");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_mean(0, kNan); }), "state.mean[0]");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.add_phi(1); }), "state.phi");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_version(UINT64_MAX); }), "version");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_num_batches(UINT64_MAX); }), "num_batches");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.set_default_dtype(static_cast<v1::DType>(9)); }), "default_dtype");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.mutable_create_time()->set_seconds(INT64_MAX); }), "create_time");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.mutable_ttl()->set_seconds(-1); }), "ttl");
  EXPECT_EQ(Field(session_test::CountingSpec(), [](Record& r) { r.set_m2_low(1, 1); }), "state.m2_low[1]");
  EXPECT_EQ(Field(session_test::CountingSpec(), [](Record& r) { r.add_m2_low(0); }), "state.m2_low");
  EXPECT_EQ(Field(kBatch, [](Record& r) { r.mutable_mean_low()->Resize(r.mean_size(), 0); }), "state.mean_low");
  EXPECT_EQ(Field(kPower, [](Record& r) { r.set_phi(1, -1); }), "state.phi[1]");
  EXPECT_EQ(Field(kPower, [](Record& r) { r.set_phi_before(1, kNan); }), "phi_before[1]");
  EXPECT_EQ(Field(kPower, [](Record& r) { r.add_phi_before(1); }), "phi_before");
  EXPECT_EQ(Field(kPower, [](Record& r) { r.clear_clients(); }), "clients");
}

TEST(RecordTest, ParametersAreCheckedAgainstTheirBytes) {
  const auto weight = [](Record& r) { return r.mutable_parameters()->mutable_weight(); };
  EXPECT_EQ(Field(kBatch, [&](Record& r) { weight(r)->set_data("abc"); }), "parameters.weight");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { weight(r)->set_shape(0, int64_t{1} << 62); }), "parameters.weight.shape");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { weight(r)->set_shape(0, -1); }), "parameters.weight.shape[0]");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { weight(r)->clear_dtype(); }), "parameters.weight.dtype");
}

TEST(RecordTest, RefusesStepIdsThatNoServerWrites) {
  const auto client = [](Record& r) { return r.mutable_clients(0); };
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->set_client_id(""); }), "step.client_id");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->set_last_sequence(2); }), "clients");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->mutable_outcomes(1)->set_sequence(1); }), "clients");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->mutable_outcomes(1)->set_version(4); }), "clients");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->mutable_outcomes(1)->set_applied(false); }), "clients");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { client(r)->mutable_outcomes(1)->set_reason(v1::REASON_INFERENCE); }),
            "clients");
  EXPECT_EQ(Field(kBatch, [&](Record& r) { *r.add_clients() = r.clients(0); }), "clients");
}

TEST(Crc32cTest, TheCheckValueIsTheStandardOne) {
  EXPECT_EQ(wire::Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(wire::ExtendCrc32c(wire::Crc32c("12345"), "6789"), wire::Crc32c("123456789"));
  EXPECT_EQ(wire::Crc32c(""), 0u);
  EXPECT_EQ(wire::Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
}

TEST(Crc32cTest, TheInstructionAndTheTableAgree) {
  std::mt19937_64 random(11);
  std::string bytes;
  for (int size = 0; size < 300; ++size) {
    EXPECT_EQ(wire::Crc32c(bytes), wire::Crc32cByTable(bytes)) << size << " bytes";
    bytes += static_cast<char>(random());
  }
}

// Pieces are sealed with the epoch, so halves without one could be read, and not be written again.
TEST(RecordTest, HalvesWithoutAnEpochAreDamage) {
  store::v1::SessionRecord record;
  record.set_schema(1);
  record.set_id("l");
  record.set_version(1);
  record.mutable_spec()->mutable_rms_norm();
  EXPECT_EQ(ParseParts(SealRecord(record.SerializeAsString()), SealRecord("")).status().code(),
            absl::StatusCode::kDataLoss);
  record.set_epoch("e");
  EXPECT_TRUE(ParseParts(SealRecord(record.SerializeAsString()), SealRecord("")).ok());
}

}  // namespace
}  // namespace normd
