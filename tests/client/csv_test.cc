#include "client/cli/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

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
std::string ErrorOf(absl::string_view text, const CsvOptions& options = {}) {
  const absl::StatusOr<CsvTable> table = ParseCsv(text, options);
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
  const absl::StatusOr<CsvTable> years = ParseCsv("2019,2020\n1,2\n", {.header = CsvHeader::kYes});
  ASSERT_TRUE(years.ok()) << years.status();
  EXPECT_EQ(years->header, (std::vector<std::string>{"2019", "2020"}));
  EXPECT_EQ(years->rows, 1);
  EXPECT_EQ(ParseCsv(",a\n1,2\n", {.header = CsvHeader::kYes})->header, (std::vector<std::string>{"", "a"}));
  EXPECT_THAT(ErrorOf("a,b\n1,2\n", {.header = CsvHeader::kNo}),
              testing::StartsWith("line 1: column 1: 'a' is no number"));
}

TEST(Csv, SaysOfWhichInputAHeaderCanBeNamed) {
  EXPECT_THAT(
      ErrorOf("1,2,x3\n4,5,6\n"),
      testing::HasSubstr("correct the field; for INPUT, --header says that the line is a header, --no-header that "
                         "it is a row"));
}

TEST(Csv, RefusesTheTextOfATensorOfRankThree) {
  for (const CsvHeader header : {CsvHeader::kDetect, CsvHeader::kYes, CsvHeader::kNo}) {
    EXPECT_EQ(ErrorOf("# [0]\n1,2\n# [1]\n3,4\n", {.header = header}),
              "line 1: this is a tensor of rank 3 or more as text; pipe it with -o -");
  }
  EXPECT_THAT(ErrorOf("# run 7\n# [0, 1]\n1,2\n"), testing::HasSubstr("line 2: this is a tensor of rank 3"));
  EXPECT_TRUE(ParseCsv("# [volts]\n1,2\n").ok());
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
  EXPECT_THAT(ErrorOf("1;2;3\n4;5;6\n"), testing::HasSubstr("'1;2;3' is no number (fields are separated by commas)"));
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

// The values of `text`; none, and a failure, if it is refused.
std::vector<double> ValuesOf(absl::string_view text, const CsvOptions& options = {}) {
  const absl::StatusOr<CsvTable> table = ParseCsv(text, options);
  EXPECT_TRUE(table.ok()) << text << table.status();
  return table.ok() ? table->values : std::vector<double>();
}

TEST(Csv, ABlankLineIsAMissingValueWhereThereIsOneColumn) {
  EXPECT_THAT(ErrorOf("x\n1\n\n3\n"), testing::StartsWith("line 3: column 1 is empty"));
  EXPECT_THAT(ErrorOf("1\n   \n3\n"), testing::StartsWith("line 2: column 1 is empty"));
  EXPECT_THAT(ErrorOf("x\n\n1\n3\n"), testing::StartsWith("line 2: column 1 is empty"));
  EXPECT_THAT(ErrorOf("\n1\n3\n"), testing::StartsWith("line 1: column 1 is empty"));
  EXPECT_THAT(ErrorOf("1\n\n# a comment\n3\n"), testing::StartsWith("line 2: column 1 is empty"));
  EXPECT_THAT(ErrorOf("1\r\n\r\n3\r\n"), testing::StartsWith("line 2: column 1 is empty"));
  EXPECT_EQ(ValuesOf("\n\nx\n1\n3\n\n  \n"), (std::vector<double>{1, 3}));
  EXPECT_EQ(ValuesOf("1,2\n\n3,4\n"), (std::vector<double>{1, 2, 3, 4}));  // NumPy and pandas skip it as well
  EXPECT_THAT(ErrorOf("1,2\n,\n3,4\n"), testing::StartsWith("line 2: column 1 is empty"));
  EXPECT_THAT(ErrorOf("1\t2\n\t\n3\t4\n", {.delimiter = '\t'}), testing::StartsWith("line 2: column 1 is empty"));
}

TEST(Csv, SkipsCommentsAndNoRows) {
  EXPECT_EQ(ValuesOf("# run 7\n1,2,3\n"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(ValuesOf("1,2,3\n  # between\n4,5,6\n# end"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  const absl::StatusOr<CsvTable> names = ParseCsv("# a,b,c\n1,2,3\n");  // numpy.savetxt(header="a,b,c")
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_TRUE(names->header.empty());
  EXPECT_EQ(ParseCsv("# run 7\na,b\n1,2\n")->header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ParseCsv("# run 7\na,b\n1,2\n", {.header = CsvHeader::kYes})->rows, 1);
  EXPECT_EQ(ValuesOf("# run 7\n1,2\n", {.header = CsvHeader::kNo}), (std::vector<double>{1, 2}));
  // A row of numbers must not become the header because the header is a comment.
  EXPECT_THAT(ErrorOf("#id,value\n1,2\n3,4\n", {.header = CsvHeader::kYes}),
              testing::HasSubstr("line 2: these numbers would be the header, because line 1 is a comment"));
  for (const char* error : {"#N/A", "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("1,2\n", error, ",4\n")), testing::HasSubstr("line 2: column 1: '"));
    EXPECT_THAT(ErrorOf(absl::StrCat(error, ",", error, "\n1,2\n")), testing::HasSubstr("line 1: column 1: '"));
  }
  EXPECT_THAT(ErrorOf("1,2\n3,4 # note\n"), testing::HasSubstr("'4 # note' is no number (a comment needs a line"));
}

TEST(Csv, SaysWhatElseMaySeparate) {
  EXPECT_THAT(ErrorOf("A;B\n1,5;2,5\n"),
              testing::HasSubstr("line 2: 3 fields where 1 are expected, as in line 1 (fields are "
                                 "separated by commas): --delimiter ';' --decimal ','"));
  EXPECT_THAT(ErrorOf("1,5;2,5\n"), testing::HasSubstr("--delimiter ';' --decimal ','"));
  EXPECT_THAT(ErrorOf("a;b\n1;2\n"),
              testing::EndsWith("(fields are separated by commas): --delimiter ';' reads others"));
  EXPECT_THAT(ErrorOf("1\t2\n3\t4\n"), testing::HasSubstr("--delimiter tab"));
  EXPECT_THAT(ErrorOf("1|2\n"), testing::HasSubstr("--delimiter '|'"));
  EXPECT_THAT(ErrorOf("1.0e+00 2.0e+00\n"), testing::HasSubstr("--delimiter space"));  // numpy.savetxt's default
  EXPECT_THAT(ErrorOf("x\n1,5\n2,5\n"), testing::HasSubstr("(a decimal comma? --decimal ',' reads it)"));
  EXPECT_THAT(ErrorOf("1,5\n2,5\n", {.delimiter = ';'}), testing::HasSubstr("--decimal ','"));
  EXPECT_THAT(ErrorOf("1,2\n", {.delimiter = '\t'}), testing::HasSubstr("--d"));
  EXPECT_THAT(ErrorOf("sep=;\n1;2\n"), testing::HasSubstr("line 1: 'sep=' is a word to Excel"));
  EXPECT_THAT(ErrorOf("A;B;C\n"), testing::HasSubstr("--delimiter ';'"));
  EXPECT_THAT(ErrorOf("% run 7\n1,2\n"), testing::HasSubstr("(is line 1 a comment? Comments start with #)"));
  EXPECT_THAT(ErrorOf("1,2\n3\n"), testing::EndsWith("line 2: 1 fields where 2 are expected, as in line 1"));
  EXPECT_THAT(ErrorOf(",a,b\n0,1,2.5\n"),
              testing::HasSubstr("row names of pandas or R? Write the file with index=False"));
}

TEST(Csv, ReadsOtherSeparatorsAndDecimalCommas) {
  const std::vector<double> values = {1.5, -2.5, 3, 4e-3};
  EXPECT_EQ(ValuesOf("A;B\n1,5;-2,5\n3;4e-3\n", {.delimiter = ';', .decimal = ','}), values);
  EXPECT_EQ(ValuesOf("1.5\t-2.5\n3\t4e-3\n", {.delimiter = '\t'}), values);
  EXPECT_EQ(ValuesOf("1.5|-2.5\n3|4e-3\n", {.delimiter = '|'}), values);
  EXPECT_EQ(ValuesOf("  1.5   -2.5\n3 \t 4e-3  \n", {.delimiter = ' '}), values);
  EXPECT_EQ(ValuesOf("1,5\n2,5\n", {.delimiter = ';', .decimal = ','}), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(ParseCsv("a b\n1 2\n", {.delimiter = ' '})->header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ValuesOf("\"1,5\" ; \"2,5\"\n1;2\n", {.header = CsvHeader::kNo, .delimiter = ';', .decimal = ','}),
            (std::vector<double>{1.5, 2.5, 1, 2}));
  EXPECT_THAT(ErrorOf("1.234,5;2\n", {.delimiter = ';', .decimal = ','}),
              testing::HasSubstr("separators of thousands"));
  EXPECT_THAT(ErrorOf("1;2\n3;4.5\n", {.delimiter = ';', .decimal = ','}), testing::HasSubstr("--decimal is a comma"));
}

TEST(Csv, WarnsOfWhatCanBeReadInTwoWays) {
  const auto warning = [](absl::string_view text, const CsvOptions& options = {}) {
    const absl::StatusOr<CsvTable> table = ParseCsv(text, options);
    return table.ok() ? table->warning : std::string(table.status().message());
  };
  EXPECT_THAT(warning("1,5\n2,5\n"), testing::HasSubstr("--decimal ','"));
  EXPECT_THAT(warning("-1,5\n"), testing::HasSubstr("--delimiter ','"));
  for (const char* plain : {"1,5\n2,5.5\n", "1, 5\n2, 5\n", "a,b\n1,5\n", "1,5,2\n2,5,2\n", "1e3,5\n", "\"1\",5\n"}) {
    EXPECT_EQ(warning(plain), "") << plain;
  }
  EXPECT_EQ(warning("1,5\n2,5\n", {.is_given = true}), "");
  // pandas writes 0, 1, 2 over columns without names.
  EXPECT_THAT(warning("0,1,2\n0.5,1,2\n"), testing::HasSubstr("line 1 counts the columns from 0"));
  EXPECT_THAT(warning("0\n0.5\n0.25\n"), testing::HasSubstr("--header says that it is a header"));
  EXPECT_EQ(warning("0\n1\n2\n"), "");
  EXPECT_EQ(warning("0,1,2\n0.5,1,2\n", {.header = CsvHeader::kNo}), "");
}

// A first line of damaged numbers is a row that would be lost.
TEST(Csv, NoRowIsTakenForAHeader) {
  for (const char* row : {"1e400,1e400", "\"1,234\",\"5,678\"", "0x10,0x20", "1_000,2_000", "2024-01-01,2024-01-02",
                          "$5,$6", ".,.", "--,--", "+1.5x,-2", "5%,6%",
                          "\xE2\x88\x92"
                          "1,\xE2\x88\x92"
                          "2",
                          "1.#INF,1.#IND"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat(row, "\n1,2\n")), testing::StartsWith("line 1: column 1: '")) << row;
  }
  EXPECT_THAT(ErrorOf("\"1\",\"2\"\n3,4\n"), testing::HasSubstr("line 1: every number is in quotes, as in a header"));
  EXPECT_EQ(ParseCsv("\"1\",\"2\"\n3,4\n", {.header = CsvHeader::kYes})->rows, 1);
  EXPECT_EQ(ParseCsv("\"1\",\"2\"\n\"3\",\"4\"\n")->rows, 2);
  EXPECT_EQ(ParseCsv("x_1,\xC3\xA4"
                     "2\n1,2\n")
                ->rows,
            1);
}

TEST(Csv, RefusesNumbersOnlyOthersWouldRead) {
  EXPECT_THAT(ErrorOf("1,2\n1e400,4\n"), testing::HasSubstr("line 2: column 1: '1e400' is beyond the range of f64"));
  EXPECT_THAT(ErrorOf("1,2\n-1e999,4\n"), testing::HasSubstr("beyond the range of f64"));
  for (const char* field : {"0x1p3", "1_000", "1d5", "\"1,000\"", "1 000", "TRUE",
                            "\xE2\x88\x92"
                            "5",
                            "5%", "1.2.3"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("1,2\n3,", field, "\n")), testing::HasSubstr("line 2: column 2: '")) << field;
  }
  EXPECT_THAT(ErrorOf("1,2\n3,NA\n"), testing::HasSubstr("'NA' is no number, but a missing value"));
  EXPECT_EQ(ValuesOf("+1,.5\n5.,1E2\n"), (std::vector<double>{1, 0.5, 5, 100}));
  EXPECT_EQ(ValuesOf("1e-400\n"), (std::vector<double>{0}));
}

TEST(Csv, QuotesEncloseWholeFields) {
  EXPECT_THAT(ErrorOf("\"1\"2,3\n"), testing::HasSubstr("line 1: text follows a closing quote"));
  EXPECT_THAT(ErrorOf("1,2\n1\"2,3\"4\n"), testing::HasSubstr("line 2: column 1: '1\\\"2' is no number"));
  EXPECT_EQ(ParseCsv("5\" disk,b\n1,2\n", {.header = CsvHeader::kYes})->header[0], "5\" disk");
  EXPECT_EQ(ValuesOf(" \"1\" , \" 2 \"\n"), (std::vector<double>{1, 2}));
  EXPECT_THAT(ErrorOf("1,\"\"\n3,4\n"), testing::HasSubstr("line 1: column 2 is empty"));
  EXPECT_EQ(WriteCsv(Tensor::F32({1, 1}, {1}), {{"#a"}}), "\"#a\"\n1\n");
}

TEST(Csv, LinesEndAsOnEverySystem) {
  for (const char* text : {"a,b\n1,2\n3,4", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4\r"}) {
    const absl::StatusOr<CsvTable> table = ParseCsv(text);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(table->values, (std::vector<double>{1, 2, 3, 4}));
  }
  EXPECT_THAT(ErrorOf("1,2\r3,x\r"), testing::StartsWith("line 2: column 2"));
}

TEST(Csv, SurvivesRandomText) {
  std::mt19937 random(20240612);
  const std::string alphabet = "0123456789.,-eE\"\n\r nanif\xff\t;";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const absl::StatusOr<CsvTable> table = ParseCsv(text, {.delimiter = ",;\t "[round % 4]});
    if (table.ok()) {
      ASSERT_EQ(static_cast<int64_t>(table->values.size()), table->rows * table->columns) << text;
    }
  }
}

}  // namespace
}  // namespace normd::client
