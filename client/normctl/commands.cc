#include "client/normctl/commands.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/completion.h"
#include "client/cli/shell_commands.h"
#include "client/cli/table.h"
#include "client/normctl/help.h"

namespace normd::client {
namespace {

constexpr absl::string_view kProgram = "normctl";

constexpr absl::string_view kExamples =
    "  normctl layer-norm in.npy -o out.npy --eps 1e-6\n"
    "  normctl methods\n"
    "  normctl demo\n\n";
constexpr absl::string_view kExitCodes =
    "\n\nnormctl COMMAND --help explains a command. Exit codes: 0 ok, 1 an error, 2 wrong usage.";

// The prefix of the command names in a group: "session " for the group "session", and "" for the group "", which is
// normctl.
std::string Prefix(const CommandSpec& group) { return absl::StrCat(group.name, group.name.empty() ? "" : " "); }

// Runs a group that is not followed by one of its commands: always an error.
absl::Status RunGroup(const CommandSpec& group, const ParsedArgs& args, const Terminal& terminal) {
  if (args.operands().empty()) {
    terminal.err << WithBoldHeadings(HelpText(kProgram, ShownCommand(group, "")), terminal.err_color) << "\n";
    return UsageError("needs COMMAND");
  }
  const std::string& written = args.operands()[0];
  std::vector<std::string> names;
  for (const Command& command : AllCommands()) {
    absl::string_view name = command.spec.name;
    if (absl::ConsumePrefix(&name, Prefix(group))) names.emplace_back(name.substr(0, name.find(' ')));
  }
  return UnknownNameError("command", written, names);
}

// "  session get NAME          show a session": a line of a group's help, wrapped to its width.
std::string SummaryLine(const CommandSpec& command) {
  constexpr size_t kSummaryColumn = 30, kWidth = 80;
  std::string out = absl::StrCat("  ", command.name, command.operands.empty() ? "" : " ", command.operands, " ");
  const std::string indent(kSummaryColumn, ' ');
  if (out.size() > kSummaryColumn) absl::StrAppend(&out, "\n", indent);
  out.resize(std::max(out.size(), kSummaryColumn), ' ');
  return absl::StrCat(out, absl::StrJoin(WrapText(command.summary, kWidth - kSummaryColumn), "\n" + indent));
}

// Makes a group whose help lists the commands of the group among `commands`.
Command Group(absl::string_view name, absl::string_view summary, const std::vector<Command>& commands) {
  Command group;
  group.spec = {std::string(name), "COMMAND", 0, std::numeric_limits<int>::max(), std::string(summary), "Commands:"};
  group.spec.flags_first = true;
  group.run = &RunGroup;
  for (const Command& command : commands) {
    if (!absl::StartsWith(command.spec.name, Prefix(group.spec))) continue;
    absl::StrAppend(&group.spec.details, "\n", SummaryLine(command.spec));
  }
  return group;
}

// completion and man, which are about the list itself and talk to no server.
std::vector<Command> ShellCommands() {
  return {{CompletionSpec(), [](const CommandSpec&, const ParsedArgs& args,
                                const Terminal& terminal) { return RunCompletion(kProgram, args, terminal); }},
          {ManSpec(), [](const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
             return RunMan(kProgram, ShownCommands(), args, terminal);
           }}};
}

// Replaces aliases: `help COMMAND` is `COMMAND --help`, `version` is --version, and `sessions`, as in sessions/bn, is
// `session`.
std::vector<std::string> WithoutAliases(std::vector<std::string> words) {
  if (words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (words[0] == "version") words[0] = "--version";
  if (words[0] == "sessions") words[0] = "session";
  return words;
}

// The command line that prints the help in the same colours.
std::vector<std::string> HelpWords(const ParsedArgs& args) {
  std::vector<std::string> out = {"--help"};
  if (args.Has("color")) out.push_back(absl::StrCat("--color=", *args.Get("color")));
  return out;
}

const Command* FindCommand(const std::vector<Command>& commands, absl::string_view name) {
  const auto it = std::find_if(commands.begin(), commands.end(), [&](const Command& c) { return c.spec.name == name; });
  return it == commands.end() ? nullptr : &*it;
}

}  // namespace

std::vector<Command> AllCommands() {
  std::vector<Command> out;
  for (const auto& part : {NormalizeCommands(), MomentsCommands(), SessionCommands(), SessionCommitCommands(),
                           SessionTransferCommands(), SessionWatchCommands(), StatsFitCommands(), StatsCommands(),
                           StatsExportCommands(), VerifyCommands(), DescribeCommands(), DemoCommands()}) {
    out.insert(out.end(), part.begin(), part.end());
  }
  for (Command& command : out) command.spec.flags = Join(std::move(command.spec.flags), ServerFlags());
  for (Command& command : ShellCommands()) out.push_back(std::move(command));
  Command session = Group("session", "Layers that live on the server, with their state.", out);
  Command stats = Group("stats", "The mean and variance of all samples that many processes have seen.", out);
  Command normctl = Group("", "Normalises tensors through a normd server.", out);
  normctl.spec.details = absl::StrCat(kExamples, normctl.spec.details, kExitCodes);
  normctl.spec.flags.push_back(kVersionFlag);
  for (Command* group : {&session, &stats, &normctl}) {
    group->spec.flags = Join(std::move(group->spec.flags), ServerFlags());
    out.push_back(std::move(*group));
  }
  return out;
}

std::vector<CommandSpec> ShownCommands() {
  std::vector<CommandSpec> out;
  for (const Command& command : AllCommands())
    out.push_back(ShownCommand(command.spec, MethodOfCommand(command.spec, {})));
  return out;
}

int RunNormctl(absl::Span<const std::string> arguments, const Terminal& terminal) {
  if (!arguments.empty() && arguments[0] == kCompleteFlag) {
    terminal.out << CompletionText(ShownCommands(), arguments.subspan(1));
    return kExitOk;
  }
  const std::vector<Command> commands = AllCommands();
  const Command* command = FindCommand(commands, "");
  // Flags before the name of a command belong to the command.
  std::vector<std::string> flags, words(arguments.begin(), arguments.end());
  while (command->spec.flags_first) {
    const absl::StatusOr<ParsedArgs> line = ParseArgs(command->spec, words);
    if (!line.ok() || line->operands().empty() || line->Has(kVersionFlag.name)) break;
    const auto operands = words.end() - static_cast<ptrdiff_t>(line->operands().size());
    flags.insert(flags.end(), words.begin(), operands);
    words = WithoutAliases({operands, words.end()});
    const std::string name = absl::StrReplaceAll(words[0], {{"_", "-"}});
    const Command* named = FindCommand(commands, absl::StrCat(Prefix(command->spec), name));
    if (named == nullptr) break;
    command = named;
    words.erase(words.begin());
  }
  words.insert(words.begin(), flags.begin(), flags.end());
  // Flags that cannot apply are accepted, and refused with a reason where they say something; the help leaves them out.
  const absl::StatusOr<ParsedArgs> args = ParseArgs(command->spec, words);
  const bool help = args.ok() && args->Has("help");
  const CommandSpec spec =
      help ? ShownCommand(command->spec, MethodOfCommand(command->spec, args->operands())) : command->spec;
  return RunCommand(
      kProgram, spec, help ? HelpWords(*args) : words, terminal,
      [&](const ParsedArgs& parsed, const Terminal& colored) { return command->run(command->spec, parsed, colored); });
}

}  // namespace normd::client
