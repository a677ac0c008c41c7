#include "client/normctl/commands.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

constexpr absl::string_view kProgram = "normctl";

std::string Overview(const std::vector<Command>& commands) {
  std::string out =
      "Usage: normctl COMMAND [operands] [flags]\n\nNormalises tensors through a normd server.\n\n"
      "  normctl layer-norm in.npy -o out.npy --eps 1e-6\n"
      "  normctl methods\n"
      "  normctl demo\n\nCommands:\n";
  for (const Command& command : commands) {
    std::string name = absl::StrCat("  ", command.spec.name);
    name.resize(std::max<size_t>(name.size(), 20), ' ');
    absl::StrAppend(&out, name, "  ", command.spec.summary, "\n");
  }
  absl::StrAppend(&out, "\nnormctl COMMAND --help explains a command. Exit codes: 0 ok, 1 an error, 2 wrong usage.\n");
  return out;
}

// Sessions have names like sessions/bn: `normctl sessions` is understood, too.
std::vector<std::string> WithoutAliases(absl::Span<const std::string> arguments) {
  std::vector<std::string> out(arguments.begin(), arguments.end());
  if (!out.empty() && out[0] == "sessions") out[0] = "session";
  return out;
}

// The command that the first words of `arguments` name, and how many words that are.
const Command* FindCommand(const std::vector<Command>& commands, absl::Span<const std::string> arguments,
                           size_t* words) {
  for (*words = std::min<size_t>(2, arguments.size()); *words > 0; --*words) {
    std::string name = arguments[0];
    if (*words == 2) absl::StrAppend(&name, " ", arguments[1]);
    name = absl::StrReplaceAll(name, {{"_", "-"}});
    const auto it =
        std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.spec.name == name; });
    if (it != commands.end()) return &*it;
  }
  return nullptr;
}

void PrintGroup(const std::vector<Command>& commands, absl::string_view group, std::ostream& out) {
  Table table({{"command"}, {"operands"}, {"what it does"}});
  for (const Command& command : commands) {
    if (absl::StartsWith(command.spec.name, absl::StrCat(group, " "))) {
      table.AddRow({command.spec.name, command.spec.operands, command.spec.summary});
    }
  }
  out << table.Render(120);
}

int UnknownCommand(const std::vector<Command>& commands, absl::Span<const std::string> arguments,
                   const Terminal& terminal) {
  const bool group = std::any_of(commands.begin(), commands.end(), [&](const Command& command) {
    return absl::StartsWith(command.spec.name, absl::StrCat(arguments[0], " "));
  });
  if (group) {
    const bool help = arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h");
    PrintGroup(commands, arguments[0], help ? terminal.out : terminal.err);
    return help ? kExitOk : kExitUsage;
  }
  return Finish(UsageError(absl::StrCat("unknown command ", arguments[0])), kProgram, false, terminal);
}

}  // namespace

std::vector<Command> AllCommands() {
  std::vector<Command> out;
  for (const auto& part : {NormalizeCommands(), MomentsCommands(), SessionCommands(), SessionCommitCommands(),
                           SessionTransferCommands(), SessionWatchCommands(), DescribeCommands(), DemoCommands()}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

int RunNormctl(absl::Span<const std::string> words_given, const Terminal& terminal) {
  const std::vector<std::string> arguments = WithoutAliases(words_given);
  const std::vector<Command> commands = AllCommands();
  if (arguments.empty()) {
    terminal.err << Overview(commands);
    return kExitUsage;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    terminal.out << Overview(commands);
    return kExitOk;
  }
  if (arguments[0] == "--version" || arguments[0] == "version") {
    terminal.out << kProgram << " " << ClientVersion() << "\n";
    return kExitOk;
  }
  size_t words = 0;
  const Command* command = FindCommand(commands, arguments, &words);
  if (command == nullptr) return UnknownCommand(commands, arguments, terminal);
  const absl::StatusOr<ParsedArgs> args = ParseArgs(command->spec, absl::MakeConstSpan(arguments).subspan(words));
  if (!args.ok()) return Finish(args.status(), absl::StrCat(kProgram, " ", command->spec.name), false, terminal);
  if (args->Has("help")) {
    terminal.out << HelpText(kProgram, command->spec);
    return kExitOk;
  }
  const absl::Status status = command->run(command->spec, *args, terminal);
  return Finish(status, absl::StrCat(kProgram, " ", command->spec.name), args->Has("json"), terminal);
}

}  // namespace normd::client
