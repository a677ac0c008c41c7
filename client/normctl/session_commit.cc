// normctl session commit: applies one training step from the moments of several callers.
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "client/normctl/json_message.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

absl::Status TakeExact(const std::string& path, const Json& json, v1::Moments& moments) {
  if (!json.contains("exact")) return absl::OkStatus();
  if (json["exact"].is_string() && absl::Base64Unescape(json["exact"].get<std::string>(), moments.mutable_exact())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": moments.exact must be a text in base64"));
}

// Loads moments from the output of `normctl moments -o FILE` or `normctl moments --json`.
absl::StatusOr<v1::Moments> LoadMoments(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("moments") || !json["moments"].is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no JSON with moments; it must be what normctl moments -o writes"));
  }
  v1::Moments moments;
  for (const auto& [name, to] : {std::pair("count", moments.mutable_count()), std::pair("mean", moments.mutable_mean()),
                                 std::pair("m2", moments.mutable_m2())}) {
    const Json& member = json["moments"].contains(name) ? json["moments"][name] : Json();
    absl::StatusOr<v1::Tensor> tensor = TensorFromJson(absl::StrCat("moments.", name), member);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensor.status().message()));
    }
    *to = *std::move(tensor);
  }
  if (absl::Status status = TakeExact(path, json["moments"], moments); !status.ok()) return status;
  return moments;
}

absl::Status RunCommit(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::CommitMomentsRequest request;
  request.set_session(SessionName(args.operands()[0]));
  if (absl::Status status = AddStep(args, request); !status.ok()) return status;
  if (absl::Status status = AddExpectedVersion(args, request); !status.ok()) return status;
  for (size_t i = 1; i < args.operands().size(); ++i) {
    absl::StatusOr<v1::Moments> moments = LoadMoments(args.operands()[i]);
    if (!moments.ok()) return moments.status();
    *request.add_moments() = *std::move(moments);
  }
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::StateResult> state = (*client)->CommitMoments(request);
  if (!state.ok()) return state.status();
  if (args.Has("json")) {
    terminal.out << JsonText({{"session", request.session()}, {"state", StateJson(*state)}});
  } else {
    terminal.out << request.session() << "  " << StateText(*state) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> SessionCommitCommands() {
  Command command;
  command.spec = {
      "session commit",
      "NAME FILE...",
      2,
      std::numeric_limits<int>::max(),
      "one training step out of the moments in the files",
      "FILE is what normctl moments -o FILE writes. The files are merged in the order given, as if one\n"
      "caller had seen all of their rows; with normctl moments --exact the order does not matter, nor how the\n"
      "rows were cut. With --step-client and --step-sequence the step is applied once,\n"
      "however often it is sent.",
      Join(StepFlags(), {kExpectedVersionFlag})};
  command.run = &RunCommit;
  return {command};
}

}  // namespace normd::client
