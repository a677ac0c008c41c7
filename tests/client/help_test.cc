// What --help, completion and man pages are made from, and that they say all of it.
#include "client/normctl/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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
  v1::NormSpec counting;
  counting.mutable_batch_norm()->mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
  FillDefaults(counting);
  EXPECT_FALSE(counting.batch_norm().running().has_momentum());
  EXPECT_EQ(counting.batch_norm().running().variance(), v1::RUNNING_VARIANCE_BIASED);
  EXPECT_EQ(counting.batch_norm().running().normalize_with(), v1::NORMALIZE_WITH_RUNNING);
  EXPECT_EQ(counting.batch_norm().running().decay(), 1);
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
  EXPECT_NE(page.find(".nf\n  literal  \\-x\n.fi\n"), std::string::npos) << page;
}

// ---- completion

using Words = std::vector<std::string>;

// The words that the text offers, sorted.
Words OfferedBy(const std::string& text) {
  Words out;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    out.emplace_back(line.substr(0, line.find('\t')));
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What normctl offers after the words, the last of which is being written.
Words Completed(Words line) {
  line.insert(line.begin(), "--complete");
  return OfferedBy(Normctl(line));
}

TEST(Completion, OffersCommandsFlagsAndValues) {
  EXPECT_EQ(Completed({"l"}), (Words{"layer-norm", "lp-norm"}));
  EXPECT_EQ(Completed({"session", "cr"}), (Words{"create"}));
  EXPECT_EQ(Completed({"layer-norm", "--eps"}), (Words{"--eps", "--eps-mode"}));
  EXPECT_EQ(Completed({"layer-norm", "--eps-mode", ""}), (Words{"add-to-root", "clamp-root", "inside-sqrt"}));
  EXPECT_EQ(Completed({"layer-norm", "--eps-mode", "=", "cl"}), (Words{"clamp-root"}));
  EXPECT_EQ(Completed({"layer-norm", "--eps-mode=cl"}), (Words{"--eps-mode=clamp-root"}));  // as zsh has it
  EXPECT_EQ(Completed({"layer-norm", "--eps_mode", "="}), (Words{"add-to-root", "clamp-root", "inside-sqrt"}));
  EXPECT_EQ(Completed({"verify", "rms"}), (Words{"rms-norm"}));
  EXPECT_EQ(Completed({"completion", ""}), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(Completed({"layer-norm", "--format", ""}), (Words{"csv", "npy"}));
  EXPECT_EQ(Completed({"layer-norm", "--color", ""}), (Words{"always", "auto", "never"}));
  EXPECT_EQ(Completed({"help", "l"}), (Words{"layer-norm", "lp-norm"}));
  EXPECT_EQ(Completed({"help", "session", "cr"}), (Words{"create"}));
  EXPECT_EQ(Completed({"layer-norm", "--mas"}), Words{});  // can never apply
}

TEST(Completion, FindsTheCommandBehindFlagsAndTheirValues) {
  EXPECT_EQ(Completed({"--server", "127.0.0.1", ":", "8001", "session", "w"}), (Words{"watch"}));
  EXPECT_EQ(Completed({"-s", "unix", ":", "/run/x.sock", "--json", "he"}), (Words{"health"}));
  EXPECT_EQ(Completed({"--server", "=", "session", "des"}), (Words{"describe"}));
}

TEST(Completion, OffersFilesWhereAFileStands) {
  EXPECT_EQ(Completed({"layer-norm", "x"}), (Words{":files"}));
  EXPECT_EQ(Completed({"layer-norm", "x.npy", "-o", ""}), (Words{":files"}));
  EXPECT_EQ(Completed({"verify", "layer-norm", "x.npy", "--with", "a/"}), (Words{":files"}));
  EXPECT_EQ(Completed({"man", "--directory", ""}), (Words{":folders"}));
  EXPECT_EQ(Completed({"session", "get", ""}), Words{});
}

TEST(Completion, KnowsEveryFlagOfEveryCommand) {
  for (const CommandSpec& command : ShownCommands()) {
    Words line = absl::StrSplit(command.name, ' ', absl::SkipEmpty());
    line.emplace_back("--");
    Words flags;
    for (const FlagSpec& flag : AllFlags(command)) flags.push_back(absl::StrCat("--", flag.name));
    std::sort(flags.begin(), flags.end());
    EXPECT_EQ(Completed(line), flags) << command.name;
  }
}

TEST(Completion, SaysWhatEachWordMeans) {
  EXPECT_EQ(Normctl({"--complete", "completi"}), "completion\tprint the completion of bash, zsh or fish\n");
  EXPECT_EQ(Normctl({"--complete", "completion", "f"}), "fish\t\n");
}

TEST(Completion, IsThereForNormload) {
  const auto normload = [](const std::vector<std::string>& line) {
    std::ostringstream out, err;
    EXPECT_EQ(RunNormload(line, {out, err, 80, false}), kExitOk) << err.str();
    return OfferedBy(out.str());
  };
  EXPECT_EQ(normload({"--complete", "--arrivals", ""}), (Words{"constant", "poisson"}));
  EXPECT_EQ(normload({"--complete", "--swee"}), (Words{"--sweep"}));
  EXPECT_FALSE(normload({"completion", "zsh"}).empty());
}

}  // namespace
}  // namespace normd::client
