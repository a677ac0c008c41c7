#include "server/base/hidden_text.h"

#include <gtest/gtest.h>

namespace normd {
namespace {

TEST(HiddenText, IsFoundAndEscaped) {
  const struct {
    const char* text;
    const char* escaped;
  } cases[] = {{"\x1f", "\\u001f"},
               {"\x7f", "\\u007f"},
               {"\xc2\x9b", "\\u009b"},
               {"\xd8\x9c", "\\u061c"},
               {"\xe2\x80\x8e", "\\u200e"},
               {"\xe2\x80\xa8", "\\u2028"},
               {"a\xe2\x80\xae"
                "b",
                "a\\u202eb"},
               {"\xe2\x81\xa9\xe2\x81\xa6", "\\u2069\\u2066"}};
  for (const auto& [text, escaped] : cases) {
    EXPECT_TRUE(HidesText(text)) << escaped;
    EXPECT_EQ(EscapeHiddenText(text), escaped);
  }
}

TEST(HiddenText, IsNoOtherText) {
  for (const char* text : {"", "a b", "\xc3\xa4\xc2\xa0", "\xe2\x80\x8b", "\xe2\x80\xaf", "\xe2\x81\xa5",
                           "\xf0\x9f\x98\x80", "\xe2\x80", "\xc2", "\xff\x80"}) {
    EXPECT_FALSE(HidesText(text)) << text;
    EXPECT_EQ(EscapeHiddenText(text), text);
  }
}

TEST(HiddenText, KnowsUtf8) {
  for (const char* text : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa4z"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text : {"\x80", "\xc1\xbf", "\xc2", "a\xc2z", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

}  // namespace
}  // namespace normd
