#include "server/session/record/state_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "google/protobuf/timestamp.pb.h"
#include "normd/store/v1/record.pb.h"
#include "proto/wire/writer.h"

namespace normd {

namespace {

using Record = store::v1::SessionRecord;
using Client = store::v1::ClientRecord;
using Outcome = store::v1::Outcome;

static_assert(std::endian::native == std::endian::little, "doubles are copied as they are");

// Enough for the numbers of a state or of one outcome: a tag and 10 bytes each at most.
constexpr size_t kNumbersBytes = 128;

// The fields of one outcome. On the stack, because a step serialises K outcomes: appending to a string byte by byte
// took a tenth of the writer's time.
class OutcomeBytes {
 public:
  explicit OutcomeBytes(const StepOutcome& outcome) {
    Varint(Outcome::kSequenceFieldNumber, outcome.sequence);
    if (outcome.moments_hash != 0) {
      Tag(Outcome::kMomentsHashFieldNumber, wire::WireType::kFixed64);
      std::memcpy(end_, &outcome.moments_hash, sizeof(outcome.moments_hash));
      end_ += sizeof(outcome.moments_hash);
    }
    Varint(Outcome::kVersionFieldNumber, outcome.version);
    Varint(Outcome::kAppliedFieldNumber, outcome.applied ? 1 : 0);
    Varint(Outcome::kReasonFieldNumber, static_cast<uint64_t>(outcome.reason));
    Varint(Outcome::kNumBatchesFieldNumber, outcome.num_batches);
  }
  std::string_view view() const { return {bytes_.data(), static_cast<size_t>(end_ - bytes_.data())}; }

 private:
  void Tag(uint32_t field, wire::WireType type) { Put(wire::TagOf(field, type)); }
  void Varint(uint32_t field, uint64_t value) {
    if (value == 0) return;
    Tag(field, wire::WireType::kVarint);
    Put(value);
  }
  void Put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *end_++ = static_cast<char>(value | 0x80);
    *end_++ = static_cast<char>(value);
  }

  std::array<char, kNumbersBytes> bytes_;
  char* end_ = bytes_.data();
};

// Writes the fields of a message. As in proto3, 0 is not written.
class FieldWriter {
 public:
  explicit FieldWriter(std::string* bytes) : bytes_(*bytes) {}

  void Varint(uint32_t field, uint64_t value) {
    if (value != 0) wire::AppendVarintField(field, value, bytes_);
  }
  void Fixed64(uint32_t field, uint64_t value) {
    if (value != 0) wire::AppendFixed64Field(field, value, bytes_);
  }
  void Fixed32(uint32_t field, uint32_t value) {
    if (value != 0) wire::AppendFixed32Field(field, value, bytes_);
  }
  void Doubles(uint32_t field, const std::vector<double>& values) {
    if (!values.empty()) Bytes(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  // Also for messages; written even if empty.
  void Bytes(uint32_t field, std::string_view value) { wire::AppendDelimitedField(field, value, bytes_); }

 private:
  std::string& bytes_;
};

std::string TimeBytes(absl::Time time) {
  using google::protobuf::Timestamp;
  const int64_t seconds = absl::ToUnixSeconds(time);
  std::string bytes;
  FieldWriter writer(&bytes);
  writer.Varint(Timestamp::kSecondsFieldNumber, static_cast<uint64_t>(seconds));
  writer.Varint(Timestamp::kNanosFieldNumber,
                static_cast<uint64_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return bytes;
}

}  // namespace

bool IsStored(const std::vector<double>& low) {
  return std::any_of(low.begin(), low.end(), [](double value) { return value != 0; });
}

void WriteStateSummary(const Session& session, std::string* bytes) {
  FieldWriter writer(bytes);
  writer.Varint(Record::kVersionFieldNumber, session.version);
  writer.Varint(Record::kNumBatchesFieldNumber, session.state.num_batches);
  writer.Bytes(Record::kUpdateTimeFieldNumber, TimeBytes(session.update_time));
}

void WriteStateBody(const StoredSession& stored, std::string* bytes) {
  const RunningState& state = stored.published->state;
  const StepLog& steps = stored.steps;
  const size_t values = static_cast<size_t>(ValuesOf(state) + LowValuesOf(state)) + stored.phi_before.phi.size();
  bytes->reserve(bytes->size() + values * sizeof(double) + kNumbersBytes);
  FieldWriter writer(bytes);
  writer.Doubles(Record::kMeanFieldNumber, state.mean);
  if (state.count.empty()) writer.Doubles(Record::kVarFieldNumber, state.var);  // else it follows from count and m2
  writer.Doubles(Record::kPhiFieldNumber, state.phi);
  writer.Doubles(Record::kPhiBeforeFieldNumber, stored.phi_before.phi);
  writer.Doubles(Record::kCountFieldNumber, state.count);
  writer.Doubles(Record::kM2FieldNumber, state.m2);
  writer.Doubles(Record::kMinFieldNumber, state.min);
  writer.Doubles(Record::kMaxFieldNumber, state.max);
  if (IsStored(state.count_low)) writer.Doubles(Record::kCountLowFieldNumber, state.count_low);
  if (IsStored(state.mean_low)) writer.Doubles(Record::kMeanLowFieldNumber, state.mean_low);
  if (IsStored(state.m2_low)) writer.Doubles(Record::kM2LowFieldNumber, state.m2_low);
  writer.Varint(Record::kFloorSequenceFieldNumber, steps.floor());
  if (steps.in_rows()) {
    writer.Varint(Record::kClientRowsFieldNumber, steps.clients().size() + steps.retired().size());
    writer.Fixed32(Record::kClientRowsSumFieldNumber, steps.rows_digest());
    return;
  }
  std::string client;
  for (const auto& [id, client_steps] : steps.clients()) {
    client.clear();
    WriteClient(id, client_steps, &client);
    writer.Bytes(Record::kClientsFieldNumber, client);
  }
}

void WriteClient(const std::string& id, const ClientSteps& steps, std::string* bytes) {
  FieldWriter writer(bytes);
  if (!id.empty()) writer.Bytes(Client::kClientIdFieldNumber, id);
  writer.Varint(Client::kLastSequenceFieldNumber, steps.last_sequence);
  for (const StepOutcome& outcome : steps.outcomes) {
    writer.Bytes(Client::kOutcomesFieldNumber, OutcomeBytes(outcome).view());
  }
}

void WriteRetired(const RetiredClient& retired, std::string* bytes) {
  FieldWriter writer(bytes);
  writer.Varint(Client::kLastSequenceFieldNumber, retired.last_sequence);
  writer.Fixed64(Client::kClientHashFieldNumber, retired.hash);
  writer.Varint(Client::kRetiredAtFieldNumber, retired.retired_at);
}

}  // namespace normd
