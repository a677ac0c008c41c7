// normctl session export and import: a session as a file, the server's record.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/npy.h"
#include "client/cli/other_file.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

constexpr absl::string_view kTransferDetails =
    "The file is a record, the protobuf message normd.store.v1.SessionRecord, with everything the server knows\n"
    "of the session, step ids and version included. A state_dict of PyTorch, Keras or Flax is for normd's Python\n"
    "package: Session.state_dict() and load_state_dict(), and safetensors for their files.";

// Refuses a name that promises another program's format, which a record does not have.
absl::Status CheckRecordName(absl::string_view path) {
  constexpr absl::string_view kOthers[] = {".safetensors", ".npz", ".npy",  ".csv",   ".pt",   ".pth",    ".ckpt",
                                           ".pkl",         ".h5",  ".hdf5", ".keras", ".onnx", ".gguf",   ".json",
                                           ".pickle",      ".mat", ".txt",  ".zip",   ".gz",   ".msgpack"};
  const auto* other = std::find_if(std::begin(kOthers), std::end(kOthers),
                                   [path](absl::string_view ending) { return absl::EndsWithIgnoreCase(path, ending); });
  if (other == std::end(kOthers)) return absl::OkStatus();
  return UsageError(absl::StrCat(path, ": a session is written as a record, which is no ", *other, ": name it ",
                                 path.substr(0, path.size() - other->size()),
                                 ".record, or write a state_dict in Python (Session.state_dict)"));
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
  if (absl::Status status = CheckRecordName(*path); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const std::string name = SessionName(args.operands()[0]);
  const absl::StatusOr<std::string> bytes = (*client)->ExportSession(name);
  if (!bytes.ok()) return bytes.status();
  if (is_standard_output) return WriteStandardOutput(*bytes, "", terminal.out);
  if (absl::Status status = WriteFile(*path, *bytes); !status.ok()) return status;
  if (args.Has("json")) {
    terminal.out << JsonText({{"session", name}, {"file", *path}, {"format", "record"}, {"bytes", bytes->size()}});
  } else {
    terminal.out << name << " -> " << *path << "  record, " << BytesText(static_cast<double>(bytes->size())) << "\n";
  }
  return absl::OkStatus();
}

// Refuses files that are no record, which the server would take for a damaged one: those of another program by the name
// of what they are. A record starts with its schema number: field 1, a varint.
absl::Status CheckRecord(const std::string& path, absl::string_view bytes) {
  constexpr absl::string_view kAdvice = ": session import reads what session export wrote";
  std::optional<std::string> kind = OtherFileKind(bytes);
  if (!kind.has_value() && IsNpy(bytes)) kind = "is a .npy tensor";
  constexpr char kSchemaTag = 0x08;
  const bool may_be_record = !bytes.empty() && bytes[0] == kSchemaTag;
  if (!kind.has_value() && may_be_record) return absl::OkStatus();
  if (!kind.has_value()) kind = "is no record";
  // Some kinds say themselves what to do.
  return UsageError(absl::StrCat(path, ": ", *kind, absl::StrContains(*kind, ": ") ? "" : kAdvice));
}

absl::Status RunImport(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const std::string& path = args.operands()[0];
  const absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  if (absl::Status status = CheckRecord(path, *bytes); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return ShowSession((*client)->ImportSession(*bytes, args.GetOr("id", "")), args, terminal);
}

}  // namespace

std::vector<Command> SessionTransferCommands() {
  Command out, in;
  out.spec = {"session export",
              "NAME",
              1,
              1,
              "save a session to a file, bit for bit",
              std::string(kTransferDetails),
              {{"output", 'o', "FILE", "where it goes; - is standard output"}}};
  out.run = &RunExport;
  in.spec = {"session import",
             "FILE",
             1,
             1,
             "create a session from an exported file",
             std::string(kTransferDetails),
             {{"id", '\0', "ID", "of the new session; absent: the record's, or the server chooses one"}}};
  in.run = &RunImport;
  return {out, in};
}

}  // namespace normd::client
