#include "server/session/record/record.h"

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "normd/store/v1/record.pb.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/session/record/record_pieces.h"
#include "server/session/record/spec_messages.h"
#include "server/session/record/state_writer.h"
#include "server/session/record/step_messages.h"
#include "server/session/running_state.h"
#include "server/session/sample_statistics.h"
#include "server/session/session_changes.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

using Record = store::v1::SessionRecord;

// Up to this many clients stay in the state part: a row of its own per client costs a step more.
constexpr size_t kMaxClientsInState = 4;

// Serialises with maps in the order of their keys, and appends the checksum. REQUIRES: crc32c is not set.
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

// The message holds nanoseconds; finer parts of `time` are dropped.
void TimeToMessage(absl::Time time, google::protobuf::Timestamp* message) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  message->set_seconds(seconds);
  message->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

uint32_t SchemaOf(const Session& session) {
  const RunningSpec& running = session.spec.running();
  if (running.CountsSamples() || running.clip.has_value() || session.channel_names != nullptr || session.frozen) {
    return 3;
  }
  const auto* lp = std::get_if<LpNormSpec>(&session.spec.attributes);
  return lp != nullptr && (lp->p.has_value() || !lp->axes.empty()) ? 2 : 1;
}

void HeadToMessage(const Session& session, Record* record) {
  record->set_schema(SchemaOf(session));
  record->set_id(session.id);
  record->set_epoch(session.uid);
  SpecToMessage(session.spec, record->mutable_spec());
  record->set_num_channels(session.num_channels);
  if (session.default_dtype.has_value()) record->set_default_dtype(static_cast<v1::DType>(*session.default_dtype));
  record->mutable_labels()->insert(session.labels.begin(), session.labels.end());
  record->set_parameters_version(session.parameters_version);
  TimeToMessage(session.create_time, record->mutable_create_time());
  if (session.ttl.has_value()) {
    const int64_t seconds = absl::ToInt64Seconds(*session.ttl);
    record->mutable_ttl()->set_seconds(seconds);
    record->mutable_ttl()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(*session.ttl - absl::Seconds(seconds))));
  }
  record->set_numerics(session.numerics);
  record->set_frozen(session.frozen);
}

// What a list of sessions does not show.
void BodyToMessage(const Session& session, Record* record) {
  ParametersToMessage(*session.parameters, record->mutable_parameters());
  if (session.channel_names == nullptr) return;
  record->mutable_channel_names()->Add(session.channel_names->begin(), session.channel_names->end());
}

void AddLow(const std::vector<double>& values, google::protobuf::RepeatedField<double>* field) {
  if (IsStored(values)) field->Add(values.begin(), values.end());
}

void StateToMessage(const StoredSession& stored, Record* record) {
  const Session& session = *stored.published;
  const RunningState& state = session.state;
  record->set_version(session.version);
  record->mutable_mean()->Add(state.mean.begin(), state.mean.end());
  if (!session.spec.running().CountsSamples()) record->mutable_var()->Add(state.var.begin(), state.var.end());
  record->mutable_phi()->Add(state.phi.begin(), state.phi.end());
  record->mutable_count()->Add(state.count.begin(), state.count.end());
  record->mutable_m2()->Add(state.m2.begin(), state.m2.end());
  record->mutable_min()->Add(state.min.begin(), state.min.end());
  record->mutable_max()->Add(state.max.begin(), state.max.end());
  AddLow(state.count_low, record->mutable_count_low());
  AddLow(state.mean_low, record->mutable_mean_low());
  AddLow(state.m2_low, record->mutable_m2_low());
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
  if (bytes != elements * SizeOf(tensor.dtype)) {
    return ByteCountError(field, bytes, elements * SizeOf(tensor.dtype), Name(tensor.dtype), ShapeText(tensor.shape));
  }
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

// phi_before belongs to the newest outcome, because a server writes it only if the last step has an outcome.
absl::StatusOr<PhiBefore> PhiBeforeFromMessage(const Record& record, const NormSpec& spec, const StepLog& steps) {
  PhiBefore before = {.phi = ToVector(record.phi_before()), .version = 0, .applied = false};
  if (before.phi.empty()) return before;
  const bool has_phi = TraitsOf(spec.method()).state == StateKind::kQuadraticMean;
  NORMD_RETURN_IF_ERROR(CheckRunningValues(before.phi, has_phi ? record.num_channels() : 0,
                                           {.negative = false, .nan = spec.accepts_non_finite()}, "phi_before"));
  bool found = false;
  for (const auto& [client_id, client] : steps.clients()) {
    for (const StepOutcome& outcome : client.outcomes) {
      // Of the outcomes of one version, those that were not applied came after the one that was.
      const bool newer = !found || outcome.version > before.version ||
                         (outcome.version == before.version && before.applied && !outcome.applied);
      if (!newer) continue;
      found = true;
      before.version = outcome.version;
      before.applied = outcome.applied;
    }
  }
  if (!found) return BadStepsError("phi_before without a step");
  return before;
}

// An error for a time that absl::Time and the message cannot both hold: they share the years 1 to 9999.
absl::StatusOr<absl::Time> TimeFromMessage(const google::protobuf::Timestamp& message, std::string_view field) {
  constexpr int64_t kFirst = -62135596800;
  constexpr int64_t kLast = 253402300799;
  if (message.seconds() < kFirst || message.seconds() > kLast || message.nanos() < 0 || message.nanos() > 999999999) {
    return OutOfRangeError(field, absl::StrCat(message.seconds(), " s, ", message.nanos(), " ns"), "years 1 to 9999",
                           ServerReason("TIME_OUT_OF_RANGE"));
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
                           "above 0, at most 10000 years", ServerReason("TTL_OUT_OF_RANGE"));
  }
  return std::optional<absl::Duration>(absl::Seconds(ttl.seconds()) + absl::Nanoseconds(ttl.nanos()));
}

// Checks the checksum first, because nothing else can be said of a damaged record. The parts of a record add up to one
// message.
absl::Status MergeSealed(std::string_view bytes, std::string_view uid, google::protobuf::Message* message) {
  NORMD_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes, uid));
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(body.data()),
                                               static_cast<int>(body.size()));
  const bool parsed = message->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
  return parsed ? absl::OkStatus() : DataLossError("not a session record");
}

absl::Status MergePart(std::string_view part, Record* record) {
  const auto pieces = SplitPieces(part);
  if (!pieces.has_value()) return MergeSealed(part, /*uid=*/{}, record);
  // The first piece of a head part has the uid itself.
  const std::string before = record->epoch();
  NORMD_RETURN_IF_ERROR(MergeSealed(pieces->first, before, record));
  const std::string uid = record->epoch();
  return uid.empty() ? DataLossError("a record without a uid") : MergeSealed(pieces->second, uid, record);
}

// Adds the clients that are in rows. Every row that the state refers to must be there, as it was when the state was
// written.
absl::StatusOr<std::vector<RowPlace>> MergeClients(absl::Span<const ClientRow> rows, Record* record) {
  uint32_t sum = 0;
  std::vector<RowPlace> places;
  if (!rows.empty() && record->clients_size() > 0) return DataLossError("step ids both in the state and in rows");
  for (const ClientRow& row : rows) {
    NORMD_RETURN_IF_ERROR(MergeSealed(row.record, record->epoch(), record->add_clients()));
    places.push_back({row.slot, ChecksumOf(row.record)});
    sum += places.back().checksum;
  }
  if (rows.size() != record->client_rows() || sum != record->client_rows_sum()) {
    return DataLossError("the rows of step ids do not fit the state");
  }
  return places;
}

absl::Status CheckSchema(const Record& record) {
  if (record.schema() >= 1 && record.schema() <= kRecordSchema) return absl::OkStatus();
  return MakeError(
      ServerReason("RECORD_SCHEMA"),
      {.field = "schema", .value = absl::StrCat(record.schema()), .limit = absl::StrCat("1 to ", kRecordSchema)},
      absl::StrCat("is ", record.schema(), "; this server reads 1 to ", kRecordSchema));
}

absl::Status CheckCounters(const Record& record) {
  NORMD_RETURN_IF_ERROR(CheckCounter(record.version(), "version"));
  NORMD_RETURN_IF_ERROR(CheckCounter(record.parameters_version(), "parameters_version"));
  NORMD_RETURN_IF_ERROR(CheckCounter(record.num_batches(), "num_batches"));
  return absl::OkStatus();
}

// `spec`, made to accept non-finite values if this store has written the record (`ours`).
NormSpec RuleFor(const NormSpec& spec, bool ours) {
  NormSpec rule = spec;
  std::visit(
      [ours](auto& method) {
        if constexpr (requires { method.accept_non_finite; }) {
          method.accept_non_finite |= ours;
        } else if constexpr (requires { method.running; }) {
          method.running.accept_non_finite |= ours;
        }
      },
      rule.attributes);
  return rule;
}

// A record that this store has written (`ours`) has the session's key; an export has the id alone, so that a record
// neither says whose the session was nor puts one among those of another tenant.
absl::Status CheckHead(const Record& record, const NormSpec& spec, bool ours) {
  NORMD_RETURN_IF_ERROR(ours ? ValidateSessionKey(record.id()) : ValidateSessionId(record.id()));
  NORMD_RETURN_IF_ERROR(PrefixField(ValidateSpec(spec), "spec"));
  if (record.num_channels() < (spec.HasState() ? 1 : 0)) {
    return OutOfRangeError("num_channels", absl::StrCat(record.num_channels()), "at least 1",
                           ServerReason("CHANNELS_OUT_OF_RANGE"));
  }
  if (!v1::DType_IsValid(record.default_dtype())) {
    return DTypeError("default_dtype", absl::StrCat(static_cast<int>(record.default_dtype())));
  }
  return absl::OkStatus();
}

// The session as a list shows it: without parameters and statistics. `ours`: this store has written the record. Then
// the checksum vouches for its content, and nothing that a server has accepted and acknowledged is refused afterwards:
// no counter is too high and no state too odd.
absl::StatusOr<Session> SummaryFromMessage(const Record* record, bool ours) {
  Session session;
  NORMD_ASSIGN_OR_RETURN(session.spec, SpecFromMessage(record->spec(), "spec"));
  if (!ours) NORMD_RETURN_IF_ERROR(CheckCounters(*record));
  NORMD_RETURN_IF_ERROR(CheckHead(*record, session.spec, ours));
  session.id = record->id();
  session.uid = record->epoch();
  session.version = record->version();
  session.parameters_version = record->parameters_version();
  session.num_channels = record->num_channels();
  if (record->default_dtype() != v1::DTYPE_UNSPECIFIED)
    session.default_dtype = static_cast<DType>(record->default_dtype());
  session.labels = {record->labels().begin(), record->labels().end()};
  session.parameters = std::make_shared<const OwnedParameters>();
  session.state.num_batches = record->num_batches();
  NORMD_ASSIGN_OR_RETURN(session.create_time, TimeFromMessage(record->create_time(), "create_time"));
  NORMD_ASSIGN_OR_RETURN(session.update_time, TimeFromMessage(record->update_time(), "update_time"));
  NORMD_ASSIGN_OR_RETURN(session.ttl, TtlFromMessage(*record));
  session.numerics = record->numerics();
  session.frozen = record->frozen();
  return session;
}

absl::StatusOr<std::shared_ptr<const std::vector<std::string>>> NamesFromMessage(Record* record) {
  std::vector<std::string> names(std::make_move_iterator(record->mutable_channel_names()->begin()),
                                 std::make_move_iterator(record->mutable_channel_names()->end()));
  NORMD_RETURN_IF_ERROR(ValidateChannelNames(names, record->num_channels()));
  if (names.empty()) return nullptr;
  return std::make_shared<const std::vector<std::string>>(std::move(names));
}

absl::StatusOr<Session> SessionFromMessage(Record* record, bool ours) {
  NORMD_ASSIGN_OR_RETURN(Session session, SummaryFromMessage(record, ours));
  NORMD_ASSIGN_OR_RETURN(OwnedParameters parameters, ParametersFromMessage(record->mutable_parameters()));
  session.parameters = std::make_shared<const OwnedParameters>(std::move(parameters));
  session.state = {.mean = ToVector(record->mean()),
                   .var = ToVector(record->var()),
                   .phi = ToVector(record->phi()),
                   .count = ToVector(record->count()),
                   .m2 = ToVector(record->m2()),
                   .count_low = ToVector(record->count_low()),
                   .mean_low = ToVector(record->mean_low()),
                   .m2_low = ToVector(record->m2_low()),
                   .min = ToVector(record->min()),
                   .max = ToVector(record->max()),
                   .num_batches = record->num_batches()};
  if (session.spec.running().CountsSamples()) DeriveVariance(session.spec.running(), &session.state);
  NORMD_ASSIGN_OR_RETURN(session.channel_names, NamesFromMessage(record));
  NORMD_RETURN_IF_ERROR(ValidateState(RuleFor(session.spec, ours), session.num_channels, session.state));
  return session;
}

absl::StatusOr<StoredSession> StoredFromMessage(Record* record, absl::Span<const RowPlace> places, bool ours) {
  NORMD_RETURN_IF_ERROR(CheckSchema(*record));
  StoredSession stored;
  NORMD_ASSIGN_OR_RETURN(Session session, SessionFromMessage(record, ours));
  NORMD_ASSIGN_OR_RETURN(stored.steps, StepsFromMessage(*record, places));
  NORMD_ASSIGN_OR_RETURN(stored.phi_before, PhiBeforeFromMessage(*record, RuleFor(session.spec, ours), stored.steps));
  stored.published = std::make_shared<const Session>(std::move(session));
  return stored;
}

}  // namespace

std::string SealRecord(std::string bytes) {
  AppendSeal(&bytes);
  return bytes;
}

int64_t ExportBytes(const StoredSession& stored) {
  const auto phi_before = static_cast<int64_t>(stored.phi_before.phi.size() * sizeof(double));
  const int64_t low = LowValuesOf(stored.published->state) * SizeOf(DType::kF64);
  return 2 * (QuotaBytes(*stored.published) + low + phi_before + stored.steps.bytes());
}

std::string SerializeRecord(const StoredSession& stored) {
  Record record;
  HeadToMessage(*stored.published, &record);
  record.set_id(std::string(IdOf(stored.published->id)));
  BodyToMessage(*stored.published, &record);
  StateToMessage(stored, &record);
  return Seal(record);
}

std::string SerializeHead(const Session& session) {
  Record summary;
  HeadToMessage(session, &summary);
  std::string bytes;
  BeginPieces(&bytes);
  bytes += Seal(summary);
  EndFirstPiece(&bytes);
  Record rest;
  BodyToMessage(session, &rest);
  const size_t begin = bytes.size();
  rest.AppendToString(&bytes);
  SealPiece(begin, session.uid, &bytes);
  return bytes;
}

void SerializeState(const StoredSession& stored, std::string* bytes) {
  const Session& session = *stored.published;
  BeginPieces(bytes);
  WriteStateSummary(session, bytes);
  SealPiece(kFirstPiece, session.uid, bytes);
  EndFirstPiece(bytes);
  const size_t begin = bytes->size();
  WriteStateBody(stored, bytes);
  SealPiece(begin, session.uid, bytes);
}

std::string SerializeState(const StoredSession& stored) {
  std::string bytes;
  SerializeState(stored, &bytes);
  return bytes;
}

std::vector<ClientRow> TakeClientRows(StoredSession* stored) {
  StepLog& steps = stored->steps;
  std::vector<ClientRow> rows;
  if (!steps.in_rows()) {
    const bool few = steps.clients().size() <= kMaxClientsInState && steps.retired().empty();
    if (few) {
      steps.ForgetChanges();
      return rows;
    }
    steps.MoveToRows();
  }
  for (const auto& [slot, change] : steps.changes()) {
    if (change.kind == SlotChange::Kind::kForgotten) rows.push_back({slot, {}});
  }
  const auto add = [&](int64_t slot, std::string record) {
    const uint32_t checksum = SealPiece(0, stored->published->uid, &record);
    rows.push_back({slot, std::move(record)});
    return checksum;
  };
  steps.StoreChanges(
      [&](const std::string& id, const ClientSteps& client) {
        std::string record;
        WriteClient(id, client, &record);
        return add(client.slot, std::move(record));
      },
      [&](const RetiredClient& client) {
        std::string record;
        WriteRetired(client, &record);
        return add(client.slot, std::move(record));
      });
  return rows;
}

absl::StatusOr<StoredSession> ParseRecord(std::string_view bytes) {
  Record record;
  NORMD_RETURN_IF_ERROR(MergeSealed(bytes, /*uid=*/{}, &record));
  return StoredFromMessage(&record, /*places=*/{}, /*ours=*/false);
}

absl::StatusOr<StoredSession> ParseParts(std::string_view head, std::string_view state,
                                         absl::Span<const ClientRow> clients) {
  Record record;
  NORMD_RETURN_IF_ERROR(MergePart(head, &record));
  NORMD_RETURN_IF_ERROR(MergePart(state, &record));
  // Needed even by parts in one piece, which are sealed without it, because they will be written anew in two pieces.
  if (record.epoch().empty()) return DataLossError("a record without a uid");
  NORMD_ASSIGN_OR_RETURN(const std::vector<RowPlace> places, MergeClients(clients, &record));
  NORMD_ASSIGN_OR_RETURN(StoredSession stored, StoredFromMessage(&record, places, /*ours=*/true));
  if (!places.empty()) stored.steps.RestoreInRows();
  return stored;
}

absl::StatusOr<SessionPtr> ParseSummary(std::string_view head, std::string_view state) {
  const auto head_pieces = SplitPieces(head);
  const auto state_pieces = SplitPieces(state);
  if (!head_pieces.has_value() || !state_pieces.has_value()) return SessionPtr();
  Record record;
  NORMD_RETURN_IF_ERROR(MergeSealed(head_pieces->first, /*uid=*/{}, &record));
  NORMD_RETURN_IF_ERROR(MergeSealed(state_pieces->first, record.epoch(), &record));
  NORMD_RETURN_IF_ERROR(CheckSchema(record));
  NORMD_ASSIGN_OR_RETURN(Session session, SummaryFromMessage(&record, /*ours=*/true));
  return std::make_shared<const Session>(std::move(session));
}

}  // namespace normd
