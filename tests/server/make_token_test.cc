#include "server/make_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "server/security/token_list.h"
#include "tests/support/temporary_file.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

TokenList ListIn(const TemporaryFile& file) {
  const absl::StatusOr<TokenList> list = TokenList::Parse({.option = "--tokens_file"}, file.Read());
  EXPECT_TRUE(list.ok()) << list.status();
  return list.value_or(TokenList());
}

TEST(MakeToken, AddsTheHashOfANewTokenToTheFile) {
  TemporaryFile file("# by hand");  // without an end of line
  const absl::StatusOr<std::string> first = MakeToken("ci", file.path()), second = MakeToken("ci", file.path());
  ASSERT_TRUE(first.ok() && second.ok());
  const TokenList list = ListIn(file);
  EXPECT_EQ(list.rows().size(), 2U);
  EXPECT_TRUE(list.Find(*first).has_value());
  EXPECT_TRUE(list.Find(*second).has_value());
  EXPECT_THAT(file.Read(), HasSubstr("# by hand\nci sha256:"));
  EXPECT_EQ(file.Read().find(*first), std::string::npos);
}

TEST(MakeToken, MakesAFileThatIsForItsOwnerAlone) {
  TemporaryFile file;
  std::filesystem::remove(file.path());
  ASSERT_TRUE(MakeToken("ci", file.path()).ok());
  struct stat info {};
  ASSERT_EQ(stat(file.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(ListIn(file).rows().size(), 1U);
}

TEST(MakeToken, ChangesNothingWhenAnythingIsWrong) {
  TemporaryFile file("nonsense\n");
  EXPECT_THAT(std::string(MakeToken("ci", file.path()).status().message()), HasSubstr("line 1"));
  EXPECT_EQ(file.Read(), "nonsense\n");
  file.Write("");
  EXPECT_THAT(std::string(MakeToken("a b", file.path()).status().message()), HasSubstr("--make_token is a b"));
  EXPECT_THAT(std::string(MakeToken("", file.path()).status().message()), HasSubstr("--make_token"));
  EXPECT_THAT(std::string(MakeToken("ci", "").status().message()), HasSubstr("--tokens_file is missing"));
  EXPECT_EQ(file.Read(), "");
  file.Allow(std::filesystem::perms::all);
  EXPECT_FALSE(MakeToken("ci", file.path()).ok());
  EXPECT_EQ(file.Read(), "");
}

}  // namespace
}  // namespace normd
