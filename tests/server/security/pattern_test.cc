#include "server/security/pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace normd {
namespace {

TEST(Pattern, WithoutAStarIsTheWholeText) {
  EXPECT_TRUE(MatchesPattern("uid:10", "uid:10"));
  EXPECT_FALSE(MatchesPattern("uid:10", "uid:100"));
  EXPECT_FALSE(MatchesPattern("uid:10", "xuid:10"));
  EXPECT_TRUE(MatchesPattern("", ""));
  EXPECT_FALSE(MatchesPattern("", "a"));
}

TEST(Pattern, TakesAnyCharactersForAStarAndNone) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*", "anything/at:all"));
  EXPECT_TRUE(MatchesPattern("token:vision-*", "token:vision-"));
  EXPECT_TRUE(MatchesPattern("uri:spiffe://*/trainer", "uri:spiffe://prod/a/trainer"));
  EXPECT_FALSE(MatchesPattern("uri:spiffe://*/trainer", "uri:spiffe://prod/a/trainer2"));
  EXPECT_TRUE(MatchesPattern("/normd.v1.*/Get*", "/normd.v1.Sessions/GetSession"));
  EXPECT_TRUE(MatchesPattern("a**b", "ab"));
  EXPECT_TRUE(MatchesPattern("*ab", "aab"));
}

TEST(Pattern, WithManyStarsEndsSoon) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPattern(pattern + "b", std::string(10'000, 'a')));
}

}  // namespace
}  // namespace normd
