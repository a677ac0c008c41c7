#include "client/cli/shell_commands.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/completion.h"
#include "client/cli/man_page.h"
#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

absl::Status WritePages(absl::string_view program, absl::Span<const CommandSpec> commands, const std::string& folder) {
  for (const CommandSpec& command : commands) {
    const std::string path = absl::StrCat(folder, "/", ManPageName(program, command), ".1");
    if (absl::Status status = WriteFile(path, ManPage(program, commands, command)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec CompletionSpec() {
  return {"completion",
          "SHELL",
          1,
          1,
          "print the completion of bash, zsh or fish",
          "For one shell, or for good:\n"
          "\n"
          "  source <(normctl completion bash)\n"
          "  normctl completion bash > ~/.local/share/bash-completion/completions/normctl\n"
          "  normctl completion zsh > \"${fpath[1]}/_normctl\"\n"
          "  normctl completion fish > ~/.config/fish/completions/normctl.fish\n"
          "\n"
          "normload has the same command.",
          {}};
}

CommandSpec ManSpec() {
  return {"man",
          "[COMMAND]",
          0,
          2,
          "print a man page, of the program or of one command",
          "  normctl man | man -l -\n"
          "  normctl man session create | man -l -",
          {{"directory", 'd', "DIR", "write all pages into the folder instead: normctl.1, normctl-layer-norm.1, ..."}}};
}

absl::Status RunCompletion(absl::string_view program, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::string> script = CompletionScript(args.operands()[0], program);
  if (!script.ok()) return script.status();
  terminal.out << *script;
  return absl::OkStatus();
}

absl::Status RunMan(absl::string_view program, absl::Span<const CommandSpec> commands, const ParsedArgs& args,
                    const Terminal& terminal) {
  if (args.Has("directory")) return WritePages(program, commands, *args.Get("directory"));
  const std::string name = absl::StrReplaceAll(absl::StrJoin(args.operands(), " "), {{"_", "-"}});
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) {
    if (command.name == name) {
      terminal.out << ManPage(program, commands, command);
      return absl::OkStatus();
    }
    names.push_back(command.name);
  }
  return UnknownNameError("command", name, names);
}

}  // namespace normd::client
