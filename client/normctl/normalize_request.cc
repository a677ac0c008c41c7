#include "client/normctl/normalize_request.h"

#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

std::vector<FlagSpec> FileFlags() {
  return {{"output", 'o', "FILE", "where y goes: .npy or .csv"},
          {"dtype", '\0', "T", "f16, bf16, f32 or f64: convert the input after loading"},
          {"session", '\0', "NAME", "normalise with this session instead of a spec"},
          {"training", '\0', "", "training mode: statistics of this batch; a session's state moves"},
          {"residual", '\0', "FILE", "normalise x + scale * this tensor"},
          {"residual-scale", '\0', "S", "the scale (default 1)"},
          {"residual-rounding", '\0', "R", "round-first (default) or keep-wide"},
          {"output-h", '\0', "FILE", "where x + scale * residual goes"},
          {"mask", '\0', "FILE", "positions that count in the statistics: non-zero ones (batch-norm, power-norm)"},
          {"mean", '\0', "FILE", "where the means go, one per statistics group"},
          {"inv-std", '\0', "FILE", "where the inverse standard deviations go"},
          {"precision", '\0', "P", "exact (default) or fast"},
          {"device", '\0', "D", "auto (default), cpu or cuda"},
          kExpectedVersionFlag,
          {"max-staleness", '\0', "TIME",
           "inference with a session that several servers share: how old the version may be that is read (default 0, "
           "the newest; at most 1h)"},
          {"validate-only", '\0', "", "check everything, compute nothing"},
          {"progress", '\0', "", "show progress even where stderr is no terminal"}};
}

std::vector<FlagSpec> ParameterFlags(absl::string_view method) {
  std::vector<FlagSpec> out = {{"weight", 'w', "FILE", "the scale"}, {"bias", 'b', "FILE", "the shift"}};
  if (method == "batch_norm") {
    out.push_back({"running-mean", '\0', "FILE", "inference without a session: one a channel"});
    out.push_back({"running-var", '\0', "FILE", "inference without a session: one a channel"});
  }
  return out;
}

absl::Status AddParameters(const ParsedArgs& args, v1::NormalizeRequest& request) {
  for (absl::string_view flag : {"weight", "bias", "running-mean", "running-var"}) {
    if (!args.Has(flag)) continue;
    absl::StatusOr<Tensor> tensor = LoadParameter(*args.Get(flag));
    if (!tensor.ok()) return tensor.status();
    v1::Parameters& parameters = *request.mutable_parameters();
    v1::Tensor* to = flag == "weight"         ? parameters.mutable_weight()
                     : flag == "bias"         ? parameters.mutable_bias()
                     : flag == "running-mean" ? parameters.mutable_running_mean()
                                              : parameters.mutable_running_var();
    *to = (*std::move(tensor)).ToProto();
  }
  return absl::OkStatus();
}

absl::Status AddTensors(const ParsedArgs& args, v1::NormalizeRequest& request) {
  if (args.Has("residual")) {
    absl::StatusOr<LoadedTensor> residual = LoadTensor(*args.Get("residual"), std::nullopt);
    if (!residual.ok()) return residual.status();
    *request.mutable_residual()->mutable_tensor() = std::move(residual->tensor).ToProto();
    const absl::StatusOr<std::optional<double>> scale = args.Double("residual-scale");
    if (!scale.ok()) return scale.status();
    if (scale->has_value()) request.mutable_residual()->set_scale(**scale);
  } else if (args.Has("residual-scale") || args.Has("residual-rounding") || args.Has("output-h")) {
    return UsageError("--residual-scale, --residual-rounding and --output-h need --residual");
  }
  if (args.Has("mask")) {
    absl::StatusOr<Tensor> mask = LoadMask(*args.Get("mask"));
    if (!mask.ok()) return mask.status();
    *request.mutable_mask() = (*std::move(mask)).ToProto();
  }
  return absl::OkStatus();
}

absl::Status AddChoices(const ParsedArgs& args, v1::NormalizeRequest& request) {
  if (args.Has("precision")) {
    const absl::StatusOr<int> number = ParseEnum(*v1::Precision_descriptor(), "precision", *args.Get("precision"));
    if (!number.ok()) return number.status();
    request.set_precision(static_cast<v1::Precision>(*number));
  }
  if (args.Has("device")) {
    const absl::StatusOr<int> number = ParseEnum(*v1::Device_descriptor(), "device", *args.Get("device"));
    if (!number.ok()) return number.status();
    request.set_device(static_cast<v1::Device>(*number));
  }
  if (args.Has("residual-rounding")) {
    const absl::StatusOr<int> number =
        ParseEnum(*v1::ResidualRounding_descriptor(), "residual-rounding", *args.Get("residual-rounding"));
    if (!number.ok()) return number.status();
    request.mutable_residual()->set_rounding(static_cast<v1::ResidualRounding>(*number));
  }
  return absl::OkStatus();
}

// Adds the fields that only a session uses: the StepId, and the version that may be read.
absl::Status AddSessionChoices(const ParsedArgs& args, v1::NormalizeRequest& request) {
  if (absl::Status status = AddStep(args, request); !status.ok()) return status;
  if (absl::Status status = AddExpectedVersion(args, request); !status.ok()) return status;
  const absl::StatusOr<std::optional<absl::Duration>> staleness = args.Duration("max-staleness");
  if (!staleness.ok()) return staleness.status();
  if (!staleness->has_value()) return absl::OkStatus();
  if (!args.Has("session")) return UsageError("--max-staleness needs --session");
  SetDuration(**staleness, request.mutable_max_staleness());
  return absl::OkStatus();
}

// Adds the outputs to ask for. An error if there is nowhere to write a result.
absl::Status AddOutputs(const ParsedArgs& args, v1::NormalizeRequest& request) {
  for (const OutputFile& output : kOutputFiles) {
    if (!args.Has(output.flag)) continue;
    if (absl::Status status = CheckEnding(*args.Get(output.flag)); !status.ok()) return UsageError(status.message());
    request.add_outputs()->set_kind(output.kind);
  }
  request.set_validate_only(args.Has("validate-only"));
  if (request.outputs().empty() && !request.validate_only()) {
    return UsageError("where do the results go? -o FILE (or --mean, --inv-std, --output-h)");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<FlagSpec> NormalizeFlags(absl::string_view method) {
  // LpNorm has no parameters, and a session has its own.
  const bool parameters = !method.empty() && method != "lp_norm";
  return Join(parameters ? ParameterFlags(method) : std::vector<FlagSpec>(), Join(FileFlags(), StepFlags()));
}

absl::StatusOr<NormalizeInput> BuildNormalizeInput(const ParsedArgs& args) {
  NormalizeInput input;
  v1::NormalizeRequest& request = input.request;
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  if (absl::Status status = AddOutputs(args, request); !status.ok()) return status;
  if (absl::Status status = AddSessionChoices(args, request); !status.ok()) return status;
  if (absl::Status status = AddChoices(args, request); !status.ok()) return status;
  if (absl::Status status = AddParameters(args, request); !status.ok()) return status;
  if (absl::Status status = AddTensors(args, request); !status.ok()) return status;
  absl::StatusOr<LoadedTensor> x = LoadTensor(args.operands()[0], *dtype);
  if (!x.ok()) return x.status();
  input.raw_bf16 = x->raw_bf16;
  *request.mutable_x() = std::move(x->tensor).ToProto();
  request.set_mode(args.Has("training") ? v1::MODE_TRAINING : v1::MODE_INFERENCE);
  request.set_want_timings(true);
  return input;
}

}  // namespace normd::client
