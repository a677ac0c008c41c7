#include "client/normctl/session_message.h"

#include <google/protobuf/util/time_util.h>

#include <limits>
#include <nlohmann/json.hpp>
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

namespace normd::client {
namespace {

using google::protobuf::util::TimeUtil;

// Every field that is set, one a line; tensors show their first values.
std::string SessionText(const v1::Session& session) {
  std::string out = absl::StrFormat("%s  %s  version %d  uid %s\n", session.name(), MethodOf(session.spec()),
                                    session.version(), session.uid());
  const auto line = [&](absl::string_view name, const std::string& value) {
    if (!value.empty()) absl::StrAppendFormat(&out, "  %-12s %s\n", name, value);
  };
  const auto tensor = [&](absl::string_view name, const v1::Tensor& proto) {
    const absl::StatusOr<Tensor> parsed = Tensor::FromProto(proto);
    if (parsed.ok()) {
      line(name, absl::StrCat(DTypeName(parsed->dtype), " ", ShapeText(parsed->shape), "  ",
                              ValuesText(parsed->ToDoubles(), 8)));
    }
  };
  line("spec", session.spec().ShortDebugString());
  if (session.num_channels() > 0) line("channels", absl::StrCat(session.num_channels()));
  line("labels", LabelsText(session));
  line("created", TimeUtil::ToString(session.create_time()));
  line("updated", TimeUtil::ToString(session.update_time()));
  if (session.has_expire_time()) line("expires", TimeUtil::ToString(session.expire_time()));
  line("numerics", session.numerics());
  line("durability", EnumText(*v1::Durability_descriptor(), session.durability()));
  if (session.has_state()) line("batches", absl::StrCat(session.state().num_batches()));
  if (session.state().has_mean()) tensor("mean", session.state().mean());
  if (session.state().has_var()) tensor("var", session.state().var());
  if (session.state().has_phi()) tensor("phi", session.state().phi());
  if (session.parameters().has_weight()) tensor("weight", session.parameters().weight());
  if (session.parameters().has_bias()) tensor("bias", session.parameters().bias());
  return out;
}

}  // namespace

std::string SessionName(absl::string_view id) { return absl::StrCat("sessions/", absl::StripPrefix(id, "sessions/")); }

absl::Status ShowSession(const absl::StatusOr<v1::Session>& session, const ParsedArgs& args, const Terminal& terminal) {
  if (!session.ok()) return session.status();
  terminal.out << (args.Has("json") ? JsonText(MessageJson(*session)) : SessionText(*session));
  return absl::OkStatus();
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
    if (parts.size() != 2 || parts[0].empty())
      return UsageError(absl::StrCat("--label ", label, ": must be KEY=VALUE"));
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
  for (absl::string_view flag : {"weight", "bias"}) {
    if (!args.Has(flag)) continue;
    absl::StatusOr<Tensor> tensor = LoadParameter(*args.Get(flag));
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
  if (**value < 0) return UsageError(absl::StrCat("--", flag, " ", **value, ": must be at least 0"));
  return std::optional<uint64_t>(static_cast<uint64_t>(**value));
}

}  // namespace normd::client
