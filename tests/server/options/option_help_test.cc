#include "server/options/option_help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/options/option_list.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

TEST(OptionHelp, NamesEveryOptionInEveryForm) {
  for (const Option& option : AllOptions()) {
    const std::string name(option.name);
    EXPECT_THAT(HelpText(), HasSubstr("  --" + name));
    EXPECT_THAT(HelpMarkdown(), HasSubstr("| `--" + name + "` |"));
    if (option.is_command || option.name == kConfigFileOption) continue;
    EXPECT_THAT(HelpToml(), HasSubstr("\n# " + name + " = "));
  }
}

TEST(OptionHelp, MarksTheOptionsThatASignalReloads) {
  EXPECT_THAT(HelpText(), HasSubstr("--max_sessions (100000), 0 to 100000000, reloaded by SIGHUP\n"));
  EXPECT_THAT(HelpMarkdown(), HasSubstr("| `--max_sessions` | `100000` | 0 to 100000000 | reloads |"));
  EXPECT_THAT(HelpMarkdown(), HasSubstr("| `--queues` | `0` | 0 to 64 |  |"));
  EXPECT_THAT(HelpToml(), HasSubstr("# Sessions in the store. Limits: 0 to 100000000. SIGHUP reloads it.\n"
                                    "# max_sessions = 100000\n"));
}

}  // namespace
}  // namespace normd
