#include "client/cli/completion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/spec_flags.h"

namespace normd::client {
namespace {

using Commands = absl::Span<const CommandSpec>;

constexpr absl::string_view kFiles = ":files", kFolders = ":folders";

// What may stand somewhere: words, or one of the two above.
struct Candidate {
  std::string word;
  std::string meaning;
};
using Candidates = std::vector<Candidate>;

const CommandSpec* Find(Commands commands, absl::string_view name) {
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const auto& c) { return c.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::string Joined(absl::string_view group, absl::string_view word) {
  return absl::StrCat(group, group.empty() ? "" : " ", word);
}

// The next words of the commands of a group: {"create", "get", ...} for "session".
Candidates WordsAfter(Commands commands, absl::string_view group) {
  Candidates out;
  for (const CommandSpec& command : commands) {
    absl::string_view name = command.name;
    if (name == group || !absl::ConsumePrefix(&name, Joined(group, ""))) continue;
    const std::string word(name.substr(0, name.find(' ')));
    if (std::any_of(out.begin(), out.end(), [&](const Candidate& c) { return c.word == word; })) continue;
    const CommandSpec* const named = Find(commands, Joined(group, word));
    out.push_back({word, named == nullptr ? "" : named->summary});
  }
  return out;
}

Candidates WordsOf(absl::string_view joined, char separator) {
  Candidates out;
  for (absl::string_view word : absl::StrSplit(joined, separator)) out.push_back({std::string(word), ""});
  return out;
}

// What may stand where `placeholder` stands.
Candidates CandidatesFor(Commands commands, const CommandSpec& command, absl::string_view placeholder) {
  absl::string_view kind = absl::StripSuffix(placeholder, "...");
  if (absl::ConsumePrefix(&kind, "[")) kind = absl::StripSuffix(kind, "]");
  if (kind == "INPUT" || kind == "FILE") return {{std::string(kFiles), ""}};
  if (kind == "DIR") return {{std::string(kFolders), ""}};
  if (kind == "SHELL") return WordsOf("bash zsh fish", ' ');
  if (kind == "METHOD") {
    Candidates methods;
    for (const std::string& method : MethodNames()) methods.push_back({method, ""});
    return methods;
  }
  if (kind != "COMMAND") return {};
  const bool is_group = !WordsAfter(commands, command.name).empty();
  return WordsAfter(commands, is_group ? command.name : "");
}

// The flag that `word` is, "--eps_mode" or "-o": of the command, or else of any.
const FlagSpec* FindFlag(Commands commands, const CommandSpec& command, absl::string_view word) {
  const std::string written = absl::StrReplaceAll(word, {{"_", "-"}});
  const auto is_written = [&](const FlagSpec& flag) {
    return written == absl::StrCat("--", flag.name) ||
           (flag.letter != '\0' && written == absl::StrCat("-", std::string(1, flag.letter)));
  };
  for (const FlagSpec& flag : command.flags) {
    if (is_written(flag)) return &flag;
  }
  for (const CommandSpec& other : commands) {
    const auto found = std::find_if(other.flags.begin(), other.flags.end(), is_written);
    if (found != other.flags.end()) return &*found;
  }
  return nullptr;
}

// How far the line has come before the word that is being written.
struct LinePosition {
  const CommandSpec* command;
  const FlagSpec* flag = nullptr;  // that waits for its value
  size_t operands = 0;
};

class Line {
 public:
  explicit Line(Commands commands) : commands_(commands), position_{Find(commands, "")} {}

  const LinePosition& position() const { return position_; }
  void Take(const std::string& word) {
    if (word == "=") return;
    // Of "unix:/run/x" bash makes three words; the last two belong to the one before.
    if (word == ":" || joins_) {
      joins_ = word == ":";
    } else if (position_.flag != nullptr) {
      position_.flag = nullptr;
    } else if (absl::StartsWith(word, "-") && word != "-") {
      const FlagSpec* const flag = FindFlag(commands_, *position_.command, word);
      if (flag != nullptr && !flag->value.empty()) position_.flag = flag;
    } else {
      TakeOperand(word);
    }
  }

 private:
  void TakeOperand(const std::string& word) {
    const bool asks_for_help = position_.command->name.empty() && word == "help";
    if (position_.operands == 0 && asks_for_help) return;
    const CommandSpec* const next = Find(commands_, Joined(position_.command->name, word));
    if (position_.operands == 0 && next != nullptr) {
      position_.command = next;
    } else {
      ++position_.operands;
    }
  }

  const Commands commands_;
  LinePosition position_;
  bool joins_ = false;  // the next word goes on where a ':' ended
};

Candidates ValuesOf(Commands commands, const CommandSpec& command, const FlagSpec& flag) {
  return flag.choices.empty() ? CandidatesFor(commands, command, flag.value) : WordsOf(flag.choices, '|');
}

Candidates OperandsAt(Commands commands, const LinePosition& position) {
  if (Candidates words = WordsAfter(commands, position.command->name); !words.empty()) {
    return position.operands == 0 ? words : Candidates();
  }
  const std::vector<std::string> operands = absl::StrSplit(position.command->operands, ' ', absl::SkipEmpty());
  if (operands.empty()) return {};
  const bool goes_on = absl::EndsWith(operands.back(), "...");
  if (position.operands >= operands.size() && !goes_on) return {};
  return CandidatesFor(commands, *position.command, operands[std::min(position.operands, operands.size() - 1)]);
}

Candidates FlagsOf(const CommandSpec& command) {
  Candidates flags;
  for (const FlagSpec& flag : AllFlags(command))
    flags.push_back({absl::StrCat("--", flag.name), FlagHelp(command, flag)});
  return flags;
}

// "--flag=" where the word that is being written begins with it, as zsh and fish leave it.
absl::string_view FlagPart(absl::string_view word) {
  const size_t end = absl::StartsWith(word, "--") ? word.find('=') : absl::string_view::npos;
  return end == absl::string_view::npos ? absl::string_view() : word.substr(0, end + 1);
}

constexpr absl::string_view kBash = R"(# bash completion of PROGRAM, made by `PROGRAM completion bash`.
_PROGRAM() {
  local IFS=$'\n' lines
  mapfile -t lines < <(PROGRAM --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case ${lines[0]} in
    :files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]#=}") ;;
    :folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "${COMP_WORDS[COMP_CWORD]#=}") ;;
    *) COMPREPLY=("${lines[@]%%$'\t'*}") ;;
  esac
}
complete -F _PROGRAM PROGRAM
)";

// As a file of $fpath the script is the function's body; sourced, it declares the function.
constexpr absl::string_view kZsh = R"(#compdef PROGRAM
# zsh completion of PROGRAM, made by `PROGRAM completion zsh`.
_PROGRAM() {
  local -a lines shown
  lines=("${(@f)$(PROGRAM --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if compset -P '--*='; then lines=("${(@)lines#--*=}"); fi
  case $lines[1] in
    :files) _files ;;
    :folders) _files -/ ;;
    *)
      shown=("${(@)lines/$'\t'/:}")
      _describe PROGRAM shown ;;
  esac
}
if [[ $funcstack[1] == _PROGRAM ]]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
)";

constexpr absl::string_view kFish = R"(# fish completion of PROGRAM, made by `PROGRAM completion fish`.
function __PROGRAM_complete
  set -l lines (PROGRAM --complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
  switch "$lines[1]"
    case ':files'
      __fish_complete_path (commandline -ct)
    case ':folders'
      __fish_complete_directories (commandline -ct)
    case '*'
      printf '%s\n' $lines
  end
end
complete -c PROGRAM -f -a '(__PROGRAM_complete)'
)";

}  // namespace

std::string CompletionText(Commands commands, absl::Span<const std::string> words) {
  Line line(commands);
  for (size_t i = 0; i + 1 < words.size(); ++i) line.Take(words[i]);
  absl::string_view written = words.empty() ? absl::string_view() : words.back();
  if (written == "=" || written == ":") written = "";
  const LinePosition& position = line.position();
  const absl::string_view flag_part = FlagPart(written);
  const FlagSpec* const flag =
      flag_part.empty() ? position.flag : FindFlag(commands, *position.command, absl::StripSuffix(flag_part, "="));
  Candidates candidates;
  if (flag != nullptr) {
    candidates = ValuesOf(commands, *position.command, *flag);
  } else if (absl::StartsWith(written, "-")) {
    candidates = FlagsOf(*position.command);
  } else {
    candidates = OperandsAt(commands, position);
  }
  std::string out;
  for (const Candidate& candidate : candidates) {
    if (candidate.word == kFiles || candidate.word == kFolders) return absl::StrCat(candidate.word, "\n");
    const std::string word = absl::StrCat(flag_part, candidate.word);
    if (absl::StartsWith(word, written)) absl::StrAppend(&out, word, "\t", candidate.meaning, "\n");
  }
  return out;
}

absl::StatusOr<std::string> CompletionScript(absl::string_view shell, absl::string_view program) {
  const auto script = [program](absl::string_view text) { return absl::StrReplaceAll(text, {{"PROGRAM", program}}); };
  if (shell == "bash") return script(kBash);
  if (shell == "zsh") return script(kZsh);
  if (shell == "fish") return script(kFish);
  return UsageError(absl::StrCat("unknown shell ", shell, "; it must be bash, zsh or fish"));
}

}  // namespace normd::client
