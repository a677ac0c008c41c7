#include "client/cli/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace normd::client {
namespace {

TEST(Csv, ReadsNumbersWithAndWithoutAHeader) {
  const absl::StatusOr<CsvTable> plain = ParseCsv("1,2.5\n-3e2, 4 \n");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->header.empty());
  EXPECT_EQ(plain->rows, 2);
  EXPECT_EQ(plain->columns, 2);
  EXPECT_EQ(plain->values, (std::vector<double>{1, 2.5, -300, 4}));
  const absl::StatusOr<CsvTable> headed = ParseCsv("a,\"b, c\"\r\n1,\"2\"\r\n\r\n");
  ASSERT_TRUE(headed.ok()) << headed.status();
  EXPECT_EQ(headed->header, (std::vector<std::string>{"a", "b, c"}));
  EXPECT_EQ(headed->values, (std::vector<double>{1, 2}));
}

// The message of the error for `text`.
std::string ErrorOf(absl::string_view text, CsvHeader header = CsvHeader::kDetect) {
  const absl::StatusOr<CsvTable> table = ParseCsv(text, header);
  EXPECT_FALSE(table.ok()) << text;
  return std::string(table.status().message());
}

TEST(Csv, AFirstLineOfNumbersAndOtherFieldsIsNeverDropped) {
  EXPECT_THAT(ErrorOf("1,,3\n4,5,6\n"), testing::HasSubstr("line 1: column 2 is empty"));
  EXPECT_THAT(ErrorOf("1,2,x3\n4,5,6\n"), testing::HasSubstr("line 1: column 3: 'x3' is no number"));
  EXPECT_THAT(ErrorOf("1,2,x3\n4,5,6\n"), testing::HasSubstr("--header"));
  EXPECT_THAT(ErrorOf("1,2,x3\n4,5,6\n"), testing::HasSubstr("--no-header"));
  EXPECT_THAT(ErrorOf("\n\n,a,b\n0,1,2\n"), testing::HasSubstr("line 3: column 1 is empty"));  // an index of pandas
  EXPECT_THAT(ErrorOf("a,nan\n1,2\n"), testing::HasSubstr("line 1: column 1: 'a'"));
  EXPECT_THAT(ErrorOf("NA,null\n1,2\n"), testing::HasSubstr("line 1: column 1: 'NA'"));
}

TEST(Csv, AHeaderMayBeForcedOrExcluded) {
  const absl::StatusOr<CsvTable> years = ParseCsv("2019,2020\n1,2\n", CsvHeader::kYes);
  ASSERT_TRUE(years.ok()) << years.status();
  EXPECT_EQ(years->header, (std::vector<std::string>{"2019", "2020"}));
  EXPECT_EQ(years->rows, 1);
  EXPECT_EQ(ParseCsv(",a\n1,2\n", CsvHeader::kYes)->header, (std::vector<std::string>{"", "a"}));
  EXPECT_THAT(ErrorOf("a,b\n1,2\n", CsvHeader::kNo), testing::StartsWith("line 1: column 1: 'a' is no number"));
}

TEST(Csv, SaysOfWhichInputAHeaderCanBeNamed) {
  EXPECT_THAT(
      ErrorOf("1,2,x3\n4,5,6\n"),
      testing::HasSubstr("correct the field; for INPUT, --header says that the line is a header, --no-header that "
                         "it is a row"));
}

TEST(Csv, RefusesTheTextOfATensorOfRankThree) {
  for (const CsvHeader header : {CsvHeader::kDetect, CsvHeader::kYes, CsvHeader::kNo}) {
    EXPECT_EQ(ErrorOf("# [0]\n1,2\n# [1]\n3,4\n", header),
              "line 1: this is a tensor of rank 3 or more as text; pipe it with -o -");
  }
}

TEST(Csv, SkipsAByteOrderMark) {
  const absl::StatusOr<CsvTable> table = ParseCsv(
      "\xEF\xBB\xBF"
      "1,2\r\n3,4\r\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->header.empty());
  EXPECT_EQ(table->values, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(ParseCsv("\xEF\xBB\xBF"
                     "a\n1\n")
                ->header,
            (std::vector<std::string>{"a"}));
}

TEST(Csv, SaysThatCommasSeparate) {
  EXPECT_THAT(ErrorOf("1;2;3\n4;5;6\n"), testing::HasSubstr("'4;5;6' is no number (fields are separated by commas)"));
}

TEST(Csv, KeepsWhatItsHeaderSays) {
  const absl::StatusOr<CsvTable> table = ParseCsv("a,\"b, \"\"c\"\"\"\n1,2\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b, \"c\""}));
  EXPECT_EQ(WriteCsv(Tensor::F32({1, 2}, {1, 2}), table->header), "a,\"b, \"\"c\"\"\"\n1,2\n");
  EXPECT_THAT(ErrorOf("a,\"b\nc\"\n1,2\n"), testing::HasSubstr("line 1: a quote is not closed"));
}

TEST(Csv, ReadsNanAndInfinity) {
  const absl::StatusOr<CsvTable> table = ParseCsv("1,2\nnan,-inf\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(std::isnan(table->values[2]));
  EXPECT_EQ(table->values[3], -INFINITY);
}

TEST(Csv, NamesTheLineAndColumnOfWhatIsWrong) {
  const absl::StatusOr<CsvTable> text = ParseCsv("a,b\n1,2\n3,four\n");
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.status().message().find("line 3: column 2: 'four'"), absl::string_view::npos) << text.status();
  const absl::StatusOr<CsvTable> ragged = ParseCsv("1,2\n3\n");
  ASSERT_FALSE(ragged.ok());
  EXPECT_NE(ragged.status().message().find("line 2: 1 fields where 2"), absl::string_view::npos) << ragged.status();
  EXPECT_FALSE(ParseCsv("").ok());
  EXPECT_FALSE(ParseCsv("only,a,header\n").ok());
  EXPECT_FALSE(ParseCsv("1,\n2,3\n3,\n").ok());
}

TEST(Csv, WritesWhatReadsBackTheSame) {
  const std::vector<double> values = {0.1, 1.0 / 3, -1e30, 12345678.9, 5e-324, 0};
  const absl::StatusOr<CsvTable> wide = ParseCsv(WriteCsv(Tensor::F64({2, 3}, values)));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->values, values);
  const std::vector<float> narrow = {0.1f, 1.0f / 3, 3e38f, 1e-45f};
  const absl::StatusOr<CsvTable> table = ParseCsv(WriteCsv(Tensor::F32({2, 1, 2}, narrow)));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows, 2);
  for (size_t i = 0; i < narrow.size(); ++i) EXPECT_EQ(static_cast<float>(table->values[i]), narrow[i]);
}

TEST(Csv, SurvivesRandomText) {
  std::mt19937 random(20240612);
  const std::string alphabet = "0123456789.,-eE\"\n\r nanif\xff\t;";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const absl::StatusOr<CsvTable> table = ParseCsv(text);
    if (table.ok()) {
      ASSERT_EQ(static_cast<int64_t>(table->values.size()), table->rows * table->columns) << text;
    }
  }
}

}  // namespace
}  // namespace normd::client
