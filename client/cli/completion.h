// Completion in shells: what may stand where a word is being written, found in the list of commands and flags, and the
// few lines of each shell that ask for it (`PROGRAM --complete WORD...`). Pure functions.
#ifndef NORMD_CLIENT_CLI_COMPLETION_H_
#define NORMD_CLIENT_CLI_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"

namespace normd::client {

// The flag before the words of a line that is to be completed.
inline constexpr absl::string_view kCompleteFlag = "--complete";

// What may stand for the last of `words`, which begin behind the program's name: ":files" or ":folders", or lines of a
// word that begins as the last one does, a tab, and what it means. `commands` holds the program itself, whose name is
// empty, groups ("session") and commands ("session get"). "=" and ":" may be words of their own, as bash has them.
std::string CompletionText(absl::Span<const CommandSpec> commands, absl::Span<const std::string> words);

// The script of `shell`: bash, zsh or fish. UsageError for other shells.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell, absl::string_view program);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_COMPLETION_H_
