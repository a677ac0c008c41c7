#include "server/options/option_help.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/base/strings.h"
#include "server/options/option_list.h"
#include "server/options/option_values.h"

namespace normd {
namespace {

constexpr char kTomlHead[] =
    "# Options of normd, for `normd --config=FILE`: every option there is, with its default. `normd --help=toml` "
    "prints\n"
    "# this file. The command line and the environment (NORMD_MAX_SESSIONS for max_sessions) win over the file, a "
    "name\n"
    "# that is no option is an error, and `normd --check_config --config=FILE` finds mistakes without serving. SIGHUP\n"
    "# reads the file again; an option for which the file does not say so takes effect with a restart.\n";

// `text` as comment lines of at most 120 characters.
std::string CommentLines(std::string_view text) {
  constexpr size_t kMaxLine = 120;
  std::string lines;
  std::string line = "#";
  for (const absl::string_view word : absl::StrSplit(std::string(text), ' ')) {
    if (line.size() + 1 + word.size() > kMaxLine) {
      absl::StrAppend(&lines, line, "\n");
      line = "#";
    }
    absl::StrAppend(&line, " ", word);
  }
  return lines + line + "\n";
}

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", text, "\""); }

// The default as TOML writes it.
std::string TomlDefault(const Option& option) {
  std::string text(option.default_value);
  if (std::holds_alternative<bool Config::*>(option.field)) return text;
  if (std::holds_alternative<int64_t Config::*>(option.field) && !option.bytes) return text;
  if (std::holds_alternative<double Config::*>(option.field)) return text;
  if (!std::holds_alternative<std::vector<std::string> Config::*>(option.field)) return Quoted(text);
  const std::vector<std::string> items = absl::StrSplit(text, ',');
  return absl::StrCat(
      "[", absl::StrJoin(items, ", ", [](std::string* out, const std::string& item) { out->append(Quoted(item)); }),
      "]");
}

}  // namespace

std::string HelpText() {
  std::ostringstream out;
  out << "normd serves normalisation of tensors over gRPC.\n\nOptions (--name=value; also the environment, "
         "NORMD_NAME, and the file of --config; -h is --help):\n";
  for (const Option& option : AllOptions()) {
    out << "  --" << option.name;
    if (!option.default_value.empty()) out << " (" << option.default_value << ")";
    if (const std::string limit = LimitText(option); !limit.empty()) out << ", " << limit;
    if (option.is_reloadable) out << ", reloaded by SIGHUP";
    out << "\n      " << option.help << "\n";
  }
  return out.str();
}

std::string HelpMarkdown() {
  std::ostringstream out;
  out << "| option | default | limits | SIGHUP | meaning |\n|---|---|---|---|---|\n";
  for (const Option& option : AllOptions()) {
    out << "| `--" << option.name << "` | ";
    if (!option.default_value.empty()) out << "`" << option.default_value << "`";
    out << " | " << LimitText(option) << " | " << (option.is_reloadable ? "reloads" : "") << " | "
        << absl::StrReplaceAll(std::string(option.help), {{"|", "\\|"}}) << " |\n";
  }
  return out.str();
}

std::string HelpToml() {
  std::ostringstream out;
  out << kTomlHead;
  for (const Option& option : AllOptions()) {
    if (option.is_command || option.name == kConfigFileOption) continue;
    const std::string limit = LimitText(option);
    out << "\n"
        << CommentLines(Concat(option.help, limit.empty() ? "" : " Limits: ", limit, limit.empty() ? "" : ".",
                               option.is_reloadable ? " SIGHUP reloads it." : ""))
        << "# " << option.name << " = " << TomlDefault(option) << "\n";
  }
  return out.str();
}

std::string ValuesText(const Config& config) {
  std::ostringstream out;
  for (const Option& option : AllOptions()) {
    const auto origin = config.origins.find(option.name);
    if (origin == config.origins.end() || option.is_command) continue;
    out << option.name << " = " << ValueText(option, config) << " (" << origin->second.place << ")\n";
  }
  return out.str();
}

}  // namespace normd
