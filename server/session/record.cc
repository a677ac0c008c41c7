#include "server/session/record.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/errors.h"
#include "normd/store/v1/record.pb.h"
#include "proto/wire/crc32c.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"
#include "server/session/running_state.h"
#include "server/session/session_checks.h"
#include "server/session/spec_messages.h"
#include "server/session/state_writer.h"

namespace normd {

namespace {

using Record = store::v1::SessionRecord;

// The checksum's field comes last, whatever its number: tag of field 20 as fixed32, then the CRC of all before it.
constexpr std::string_view kChecksumTag = "\xa5\x01";
constexpr size_t kChecksumBytes = kChecksumTag.size() + sizeof(uint32_t);

void AppendSeal(std::string* bytes) {
  const uint32_t crc = wire::Crc32c(*bytes);
  *bytes += kChecksumTag;
  for (int shift = 0; shift < 32; shift += 8) *bytes += static_cast<char>((crc >> shift) & 0xff);
}

// Maps in the order of their keys, then the checksum. REQUIRES: crc32c is not set.
std::string Seal(const Record& record) {
  std::string bytes;
  bytes.reserve(record.ByteSizeLong() + kChecksumBytes);
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    record.SerializeToCodedStream(&coded);
  }
  return SealRecord(std::move(bytes));
}

// What is sealed, or DATA_LOSS.
absl::StatusOr<std::string_view> Unseal(std::string_view bytes) {
  if (bytes.size() < kChecksumBytes || bytes.size() > INT32_MAX) return DataLossError("not a session record");
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  const std::string_view seal = bytes.substr(body.size());
  if (!seal.starts_with(kChecksumTag)) return DataLossError("not a session record");
  uint32_t stored = 0;
  for (int i = 3; i >= 0; --i) stored = (stored << 8) | static_cast<uint8_t>(seal[kChecksumTag.size() + i]);
  if (wire::Crc32c(body) != stored) return DataLossError("wrong checksum");
  return body;
}

// ---- to messages

void TensorToMessage(const OwnedTensor& tensor, v1::Tensor* message) {
  message->set_dtype(static_cast<v1::DType>(tensor.dtype));
  message->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  message->set_data(tensor.bytes);
}

void ParametersToMessage(const OwnedParameters& parameters, v1::Parameters* message) {
  if (parameters.weight.has_value()) TensorToMessage(*parameters.weight, message->mutable_weight());
  if (parameters.bias.has_value()) TensorToMessage(*parameters.bias, message->mutable_bias());
}

void StepsToMessage(const StepLog& steps, Record* record) {
  for (const auto& [client_id, client] : steps.clients) {
    store::v1::ClientRecord* message = record->add_clients();
    message->set_client_id(client_id);
    message->set_last_sequence(client.last_sequence);
    for (const StepOutcome& outcome : client.outcomes) {
      store::v1::Outcome* added = message->add_outcomes();
      added->set_sequence(outcome.sequence);
      added->set_moments_hash(outcome.moments_hash);
      added->set_version(outcome.version);
      added->set_applied(outcome.applied);
      added->set_reason(static_cast<v1::Reason>(outcome.reason));
      added->set_num_batches(outcome.num_batches);
    }
  }
}

// Nanoseconds are as fine as the message goes.
void TimeToMessage(absl::Time time, google::protobuf::Timestamp* message) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  message->set_seconds(seconds);
  message->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

void HeadToMessage(const Session& session, Record* record) {
  record->set_schema(kRecordSchema);
  record->set_id(session.id);
  record->set_epoch(session.epoch);
  SpecToMessage(session.spec, record->mutable_spec());
  record->set_num_channels(session.num_channels);
  if (session.default_dtype.has_value()) record->set_default_dtype(static_cast<v1::DType>(*session.default_dtype));
  record->mutable_labels()->insert(session.labels.begin(), session.labels.end());
  ParametersToMessage(*session.parameters, record->mutable_parameters());
  record->set_parameters_version(session.parameters_version);
  TimeToMessage(session.create_time, record->mutable_create_time());
  if (session.ttl.has_value()) {
    const int64_t seconds = absl::ToInt64Seconds(*session.ttl);
    record->mutable_ttl()->set_seconds(seconds);
    record->mutable_ttl()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(*session.ttl - absl::Seconds(seconds))));
  }
  record->set_numerics(session.numerics);
}

void StateToMessage(const StoredSession& stored, Record* record) {
  const Session& session = *stored.published;
  const RunningState& state = session.state;
  record->set_version(session.version);
  record->mutable_mean()->Add(state.mean.begin(), state.mean.end());
  record->mutable_var()->Add(state.var.begin(), state.var.end());
  record->mutable_phi()->Add(state.phi.begin(), state.phi.end());
  record->mutable_phi_before()->Add(stored.phi_before.phi.begin(), stored.phi_before.phi.end());
  record->set_num_batches(state.num_batches);
  StepsToMessage(stored.steps, record);
  TimeToMessage(session.update_time, record->mutable_update_time());
}

// ---- from messages

std::vector<double> ToVector(const google::protobuf::RepeatedField<double>& values) {
  return {values.begin(), values.end()};
}

absl::StatusOr<OwnedTensor> TensorFromMessage(v1::Tensor* message, std::string_view field) {
  if (message->dtype() == v1::DTYPE_UNSPECIFIED || !v1::DType_IsValid(message->dtype())) {
    return DTypeError(std::string(field) + ".dtype", absl::StrCat(static_cast<int>(message->dtype())));
  }
  OwnedTensor tensor = {.dtype = static_cast<DType>(message->dtype()), .shape = {}, .bytes = {}};
  NORMD_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(message->shape(), field));
  tensor.shape.assign(message->shape().begin(), message->shape().end());
  const auto bytes = static_cast<int64_t>(message->data().size());
  if (bytes != elements * SizeOf(tensor.dtype)) return ByteCountError(field, bytes, elements * SizeOf(tensor.dtype));
  tensor.bytes = std::move(*message->mutable_data());
  return tensor;
}

absl::StatusOr<OwnedParameters> ParametersFromMessage(v1::Parameters* message) {
  OwnedParameters parameters;
  if (message->has_weight()) {
    NORMD_ASSIGN_OR_RETURN(parameters.weight, TensorFromMessage(message->mutable_weight(), "parameters.weight"));
  }
  if (message->has_bias()) {
    NORMD_ASSIGN_OR_RETURN(parameters.bias, TensorFromMessage(message->mutable_bias(), "parameters.bias"));
  }
  return parameters;
}

absl::Status BadSteps(std::string_view what) {
  return OutOfRangeError("clients", what, "step ids as a server writes them", "RECORD_STEPS");
}

absl::StatusOr<ClientSteps> ClientFromMessage(const store::v1::ClientRecord& message) {
  NORMD_RETURN_IF_ERROR(ValidateStepId({message.client_id(), message.last_sequence()}));
  ClientSteps client = {.last_sequence = message.last_sequence(), .outcomes = {}};
  uint64_t last = 0;
  for (const store::v1::Outcome& outcome : message.outcomes()) {
    if (outcome.sequence() <= last) return BadSteps("sequences that do not rise");
    if (outcome.reason() != v1::REASON_APPLIED && outcome.reason() != v1::REASON_NON_FINITE) {
      return BadSteps("an outcome with another reason than APPLIED and NON_FINITE");
    }
    if (outcome.applied() != (outcome.reason() == v1::REASON_APPLIED)) return BadSteps("applied against its reason");
    last = outcome.sequence();
    client.outcomes.push_back({.sequence = last,
                               .moments_hash = outcome.moments_hash(),
                               .version = outcome.version(),
                               .applied = outcome.applied(),
                               .reason = static_cast<Reason>(outcome.reason()),
                               .num_batches = outcome.num_batches()});
  }
  if (last != client.last_sequence) return BadSteps("last_sequence without its outcome");
  return client;
}

absl::StatusOr<StepLog> StepsFromMessage(const Record& record) {
  StepLog steps;
  for (const store::v1::ClientRecord& message : record.clients()) {
    NORMD_ASSIGN_OR_RETURN(ClientSteps client, ClientFromMessage(message));
    if (!steps.clients.emplace(message.client_id(), std::move(client)).second) return BadSteps("a client listed twice");
  }
  for (const auto& [client_id, client] : steps.clients) {
    for (const StepOutcome& outcome : client.outcomes) {
      if (outcome.version > record.version()) return BadSteps("an outcome newer than the session");
    }
  }
  return steps;
}

// phi_before belongs to the newest outcome: a server writes it only where the last step has one.
absl::StatusOr<PhiBefore> PhiBeforeFromMessage(const Record& record, const NormSpec& spec, const StepLog& steps) {
  PhiBefore before = {.phi = ToVector(record.phi_before()), .version = 0, .applied = false};
  if (before.phi.empty()) return before;
  const bool is_power_norm = spec.method == Method::kPowerNorm;
  NORMD_RETURN_IF_ERROR(CheckRunningValues(before.phi, is_power_norm ? record.num_channels() : 0,
                                           {.negative = false, .nan = spec.running.accept_non_finite}, "phi_before"));
  bool found = false;
  for (const auto& [client_id, client] : steps.clients) {
    for (const StepOutcome& outcome : client.outcomes) {
      // Of one version, steps that were not applied came after the one that was.
      const bool newer = !found || outcome.version > before.version ||
                         (outcome.version == before.version && before.applied && !outcome.applied);
      if (!newer) continue;
      found = true;
      before.version = outcome.version;
      before.applied = outcome.applied;
    }
  }
  if (!found) return BadSteps("phi_before without a step");
  return before;
}

// Ok for a time that absl::Time and the message both can hold: years 1 to 9999.
absl::StatusOr<absl::Time> TimeFromMessage(const google::protobuf::Timestamp& message, std::string_view field) {
  constexpr int64_t kFirst = -62135596800;
  constexpr int64_t kLast = 253402300799;
  if (message.seconds() < kFirst || message.seconds() > kLast || message.nanos() < 0 || message.nanos() > 999999999) {
    return OutOfRangeError(field, absl::StrCat(message.seconds(), " s, ", message.nanos(), " ns"), "years 1 to 9999",
                           "TIME_OUT_OF_RANGE");
  }
  return absl::FromUnixSeconds(message.seconds()) + absl::Nanoseconds(message.nanos());
}

absl::StatusOr<std::optional<absl::Duration>> TtlFromMessage(const Record& record) {
  if (!record.has_ttl()) return std::optional<absl::Duration>();
  const google::protobuf::Duration& ttl = record.ttl();
  constexpr int64_t kMaxSeconds = 315576000000;  // as google.protobuf.Duration says: 10,000 years
  const bool positive = ttl.seconds() >= 0 && ttl.nanos() >= 0 && (ttl.seconds() > 0 || ttl.nanos() > 0);
  if (!positive || ttl.seconds() > kMaxSeconds || ttl.nanos() > 999999999) {
    return OutOfRangeError("ttl", absl::StrCat(ttl.seconds(), " s, ", ttl.nanos(), " ns"),
                           "above 0, at most 10000 years", "TTL_OUT_OF_RANGE");
  }
  return std::optional<absl::Duration>(absl::Seconds(ttl.seconds()) + absl::Nanoseconds(ttl.nanos()));
}

// The checksum first: of a damaged record nothing else can be said. Halves add up to one message.
absl::Status MergeSealed(std::string_view bytes, Record* record) {
  NORMD_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes));
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(body.data()),
                                               static_cast<int>(body.size()));
  const bool parsed = record->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
  return parsed ? absl::OkStatus() : DataLossError("not a session record");
}

absl::Status CheckSchema(const Record& record) {
  if (record.schema() == kRecordSchema) return absl::OkStatus();
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = "schema",
                    .value = absl::StrCat(record.schema()),
                    .limit = absl::StrCat(kRecordSchema),
                    .reason = "RECORD_SCHEMA"},
                   "a record of another version");
}

// Counters that a server could have reached by counting.
absl::Status CheckCounter(uint64_t value, std::string_view field) {
  if (value <= INT64_MAX) return absl::OkStatus();
  return OutOfRangeError(field, absl::StrCat(value), absl::StrCat("at most ", INT64_MAX), "COUNTER_OUT_OF_RANGE");
}

absl::Status CheckCounters(const Record& record) {
  NORMD_RETURN_IF_ERROR(CheckCounter(record.version(), "version"));
  NORMD_RETURN_IF_ERROR(CheckCounter(record.parameters_version(), "parameters_version"));
  NORMD_RETURN_IF_ERROR(CheckCounter(record.num_batches(), "num_batches"));
  return absl::OkStatus();
}

NormSpec RuleFor(const NormSpec& spec, bool ours) {
  NormSpec rule = spec;
  rule.running.accept_non_finite = rule.running.accept_non_finite || ours;
  return rule;
}

absl::Status CheckHead(const Record& record, const NormSpec& spec) {
  NORMD_RETURN_IF_ERROR(ValidateSessionId(record.id()));
  NORMD_RETURN_IF_ERROR(PrefixField(ValidateSpec(spec), "spec"));
  if (record.num_channels() < (spec.HasState() ? 1 : 0)) {
    return OutOfRangeError("num_channels", absl::StrCat(record.num_channels()), "at least 1", "CHANNELS_OUT_OF_RANGE");
  }
  if (!v1::DType_IsValid(record.default_dtype())) {
    return DTypeError("default_dtype", absl::StrCat(static_cast<int>(record.default_dtype())));
  }
  return absl::OkStatus();
}

// `ours`: this store has written it. Then the checksum vouches for what it holds, and nothing that a server has
// accepted and acknowledged is refused afterwards: no counter is too high and no state too odd.
absl::StatusOr<Session> SessionFromMessage(Record* record, bool ours) {
  Session session;
  NORMD_ASSIGN_OR_RETURN(session.spec, SpecFromMessage(record->spec(), "spec"));
  if (!ours) NORMD_RETURN_IF_ERROR(CheckCounters(*record));
  NORMD_RETURN_IF_ERROR(CheckHead(*record, session.spec));
  session.id = record->id();
  session.epoch = record->epoch();
  session.version = record->version();
  session.parameters_version = record->parameters_version();
  session.num_channels = record->num_channels();
  if (record->default_dtype() != v1::DTYPE_UNSPECIFIED)
    session.default_dtype = static_cast<DType>(record->default_dtype());
  session.labels = {record->labels().begin(), record->labels().end()};
  NORMD_ASSIGN_OR_RETURN(OwnedParameters parameters, ParametersFromMessage(record->mutable_parameters()));
  session.parameters = std::make_shared<const OwnedParameters>(std::move(parameters));
  session.state = {.mean = ToVector(record->mean()),
                   .var = ToVector(record->var()),
                   .phi = ToVector(record->phi()),
                   .num_batches = record->num_batches()};
  NORMD_RETURN_IF_ERROR(ValidateState(RuleFor(session.spec, ours), session.num_channels, session.state));
  NORMD_ASSIGN_OR_RETURN(session.create_time, TimeFromMessage(record->create_time(), "create_time"));
  NORMD_ASSIGN_OR_RETURN(session.update_time, TimeFromMessage(record->update_time(), "update_time"));
  NORMD_ASSIGN_OR_RETURN(session.ttl, TtlFromMessage(*record));
  session.numerics = record->numerics();
  return session;
}

absl::StatusOr<StoredSession> StoredFromMessage(Record* record, bool ours) {
  NORMD_RETURN_IF_ERROR(CheckSchema(*record));
  StoredSession stored;
  NORMD_ASSIGN_OR_RETURN(Session session, SessionFromMessage(record, ours));
  NORMD_ASSIGN_OR_RETURN(stored.steps, StepsFromMessage(*record));
  NORMD_ASSIGN_OR_RETURN(stored.phi_before, PhiBeforeFromMessage(*record, RuleFor(session.spec, ours), stored.steps));
  stored.published = std::make_shared<const Session>(std::move(session));
  return stored;
}

}  // namespace

std::string SealRecord(std::string bytes) {
  AppendSeal(&bytes);
  return bytes;
}

std::string SerializeRecord(const StoredSession& stored) {
  Record record;
  HeadToMessage(*stored.published, &record);
  StateToMessage(stored, &record);
  return Seal(record);
}

std::string SerializeHead(const Session& session) {
  Record record;
  HeadToMessage(session, &record);
  return Seal(record);
}

void SerializeState(const StoredSession& stored, std::string* bytes) {
  WriteState(stored, kChecksumBytes, bytes);
  AppendSeal(bytes);
}

std::string SerializeState(const StoredSession& stored) {
  std::string bytes;
  SerializeState(stored, &bytes);
  return bytes;
}

absl::StatusOr<StoredSession> ParseRecord(std::string_view bytes) {
  Record record;
  NORMD_RETURN_IF_ERROR(MergeSealed(bytes, &record));
  return StoredFromMessage(&record, /*ours=*/false);
}

absl::StatusOr<StoredSession> ParseHalves(std::string_view head, std::string_view state) {
  Record record;
  NORMD_RETURN_IF_ERROR(MergeSealed(head, &record));
  NORMD_RETURN_IF_ERROR(MergeSealed(state, &record));
  return StoredFromMessage(&record, /*ours=*/true);
}

}  // namespace normd
