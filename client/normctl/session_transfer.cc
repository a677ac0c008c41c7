// normctl session export and import: a session as a file, which is either the server's record or a state_dict.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/npy.h"
#include "client/cli/other_file.h"
#include "client/cli/safetensors.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "client/normctl/session_message.h"
#include "client/normctl/state_dict.h"

namespace normd::client {
namespace {

constexpr absl::string_view kTransferDetails =
    "A record (the default) is the protobuf message normd.store.v1.SessionRecord, with everything the\n"
    "server knows of the session, step ids and version included. A .safetensors file is a state_dict\n"
    "of PyTorch: weight, bias, running_mean, running_var and num_batches_tracked (PowerNorm:\n"
    "running_phi). Parameters and state come back bit for bit; step ids and version are not part of a\n"
    "state_dict, nor is ttl: a session made from one starts at version 0 and remembers no steps.";
constexpr absl::string_view kExportDetails =
    "\nRunning statistics are written as F64, the bits of the state; --f32 rounds them to nearest even.\n"
    "torch.nn.BatchNorm2d(C).load_state_dict(safetensors.torch.load_file(FILE)) takes the file (with\n"
    "strict=False where the session has no weight or bias).";
constexpr absl::string_view kImportDetails =
    "\nA .safetensors file that normctl wrote says what the layer is; for one of PyTorch say it:\n"
    "--method batch-norm --layout channels-first. --method replaces what the file says. Running\n"
    "statistics of any float dtype become f64, exactly; without them the session starts from the\n"
    "initial ones, and without num_batches_tracked at 0 batches. The names of Keras (gamma, beta,\n"
    "moving_mean, moving_variance), Flax (scale, bias, mean, var), MXNet, Haiku and Paddle are understood\n"
    "as well. Flax keeps parameters and statistics apart: --prefix params.bn. --prefix batch_stats.bn.";

const FlagSpec kFormat = {
    "format", '\0', "FORMAT", "record or safetensors, whatever the file's name ends in", "", "record|safetensors"};

absl::StatusOr<bool> IsSafetensors(const ParsedArgs& args, absl::string_view path) {
  const std::optional<std::string> format = args.Get("format");
  if (!format.has_value()) return absl::EndsWithIgnoreCase(path, ".safetensors");
  if (*format == "safetensors" || *format == "record") return *format == "safetensors";
  return BadValueError("format", *format, "record or safetensors");
}

// UsageError if one of `flags` is given: they are for state_dicts only.
absl::Status RefuseFlags(const ParsedArgs& args, const std::vector<FlagSpec>& flags) {
  const auto given = [&](const FlagSpec& flag) { return args.Has(flag.name); };
  const auto it = std::find_if(flags.begin(), flags.end(), given);
  if (it == flags.end()) return absl::OkStatus();
  return UsageError(absl::StrCat("--", it->name, " is for .safetensors files (--format safetensors)"));
}

// Refuses a name that promises another program's format, which a record does not have.
absl::Status CheckRecordName(const ParsedArgs& args, absl::string_view path) {
  if (args.Has("format")) return absl::OkStatus();
  constexpr absl::string_view kOthers[] = {".npz",    ".npy", ".csv",  ".pt",    ".pth",    ".ckpt", ".pkl",
                                           ".pickle", ".h5",  ".hdf5", ".keras", ".onnx",   ".gguf", ".json",
                                           ".mat",    ".txt", ".zip",  ".gz",    ".msgpack"};
  const auto* other = std::find_if(std::begin(kOthers), std::end(kOthers),
                                   [path](absl::string_view ending) { return absl::EndsWithIgnoreCase(path, ending); });
  if (other == std::end(kOthers)) return absl::OkStatus();
  return UsageError(absl::StrCat(path, ": a session is written as .safetensors or as a record, and neither is ", *other,
                                 ": name it ", absl::StripSuffix(path, path.substr(path.size() - other->size())),
                                 ".safetensors, or say --format record"));
}

std::vector<FlagSpec> ExportFlags() {
  return {{"prefix", '\0', "TEXT", "put before the tensors' names: \"layer1.bn1.\""},
          {"f32", '\0', "", "running statistics as F32, rounded, for tools that need it"}};
}

std::vector<FlagSpec> ImportFlags() {
  return Join({{"prefix", '\0', "TEXT",
                "the tensors are those whose names begin so: \"layer1.bn1.\"; may be given several times"},
               {"method", '\0', "METHOD", "the layer's method; needed where the file does not say it"},
               {"dtype", '\0', "T", "the dtype the session is meant for"}},
              SpecFlags(""));
}

absl::StatusOr<std::string> ExportBytes(Client& client, const std::string& name, bool safetensors,
                                        const ParsedArgs& args) {
  if (!safetensors) return client.ExportSession(name);
  const absl::StatusOr<v1::Session> session = client.GetSession(name, v1::SESSION_VIEW_FULL);
  if (!session.ok()) return session.status();
  return ToStateDict(*session, args.GetOr("prefix", ""), args.Has("f32"));
}

absl::Status RunExport(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const std::optional<std::string> path = args.Get("output");
  if (!path.has_value()) return UsageError("where does the session go? -o FILE");
  const bool is_standard_output = *path == "-";
  if (is_standard_output && args.Has("json")) {
    return UsageError(
        "--json prints its report on standard output, so that the session cannot go there (-): name a file");
  }
  if (is_standard_output && terminal.out_is_tty) return UsageError("a session on a terminal: redirect standard output");
  const absl::StatusOr<bool> safetensors = IsSafetensors(args, *path);
  if (!safetensors.ok()) return safetensors.status();
  if (absl::Status status = *safetensors ? absl::OkStatus() : CheckRecordName(args, *path); !status.ok()) return status;
  if (absl::Status status = *safetensors ? absl::OkStatus() : RefuseFlags(args, ExportFlags()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const std::string name = SessionName(args.operands()[0]);
  const absl::StatusOr<std::string> bytes = ExportBytes(**client, name, *safetensors, args);
  if (!bytes.ok()) return bytes.status();
  if (is_standard_output) return WriteStandardOutput(*bytes, "", terminal.out);
  if (absl::Status status = WriteFile(*path, *bytes); !status.ok()) return status;
  const char* format = *safetensors ? "safetensors" : "record";
  if (args.Has("json")) {
    terminal.out << JsonText({{"session", name}, {"file", *path}, {"format", format}, {"bytes", bytes->size()}});
  } else {
    terminal.out << name << " -> " << *path << "  " << format << ", " << BytesText(static_cast<double>(bytes->size()))
                 << "\n";
  }
  return absl::OkStatus();
}

// Sets the layer that the flags describe (--method and the flags of its spec). LayerNorm without axes takes the shape
// of the weight.
absl::Status AddSpec(const ParsedArgs& args, v1::Session& session) {
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  if (dtype->has_value()) session.set_default_dtype(**dtype);
  if (const std::optional<std::string> method = args.Get("method")) {
    absl::StatusOr<v1::NormSpec> spec = BuildSpec(MethodField(*method).value_or(*method), args, std::nullopt);
    if (!spec.ok()) return spec.status();
    v1::LayerNorm* layer = spec->has_layer_norm() ? spec->mutable_layer_norm() : nullptr;
    if (layer != nullptr && layer->axes().empty() && layer->normalized_shape().empty()) {
      *layer->mutable_normalized_shape() = session.parameters().weight().shape();
    }
    *session.mutable_spec() = *std::move(spec);
    return absl::OkStatus();
  }
  for (const FlagSpec& flag : SpecFlags("")) {
    if (args.Has(flag.name)) return UsageError(absl::StrCat("--", flag.name, " needs --method"));
  }
  if (session.has_spec()) return absl::OkStatus();
  return UsageError("the file does not say what the layer is: --method batch-norm --layout channels-first, ...");
}

std::vector<std::string> Prefixes(const ParsedArgs& args) {
  std::vector<std::string> out = args.GetAll("prefix");
  if (out.empty()) out.emplace_back();
  return out;
}

// " (bn.weight is in model-00001-of-00002.safetensors)": what the index of a sharded checkpoint says of the layer;
// empty for other files.
std::string ShardOf(absl::string_view bytes, const std::vector<std::string>& prefixes) {
  const nlohmann::json index = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) return "";
  for (const auto& [name, file] : index["weight_map"].items()) {
    const auto starts = [&name = name](const std::string& prefix) { return absl::StartsWith(name, prefix); };
    if (file.is_string() && std::any_of(prefixes.begin(), prefixes.end(), starts)) {
      return absl::StrCat(" (", name, " is in ", file.get<std::string>(), ")");
    }
  }
  return "";
}

// Refuses a file of another program by the name of what it is.
absl::Status CheckKind(const std::string& path, absl::string_view bytes, bool safetensors,
                       const std::vector<std::string>& prefixes) {
  if (safetensors && IsSafetensorsFile(bytes)) return absl::OkStatus();
  if (!safetensors && IsSafetensorsFile(bytes)) {
    return UsageError(absl::StrCat(path, ": looks like a .safetensors file: --format safetensors reads it"));
  }
  std::optional<std::string> kind = OtherFileKind(bytes);
  if (!kind.has_value() && IsNpy(bytes)) kind = "is a .npy tensor";
  if (!kind.has_value()) return absl::OkStatus();
  // Some kinds say themselves what to do.
  const bool has_advice = absl::StrContains(*kind, ": ");
  return UsageError(
      absl::StrCat(path, ": ", *kind, ShardOf(bytes, prefixes),
                   has_advice ? "" : ": session import reads what session export wrote, or a .safetensors file"));
}

absl::StatusOr<v1::CreateSessionRequest> ReadStateDict(const std::string& bytes, const ParsedArgs& args) {
  const absl::StatusOr<Safetensors> file = ParseSafetensors(bytes);
  if (!file.ok()) return file.status();
  absl::StatusOr<v1::Session> session = FromStateDict(*file, Prefixes(args));
  if (!session.ok()) return session.status();
  if (absl::Status status = AddSpec(args, *session); !status.ok()) return status;
  if (absl::Status status = ResolveChannels(*session); !status.ok()) return status;
  v1::CreateSessionRequest request;
  request.set_session_id(args.GetOr("id", ""));
  *request.mutable_session() = *std::move(session);
  return request;
}

// Refuses files that are no record, which the server would take for a damaged one. A record starts with its schema
// number: field 1, a varint.
absl::Status CheckRecord(const std::string& path, absl::string_view bytes) {
  constexpr char kSchemaTag = 0x08;
  if (!bytes.empty() && bytes[0] == kSchemaTag) return absl::OkStatus();
  return UsageError(
      absl::StrCat(path, ": is no record: session import reads what session export wrote, or a .safetensors file"));
}

absl::Status RunImport(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const std::string& path = args.operands()[0];
  const absl::StatusOr<bool> safetensors = IsSafetensors(args, path);
  if (!safetensors.ok()) return safetensors.status();
  absl::Status flags = *safetensors ? absl::OkStatus() : RefuseFlags(args, ImportFlags());
  const absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return flags.ok() ? bytes.status() : flags;
  // What the file is explains more than a flag that does not go with it.
  if (absl::Status status = CheckKind(path, *bytes, *safetensors, Prefixes(args)); !status.ok()) return status;
  if (!flags.ok()) return flags;
  if (absl::Status status = *safetensors ? absl::OkStatus() : CheckRecord(path, *bytes); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  if (!*safetensors) return ShowSession((*client)->ImportSession(*bytes, args.GetOr("id", "")), args, terminal);
  const absl::StatusOr<v1::CreateSessionRequest> request = ReadStateDict(*bytes, args);
  if (IsUsageError(request.status())) return request.status();
  if (!request.ok()) {
    return absl::Status(request.status().code(), absl::StrCat(path, ": ", request.status().message()));
  }
  return ShowSession((*client)->CreateSession(*request), args, terminal);
}

}  // namespace

std::vector<Command> SessionTransferCommands() {
  const FlagSpec id = {"id", '\0', "ID", "of the new session; absent: the record's, or the server chooses one"};
  Command out, in;
  out.spec = {"session export",
              "NAME",
              1,
              1,
              "save a session to a file, bit for bit",
              absl::StrCat(kTransferDetails, kExportDetails),
              Join({{"output", 'o', "FILE",
                     "where it goes; .safetensors is a state_dict, all else a record; - is standard output"},
                    kFormat},
                   ExportFlags())};
  out.run = &RunExport;
  in.spec = {"session import",
             "FILE",
             1,
             1,
             "create a session from an exported file or a state_dict",
             absl::StrCat(kTransferDetails, kImportDetails),
             Join({id, kFormat}, ImportFlags())};
  in.run = &RunImport;
  return {out, in};
}

}  // namespace normd::client
