#include "client/cli/args.h"

#include <gtest/gtest.h>

namespace normd::client {
namespace {

CommandSpec Spec() {
  CommandSpec spec;
  spec.name = "do";
  spec.operands = "INPUT";
  spec.min_operands = 1;
  spec.max_operands = 1;
  spec.summary = "does it";
  spec.flags = {{"output", 'o', "FILE", "where it goes"}, {"eps", '\0', "E", "added"}, {"axes", '\0', "A,A", "axes"},
                {"label", 'l', "K=V", "several times"},   {"json", '\0', "", "JSON"},  {"ttl", '\0', "TIME", "a time"},
                {"eps-mode", '\0', "MODE", "where"}};
  return spec;
}

void ExpectUsage(const absl::Status& status, absl::string_view what) {
  EXPECT_TRUE(IsUsageError(status)) << status;
  EXPECT_NE(status.message().find(std::string(what)), absl::string_view::npos) << status;
}

TEST(Args, ReadsFlagsAndOperandsInAnyOrder) {
  const auto args =
      ParseArgs(Spec(), {"-o", "out.npy", "in.npy", "--eps=-1e-6", "--json", "-l", "a=b", "--label", "c=d"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->operands(), (std::vector<std::string>{"in.npy"}));
  EXPECT_EQ(args->Get("output"), "out.npy");
  EXPECT_EQ(**args->Double("eps"), -1e-6);
  EXPECT_TRUE(args->Has("json"));
  EXPECT_EQ(args->GetAll("label"), (std::vector<std::string>{"a=b", "c=d"}));
  EXPECT_FALSE(args->Int("axes")->has_value());
}

TEST(Args, ValuesMayStartWithADash) {
  const auto args = ParseArgs(Spec(), {"in", "--axes", "-1,-2", "--eps", "-3"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(*args->Ints("axes"), (std::vector<int64_t>{-1, -2}));
  EXPECT_EQ(*ParseArgs(Spec(), {"in", "--axes", "4x8"})->Ints("axes"), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(**args->Double("eps"), -3);
  const auto ended = ParseArgs(Spec(), {"--", "--eps"});
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->operands(), (std::vector<std::string>{"--eps"}));
}

TEST(Args, TheLastValueWins) {
  const auto args = ParseArgs(Spec(), {"in", "--eps", "1", "--eps", "2"});
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(**args->Double("eps"), 2);
}

TEST(Args, ALetterMayTouchItsValue) {
  const auto args = ParseArgs(Spec(), {"-oout.npy", "in", "-la=b"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Get("output"), "out.npy");
  EXPECT_EQ(args->GetAll("label"), (std::vector<std::string>{"a=b"}));
}

TEST(Args, UnderscoresAreDashesInTheNamesOfFlags) {
  const auto args = ParseArgs(Spec(), {"in", "--eps_mode=add", "--output", "a_b"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Get("eps-mode"), "add");
  EXPECT_EQ(args->Get("output"), "a_b");
}

TEST(Args, AnEmptyValueIsNotTheArgumentAfterIt) {
  const auto args = ParseArgs(Spec(), {"--output=", "in", "--label=a="});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Get("output"), "");
  EXPECT_EQ(args->Get("label"), "a=");
  EXPECT_EQ(args->operands(), (std::vector<std::string>{"in"}));
  ExpectUsage(ParseArgs(Spec(), {"in", "--json="}).status(), "--json takes no value");
  EXPECT_EQ(ParseArgs(Spec(), {"--", "--output="})->operands(), (std::vector<std::string>{"--output="}));
}

TEST(Args, BracketsAndBracesAreNothingSpecial) {
  const auto args = ParseArgs(Spec(), {"[a,b]", "--output", "{}", "--axes=[1,2]", "-l", "%%"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->operands(), (std::vector<std::string>{"[a,b]"}));
  EXPECT_EQ(args->Get("output"), "{}");
  EXPECT_EQ(args->Get("axes"), "[1,2]");
  EXPECT_EQ(args->Get("label"), "%%");
}

TEST(Args, FlagsThatComeFirstEndAtTheFirstOperand) {
  CommandSpec spec = Spec();
  spec.flags_first = true;
  spec.max_operands = 9;
  const auto args = ParseArgs(spec, {"--eps", "1", "do", "--eps=", "2", "--nope", "--", "x"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Get("eps"), "1");
  EXPECT_EQ(args->operands(), (std::vector<std::string>{"do", "--eps=", "2", "--nope", "--", "x"}));
  ExpectUsage(ParseArgs(spec, {"--nope", "do"}).status(), "unknown flag --nope");
}

TEST(Args, NamesTheFlagThatWasMeant) {
  ExpectUsage(ParseArgs(Spec(), {"in", "--ouput=x"}).status(), "unknown flag --ouput: did you mean --output?");
  ExpectUsage(ParseArgs(Spec(), {"in", "--epsmode", "add"}).status(), "--epsmode: did you mean --eps-mode?");
  const absl::Status far = ParseArgs(Spec(), {"in", "--nope"}).status();
  EXPECT_EQ(far.message(), "unknown flag --nope");
}

TEST(Args, RefusesWhatItDoesNotKnow) {
  ExpectUsage(ParseArgs(Spec(), {"in", "--nope"}).status(), "unknown flag --nope");
  ExpectUsage(ParseArgs(Spec(), {"in", "-x"}).status(), "unknown flag -x");
  ExpectUsage(ParseArgs(Spec(), {"in", "--eps"}).status(), "--eps needs E");
  ExpectUsage(ParseArgs(Spec(), {"in", "-o"}).status(), "--output needs FILE");
  ExpectUsage(ParseArgs(Spec(), {"in", "--json=yes"}).status(), "takes no value");
  ExpectUsage(ParseArgs(Spec(), {"in", "--json=yes", "--json"}).status(), "takes no value");
  ExpectUsage(ParseArgs(Spec(), {}).status(), "needs INPUT");
  ExpectUsage(ParseArgs(Spec(), {"a", "b"}).status(), "unexpected operand b");
}

TEST(Args, NamesTheFlagWhoseValueIsWrong) {
  const auto args = ParseArgs(Spec(), {"in", "--eps", "small", "--axes", "1,,2", "--ttl", "-5s"});
  ASSERT_TRUE(args.ok());
  ExpectUsage(args->Double("eps").status(), "--eps is small; it must be a number");
  ExpectUsage(args->Ints("axes").status(), "--axes is 1,,2; it must be integers joined by ','");
  ExpectUsage(args->Duration("ttl").status(), "--ttl is -5s; it must be a duration");
  ExpectUsage(ParseArgs(Spec(), {"in", "--ttl", "nan"})->Duration("ttl").status(),
              "--ttl is nan; it must be a duration");
  ExpectUsage(args->Int("eps").status(), "an integer");
}

TEST(Args, ReadsDurations) {
  const auto args = ParseArgs(Spec(), {"in", "--ttl", "1m30s"});
  EXPECT_EQ(**args->Duration("ttl"), absl::Seconds(90));
  const auto plain = ParseArgs(Spec(), {"in", "--ttl", "2"});
  EXPECT_EQ(**plain->Duration("ttl"), absl::Seconds(2));
}

TEST(Args, HelpNeedsNoOperandsAndShowsEveryFlag) {
  const auto args = ParseArgs(Spec(), {"--help"});
  ASSERT_TRUE(args.ok());
  EXPECT_TRUE(args->Has("help"));
  const std::string help = HelpText("prog", Spec());
  for (const FlagSpec& flag : Spec().flags) {
    EXPECT_NE(help.find("--" + std::string(flag.name)), std::string::npos) << help;
  }
  EXPECT_EQ(help.find("Usage: prog do INPUT"), 0u);
}

}  // namespace
}  // namespace normd::client
