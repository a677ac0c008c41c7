#include "client/normctl/session_message.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/json_message.h"
#include "client/normctl/method_notes.h"

namespace normd::client {
namespace {

using google::protobuf::util::TimeUtil;

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string WordsText(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return ShortestText(value.get<double>());
  if (!value.is_array()) return value.dump();
  return absl::StrJoin(value, ",",
                       [](std::string* out, const nlohmann::json& item) { absl::StrAppend(out, item.dump()); });
}

// The attributes of the spec, those of the running statistics as "running.momentum". Attributes that the session's
// creator did not give are marked.
void AddSpec(v1::NormSpec spec, Lines& lines) {
  const std::vector<std::string> defaulted = FillDefaults(spec);
  const auto add = [&](const std::string& name, const nlohmann::json& value) {
    if (value.is_array() && value.empty()) return;
    const bool is_default = std::find(defaulted.begin(), defaulted.end(), name) != defaulted.end();
    lines.emplace_back(name, absl::StrCat(WordsText(value), is_default ? " (default)" : ""));
  };
  const nlohmann::json method = MessageJson(spec)[MethodOf(spec)];
  for (const auto& [name, value] : method.items()) {
    if (!value.is_object()) {
      add(name, value);
      continue;
    }
    for (const auto& [inner, of_inner] : value.items()) add(absl::StrCat(name, ".", inner), of_inner);
  }
}

void AddTensor(absl::string_view name, bool has, const v1::Tensor& proto, Lines& lines) {
  const absl::StatusOr<Tensor> parsed = Tensor::FromProto(proto);
  if (!has || !parsed.ok()) return;
  lines.emplace_back(name, absl::StrCat(DTypeName(parsed->dtype), " ", ShapeText(parsed->shape), "  ",
                                        ValuesText(parsed->ToDoubles(), 8)));
}

// Every field that is set, one "name value" line each; tensors show their first values.
std::string SessionText(const v1::Session& session) {
  Lines lines = {{"name", session.name()},
                 {"method", MethodOf(session.spec())},
                 {"version", absl::StrCat(session.version())},
                 {"uid", session.uid()},
                 {"frozen", session.frozen() ? "true" : ""}};
  AddSpec(session.spec(), lines);
  if (session.num_channels() > 0) lines.emplace_back("num_channels", absl::StrCat(session.num_channels()));
  if (session.default_dtype() != v1::DTYPE_UNSPECIFIED) {
    lines.emplace_back("default_dtype", DTypeName(session.default_dtype()));
  }
  lines.emplace_back("labels", LabelsText(session));
  lines.emplace_back("create_time", TimeUtil::ToString(session.create_time()));
  lines.emplace_back("update_time", TimeUtil::ToString(session.update_time()));
  if (session.has_expire_time()) lines.emplace_back("expire_time", TimeUtil::ToString(session.expire_time()));
  lines.emplace_back("numerics", session.numerics());
  lines.emplace_back("durability", EnumText(*v1::Durability_descriptor(), session.durability()));
  const v1::RunningState& state = session.state();
  if (session.has_state()) lines.emplace_back("state.num_batches", absl::StrCat(state.num_batches()));
  AddTensor("state.mean", state.has_mean(), state.mean(), lines);
  AddTensor("state.var", state.has_var(), state.var(), lines);
  AddTensor("state.phi", state.has_phi(), state.phi(), lines);
  AddTensor("weight", session.parameters().has_weight(), session.parameters().weight(), lines);
  AddTensor("bias", session.parameters().has_bias(), session.parameters().bias(), lines);
  std::string out;
  for (const auto& [name, value] : lines) {
    if (!value.empty()) absl::StrAppendFormat(&out, "%-26s %s\n", name, value);
  }
  return out;
}

}  // namespace

std::string SessionName(absl::string_view id) { return absl::StrCat("sessions/", absl::StripPrefix(id, "sessions/")); }

absl::Status ShowSession(const absl::StatusOr<v1::Session>& session, const ParsedArgs& args, const Terminal& terminal) {
  if (!session.ok()) return session.status();
  terminal.out << (args.Has("json") ? JsonText(SessionJson(*session)) : SessionText(*session));
  return absl::OkStatus();
}

nlohmann::json SessionJson(v1::Session session) {
  const std::vector<std::string> defaulted = FillDefaults(*session.mutable_spec());
  nlohmann::json out = MessageJson(session);
  out["defaulted"] = defaulted;
  return out;
}

std::string LabelsText(const v1::Session& session) {
  return absl::StrJoin(session.labels(), " ", absl::PairFormatter("="));
}

std::string StateText(const v1::StateResult& state) {
  return absl::StrFormat("version %d, %d batches, %s%s", state.version(), state.num_batches(),
                         EnumText(*v1::Reason_descriptor(), state.reason()), state.replayed() ? ", replayed" : "");
}

nlohmann::json StateJson(const v1::StateResult& state) {
  return {{"version", state.version()},
          {"epoch", state.epoch()},
          {"applied", state.applied()},
          {"reason", EnumText(*v1::Reason_descriptor(), state.reason())},
          {"replayed", state.replayed()},
          {"num_batches", state.num_batches()},
          {"durability", EnumText(*v1::Durability_descriptor(), state.durability())},
          {"output_available", state.output_available()}};
}

void SetDuration(absl::Duration from, google::protobuf::Duration* to) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // the range of google.protobuf.Duration
  if (from > absl::Seconds(kMaxSeconds)) from = absl::Seconds(kMaxSeconds);
  const int64_t seconds = absl::ToInt64Seconds(from);
  to->set_seconds(seconds);
  to->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(from - absl::Seconds(seconds))));
}

absl::Status AddLabels(const ParsedArgs& args, v1::Session& session) {
  for (const std::string& label : args.GetAll("label")) {
    const std::vector<std::string> parts = absl::StrSplit(label, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty()) return BadValueError("label", label, "KEY=VALUE");
    (*session.mutable_labels())[parts[0]] = parts[1];
  }
  return absl::OkStatus();
}

absl::Status AddTtl(const ParsedArgs& args, v1::Session& session) {
  const absl::StatusOr<std::optional<absl::Duration>> ttl = args.Duration("ttl");
  if (ttl.ok() && ttl->has_value()) SetDuration(**ttl, session.mutable_ttl());
  return ttl.status();
}

absl::Status AddParameters(const ParsedArgs& args, v1::Session& session) {
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  const absl::StatusOr<CsvOptions> csv = CsvFlags(args);
  if (!csv.ok()) return csv.status();
  for (absl::string_view flag : {"weight", "bias"}) {
    if (!args.Has(flag)) continue;
    absl::StatusOr<Tensor> tensor = LoadParameter(*args.Get(flag), *dtype, *csv);
    if (!tensor.ok()) return tensor.status();
    v1::Parameters& parameters = *session.mutable_parameters();
    *(flag == "weight" ? parameters.mutable_weight() : parameters.mutable_bias()) = (*std::move(tensor)).ToProto();
  }
  return absl::OkStatus();
}

std::vector<FlagSpec> StepFlags() {
  return {{"step-client", '\0', "ID", "with --step-sequence: names a training step, so that it is applied once"},
          {"step-sequence", '\0', "N", "rises for each client"}};
}

absl::StatusOr<std::optional<uint64_t>> CountFlag(const ParsedArgs& args, absl::string_view flag) {
  const absl::StatusOr<std::optional<int64_t>> value = args.Int(flag);
  if (!value.ok()) return value.status();
  if (!value->has_value()) return std::optional<uint64_t>();
  if (**value < 0) return BadValueError(flag, absl::StrCat(**value), "at least 0");
  return std::optional<uint64_t>(static_cast<uint64_t>(**value));
}

}  // namespace normd::client
