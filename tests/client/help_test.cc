// What --help, completion and man pages are made from, and that they say all of it.
#include "client/normctl/help.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/completion.h"
#include "client/cli/man_page.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/normctl/commands.h"
#include "client/normctl/method_notes.h"
#include "client/normload/normload.h"

namespace normd::client {
namespace {

std::string Normctl(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = RunNormctl(arguments, {out, err, 80, false});
  EXPECT_EQ(code, kExitOk) << err.str();
  return out.str();
}

std::string HelpOf(const std::string& command, std::vector<std::string> more = {}) {
  std::vector<std::string> words = absl::StrSplit(command, ' ', absl::SkipEmpty());
  words.insert(words.end(), more.begin(), more.end());
  words.emplace_back("--help");
  return Normctl(words);
}

// Whether a line of the help is about the flag.
bool Lists(const std::string& help, const std::string& flag) {
  const std::vector<std::string> lines = absl::StrSplit(help, '\n');
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const size_t at = !words.empty() && words[0].size() == 3 ? 1 : 0;  // after "-w,"
    return words.size() > at && words[at] == absl::StrCat("--", flag);
  });
}

TEST(Help, FitsATerminalOf80Columns) {
  for (const Command& command : AllCommands()) {
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(HelpOf(command.spec.name), '\n'))) {
      EXPECT_LE(DisplayWidth(line), 80u) << command.spec.name << ": " << line;
    }
  }
}

TEST(Help, OfAMethodHasFormulaExampleAndDefaults) {
  const std::string help = HelpOf("layer-norm");
  EXPECT_NE(help.find("\n  y = (x - mean) / sqrt(var + eps) * w + b\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\n  normctl layer-norm x.npy -o y.npy "), std::string::npos) << help;
  EXPECT_NE(help.find("0 means none (default\n"), std::string::npos) << help;
  EXPECT_NE(help.find("1e-5)"), std::string::npos) << help;
  EXPECT_NE(HelpOf("rms-norm").find("1e-6)"), std::string::npos);
  EXPECT_NE(HelpOf("scale-norm").find("(default add-to-root)"), std::string::npos) << HelpOf("scale-norm");
  for (const char* heading : {"\nMethod:\n", "\nTensors:\n", "\nOutput:\n", "\nConnection:\n"}) {
    EXPECT_NE(help.find(heading), std::string::npos) << heading;
  }
}

TEST(Help, EveryFlagOfAMethodHasAHeading) {
  for (const std::string& method : MethodNames()) {
    EXPECT_EQ(HelpOf(method).find("\nFlags:\n"), std::string::npos) << HelpOf(method);
  }
}

TEST(Help, IsInColourWhereThatIsAskedFor) {
  EXPECT_NE(HelpOf("layer-norm", {"--color=always"}).find("\x1b[1mTensors:\x1b[0m\n"), std::string::npos);
  EXPECT_EQ(HelpOf("layer-norm").find('\x1b'), std::string::npos);
}

TEST(Help, ListsNoFlagThatCanNeverApply) {
  EXPECT_FALSE(Lists(HelpOf("layer-norm"), "mask"));
  EXPECT_FALSE(Lists(HelpOf("layer-norm"), "training"));
  EXPECT_TRUE(Lists(HelpOf("batch-norm"), "mask"));
  EXPECT_TRUE(Lists(HelpOf("batch-norm"), "training"));
  EXPECT_FALSE(Lists(HelpOf("moments"), "momentum"));
  EXPECT_FALSE(Lists(HelpOf("moments"), "cast-order"));
  EXPECT_TRUE(Lists(HelpOf("moments"), "layout"));
  EXPECT_FALSE(Lists(HelpOf("moments", {"rms-norm"}), "layout"));
  EXPECT_TRUE(Lists(HelpOf("session create"), "momentum"));
  EXPECT_FALSE(Lists(HelpOf("session create", {"layer_norm"}), "momentum"));
  EXPECT_FALSE(Lists(HelpOf("verify", {"lp-norm"}), "weight"));
  EXPECT_TRUE(Lists(HelpOf("verify", {"batch-norm"}), "running-mean"));
}

TEST(Help, EveryChoiceOfAFlagIsAValueOfTheContractAndAllAreListed) {
  for (const std::string& method : MethodNames()) {
    const CommandSpec shown =
        ShownCommand({"session create", "METHOD", 1, 1, "", "", SpecFlags("")}, *MethodField(method));
    for (const FlagSpec& flag : shown.flags) {
      CommandSpec given;
      given.flags = {flag};
      const auto build = [&](const std::string& value) {
        const absl::StatusOr<ParsedArgs> args = ParseArgs(given, {absl::StrCat("--", flag.name, "=", value)});
        return args.ok() ? BuildSpec(*MethodField(method), *args, std::nullopt).status() : args.status();
      };
      if (flag.choices.empty()) continue;
      for (const std::string& choice : std::vector<std::string>(absl::StrSplit(flag.choices, '|'))) {
        EXPECT_TRUE(build(choice).ok()) << flag.name << " " << choice;
        const std::string refusal(build("nonsense").message());
        EXPECT_TRUE(flag.name == "weight-offset" || absl::StrContains(refusal, choice)) << refusal;
        EXPECT_EQ(std::count(flag.choices.begin(), flag.choices.end(), '|'),
                  flag.name == "weight-offset"
                      ? 1
                      : static_cast<ptrdiff_t>(std::vector<std::string>(absl::StrSplit(refusal, " or ")).size()) - 1)
            << refusal;
      }
    }
  }
}

TEST(MethodNotes, HaveEveryMethodAndFillEveryDefault) {
  EXPECT_EQ(kMethods.size(), MethodNames().size());
  v1::NormSpec spec;
  spec.mutable_batch_norm()->mutable_running()->set_momentum_of(v1::MOMENTUM_OF_OLD);
  spec.mutable_batch_norm()->set_eps(0.5);
  const std::vector<std::string> filled = FillDefaults(spec);
  const v1::BatchNorm& norm = spec.batch_norm();
  EXPECT_EQ(norm.eps(), 0.5);
  EXPECT_EQ(norm.eps_mode(), v1::EPS_MODE_INSIDE_SQRT);
  EXPECT_EQ(norm.cast_order(), v1::CAST_ORDER_AFFINE_THEN_CAST);
  EXPECT_EQ(norm.layout(), v1::LAYOUT_UNSPECIFIED);
  EXPECT_EQ(norm.running().momentum(), 0.9);
  EXPECT_EQ(norm.running().variance(), v1::RUNNING_VARIANCE_UNBIASED);
  EXPECT_EQ(filled, (std::vector<std::string>{"eps_mode", "cast_order", "weight_offset", "running.momentum",
                                              "running.variance", "running.single_value"}));
  v1::NormSpec cumulative;
  cumulative.mutable_batch_norm()->mutable_running()->set_cumulative(true);
  FillDefaults(cumulative);
  EXPECT_FALSE(cumulative.batch_norm().running().has_momentum());
  v1::NormSpec power;
  power.mutable_power_norm();
  FillDefaults(power);
  EXPECT_EQ(power.power_norm().alpha_fwd(), 0.9);
  EXPECT_EQ(power.power_norm().warmup_iters(), 10000);
  EXPECT_EQ(power.power_norm().num_groups(), 1);
}

// ---- man pages

TEST(ManPages, NameEveryCommandAndEveryFlag) {
  const std::string program = Normctl({"man"});
  for (const CommandSpec& command : ShownCommands()) {
    const std::string name = absl::StrReplaceAll(command.name, {{"-", "\\-"}});
    EXPECT_TRUE(name.empty() || absl::StrContains(program, absl::StrCat("\\fB", name, "\\fR"))) << command.name;
    std::vector<std::string> words = absl::StrSplit(command.name, ' ', absl::SkipEmpty());
    words.insert(words.begin(), "man");
    const std::string page = Normctl(words);
    for (const FlagSpec& flag : AllFlags(command)) {
      const std::string written = absl::StrReplaceAll(flag.name, {{"-", "\\-"}});
      EXPECT_NE(page.find(absl::StrCat("\\fB\\-\\-", written, "\\fR")), std::string::npos) << command.name << flag.name;
    }
  }
}

TEST(ManPages, EscapeWhatRoffReadsAsItsOwn) {
  CommandSpec command{"do", "A", 0, 1, "a-b \\ c", "'quoted' first\n\n.dot first\n\n  literal  -x", {}};
  const std::string page = ManPage("prog", {command}, command);
  EXPECT_NE(page.find("a\\-b \\e c"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&'quoted' first\n"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&.dot first\n"), std::string::npos) << page;
  EXPECT_NE(page.find(".nf\nliteral  \\-x\n.fi\n"), std::string::npos) << page;
}

// ---- completion, driven in a real bash

// The words that bash would offer after the words of `line`, the last of which is being written.
std::vector<std::string> Completed(const std::string& program, const std::string& script,
                                   const std::vector<std::string>& line) {
  std::string words;
  for (const std::string& word : line) absl::StrAppend(&words, " '", word, "'");
  const std::string path = absl::StrCat(testing::TempDir(), "/completion_test.", getpid(), ".bash");
  std::ofstream(path) << script << "\ncompopt() { :; }\nCOMP_WORDS=(" << words << ")\nCOMP_CWORD=" << line.size() - 1
                      << "\n_" << program << "\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  struct Close {
    void operator()(std::FILE* pipe) const { pclose(pipe); }
  };
  const std::unique_ptr<std::FILE, Close> pipe(popen(("bash '" + path + "'").c_str(), "r"));
  std::string text;
  char buffer[4096];
  while (pipe != nullptr) {
    const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe.get());
    if (got == 0) break;
    text.append(buffer, got);
  }
  std::remove(path.c_str());
  std::vector<std::string> out = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Completed(const std::vector<std::string>& line) {
  return Completed("normctl", Normctl({"completion", "bash"}), line);
}

using Words = std::vector<std::string>;

TEST(BashCompletion, OffersCommandsFlagsAndValues) {
  EXPECT_EQ(Completed({"normctl", "l"}), (Words{"layer-norm", "lp-norm"}));
  EXPECT_EQ(Completed({"normctl", "session", "cr"}), (Words{"create"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--eps"}), (Words{"--eps", "--eps-mode"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--eps-mode", ""}),
            (Words{"add-to-root", "clamp-root", "inside-sqrt"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--eps-mode", "=", "cl"}), (Words{"clamp-root"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--eps_mode", "="}),
            (Words{"add-to-root", "clamp-root", "inside-sqrt"}));
  EXPECT_EQ(Completed({"normctl", "verify", "rms"}), (Words{"rms-norm"}));
  EXPECT_EQ(Completed({"normctl", "completion", ""}), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(Completed({"normctl", "session", "export", "bn", "--format", ""}), (Words{"record", "safetensors"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--format", ""}), (Words{"csv", "npy"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--color", ""}), (Words{"always", "auto", "never"}));
  EXPECT_EQ(Completed({"normctl", "help", "l"}), (Words{"layer-norm", "lp-norm"}));
  EXPECT_EQ(Completed({"normctl", "help", "session", "cr"}), (Words{"create"}));
  EXPECT_EQ(Completed({"normctl", "layer-norm", "--mas"}), Words{});  // can never apply
}

TEST(BashCompletion, FindsTheCommandBehindFlagsAndTheirValues) {
  EXPECT_EQ(Completed({"normctl", "--server", "127.0.0.1", ":", "8001", "session", "w"}), (Words{"watch"}));
  EXPECT_EQ(Completed({"normctl", "-s", "unix", ":", "/run/x.sock", "--json", "he"}), (Words{"health"}));
  EXPECT_EQ(Completed({"normctl", "--server", "=", "session", "des"}), (Words{"describe"}));
}

TEST(BashCompletion, OffersFilesWhereAFileStands) {
  const std::string folder = testing::TempDir() + "/completion files";
  ASSERT_EQ(std::system(("mkdir -p '" + folder + "' && touch '" + folder + "/a.npy'").c_str()), 0);
  const Words file = {folder + "/a.npy"};
  EXPECT_EQ(Completed({"normctl", "layer-norm", folder + "/"}), file);
  EXPECT_EQ(Completed({"normctl", "layer-norm", "x.npy", "-o", folder + "/"}), file);
  EXPECT_EQ(Completed({"normctl", "verify", "layer-norm", "x.npy", "--with", folder + "/"}), file);
  EXPECT_EQ(Completed({"normctl", "session", "get", folder + "/"}), Words{});
}

TEST(Completion, OfEveryShellNamesEveryFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Normctl({"completion", shell});
    for (const CommandSpec& command : ShownCommands()) {
      for (const FlagSpec& flag : AllFlags(command)) {
        const std::string written = absl::StrCat(std::string(shell) == "fish" ? "-l " : "--", flag.name);
        EXPECT_NE(script.find(written), std::string::npos) << shell << " " << written;
      }
    }
  }
}

TEST(Completion, IsThereForNormload) {
  std::ostringstream out, err;
  const std::vector<std::string> arguments = {"completion", "bash"};
  ASSERT_EQ(RunNormload(arguments, {out, err, 80, false}), kExitOk) << err.str();
  EXPECT_EQ(Completed("normload", out.str(), {"normload", "--arrivals", ""}), (Words{"constant", "poisson"}));
  EXPECT_EQ(Completed("normload", out.str(), {"normload", "--swee"}), (Words{"--sweep"}));
}

}  // namespace
}  // namespace normd::client
