#include "server/session/record.h"

#include <bit>
#include <functional>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/errors.h"
#include "normd/store/v1/record.pb.h"
#include "proto/wire/crc32c.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using Record = store::v1::SessionRecord;

StoredSession Sample(const NormSpec& spec) {
  Session session = session_test::NewSession("sample", spec, 2);
  session.epoch = "0123456789abcdef0123456789abcdef";
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

const NormSpec kBatch = session_test::BatchNormSpec({.momentum = 0.3});
const NormSpec kPower = session_test::PowerNormSpec(1);
const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(RecordTest, EverySessionComesBackAsItWas) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    const StoredSession stored = Sample(spec);
    const std::string bytes = SerializeRecord(stored);
    const absl::StatusOr<StoredSession> again = ParseRecord(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    const Session& a = *stored.published;
    const Session& b = *again->published;
    EXPECT_EQ(b.id, a.id);
    EXPECT_EQ(b.epoch, a.epoch);
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
    EXPECT_EQ(again->steps.clients.at("client").outcomes.size(), 3);
    EXPECT_EQ(SerializeRecord(*again), bytes) << "equal sessions give equal bytes";
  }
}

TEST(RecordTest, OddBitsSurvive) {
  StoredSession stored = Sample(session_test::BatchNormSpec({.momentum = {}, .accept_non_finite = true}));
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
      EXPECT_EQ(ParseHalves(head, damaged(state, i)).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
    }
    for (size_t i = 0; i < head.size(); ++i) {
      EXPECT_EQ(ParseHalves(damaged(head, i), state).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
    }
  }
}

TEST(RecordTest, TheHalvesAreTheRecord) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    const StoredSession stored = Sample(spec);
    const absl::StatusOr<StoredSession> whole = ParseHalves(SerializeHead(*stored.published), SerializeState(stored));
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(SerializeRecord(*whole), SerializeRecord(stored));
    EXPECT_FALSE(ParseHalves(SerializeHead(*stored.published), "").ok());
    EXPECT_FALSE(ParseHalves("", SerializeState(stored)).ok());
  }
}

// States are written by hand, for speed: the same bytes as protobuf's.
TEST(RecordTest, AStateIsWhatProtobufWouldWrite) {
  for (const NormSpec& spec : {kBatch, kPower}) {
    for (const bool empty : {false, true}) {
      StoredSession stored = Sample(spec);
      if (empty) stored = {.published = stored.published, .steps = {}, .phi_before = {}};
      std::string state;
      SerializeState(stored, &state);
      Record record;
      ASSERT_TRUE(record.ParseFromString(state));
      EXPECT_EQ(record.version(), 3u);
      EXPECT_EQ(record.clients_size(), empty ? 0 : 1);
      EXPECT_EQ(Sealed(record), state);
    }
  }
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
  const absl::Status status = ParseChanged(kBatch, [](Record& r) { r.set_schema(2); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
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

TEST(RecordTest, StepIdsMustBeAsAServerWritesThem) {
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

}  // namespace
}  // namespace normd
