// normctl METHOD: reads one file and writes normalised files.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/normalize_request.h"
#include "client/normctl/session_message.h"
#include "client/normctl/split.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

// Requests above this size show progress on a terminal.
constexpr int64_t kLargeBytes = 8 << 20;
// While progress is shown, the input is cut into pieces of this size, so that there is progress to show.
constexpr int64_t kProgressPieceBytes = 16 << 20;
// Requests up to this size are sent without asking for the server's limit.
constexpr int64_t kUnaskedBytes = 1 << 20;

// Sets the target and returns its spec. `method` is empty for "normalize".
absl::StatusOr<v1::NormSpec> SetTarget(Client& client, const std::string& method, const ParsedArgs& args,
                                       v1::NormalizeRequest& request) {
  if (!args.Has("session")) {
    if (method.empty()) return UsageError("normalize needs --session NAME");
    const std::vector<int64_t> shape(request.x().shape().begin(), request.x().shape().end());
    absl::StatusOr<v1::NormSpec> spec = BuildSpec(method, args, shape);
    if (spec.ok()) *request.mutable_spec() = *spec;
    return spec;
  }
  for (const FlagSpec& flag : SpecFlags(method)) {
    if (args.Has(flag.name)) return UsageError(absl::StrCat("--", flag.name, " does not go with --session"));
  }
  request.set_session(SessionName(*args.Get("session")));
  const absl::StatusOr<v1::Session> session = client.GetSession(request.session());
  if (!session.ok()) return session.status();
  if (!method.empty() && MethodOf(session->spec()) != method) {
    return UsageError(absl::StrCat(session->name(), " is a ", MethodOf(session->spec()), ", not a ", method));
  }
  return session->spec();
}

// The largest request to send: the server's limit, or less while progress is shown.
absl::StatusOr<int64_t> PieceBytes(Client& client, const v1::NormalizeRequest& request, const v1::NormSpec& spec,
                                   bool show_progress) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  if (bytes <= kUnaskedBytes) return kUnaskedBytes;
  const absl::StatusOr<v1::DescribeResponse> describe = client.Describe();
  if (!describe.ok()) return describe.status();
  const int64_t limit = describe->limits().max_message_bytes();
  const bool cut = show_progress && RowsAreIndependent(spec, request.mode(), request.x().shape_size());
  return cut ? std::min(limit, kProgressPieceBytes) : limit;
}

void PrintProgress(const Terminal& terminal, int64_t done, int64_t all, int64_t bytes) {
  const double share = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
  terminal.err << absl::StrFormat("%s%3.0f%%  %s of %s", terminal.err_is_tty ? "\r" : "", 100 * share,
                                  BytesText(share * static_cast<double>(bytes)), BytesText(static_cast<double>(bytes)));
  if (!terminal.err_is_tty || done == all) terminal.err << "\n";
  terminal.err.flush();
}

int64_t ServerNanoseconds(const v1::Timings& t) {
  return t.decode_ns() + t.queue_ns() + t.compute_ns() + t.commit_ns() + t.encode_ns();
}

Json AppliedJson(const v1::Applied& applied) {
  Json out = {{"method", applied.method()},
              {"eps", applied.eps()},
              {"eps_mode", EnumText(*v1::EpsMode_descriptor(), applied.eps_mode())},
              {"cast_order", EnumText(*v1::CastOrder_descriptor(), applied.cast_order())},
              {"mode", EnumText(*v1::Mode_descriptor(), applied.mode())},
              {"precision", EnumText(*v1::Precision_descriptor(), applied.precision())},
              {"device", EnumText(*v1::Device_descriptor(), applied.device())},
              {"kernel", applied.kernel()},
              {"numerics", applied.numerics()}};
  if (applied.k() > 0) out["k"] = applied.k();
  if (applied.device_fallback()) out["device_fallback"] = true;
  return out;
}

struct Saved {
  std::string name, path, dtype;
  std::vector<int64_t> shape;
};

absl::StatusOr<std::vector<Saved>> SaveOutputs(const ParsedArgs& args, bool raw_bf16, v1::NormalizeResponse& response) {
  std::vector<Saved> saved;
  for (v1::Output& output : *response.mutable_outputs()) {
    const auto* file = std::find_if(std::begin(kOutputFiles), std::end(kOutputFiles),
                                    [&](const OutputFile& f) { return f.kind == output.kind(); });
    if (file == std::end(kOutputFiles) || !args.Has(file->flag)) continue;
    absl::StatusOr<Tensor> tensor = Tensor::FromProto(std::move(*output.mutable_tensor()));
    if (!tensor.ok()) return tensor.status();
    saved.push_back({EnumText(*v1::OutputKind_descriptor(), output.kind()), *args.Get(file->flag),
                     std::string(DTypeName(tensor->dtype)), tensor->shape});
    if (absl::Status status = SaveTensor(saved.back().path, *std::move(tensor), raw_bf16); !status.ok()) return status;
  }
  return saved;
}

void PrintText(const v1::NormalizeResponse& response, const std::vector<Saved>& saved, absl::Duration round_trip,
               std::ostream& out) {
  for (const Saved& file : saved) {
    out << absl::StrFormat("%-8s %s  %s %s\n", file.name, file.path, file.dtype, ShapeText(file.shape));
  }
  const v1::Applied& applied = response.applied();
  out << absl::StrFormat("%-8s %s  eps %s %s", "applied", applied.method(), ShortestText(applied.eps()),
                         EnumText(*v1::EpsMode_descriptor(), applied.eps_mode()));
  if (applied.k() > 0) out << "  k " << applied.k();
  out << absl::StrFormat("  %s, %s (%s)\n", EnumText(*v1::Mode_descriptor(), applied.mode()),
                         EnumText(*v1::Precision_descriptor(), applied.precision()), applied.numerics());
  if (response.has_state()) {
    out << absl::StrFormat("%-8s %s\n", "state", StateText(response.state()));
  }
  out << absl::StrFormat("%-8s %s  server %s (compute %s), round trip %s\n", "kernel", applied.kernel(),
                         NanosecondsText(static_cast<double>(ServerNanoseconds(response.timings()))),
                         NanosecondsText(static_cast<double>(response.timings().compute_ns())),
                         NanosecondsText(absl::ToDoubleNanoseconds(round_trip)));
  if (applied.device_fallback()) out << "device   the one that was chosen was lost or full; this one ran instead\n";
}

std::string ReplyJson(const v1::NormalizeResponse& response, const std::vector<Saved>& saved,
                      absl::Duration round_trip) {
  Json json = {{"applied", AppliedJson(response.applied())}, {"outputs", Json::array()}};
  for (const Saved& file : saved) {
    json["outputs"].push_back({{"kind", file.name}, {"file", file.path}, {"dtype", file.dtype}, {"shape", file.shape}});
  }
  if (response.has_state()) json["state"] = StateJson(response.state());
  const v1::Timings& t = response.timings();
  json["server_ns"] = {{"decode", t.decode_ns()}, {"queue", t.queue_ns()},   {"compute", t.compute_ns()},
                       {"commit", t.commit_ns()}, {"encode", t.encode_ns()}, {"total", ServerNanoseconds(t)}};
  json["round_trip_ns"] = absl::ToInt64Nanoseconds(round_trip);
  return JsonText(json);
}

// Sends the request and shows progress if the request is large and a person watches.
absl::StatusOr<v1::NormalizeResponse> Send(Client& client, const v1::NormalizeRequest& request,
                                           const v1::NormSpec& spec, bool ask_progress, const Terminal& terminal) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  const bool show = ask_progress || (terminal.err_is_tty && bytes > kLargeBytes);
  const absl::StatusOr<int64_t> piece_bytes = PieceBytes(client, request, spec, show);
  if (!piece_bytes.ok()) return piece_bytes.status();
  if (show) PrintProgress(terminal, 0, 1, bytes);
  absl::StatusOr<v1::NormalizeResponse> response =
      NormalizeInPieces(client, request, spec, *piece_bytes, [&](int64_t done, int64_t all) {
        if (show) PrintProgress(terminal, done, all, bytes);
      });
  if (show && response.ok() && bytes <= *piece_bytes) PrintProgress(terminal, 1, 1, bytes);
  return response;
}

absl::Status RunNormalize(const CommandSpec& spec, const ParsedArgs& args, const Terminal& terminal) {
  const std::string method = spec.name == "normalize" ? "" : *MethodField(spec.name);
  absl::StatusOr<NormalizeInput> input = BuildNormalizeInput(args);
  if (!input.ok()) return input.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::NormSpec> resolved = SetTarget(**client, method, args, input->request);
  if (!resolved.ok()) return resolved.status();
  const absl::Time start = absl::Now();
  absl::StatusOr<v1::NormalizeResponse> response =
      Send(**client, input->request, *resolved, args.Has("progress"), terminal);
  const absl::Duration round_trip = absl::Now() - start;
  if (!response.ok()) return response.status();
  const absl::StatusOr<std::vector<Saved>> saved = SaveOutputs(args, input->raw_bf16, *response);
  if (!saved.ok()) return saved.status();
  if (args.Has("json")) {
    terminal.out << ReplyJson(*response, *saved, round_trip);
  } else {
    PrintText(*response, *saved, round_trip, terminal.out);
  }
  return absl::OkStatus();
}

constexpr absl::string_view kDetails =
    "INPUT and outputs are .npy (little-endian floats; Fortran order is transposed) or .csv (numbers,\n"
    "an optional header line). NumPy has no bf16: --dtype bf16 rounds the input to bf16 and writes\n"
    "results widened to float32, exactly; an input of uint16 is taken as bf16 bits, and results are\n"
    "then written as uint16 bits, too. Inputs over the server's message limit are sent in pieces where\n"
    "the method never looks across rows, and in chunks on a stream where it does.";

}  // namespace

std::vector<Command> NormalizeCommands() {
  std::vector<Command> out;
  for (const std::string& name : MethodNames()) {
    const std::string field = *MethodField(name);
    Command command;
    command.spec = {name, "INPUT", 1, 1, absl::StrCat("normalise a file with ", field), std::string(kDetails), {}};
    command.spec.flags = Join(SpecFlags(field), NormalizeFlags(field));
    command.run = &RunNormalize;
    out.push_back(std::move(command));
  }
  out.push_back({{"normalize", "INPUT", 1, 1, "normalise a file with a session (--session), whatever its method",
                  std::string(kDetails), NormalizeFlags("")},
                 &RunNormalize});
  return out;
}

}  // namespace normd::client
