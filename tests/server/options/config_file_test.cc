#include "server/options/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/errors.h"
#include "server/options/config.h"
#include "server/options/option_help.h"
#include "server/options/option_list.h"
#include "server/options/option_values.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Environment = std::map<std::string, std::string>;

// The texts of the one option that the file has.
std::vector<std::string> TextsOf(const std::string& text) {
  const absl::StatusOr<FileOptions> options = ParseConfigFile(text, "f");
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() && options->size() == 1 ? options->begin()->second.texts : std::vector<std::string>();
}

std::string FileError(const std::string& text) {
  const absl::StatusOr<FileOptions> options = ParseConfigFile(text, "f.toml");
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << options.status();
  return std::string(options.status().message());
}

TEST(ParseConfigFile, TakesEachTypeOfOptionInTheTypesOfToml) {
  EXPECT_THAT(TextsOf("max_sessions = 1_000"), ElementsAre("1000"));
  EXPECT_THAT(TextsOf("max_message_bytes = \"64MiB\""), ElementsAre("64MiB"));
  EXPECT_THAT(TextsOf("max_message_bytes = 0x10000"), ElementsAre("65536"));
  EXPECT_THAT(TextsOf("plaintext = true"), ElementsAre("true"));
  EXPECT_THAT(TextsOf("trace_sample = 0.05"), ElementsAre("0.05"));
  EXPECT_THAT(TextsOf("trace_sample = 1"), ElementsAre("1"));
  EXPECT_THAT(TextsOf("drain_timeout = '30s'"), ElementsAre("30s"));
  EXPECT_THAT(TextsOf("log_level = \"debug\""), ElementsAre("debug"));
  EXPECT_THAT(TextsOf("admin_listen = \"\""), ElementsAre(""));
  EXPECT_THAT(TextsOf("listen = [\"127.0.0.1:1\",\n  \"[::1]:2\"]"), ElementsAre("127.0.0.1:1", "[::1]:2"));
  EXPECT_THAT(TextsOf("listen = \"127.0.0.1:1,[::1]:2\""), ElementsAre("127.0.0.1:1,[::1]:2"));
  EXPECT_THAT(TextsOf("cuda_device = [0, 1]"), ElementsAre("0", "1"));
  EXPECT_THAT(TextsOf("cuda_device = 3"), ElementsAre("3"));
  EXPECT_THAT(*ParseConfigFile("", "f"), IsEmpty());
  EXPECT_THAT(*ParseConfigFile("\xEF\xBB\xBF# a mark of bytes\r\n", "f"), IsEmpty());
}

TEST(ParseConfigFile, TakesEveryOptionThatIsNoCommand) {
  for (const Option& option : AllOptions()) {
    const bool quoted = !std::holds_alternative<bool Config::*>(option.field) &&
                        !std::holds_alternative<double Config::*>(option.field) &&
                        (option.bytes || !std::holds_alternative<int64_t Config::*>(option.field));
    const std::string value(option.default_value);
    const std::string line = std::string(option.name) + " = " + (quoted ? "\"" + value + "\"" : value);
    const absl::StatusOr<FileOptions> options = ParseConfigFile(line, "f");
    if (option.is_command || option.name == "config") {
      EXPECT_THAT(std::string(options.status().message()), HasSubstr("it is not taken from a file")) << line;
    } else {
      ASSERT_TRUE(options.ok()) << options.status();
      EXPECT_THAT(options->at(option.name).texts, ElementsAre(value));
    }
  }
}

TEST(ParseConfigFile, NamesFileLineAndTheOptionThatWasMeant) {
  EXPECT_EQ(FileError("queues = 2\n\nmax_session = 5\n"),
            "f.toml:3: max_session is no option; did you mean max_sessions?");
  EXPECT_EQ(FileError("max-sessions = 5"), "f.toml:1: max-sessions is no option; did you mean max_sessions?");
  EXPECT_EQ(FileError("bogus = 1"), "f.toml:1: bogus is no option; --help lists the options");
  EXPECT_EQ(FileError("[server]\nqueues = 2"), "f.toml:1: server is no option; --help lists the options");
  EXPECT_EQ(FileError("version = true"), "f.toml:1: version is given, but it is not taken from a file; leave it out");
}

TEST(ParseConfigFile, ReportsTheMistakeOfTheFirstLine) {
  EXPECT_THAT(FileError("zzz = 1\naaa = 2\n"), HasSubstr("f.toml:1: zzz"));
}

TEST(ParseConfigFile, RefusesWrongTypesInOneSentence) {
  EXPECT_EQ(FileError("max_sessions = \"many\""), "f.toml:1: max_sessions is a string; it must be an integer");
  EXPECT_EQ(FileError("max_sessions = 1.5"),
            "f.toml:1: max_sessions is a floating-point number; it must be an integer");
  EXPECT_EQ(FileError("max_message_bytes = true"),
            "f.toml:1: max_message_bytes is a boolean; it must be an integer or a string like \"64MiB\"");
  EXPECT_EQ(FileError("drain_timeout = 30"), "f.toml:1: drain_timeout is an integer; it must be a string like \"30s\"");
  EXPECT_EQ(FileError("drain_timeout = 10:00:00"),
            "f.toml:1: drain_timeout is a date or time; it must be a string like \"30s\"");
  EXPECT_EQ(FileError("plaintext = \"true\""), "f.toml:1: plaintext is a string; it must be true or false");
  EXPECT_EQ(FileError("plaintext = 1"), "f.toml:1: plaintext is an integer; it must be true or false");
  EXPECT_EQ(FileError("log_level = [\"info\"]"), "f.toml:1: log_level is an array; it must be a string");
  EXPECT_EQ(FileError("listen = [[\"a\"]]"),
            "f.toml:1: listen is an array; it must be a string, or an array of strings or integers");
  EXPECT_EQ(FileError("listen.tcp = 1"),
            "f.toml:1: listen is a table; it must be a string, or an array of strings or integers");
  EXPECT_EQ(FileError("data_dir = \"/data\\u0000/x\""), "f.toml:1: data_dir has a NUL character; leave it out");
}

TEST(ParseConfigFile, SaysInWhichLineAFileStopsBeingToml) {
  for (const std::string text :
       {"queues = ", "queues = 1\nqueues", "queues = 1\nqueues = 2", "log_level = \"in\xff\""}) {
    EXPECT_THAT(FileError(text), HasSubstr(" is not TOML (")) << text;
    EXPECT_THAT(FileError(text), testing::StartsWith("f.toml:")) << text;
  }
  EXPECT_THAT(FileError("queues = 1\n\nqueues = 2"), testing::StartsWith("f.toml:3 is not TOML ("));
}

TEST(ParseConfigFile, ShowsNoString) {
  for (const std::string text : {"max_sessions = \"secret\"", "session_store = \"postgres://u:secret@h/d",
                                 "session_store = postgres://u:secret@h/d", "session_store = [\"secret\"]"}) {
    EXPECT_THAT(FileError(text), Not(HasSubstr("secret"))) << text;
  }
}

// Files in a folder of their own.
class ConfigFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/normd.toml";
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  void Write(const std::string& text) const { std::ofstream(path_, std::ios::trunc) << text; }
  absl::StatusOr<Config> ParseFile(std::vector<std::string> args, const Environment& env = {}) const {
    args.insert(args.begin(), "--config=" + path_);
    return ParseConfig(args, env);
  }
  std::string FileError(const std::vector<std::string>& args, const Environment& env = {}) const {
    const absl::StatusOr<Config> config = ParseFile(args, env);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << config.status();
    return std::string(config.status().message());
  }

  std::string folder_, path_;
};

TEST_F(ConfigFileTest, StandsBelowTheEnvironmentWhichStandsBelowTheCommandLine) {
  Write(
      "queues = 1\nmax_message_bytes = \"1MiB\"\nplaintext = true\ndrain_timeout = \"1s\"\nlog_level = \"warn\"\n"
      "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n");
  const absl::StatusOr<Config> file = ParseFile({});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->queues, 1);
  EXPECT_EQ(file->max_message_bytes, 1 << 20);
  EXPECT_TRUE(file->plaintext);
  EXPECT_EQ(file->drain_timeout, absl::Seconds(1));
  EXPECT_EQ(file->log_level, "warn");
  EXPECT_THAT(file->listen, ElementsAre("127.0.0.1:1", "127.0.0.1:2"));
  EXPECT_EQ(file->max_sessions, 100'000) << "the default, of which the file says nothing";

  const Environment env = {{"NORMD_QUEUES", "2"},        {"NORMD_MAX_MESSAGE_BYTES", "2MiB"},
                           {"NORMD_PLAINTEXT", "false"}, {"NORMD_DRAIN_TIMEOUT", "2s"},
                           {"NORMD_LOG_LEVEL", "error"}, {"NORMD_LISTEN", "127.0.0.1:3"}};
  const absl::StatusOr<Config> environment = ParseFile({}, env);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->queues, 2);
  EXPECT_EQ(environment->max_message_bytes, 2 << 20);
  EXPECT_FALSE(environment->plaintext);
  EXPECT_EQ(environment->drain_timeout, absl::Seconds(2));
  EXPECT_EQ(environment->log_level, "error");
  EXPECT_THAT(environment->listen, ElementsAre("127.0.0.1:3"));

  const absl::StatusOr<Config> flags = ParseFile({"--queues=3", "--max_message_bytes=3MiB", "--plaintext",
                                                  "--drain_timeout=3s", "--log_level=debug", "--listen=127.0.0.1:4"},
                                                 env);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->queues, 3);
  EXPECT_EQ(flags->max_message_bytes, 3 << 20);
  EXPECT_TRUE(flags->plaintext);
  EXPECT_EQ(flags->drain_timeout, absl::Seconds(3));
  EXPECT_EQ(flags->log_level, "debug");
  EXPECT_THAT(flags->listen, ElementsAre("127.0.0.1:4"));
}

TEST_F(ConfigFileTest, IsNamedByTheEnvironmentToo) {
  Write("queues = 7\n");
  const absl::StatusOr<Config> config = ParseConfig({}, {{"NORMD_CONFIG", path_}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->queues, 7);
  EXPECT_EQ(ParseConfig({"--config="}, {{"NORMD_CONFIG", path_}})->queues, 0) << "an empty name is no file";
}

TEST_F(ConfigFileTest, NamesTheSourceOfAMistake) {
  Write("\nqueues = 65\n");
  EXPECT_EQ(FileError({}), path_ + ":2: queues is \"65\"; it must be 0 to 64");
  EXPECT_EQ(FileError({"--queues=66"}), "--queues is \"66\"; it must be 0 to 64");
  EXPECT_EQ(FileError({}, {{"NORMD_QUEUES", "67"}}), "NORMD_QUEUES is \"67\"; it must be 0 to 64");
  Write("max_message_bytes = \"1GiB\"\nmax_in_flight_bytes = \"1MiB\"\n");
  EXPECT_THAT(FileError({}), HasSubstr(path_ + ":2: max_in_flight_bytes is 1048576; it must be at least three times"));
  Write("listen = []\n");
  EXPECT_EQ(FileError({}), path_ + ":1: listen is missing; give at least one address");
  Write("session_store = \"mysql://root:secret@host/db\"\n");
  EXPECT_THAT(FileError({}), Not(HasSubstr("secret")));
}

TEST_F(ConfigFileTest, MustBeARegularFileThatCanBeReadAgain) {
  EXPECT_EQ(FileError({}), "--config is " + path_ + ", which cannot be read: No such file or directory");
  EXPECT_EQ(std::string(ParseConfig({}, {{"NORMD_CONFIG", path_}}).status().message()),
            "NORMD_CONFIG is " + path_ + ", which cannot be read: No such file or directory");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(FileError({}), "--config is " + path_ + ", which is no regular file");
  unlink(path_.c_str());
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(FileError({}), "--config is " + path_ + ", which has over 1 MiB");
  EXPECT_EQ(std::string(ParseConfig({"--config=-"}, {}).status().message()),
            "--config is \"-\"; it must be the name of a file, because SIGHUP reads the file again");
}

TEST_F(ConfigFileTest, DoesNotKeepHelpFromBeingPrinted) {
  EXPECT_EQ(ParseFile({"--help"})->help, "text");
  EXPECT_TRUE(ParseFile({"--version"})->version);
}

TEST_F(ConfigFileTest, ShowsTheSourcesOfValuesWithoutPasswords) {
  Write("# the first line\nsession_store = \"postgres://me:secret@host/db\"\nqueues = 2\nlog_level = \"warn\"\n");
  const absl::StatusOr<Config> config = ParseFile({"--queues=3", "--check_config"}, {{"NORMD_MAX_SESSIONS", "5"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ValuesText(*config), "session_store = postgres://(not shown) (" + path_ +
                                     ":2)\nmax_sessions = 5 (environment)\nqueues = 3 (flag)\nlog_level = warn (" +
                                     path_ + ":4)\nconfig = " + path_ + " (flag)\n");
}

// The lines of a file of options with every option in force.
std::string Uncommented(std::string text) {
  for (const Option& option : AllOptions()) {
    const std::string name = std::string(option.name) + " = ";
    if (const size_t at = text.find("\n# " + name); at != std::string::npos) text.erase(at + 1, 2);
  }
  return text;
}

TEST_F(ConfigFileTest, ThatHelpPrintsHasEveryOptionWithItsDefault) {
  Write(HelpToml());
  const absl::StatusOr<Config> commented = ParseFile({});
  ASSERT_TRUE(commented.ok()) << commented.status();
  EXPECT_EQ(commented->origins.size(), 1u) << "--config alone";
  Write(Uncommented(HelpToml()));
  const absl::StatusOr<Config> written = ParseFile({});
  ASSERT_TRUE(written.ok()) << written.status();
  const Config defaults = *ParseConfig({}, {});
  for (const Option& option : AllOptions()) {
    if (option.is_command || option.name == "config") continue;
    EXPECT_TRUE(written->origins.contains(option.name)) << option.name;
    EXPECT_TRUE(SameValue(option, *written, defaults)) << option.name;
  }
}

TEST(ExampleFile, EqualsTheOutputOfHelp) {
  std::ifstream file(NORMD_SOURCE_DIR "/deploy/normd.toml");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, HelpToml()) << "write it anew: normd --help=toml > deploy/normd.toml";
}

}  // namespace
}  // namespace normd
