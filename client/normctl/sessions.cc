// normctl session create, get, list, update, reset, fork and delete, for layers that live on the server.
#include <google/protobuf/util/time_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cli/tensor_file.h"
#include "client/normctl/commands.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;
using google::protobuf::util::TimeUtil;

constexpr FlagSpec kQuietFlag = {"quiet", 'q', "", "print the session's name alone"};

// The session that a command made or changed, or with --quiet its name, for scripts.
absl::Status Show(const absl::StatusOr<v1::Session>& session, const ParsedArgs& args, const Terminal& terminal) {
  if (!session.ok() || !args.Has("quiet") || args.Has("json")) return ShowSession(session, args, terminal);
  terminal.out << session->name() << "\n";
  return absl::OkStatus();
}

absl::Status RunCreate(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::CreateSessionRequest request;
  const std::optional<std::string> method = MethodField(args.operands()[0]);
  const absl::StatusOr<v1::NormSpec> spec = BuildSpec(method.value_or(args.operands()[0]), args, std::nullopt);
  if (!spec.ok()) return spec.status();
  v1::Session& session = *request.mutable_session();
  *session.mutable_spec() = *spec;
  request.set_session_id(args.GetOr("id", ""));
  const absl::StatusOr<std::optional<int64_t>> channels = args.Int("channels");
  if (!channels.ok()) return channels.status();
  session.set_num_channels(channels->value_or(0));
  const absl::StatusOr<std::optional<DType>> dtype = DTypeFlag(args);
  if (!dtype.ok()) return dtype.status();
  session.set_default_dtype(dtype->value_or(v1::DTYPE_UNSPECIFIED));
  if (absl::Status status = AddLabels(args, session); !status.ok()) return status;
  if (absl::Status status = AddTtl(args, session); !status.ok()) return status;
  if (absl::Status status = AddParameters(args, session); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return Show((*client)->CreateSession(request), args, terminal);
}

absl::Status RunGet(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const v1::SessionView view = args.Has("basic") ? v1::SESSION_VIEW_BASIC : v1::SESSION_VIEW_FULL;
  return ShowSession((*client)->GetSession(SessionName(args.operands()[0]), view), args, terminal);
}

absl::Status RunList(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  v1::ListSessionsRequest request;
  request.set_filter(args.GetOr("filter", ""));
  Table table({{"name"}, {"method"}, {"channels", Align::kRight}, {"version", Align::kRight}, {"updated"}, {"labels"}});
  Json all = Json::array();
  do {
    const absl::StatusOr<v1::ListSessionsResponse> page = (*client)->ListSessions(request);
    if (!page.ok()) return page.status();
    for (const v1::Session& session : page->sessions()) {
      if (args.Has("json")) all.push_back(SessionJson(session));
      if (args.Has("quiet") && !args.Has("json")) terminal.out << session.name() << "\n";
      table.AddRow({session.name(), MethodOf(session.spec()), absl::StrCat(session.num_channels()),
                    absl::StrCat(session.version()), TimeUtil::ToString(session.update_time()), LabelsText(session)});
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (args.Has("json") || !args.Has("quiet")) {
    terminal.out << (args.Has("json") ? JsonText({{"sessions", all}}) : table.Render(terminal.width));
  }
  return absl::OkStatus();
}

absl::Status RunUpdate(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::UpdateSessionRequest request;
  v1::Session& session = *request.mutable_session();
  session.set_name(SessionName(args.operands()[0]));
  if (absl::Status status = AddLabels(args, session); !status.ok()) return status;
  if (absl::Status status = AddTtl(args, session); !status.ok()) return status;
  if (absl::Status status = AddParameters(args, session); !status.ok()) return status;
  if (absl::Status status = AddExpectedVersion(args, request); !status.ok()) return status;
  if (args.Has("label") || args.Has("clear-labels")) request.mutable_update_mask()->add_paths("labels");
  if (args.Has("ttl") || args.Has("clear-ttl")) request.mutable_update_mask()->add_paths("ttl");
  for (absl::string_view name : {"weight", "bias"}) {
    if (args.Has(name) || args.Has(absl::StrCat("clear-", name))) {
      request.mutable_update_mask()->add_paths(absl::StrCat("parameters.", name));
    }
  }
  if (request.update_mask().paths().empty())
    return UsageError("nothing to update: --weight, --bias, --label, --ttl or --clear-...");
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return Show((*client)->UpdateSession(request), args, terminal);
}

absl::Status RunReset(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::ResetSessionRequest request;
  request.set_name(SessionName(args.operands()[0]));
  if (absl::Status status = AddExpectedVersion(args, request); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return Show((*client)->ResetSession(request), args, terminal);
}

absl::Status RunFork(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::ForkSessionRequest request;
  request.set_name(SessionName(args.operands()[0]));
  request.set_session_id(args.GetOr("id", ""));
  request.set_frozen(args.Has("frozen"));
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return Show((*client)->ForkSession(request), args, terminal);
}

absl::Status RunDelete(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  v1::DeleteSessionRequest request;
  request.set_name(SessionName(args.operands()[0]));
  if (absl::Status status = AddExpectedVersion(args, request); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  if (absl::Status status = (*client)->DeleteSession(request); !status.ok()) return status;
  const std::string text = args.Has("quiet") ? "" : "deleted " + request.name() + "\n";
  terminal.out << (args.Has("json") ? JsonText({{"deleted", request.name()}}) : text);
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> SessionCommands() {
  const FlagSpec id = {"id", '\0', "ID", "of the new session; the server chooses one where absent"};
  const std::vector<FlagSpec> editable = Join({{"weight", 'w', "FILE", "the scale, .npy or .csv"},
                                               {"bias", 'b', "FILE", "the shift, .npy or .csv"},
                                               {"label", 'l', "KEY=VALUE", "may be given several times"},
                                               {"ttl", '\0', "TIME", "delete the session after so much time"}},
                                              SeparatorFlags());
  const std::vector<FlagSpec> create =
      Join(editable, Join({id,
                           kQuietFlag,
                           {"channels", 'c', "C", "the number of channels; needed by methods with running state"},
                           {"dtype", '\0', "T", "the dtype the session is meant for: f16, bf16, f32 or f64"}},
                          SpecFlags("")));
  const std::vector<FlagSpec> update = Join(editable, {kExpectedVersionFlag,
                                                       kQuietFlag,
                                                       {"clear-weight", '\0', "", "drop the weight"},
                                                       {"clear-bias", '\0', "", "drop the bias"},
                                                       {"clear-labels", '\0', "", "drop all labels"},
                                                       {"clear-ttl", '\0', "", "keep the session for good"}});
  const auto command = [](const char* name, const char* operands, int count, const char* summary,
                          const std::vector<FlagSpec>& flags, auto run) {
    return Command{{absl::StrCat("session ", name), operands, count, count, summary, "", flags}, run};
  };
  return {
      command("create", "METHOD", 1, "create a session: a configured layer with its state", create, &RunCreate),
      command("get", "NAME", 1, "show a session, its parameters and its running state",
              {{"basic", '\0', "", "without tensors"}}, &RunGet),
      command("list", "", 0, "list sessions",
              {{"filter", 'f', "EXPR", "\"key=value AND key=value\" on labels"},
               {"quiet", 'q', "", "print the sessions' names alone"}},
              &RunList),
      command("update", "NAME", 1, "change parameters, labels (all of them are replaced) or ttl", update, &RunUpdate),
      command("reset", "NAME", 1, "put the running state back to its beginning", {kExpectedVersionFlag, kQuietFlag},
              &RunReset),
      command("fork", "NAME", 1, "copy a session as it is now",
              {id, {"frozen", '\0', "", "the copy refuses every change but its deletion, for good"}, kQuietFlag},
              &RunFork),
      command("delete", "NAME", 1, "delete a session", {kExpectedVersionFlag, {"quiet", 'q', "", "print nothing"}},
              &RunDelete),
  };
}

}  // namespace normd::client
