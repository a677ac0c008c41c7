#include "server/options/config_file.h"

#include <toml++/toml.h>
#include <cstdint>
#include <exception>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/regular_file.h"
#include "server/options/option_list.h"

namespace normd {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// An error about the file as a whole.
absl::Status FileError(const std::string& path, std::string_view limit, std::string_view problem) {
  return MakeError(ServerReason("CONFIG_FILE"), {.field = "--config", .value = path, .limit = std::string(limit)},
                   Concat("is ", path, ", which ", problem));
}

// `*state` becomes the state of the file, if there is one.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, std::string* state) {
  const auto error_of = [&path](FileProblem problem, int number) {
    if (problem == FileProblem::kNotRegular) return FileError(path, "a regular file", "is no regular file");
    if (problem == FileProblem::kTooLarge) return FileError(path, "at most 1 MiB", "has over 1 MiB");
    return FileError(path, "a file that can be read",
                     Concat("cannot be read: ", std::generic_category().message(number)));
  };
  const auto check = [state](const struct stat& info) {
    *state = FileState(info);
    return absl::OkStatus();
  };
  return ReadRegularFile(path, kMaxFileBytes, check, error_of);
}

absl::Status UnknownKeyError(const std::string& field, std::string_view name) {
  const std::string_view nearest = NearestOption(name);
  return MakeError(
      ServerReason("UNKNOWN_OPTION"),
      {.field = field, .value = std::string(name), .limit = "one of the options that --help lists"},
      Concat("is no option; ", nearest.empty() ? "--help lists the options" : Concat("did you mean ", nearest, "?")));
}

std::string_view TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// What TOML must write for the option.
std::string_view WantedType(const Option& option) {
  if (std::holds_alternative<bool Config::*>(option.field)) return "true or false";
  if (std::holds_alternative<double Config::*>(option.field)) return "a number";
  if (std::holds_alternative<absl::Duration Config::*>(option.field)) return "a string like \"30s\"";
  if (std::holds_alternative<std::vector<std::string> Config::*>(option.field)) {
    return "a string, or an array of strings or integers";
  }
  if (std::holds_alternative<std::string Config::*>(option.field)) return "a string";
  return option.bytes ? "an integer or a string like \"64MiB\"" : "an integer";
}

// The node as text if TOML wrote it in a type that the option takes.
std::optional<std::string> TextOf(const Option& option, const toml::node& node) {
  const bool is_bool = std::holds_alternative<bool Config::*>(option.field);
  const bool is_fraction = std::holds_alternative<double Config::*>(option.field);
  const bool is_number = is_fraction || std::holds_alternative<int64_t Config::*>(option.field);
  const bool is_list = std::holds_alternative<std::vector<std::string> Config::*>(option.field);
  if (const auto* value = node.as_boolean(); value != nullptr && is_bool) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer(); value != nullptr && (is_number || is_list)) {
    return absl::StrCat(value->get());
  }
  if (const auto* value = node.as_floating_point(); value != nullptr && is_fraction) {
    return absl::StrCat(value->get());
  }
  if (const auto* value = node.as_string(); value != nullptr && !is_bool && (!is_number || option.bytes)) {
    return value->get();
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ReadItem(const Option& option, const toml::node& node, const std::string& field) {
  const std::optional<std::string> text = TextOf(option, node);
  const std::string limit(WantedType(option));
  if (!text.has_value()) {
    return MakeError(ServerReason("BAD_OPTION"), {.field = field, .value = std::string(TypeName(node)), .limit = limit},
                     Concat("is ", TypeName(node), "; it must be ", limit));
  }
  // Paths and addresses end at a NUL, so the rest would be lost.
  if (text->find('\0') != std::string::npos) {
    return MakeError(ServerReason("BAD_OPTION"), {.field = field, .value = "", .limit = "text without a NUL"},
                     "has a NUL character; leave it out");
  }
  return *text;
}

absl::StatusOr<FileOption> ReadValue(const Option& option, const toml::node& node, const std::string& field) {
  FileOption read;
  const toml::array* const array = node.as_array();
  if (array == nullptr || !std::holds_alternative<std::vector<std::string> Config::*>(option.field)) {
    NORMD_ASSIGN_OR_RETURN(std::string text, ReadItem(option, node, field));
    read.texts.push_back(std::move(text));
    return read;
  }
  for (const toml::node& item : *array) {
    NORMD_ASSIGN_OR_RETURN(std::string text, ReadItem(option, item, field));
    read.texts.push_back(std::move(text));
  }
  return read;
}

absl::StatusOr<FileOption> ReadOption(std::string_view key, const toml::node& node, const std::string& field) {
  const Option* const option = FindOption(key);
  if (option == nullptr) return UnknownKeyError(field, key);
  if (option->is_command || option->name == kConfigFileOption) {
    return NotAllowedError(field, "it is not taken from a file");
  }
  return ReadValue(*option, node, field);
}

// Does the work of ParseConfigFile, but lets the library's exceptions through.
absl::StatusOr<FileOptions> ParseToml(std::string_view text, const std::string& path) {
  const toml::table table = toml::parse(text);
  // The table is sorted by key; mistakes are reported in the order of the lines.
  std::map<std::pair<int, std::string_view>, const toml::node*> by_line;
  for (const auto& [key, node] : table) {
    by_line[{static_cast<int>(key.source().begin.line), key.str()}] = &node;
  }
  FileOptions options;
  for (const auto& [place, node] : by_line) {
    const auto& [line, key] = place;
    NORMD_ASSIGN_OR_RETURN(FileOption option, ReadOption(key, *node, FileOptionName(path, line, key)));
    option.line = line;
    options[FindOption(key)->name] = std::move(option);
  }
  return options;
}

}  // namespace

std::string FileOptionName(std::string_view path, int line, std::string_view name) {
  return Concat(path, ":", line, ": ", name);
}

absl::StatusOr<FileOptions> ReadConfigFile(const std::string& path) {
  if (path == "-") {
    return MakeError(ServerReason("CONFIG_FILE"), {.field = "--config", .value = path, .limit = "the name of a file"},
                     "is \"-\"; it must be the name of a file, because SIGHUP reads the file again");
  }
  std::string state;
  NORMD_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, &state));
  return ParseConfigFile(text, path);
}

std::string ConfigFileKey(const std::string& path) {
  std::string state;
  const absl::StatusOr<std::string> text = ReadWholeFile(path, &state);
  if (!text.ok()) return Concat(state, "-", std::string(text.status().message()));
  return Concat(state, "+", *text);
}

absl::StatusOr<FileOptions> ParseConfigFile(std::string_view text, const std::string& path) {
  try {
    return ParseToml(text, path);
  } catch (const toml::parse_error& error) {
    const std::string field = Concat(path, ":", error.source().begin.line);
    return MakeError(ServerReason("CONFIG_FILE"), {.field = field, .value = "", .limit = "TOML"},
                     Concat("is not TOML (", error.description(), ")"));
  } catch (const std::exception& error) {
    return FileError(path, "a TOML file", Concat("cannot be parsed: ", error.what()));
  }
}

}  // namespace normd
