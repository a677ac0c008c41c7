#include "server/security/token_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<TokenList> ParseTokens(const std::string& text) {
  return TokenList::Parse({.option = "--tokens_file", .path = "/etc/tokens", .secret = true}, text);
}

std::string TokensError(const std::string& text) {
  const absl::Status status = ParseTokens(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// printf %s secret | sha256sum
constexpr char kSecretLine[] = "ci sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

TEST(TokenList, FindsATokenByTheHashThatSha256sumPrints) {
  const absl::StatusOr<TokenList> list = ParseTokens(std::string("# tokens\n\n") + kSecretLine + "\n");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_TRUE(list->Find("secret").has_value());
  EXPECT_EQ(list->rows()[*list->Find("secret")].name, "ci");
  EXPECT_FALSE(list->Find("secret ").has_value());
  EXPECT_FALSE(list->Find("").has_value());
  EXPECT_EQ(TokenLine("ci", "secret"), kSecretLine);
}

TEST(TokenList, FindsEachOfManyTokens) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += TokenLine("t" + std::to_string(i), "secret" + std::to_string(i)) + "\n";
  const absl::StatusOr<TokenList> list = ParseTokens(text);
  ASSERT_TRUE(list.ok()) << list.status();
  for (int i = 0; i < 1000; ++i) {
    const std::optional<size_t> row = list->Find("secret" + std::to_string(i));
    ASSERT_TRUE(row.has_value()) << i;
    EXPECT_EQ(list->rows()[*row].name, "t" + std::to_string(i));
  }
}

TEST(TokenList, ReadsWhenATokenExpires) {
  const absl::StatusOr<TokenList> list =
      ParseTokens(TokenLine("a", "1") + " expires=2027-01-01T00:00:00Z\r\n" + TokenLine("a", "2") + "\n");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->rows()[0].expires, absl::FromCivil(absl::CivilSecond(2027, 1, 1), absl::UTCTimeZone()));
  EXPECT_EQ(list->rows()[1].expires, absl::InfiniteFuture());
}

TEST(TokenList, RefusesABadLineByItsNumberAndQuotesNothingOfIt) {
  const std::string good = TokenLine("ci", "secret");
  for (const std::string& line :
       {std::string("normd_secret"), std::string("ci normd_secret"), "normd_secret! " + good.substr(3),
        good + "normd_secret", good.substr(0, good.size() - 1), good + " normd_secret", good + " expires=normd_secret",
        good + " expires=infinite-future", good + " expires=2027-01-01T00:00:00Z normd_secret"}) {
    EXPECT_THAT(TokensError("# tokens\n" + line + "\n"),
                AllOf(HasSubstr("--tokens_file /etc/tokens, line 2: "), Not(HasSubstr("normd_secret"))))
        << line;
  }
  EXPECT_THAT(TokensError(good + "\nother" + good.substr(2)), HasSubstr("line 2: has the hash of an earlier line"));
}

TEST(NewToken, IsLongAndNeverTheSame) {
  EXPECT_EQ(NewToken().size(), 70U);
  EXPECT_NE(NewToken(), NewToken());
}

}  // namespace
}  // namespace normd
