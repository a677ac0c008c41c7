// The options of `normd` as texts for people, all made from the one list: --help, the table of server/README.md, and
// the file of options in deploy/; and a report of the values that are in use.
// In the path: beside it; main prints them. Threads: pure functions.
#ifndef NORMD_SERVER_OPTIONS_OPTION_HELP_H_
#define NORMD_SERVER_OPTIONS_OPTION_HELP_H_

#include <string>

#include "server/options/config.h"

namespace normd {

// The text that --help prints.
std::string HelpText();
// The options as the Markdown table of server/README.md, which --help=markdown prints.
std::string HelpMarkdown();
// A file for --config that names every option, each commented out and with its default: deploy/normd.toml, which
// --help=toml prints.
std::string HelpToml();

// One line for each option that does not have its default, with its value and where the value comes from. Shows no
// password.
std::string ValuesText(const Config& config);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_OPTION_HELP_H_
