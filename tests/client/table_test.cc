#include "client/cli/table.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace normd::client {
namespace {

TEST(Table, AlignsColumns) {
  Table table({{"name"}, {"count", Align::kRight}});
  table.AddRow({"a", "1"});
  table.AddRow({"long name", "12345"});
  EXPECT_EQ(table.Render(80),
            "name       count\n"
            "---------  -----\n"
            "a              1\n"
            "long name  12345\n");
}

TEST(Table, WrapsTheWidestColumnAtWords) {
  Table table({{"id"}, {"text"}});
  table.AddRow({"x", "the quick brown fox jumps"});
  EXPECT_EQ(table.Render(15),
            "id  text\n"
            "--  -----------\n"
            "x   the quick\n"
            "    brown fox\n"
            "    jumps\n");
}

TEST(Table, NeverExceedsTheWidthWhenWordsFit) {
  Table table({{"method"}, {"divides by"}, {"when to choose"}});
  table.set_row_lines(true);
  for (int i = 0; i < 5; ++i) {
    table.AddRow(
        {"LayerNorm", "the standard deviation of the row", "sequence models of every size, with small batches"});
  }
  for (int width : {40, 60, 100}) {
    for (absl::string_view line : absl::StrSplit(table.Render(width), '\n')) {
      EXPECT_LE(DisplayWidth(line), static_cast<size_t>(width)) << line;
    }
  }
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("x\xC2\xB2"), 2u);  // x²
  Table table({{"a"}, {"b"}});
  table.AddRow({"\xC3\xA9", "1"});
  EXPECT_EQ(table.Render(80), "a  b\n-  -\n\xC3\xA9  1\n");
  EXPECT_EQ(WrapText("\xC3\xA9\xC3\xA9\xC3\xA9", 2), (std::vector<std::string>{"\xC3\xA9\xC3\xA9", "\xC3\xA9"}));
}

TEST(Text, WrapsLongWordsAndKeepsEmptyText) {
  EXPECT_EQ(WrapText("", 5), (std::vector<std::string>{""}));
  EXPECT_EQ(WrapText("abcdefgh ij", 3), (std::vector<std::string>{"abc", "def", "gh", "ij"}));
}

TEST(Text, NamesUnits) {
  EXPECT_EQ(BytesText(640), "640 B");
  EXPECT_EQ(BytesText(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(NanosecondsText(999), "999 ns");
  EXPECT_EQ(NanosecondsText(1.24e6), "1.24 ms");
  EXPECT_EQ(ShapeText({2, 3}), "[2, 3]");
  EXPECT_EQ(ShortestText(0.1f), "0.1");
  EXPECT_EQ(ShortestText(1e-5), "1e-05");
  EXPECT_EQ(ValuesText({1, 2.5, 3}, 2), "1 2.5 ...");
}

TEST(ReflowText, WrapsParagraphsAndKeepsIndentedLines) {
  EXPECT_EQ(ReflowText("one two\nthree\n\n  kept   as it is, however long\nnext one", 9),
            "one two\nthree\n\n  kept   as it is, however long\nnext one");
  EXPECT_EQ(ReflowText("one two three", 7), "one two\nthree");
  EXPECT_EQ(ReflowText("", 7), "");
}

}  // namespace
}  // namespace normd::client
