#include "server/options/option_sources.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include "absl/strings/str_replace.h"
#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/options/option_list.h"

namespace normd {
namespace {

void AddOption(const Option& option, CLI::App& app) {
  std::string names = Concat("--", option.name);
  const std::string hyphenated = absl::StrReplaceAll(names, {{"_", "-"}});
  if (hyphenated != names) names += "," + hyphenated;
  if (option.name == "help") {  // Without a value, --help means --help=text.
    app.add_flag("-h{text},--help{text}");
  } else if (std::holds_alternative<bool Config::*>(option.field)) {
    app.add_flag(Concat(names, ",!--no", option.name));
  } else {
    app.add_option(names);
  }
}

// CLI11 2.1 does not distinguish `--name=` from `--name`, which uses the next argument as its value. A NUL, which no
// argument can hold, stands for the end of an empty value while CLI11 has the arguments.
std::vector<std::string> WithMarkedEnds(absl::Span<const std::string> args) {
  std::vector<std::string> marked(args.begin(), args.end());
  for (std::string& arg : marked) {
    if (arg.ends_with('=')) arg.push_back('\0');
  }
  return marked;
}

std::vector<std::string> WithoutMarks(std::vector<std::string> texts) {
  for (std::string& text : texts) {
    if (text.ends_with('\0')) text.pop_back();
  }
  return texts;
}

absl::Status UnknownArgumentError(const std::string& argument) {
  std::string name = argument.substr(0, argument.find('='));
  name.erase(0, name.find_first_not_of('-'));
  const std::string_view nearest = NearestOption(absl::StrReplaceAll(name, {{"-", "_"}}));
  return MakeError(
      ServerReason("UNKNOWN_OPTION"),
      {.field = "command line", .value = Concat("\"", argument, "\""), .limit = "one of the options that --help lists"},
      Concat("has \"", argument, "\", which is no option; ",
             nearest.empty() ? "--help lists the options" : Concat("did you mean --", nearest, "?")));
}

// Does the work of ReadCommandLine, but lets CLI11's exceptions through. REQUIRES: no argument holds a NUL.
absl::StatusOr<OptionTexts> ParseWithCli11(absl::Span<const std::string> args) {
  CLI::App app;
  app.set_help_flag();  // Turns CLI11's own --help off, because AllOptions() has one.
  app.allow_extras();   // UnknownArgumentError says more about an extra argument than CLI11 does.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  for (const Option& option : AllOptions()) AddOption(option, app);
  std::vector<std::string> arguments = WithMarkedEnds(args);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the first argument from the end.
  app.parse(std::move(arguments));
  if (const auto unknown = WithoutMarks(app.remaining()); !unknown.empty()) return UnknownArgumentError(unknown[0]);
  OptionTexts texts;
  for (const Option& option : AllOptions()) {
    const CLI::Option* const parsed = app.get_option(Concat("--", option.name));
    if (!parsed->empty()) texts[option.name] = WithoutMarks(parsed->results());
  }
  return texts;
}

}  // namespace

absl::StatusOr<OptionTexts> ReadCommandLine(absl::Span<const std::string> args) {
  try {
    return ParseWithCli11(args);
  } catch (const CLI::ArgumentMismatch&) {  // An option lacks its value, which only the last argument can.
    return MakeError(KernelReason("MISSING_FIELD"), {.field = args.back(), .value = "", .limit = "a value"},
                     "needs a value");
  } catch (const std::exception& error) {  // For example, std::stoll throws inside CLI11.
    return MakeError(ServerReason("BAD_OPTION"),
                     {.field = "command line", .value = error.what(), .limit = "options as --help lists them"},
                     Concat("cannot be read (", error.what(), "); --help lists the options"));
  }
}

OptionTexts ReadEnvironment(const std::map<std::string, std::string>& env) {
  OptionTexts texts;
  for (const Option& option : AllOptions()) {
    const auto variable = env.find(EnvironmentName(option.name));
    if (variable != env.end() && !option.is_command) texts[option.name] = {variable->second};
  }
  return texts;
}

}  // namespace normd
