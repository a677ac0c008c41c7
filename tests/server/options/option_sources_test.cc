#include "server/options/option_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "kernels/base/errors.h"
#include "server/options/option_list.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

OptionTexts Read(const std::vector<std::string>& args) {
  const absl::StatusOr<OptionTexts> texts = ReadCommandLine(args);
  EXPECT_TRUE(texts.ok()) << texts.status();
  return texts.ok() ? *texts : OptionTexts();
}

std::string SourceError(const std::vector<std::string>& args) {
  const absl::StatusOr<OptionTexts> texts = ReadCommandLine(args);
  EXPECT_EQ(texts.status().code(), absl::StatusCode::kInvalidArgument) << texts.status();
  return std::string(texts.status().message());
}

TEST(ReadCommandLine, TakesEveryOptionOfTheListInEveryForm) {
  for (const Option& option : AllOptions()) {
    const std::string name(option.name);
    EXPECT_THAT(Read({"--" + name + "=x"}), ElementsAre(Pair(option.name, ElementsAre("x"))));
    EXPECT_THAT(Read({"--" + name + "="}), ElementsAre(Pair(option.name, ElementsAre(""))));
    const bool stands_alone = std::holds_alternative<bool Config::*>(option.field) || name == "help";
    if (stands_alone) {
      EXPECT_THAT(SourceError({"--" + name, "x"}), HasSubstr("\"x\""));
    } else {
      EXPECT_THAT(Read({"--" + name, "x"}), ElementsAre(Pair(option.name, ElementsAre("x"))));
      EXPECT_THAT(SourceError({"--" + name}), AllOf(HasSubstr("--" + name), HasSubstr("a value")));
    }
  }
}

TEST(ReadCommandLine, LeavesOutOptionsThatAreNotGiven) { EXPECT_THAT(Read({}), ElementsAre()); }

TEST(ReadCommandLine, KeepsTheOrderOfRepeatedOptions) {
  EXPECT_THAT(Read({"--listen=a,b", "--queues=1", "--listen", "c", "--queues=2"}),
              ElementsAre(Pair("listen", ElementsAre("a,b", "c")), Pair("queues", ElementsAre("1", "2"))));
  EXPECT_THAT(Read({"--plaintext", "--noplaintext"}), ElementsAre(Pair("plaintext", ElementsAre("true", "false"))));
  EXPECT_THAT(Read({"--noplaintext", "--plaintext"}), ElementsAre(Pair("plaintext", ElementsAre("false", "true"))));
}

TEST(ReadCommandLine, TakesHyphensForUnderscoresAndTheShortHelp) {
  EXPECT_THAT(Read({"--max-message-bytes=1", "--data-dir", "/d"}),
              ElementsAre(Pair("data_dir", ElementsAre("/d")), Pair("max_message_bytes", ElementsAre("1"))));
  EXPECT_THAT(Read({"-h"}), ElementsAre(Pair("help", ElementsAre("text"))));
  EXPECT_THAT(Read({"--help"}), ElementsAre(Pair("help", ElementsAre("text"))));
}

TEST(ReadCommandLine, KeepsValuesAsWritten) {
  for (const std::string value : {"", "=", "a=b", "a=", "[a,b]", "{}", "\"q\"", "a\\b", " a ", "%x", "[::1]:2", "++"}) {
    EXPECT_THAT(Read({"--data_dir=" + value}), ElementsAre(Pair("data_dir", ElementsAre(value))));
    EXPECT_THAT(Read({"--data_dir", value}), ElementsAre(Pair("data_dir", ElementsAre(value))));
  }
  for (const std::string value : {"-1", "-h", "--", "--help", "--queues=", "--my-folder"}) {
    EXPECT_THAT(Read({"--data_dir", value}), ElementsAre(Pair("data_dir", ElementsAre(value))));
  }
}

TEST(ReadCommandLine, DoesNotTakeTheNextArgumentForAnEmptyValue) {
  EXPECT_THAT(Read({"--admin_listen=", "--queues=1"}),
              ElementsAre(Pair("admin_listen", ElementsAre("")), Pair("queues", ElementsAre("1"))));
  EXPECT_THAT(Read({"--plaintext="}), ElementsAre(Pair("plaintext", ElementsAre(""))))
      << "an empty variable of a script must not open a listener";
}

TEST(ReadCommandLine, QuotesUnknownOptionsAsWritten) {
  for (const std::string argument : {"", "serve", "-", "--", "---", "++", "-5", "-x", "/queues", "--=", "--=3",
                                     "--bogus=", "--noqueues", "--QUEUES=1", "--no-plaintext"}) {
    EXPECT_THAT(SourceError({"--queues=1", argument}), HasSubstr("\"" + argument + "\""));
  }
  EXPECT_THAT(SourceError({"--", "--queues=1"}), HasSubstr("\"--\""));
  EXPECT_THAT(SourceError({"--bogus", "5"}), AllOf(HasSubstr("\"--bogus\""), Not(HasSubstr("5"))));
}

TEST(ReadCommandLine, SaysWhichOptionWasMeant) {
  for (const std::string argument : {"--max_iss=5", "--max-ias", "-max_isa", "max_isa=5", "--max-isa_"}) {
    EXPECT_THAT(SourceError({argument}), HasSubstr("did you mean --max_isa?"));
  }
}

TEST(ReadCommandLine, MakesAnErrorOfEveryException) {
  EXPECT_THAT(SourceError({"--noplaintext=99999999999999999999"}), HasSubstr("command line"));
  const absl::Status status = ReadCommandLine({"--noplaintext=99999999999999999999"}).status();
  ASSERT_TRUE(GetErrorDetail(status).has_value());
  EXPECT_EQ(GetErrorDetail(status)->reason, "BAD_OPTION");
}

TEST(ReadEnvironment, ReadsVariablesOfOptionsThatAreNotCommands) {
  EXPECT_THAT(ReadEnvironment({{"NORMD_QUEUES", "5"},
                               {"NORMD_ADMIN_LISTEN", ""},
                               {"NORMD_HELP", "text"},
                               {"NORMD_VERSION", "7"},
                               {"NORMD_BACKUP", "/tmp/x"},
                               {"NORMD_BOGUS", "1"},
                               {"QUEUES", "6"}}),
              ElementsAre(Pair("admin_listen", ElementsAre("")), Pair("queues", ElementsAre("5"))));
}

}  // namespace
}  // namespace normd
