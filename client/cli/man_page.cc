#include "client/cli/man_page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/program.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// Text that roff prints as it stands: '\' and '-' have meanings, and so have '.' and ''' at the start of a line.
std::string Escaped(absl::string_view text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
  if (absl::StartsWith(out, ".") || absl::StartsWith(out, "'")) out = absl::StrCat("\\&", out);
  return out;
}

// "One of exact, fast.", unless the help names all of them.
std::string ChoicesText(const FlagSpec& flag) {
  const std::vector<absl::string_view> choices = absl::StrSplit(flag.choices, '|', absl::SkipEmpty());
  const bool named = std::all_of(choices.begin(), choices.end(),
                                 [&](absl::string_view choice) { return absl::StrContains(flag.help, choice); });
  return named ? "" : absl::StrCat(". One of ", absl::StrJoin(choices, ", "));
}

// Paragraphs are filled. Lines that start with two blanks, as examples do, are shown as they are.
std::string TextBody(absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(ReflowText(text, absl::string_view::npos), '\n')) {
    const bool kept = absl::StartsWith(line, "  ");
    absl::StrAppend(&out, kept ? ".nf\n" : "", line.empty() ? ".PP" : Escaped(line), kept ? "\n.fi\n" : "\n");
  }
  return out;
}

// "\fB\-o\fR, \fB\-\-output\fR \fIFILE\fR".
std::string FlagTag(const FlagSpec& flag) {
  std::string out;
  if (flag.letter != '\0') absl::StrAppend(&out, "\\fB\\-", std::string(1, flag.letter), "\\fR, ");
  absl::StrAppend(&out, "\\fB\\-\\-", Escaped(flag.name), "\\fR");
  if (!flag.value.empty()) absl::StrAppend(&out, " \\fI", Escaped(flag.value), "\\fR");
  return out;
}

std::string FlagsSection(const CommandSpec& command) {
  std::string out = ".SH OPTIONS\n";
  absl::string_view group;
  for (const FlagSpec& flag : AllFlags(command)) {
    if (flag.group != group) absl::StrAppend(&out, ".SS ", flag.group, "\n");
    group = flag.group;
    absl::StrAppend(&out, ".TP\n", FlagTag(flag), "\n",
                    Escaped(absl::StrCat(FlagHelp(command, flag), ChoicesText(flag))), "\n");
  }
  return out;
}

std::string CommandsSection(absl::Span<const CommandSpec> commands, const CommandSpec& group) {
  std::string out;
  for (const CommandSpec& command : commands) {
    const std::string prefix = absl::StrCat(group.name, group.name.empty() ? "" : " ");
    if (command.name == group.name || !absl::StartsWith(command.name, prefix)) continue;
    absl::StrAppend(&out, ".TP\n\\fB", Escaped(command.name), "\\fR \\fI", Escaped(command.operands), "\\fR\n",
                    Escaped(command.summary), "\n");
  }
  return out.empty() ? "" : absl::StrCat(".SH COMMANDS\n", out);
}

constexpr absl::string_view kEnd =
    ".SH EXIT STATUS\n"
    "0 is success, 1 an error of the server or of a file, 2 wrong usage.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n"
    "\\fBNORMD_SERVER\\fR\n"
    "The server, where \\fB\\-\\-server\\fR is not given.\n";

}  // namespace

std::string ManPageName(absl::string_view program, const CommandSpec& command) {
  return absl::StrCat(program, command.name.empty() ? "" : "-", absl::StrReplaceAll(command.name, {{" ", "-"}}));
}

std::string ManPage(absl::string_view program, absl::Span<const CommandSpec> commands, const CommandSpec& command) {
  const std::string page = ManPageName(program, command);
  std::string out =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(Escaped(page)), " 1 \"\" \"normd ", ClientVersion(),
                   "\" \"normd\"\n.SH NAME\n", Escaped(page), " \\- ", Escaped(command.summary), "\n.SH SYNOPSIS\n\\fB",
                   Escaped(program), command.name.empty() ? "" : " ", Escaped(command.name), "\\fR");
  if (!command.operands.empty()) absl::StrAppend(&out, " \\fI", Escaped(command.operands), "\\fR");
  absl::StrAppend(&out, " [\\fIflags\\fR]\n");
  // The details of a group list its commands, which have a section of their own.
  const std::string listed = CommandsSection(commands, command);
  if (listed.empty() && !command.details.empty()) {
    absl::StrAppend(&out, ".SH DESCRIPTION\n", TextBody(absl::StripTrailingAsciiWhitespace(command.details)));
  }
  return absl::StrCat(out, listed, FlagsSection(command), kEnd);
}

}  // namespace normd::client
