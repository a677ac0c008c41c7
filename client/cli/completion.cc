#include "client/cli/completion.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/spec_flags.h"

namespace normd::client {
namespace {

using Commands = absl::Span<const CommandSpec>;

constexpr absl::string_view kFiles = "FILE", kFolders = "DIR";

// The next words of the commands of a group: {"create", "get", ...} for "session".
std::vector<std::string> WordsAfter(Commands commands, absl::string_view group) {
  const std::string prefix = absl::StrCat(group, group.empty() ? "" : " ");
  std::vector<std::string> out;
  for (const CommandSpec& command : commands) {
    absl::string_view name = command.name;
    if (name == group || !absl::ConsumePrefix(&name, prefix)) continue;
    const std::string word(name.substr(0, name.find(' ')));
    if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  }
  return out;
}

// What may stand where `placeholder` stands: words joined by blanks, kFiles, kFolders, or nothing that is known.
std::string Candidates(Commands commands, const CommandSpec& command, absl::string_view placeholder) {
  absl::string_view kind = absl::StripSuffix(placeholder, "...");
  if (absl::ConsumePrefix(&kind, "[")) kind = absl::StripSuffix(kind, "]");
  if (kind == "INPUT" || kind == kFiles) return std::string(kFiles);
  if (kind == kFolders) return std::string(kFolders);
  if (kind == "METHOD") return absl::StrJoin(MethodNames(), " ");
  if (kind == "SHELL") return "bash zsh fish";
  if (kind != "COMMAND") return "";
  const bool is_group = !WordsAfter(commands, command.name).empty();
  return absl::StrJoin(WordsAfter(commands, is_group ? command.name : ""), " ");
}

std::string FlagCandidates(Commands commands, const CommandSpec& command, const FlagSpec& flag) {
  if (flag.choices.empty()) return Candidates(commands, command, flag.value);
  return absl::StrReplaceAll(flag.choices, {{"|", " "}});
}

std::vector<std::string> Operands(const CommandSpec& command) {
  return absl::StrSplit(command.operands, ' ', absl::SkipEmpty());
}

// The names of functions and files: "session_create".
std::string Identifier(absl::string_view name) { return absl::StrReplaceAll(name, {{" ", "_"}, {"-", "_"}}); }

// The first sentence part of a help text, for shells that show one beside a word.
std::string Brief(absl::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return std::string(text);
  const size_t end = text.substr(0, kLongest).rfind(' ');
  return absl::StrCat(text.substr(0, end), " ...");
}

// ---- bash

// The parser of the script: finds the command, the flag that waits for its value, and the number of operands. Bash
// gives "=" and ":" as words of their own.
constexpr absl::string_view kBashMain = R"(
_PROGRAM() {
  local current=${COMP_WORDS[COMP_CWORD]} command= flag= joined= operands=0 candidates i word
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then continue; fi
    if [[ $word == : ]]; then joined=1; continue; fi
    if [[ $joined ]]; then joined=; continue; fi
    if [[ $flag ]]; then flag=; continue; fi
    if [[ $word == -* ]]; then
      if _PROGRAM_takes_value "$word"; then flag=$word; fi
    elif ((operands == 0)) && [[ ! $command && $word == help ]]; then
      continue
    elif ((operands == 0)) && _PROGRAM_is_command "${command:+$command }$word"; then
      command=${command:+$command }$word
    else
      ((operands++))
    fi
  done
  if [[ $current == = || $current == : ]]; then current=; fi
  if [[ $flag ]]; then
    candidates=$(_PROGRAM_values "$command" "$flag")
  elif [[ $current == -* ]]; then
    candidates=$(_PROGRAM_flags "$command")
  else
    candidates=$(_PROGRAM_operands "$command" "$operands")
  fi
  case $candidates in
    FILE) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    DIR) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$current") ;;
  esac
}
complete -F _PROGRAM PROGRAM
)";

std::string BashFlags(const CommandSpec& command) {
  std::vector<std::string> out;
  for (const FlagSpec& flag : AllFlags(command)) out.push_back(absl::StrCat("--", flag.name));
  return absl::StrJoin(out, " ");
}

// A case for each flag with candidates: those of all commands at once where all have the same.
std::string BashValues(Commands commands) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> by_flag;  // name, candidates, commands
  for (const CommandSpec& command : commands) {
    for (const FlagSpec& flag : command.flags) {
      const std::string letter = flag.letter == '\0' ? "" : absl::StrCat("-", std::string(1, flag.letter));
      const std::string candidates = FlagCandidates(commands, command, flag);
      by_flag[absl::StrCat("--", flag.name)][candidates].push_back(command.name);
      if (!letter.empty()) by_flag[letter][candidates].push_back(command.name);
    }
  }
  std::string out;
  for (const auto& [flag, cases] : by_flag) {
    for (const auto& [candidates, names] : cases) {
      if (candidates.empty()) continue;
      const std::string pattern =
          cases.size() == 1 ? absl::StrCat("*:", flag)
                            : absl::StrJoin(names, "|", [&flag = flag](std::string* to, const std::string& name) {
                                absl::StrAppend(to, "'", name, "':", flag);
                              });
      absl::StrAppend(&out, "    ", pattern, ") echo '", candidates, "' ;;\n");
    }
  }
  return out;
}

std::string BashTakesValue(Commands commands) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (const CommandSpec& command : commands) {
    for (const FlagSpec& flag : command.flags) {
      if (flag.value.empty()) continue;
      add(absl::StrCat("--", flag.name));
      if (flag.letter != '\0') add(absl::StrCat("-", std::string(1, flag.letter)));
    }
  }
  return absl::StrJoin(out, "|");
}

std::string BashOperands(Commands commands) {
  std::string out;
  for (const CommandSpec& command : commands) {
    const std::vector<std::string> operands = Operands(command);
    const std::vector<std::string> words = WordsAfter(commands, command.name);
    if (!words.empty())
      absl::StrAppend(&out, "    '", command.name, ":0') echo '", absl::StrJoin(words, " "), "' ;;\n");
    for (size_t i = 0; words.empty() && i < operands.size(); ++i) {
      const std::string candidates = Candidates(commands, command, operands[i]);
      const std::string place = absl::EndsWith(operands[i], "...") ? "'*" : absl::StrCat(i, "'");
      if (!candidates.empty()) {
        absl::StrAppend(&out, "    '", command.name, ":", place, ") echo '", candidates, "' ;;\n");
      }
    }
  }
  return out;
}

std::string BashScript(absl::string_view program, Commands commands) {
  std::string is_command, flags;
  for (const CommandSpec& command : commands) {
    if (!command.name.empty()) absl::StrAppend(&is_command, is_command.empty() ? "" : "|", "'", command.name, "'");
    absl::StrAppend(&flags, "    '", command.name, "') echo '", BashFlags(command), "' ;;\n");
  }
  const std::string text = absl::StrCat(
      "# bash completion of PROGRAM, made by `PROGRAM completion bash`.\n"
      "_PROGRAM_is_command() {\n  case $1 in\n    ",
      is_command, ") return 0 ;;\n  esac\n  return 1\n}\n_PROGRAM_takes_value() {\n  case ${1//_/-} in\n    ",
      BashTakesValue(commands), ") return 0 ;;\n  esac\n  return 1\n}\n_PROGRAM_flags() {\n  case $1 in\n", flags,
      "  esac\n}\n_PROGRAM_values() {\n  case $1:${2//_/-} in\n", BashValues(commands),
      "  esac\n}\n_PROGRAM_operands() {\n  case $1:$2 in\n", BashOperands(commands), "  esac\n}", kBashMain);
  return absl::StrReplaceAll(text, {{"PROGRAM", program}});
}

// ---- zsh

std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshAction(const std::string& candidates) {
  if (candidates == kFiles) return "_files";
  if (candidates == kFolders) return "_files -/";
  return candidates.empty() ? " " : absl::StrCat("(", candidates, ")");
}

std::string ZshFlag(Commands commands, const CommandSpec& command, const FlagSpec& flag) {
  const std::string text = absl::StrCat("[", ZshText(Brief(FlagHelp(command, flag))), "]");
  const std::string value = flag.value.empty() ? ""
                                               : absl::StrCat(":", ZshText(flag.value), ":",
                                                              ZshAction(FlagCandidates(commands, command, flag)));
  const std::string name = absl::StrCat("--", flag.name, flag.value.empty() ? "" : "=");
  std::string out = absl::StrCat(" \\\n    '*", name, text, value, "'");
  if (flag.letter != '\0') {
    absl::StrAppend(&out, " \\\n    '*-", std::string(1, flag.letter), flag.value.empty() ? "" : "+", text, value, "'");
  }
  return out;
}

std::string ZshFunction(absl::string_view program, Commands commands, const CommandSpec& command) {
  const std::vector<std::string> words = WordsAfter(commands, command.name);
  const std::string prefix = absl::StrCat(command.name, command.name.empty() ? "" : " ");
  std::string flags;
  for (const FlagSpec& flag : AllFlags(command)) absl::StrAppend(&flags, ZshFlag(commands, command, flag));
  const std::string name = absl::StrCat("_", program, command.name.empty() ? "" : "_", Identifier(command.name));
  std::string out = absl::StrCat(name, "() {\n");
  if (words.empty()) {
    absl::StrAppend(&out, "  _arguments -S", flags);
    for (const std::string& operand : Operands(command)) {
      const bool many = absl::EndsWith(operand, "...");
      absl::StrAppend(&out, " \\\n    '", many ? "*" : "", ":", ZshText(operand), ":",
                      ZshAction(Candidates(commands, command, operand)), "'");
    }
    return absl::StrCat(out, "\n}\n");
  }
  absl::StrAppend(
      &out, "  local curcontext=$curcontext state line\n  typeset -A opt_args\n  _arguments -C -S", flags,
      " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n      local -a commands=(\n");
  for (const std::string& word : words) {
    const auto* named = std::find_if(commands.begin(), commands.end(),
                                     [&](const CommandSpec& c) { return c.name == absl::StrCat(prefix, word); });
    if (named == commands.end()) continue;
    absl::StrAppend(&out, "        '", word, ":", ZshText(Brief(named->summary)), "'\n");
  }
  absl::StrAppend(&out, "      )\n      _describe command commands ;;\n    rest)\n      case $line[1] in\n");
  for (const std::string& word : words) {
    absl::StrAppend(&out, "        ", word, ") _", program, "_", Identifier(absl::StrCat(prefix, word)), " ;;\n");
  }
  return absl::StrCat(out, "      esac ;;\n  esac\n}\n");
}

std::string ZshScript(absl::string_view program, Commands commands) {
  std::string out = absl::StrCat("#compdef ", program, "\n# zsh completion of ", program, ", made by `", program,
                                 " completion zsh`.\n");
  for (const CommandSpec& command : commands) absl::StrAppend(&out, ZshFunction(program, commands, command));
  // As a file of $fpath the script is the function's body; sourced, it declares the function.
  absl::StrAppend(&out, "if [[ $funcstack[1] == _", program, " ]]; then _", program, " \"$@\"; else compdef _", program,
                  " ", program, "; fi\n");
  return out;
}

// ---- fish

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishCandidates(const std::string& candidates) {
  if (candidates == kFiles) return " -F";
  if (candidates == kFolders) return " -a '(__fish_complete_directories)'";
  return candidates.empty() ? "" : absl::StrCat(" -a ", FishQuoted(candidates));
}

// Prints the command that the line names so far.
constexpr absl::string_view kFishCommand = R"(function __PROGRAM_command
  set -l names NAMES
  set -l command
  for word in (commandline -opc)[2..-1]
    if contains -- (string join -- ' ' $command $word) $names
      set -a command $word
    end
  end
  string join -- ' ' $command
end
complete -c PROGRAM -f
)";

std::string FishScript(absl::string_view program, Commands commands) {
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) {
    if (!command.name.empty()) names.push_back(FishQuoted(command.name));
  }
  std::string out =
      absl::StrCat("# fish completion of ", program, ", made by `", program, " completion fish`.\n",
                   absl::StrReplaceAll(kFishCommand, {{"PROGRAM", program}, {"NAMES", absl::StrJoin(names, " ")}}));
  for (const CommandSpec& command : commands) {
    const std::string start =
        absl::StrCat("complete -c ", program, " -n 'test \"$(__", program, "_command)\" = \"", command.name, "\"'");
    for (const std::string& word : WordsAfter(commands, command.name)) {
      const std::string name = absl::StrCat(command.name, command.name.empty() ? "" : " ", word);
      const auto* named =
          std::find_if(commands.begin(), commands.end(), [&](const CommandSpec& c) { return c.name == name; });
      absl::StrAppend(&out, start, " -a ", word, " -d ",
                      FishQuoted(named == commands.end() ? "" : Brief(named->summary)), "\n");
    }
    if (WordsAfter(commands, command.name).empty()) {
      for (const std::string& operand : Operands(command)) {
        const std::string candidates = FishCandidates(Candidates(commands, command, operand));
        if (!candidates.empty()) absl::StrAppend(&out, start, candidates, "\n");
      }
    }
    for (const FlagSpec& flag : AllFlags(command)) {
      const std::string letter = flag.letter == '\0' ? "" : absl::StrCat(" -s ", std::string(1, flag.letter));
      const std::string candidates = FlagCandidates(commands, command, flag);
      const char* value = flag.value.empty() ? "" : candidates == kFiles ? " -r" : " -x";
      absl::StrAppend(&out, start, letter, " -l ", flag.name, value, FishCandidates(candidates), " -d ",
                      FishQuoted(Brief(FlagHelp(command, flag))), "\n");
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(absl::string_view shell, absl::string_view program,
                                             absl::Span<const CommandSpec> commands) {
  if (shell == "bash") return BashScript(program, commands);
  if (shell == "zsh") return ZshScript(program, commands);
  if (shell == "fish") return FishScript(program, commands);
  return UsageError(absl::StrCat("unknown shell ", shell, "; it must be bash, zsh or fish"));
}

}  // namespace normd::client
