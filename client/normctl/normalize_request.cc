#include "client/normctl/normalize_request.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/session_message.h"
#include "proto/catalogue/outputs.h"

namespace normd::client {
namespace {

std::vector<FlagSpec> PlaceFlags() {
  return {
      {"output", 'o', "FILE", "where y goes: .npy, .csv, or - for standard output; without it y is printed for people"},
      {"format", '\0', "F", "npy or csv: the format of - and of files with other endings; default: the input's", "",
       "npy|csv"}};
}

std::vector<FlagSpec> ChoiceFlags() {
  return {{"quiet", 'q', "", "print no summary and no progress"},
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

// How the files beside x are read.
struct FileOptions {
  std::optional<DType> dtype;  // of x, if it was asked for
  CsvOptions csv;
};

absl::Status AddParameters(const ParsedArgs& args, const FileOptions& files, v1::NormalizeRequest& request) {
  for (absl::string_view flag : {"weight", "bias", "running-mean", "running-var"}) {
    if (!args.Has(flag)) continue;
    absl::StatusOr<Tensor> tensor = LoadParameter(*args.Get(flag), files.dtype, files.csv);
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

absl::Status AddTensors(const ParsedArgs& args, const FileOptions& files, NormalizeInput& input) {
  v1::NormalizeRequest& request = input.request;
  if (args.Has("residual")) {
    absl::StatusOr<LoadedTensor> residual = LoadAsItIs(*args.Get("residual"), files.dtype, files.csv);
    if (!residual.ok()) return residual.status();
    if (!residual->warning.empty()) input.warnings.push_back(std::move(residual->warning));
    *request.mutable_residual()->mutable_tensor() = std::move(residual->tensor).ToProto();
    const absl::StatusOr<std::optional<double>> scale = args.Double("residual-scale");
    if (!scale.ok()) return scale.status();
    if (scale->has_value()) request.mutable_residual()->set_scale(**scale);
  } else if (args.Has("residual-scale") || args.Has("residual-rounding") || args.Has("output-h")) {
    return UsageError("--residual-scale, --residual-rounding and --output-h need --residual");
  }
  if (args.Has("mask")) {
    absl::StatusOr<Tensor> mask = LoadMask(*args.Get("mask"), files.csv);
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

// The places of the results, with `of_input` as the format of those that neither their name nor --format decides.
absl::StatusOr<std::vector<OutputPlace>> Places(const ParsedArgs& args, FileFormat of_input) {
  std::optional<FileFormat> chosen;
  if (const std::optional<std::string> text = args.Get("format")) {
    const absl::StatusOr<FileFormat> format = ParseFileFormat(*text);
    if (!format.ok()) return format.status();
    chosen = *format;
  }
  std::vector<OutputPlace> places;
  for (const OutputFile& output : kOutputFiles) {
    const std::optional<std::string> path = args.Get(output.flag);
    if (!path.has_value()) continue;
    const absl::StatusOr<FileFormat> format = OutputFormat(*path, chosen, of_input);
    if (!format.ok()) return format.status();
    places.push_back({output.kind, *path, *format});
  }
  const auto is_open = [](const OutputPlace& place) { return !FormatOfEnding(place.path).has_value(); };
  if (chosen.has_value() && std::none_of(places.begin(), places.end(), is_open)) {
    return UsageError("--format is for results at - or in a file with another ending than .npy and .csv");
  }
  return places;
}

// Refuses what standard output and standard input cannot do.
absl::Status CheckStandardStreams(const ParsedArgs& args, const std::vector<OutputPlace>& places) {
  const auto is_output = [](const OutputPlace& place) { return place.path == "-"; };
  const auto outputs = std::count_if(places.begin(), places.end(), is_output);
  if (outputs > 1) return UsageError("standard output (-) takes one result");
  if (args.Has("json") && outputs > 0) {
    return UsageError("--json prints its report on standard output, so that no result can go there (-): name a file");
  }
  if (args.Has("json") && places.empty() && !args.Has("validate-only")) {
    return UsageError("--json prints a report without the values of y: name a file for them, -o FILE");
  }
  int inputs = args.operands()[0] == "-" ? 1 : 0;
  for (absl::string_view flag : {"weight", "bias", "running-mean", "running-var", "residual", "mask"}) {
    if (args.Get(flag) == "-") ++inputs;
  }
  return inputs > 1 ? UsageError("standard input (-) can be read once") : absl::OkStatus();
}

// A .csv has rows and columns and nothing that says a shape. A result of rank 3 read back from it would be another
// tensor, so that such a file is refused, as numpy.savetxt refuses it.
absl::Status CheckTables(const v1::Tensor& x, const std::vector<OutputPlace>& places) {
  for (const OutputPlace& place : places) {
    if (!IsLikeX(place.kind) || place.format != FileFormat::kCsv || x.shape_size() <= 2) continue;
    return absl::InvalidArgumentError(absl::StrCat(place.path == "-" ? "standard output" : place.path, ": x has shape ",
                                                   ShapeText({x.shape().begin(), x.shape().end()}),
                                                   ", and a .csv is a table of rows and columns: write .npy",
                                                   place.path == "-" ? " (--format npy)" : ""));
  }
  return absl::OkStatus();
}

// Refuses a file that cannot be written, before the call: the call may move a session, and its y would be lost.
absl::Status CheckPlacesCanBeWritten(const std::vector<OutputPlace>& places) {
  for (const OutputPlace& place : places) {
    if (place.path == "-") continue;
    if (absl::Status status = CheckCanWrite(place.path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Everything that needs no file, so that wrong usage is found before a file is read.
absl::Status AddFlags(const ParsedArgs& args, v1::NormalizeRequest& request) {
  const absl::StatusOr<std::vector<OutputPlace>> places = Places(args, FileFormat::kNpy);
  if (!places.ok()) return places.status();
  if (absl::Status status = CheckStandardStreams(args, *places); !status.ok()) return status;
  for (const OutputPlace& place : *places) request.add_outputs()->set_kind(place.kind);
  request.set_validate_only(args.Has("validate-only"));
  request.set_mode(args.Has("training") ? v1::MODE_TRAINING : v1::MODE_INFERENCE);
  request.set_want_timings(true);
  if (absl::Status status = AddSessionChoices(args, request); !status.ok()) return status;
  return AddChoices(args, request);
}

}  // namespace

std::vector<FlagSpec> NormalizeFlags(absl::string_view method) {
  // LpNorm has no parameters, and a session has its own.
  const bool parameters = !method.empty() && method != "lp_norm";
  return Join(parameters ? ParameterFlags(method) : std::vector<FlagSpec>(),
              Join(Join(PlaceFlags(), Join(HeaderFlags(), SeparatorFlags())), Join(ChoiceFlags(), StepFlags())));
}

absl::StatusOr<NormalizeInput> BuildNormalizeInput(const ParsedArgs& args) {
  NormalizeInput input;
  v1::NormalizeRequest& request = input.request;
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  const absl::StatusOr<CsvOptions> csv = CsvFlags(args);
  if (!csv.ok()) return csv.status();
  FileOptions beside{.dtype = *dtype, .csv = *csv};
  beside.csv.header = CsvHeader::kDetect;  // the flags of the header are for INPUT
  if (absl::Status status = AddFlags(args, request); !status.ok()) return status;
  if (absl::Status status = AddParameters(args, beside, request); !status.ok()) return status;
  if (absl::Status status = AddTensors(args, beside, input); !status.ok()) return status;
  absl::StatusOr<LoadedTensor> x = LoadTensor(args.operands()[0], *dtype, *csv);
  if (!x.ok()) return x.status();
  if (!x->warning.empty()) input.warnings.push_back(std::move(x->warning));
  if (absl::Status status = CheckRank("x", x->tensor.shape.size()); !status.ok()) return status;
  absl::StatusOr<std::vector<OutputPlace>> places = Places(args, x->format.format);
  if (!places.ok()) return places.status();
  input.places = *std::move(places);
  input.format = std::move(x->format);
  *request.mutable_x() = std::move(x->tensor).ToProto();
  if (absl::Status status = CheckTables(request.x(), input.places); !status.ok()) return status;
  if (absl::Status status = CheckPlacesCanBeWritten(input.places); !status.ok()) return status;
  return input;
}

}  // namespace normd::client
