#include "client/cli/csv.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// "CSV UTF-8" of Excel starts with the mark.
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The fields as a line of a file. Those with commas or quotes are quoted, and those that would make it a comment.
std::string HeaderLine(absl::Span<const std::string> header) {
  return absl::StrJoin(header, ",", [](std::string* out, const std::string& field) {
    const bool plain = field.find_first_of(",\"") == std::string::npos && !absl::StartsWith(field, "#");
    absl::StrAppend(out, plain ? field : absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\""));
  });
}

// True for the line before each matrix of a tensor of rank 3 and more that normctl printed: "# [0, 1]", its indices.
bool IsMatrixHeading(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  return absl::ConsumePrefix(&line, "# [") && absl::ConsumeSuffix(&line, "]") && !line.empty() &&
         line.find_first_not_of("0123456789, ") == absl::string_view::npos;
}

}  // namespace

// What CsvReader knows of the lines so far.
class CsvReader::Lines {
 public:
  explicit Lines(const CsvOptions& options) : options_(options) {}

  const CsvTable& table() const { return table_; }
  std::vector<double> TakeValues() { return std::exchange(table_.values, {}); }

  absl::Status Add(absl::string_view text, size_t number) {
    if (number == 1) absl::ConsumePrefix(&text, kByteOrderMark);
    const bool is_delimited = options_.delimiter == '\t' && absl::StrContains(text, "\t");
    if (absl::StripAsciiWhitespace(text).empty() && !is_delimited) {
      if (blank_line_ == 0) blank_line_ = number;
      return absl::OkStatus();
    }
    if (IsMatrixHeading(text))
      return BadCsvLine(number, "this is a tensor of rank 3 or more as text; pipe it with -o -");
    if (IsCsvComment(text)) {
      if (first_line_ == 0) comment_line_ = number;
      return absl::OkStatus();
    }
    absl::StatusOr<CsvLine> line = SplitCsvLine(text, number, options_);
    if (!line.ok()) return line.status();
    if (first_line_ != 0) return AddRow(*line);
    first_line_ = number;
    first_is_quoted_ = line->quoted;
    first_hint_ = CsvSeparatorHint(*line, options_);
    table_.columns = static_cast<int64_t>(line->fields.size());
    const absl::StatusOr<bool> is_header = IsHeader(*line);
    if (!is_header.ok()) return is_header.status();
    if (!*is_header) return AddRow(*line);
    blank_line_ = 0;  // blank lines before a header stand for nothing
    table_.header = std::move(line->fields);
    return absl::OkStatus();
  }

  absl::StatusOr<CsvTable> Take() {
    if (table_.rows == 0) {
      const std::string header = HeaderLine(table_.header).substr(0, kShownHeader);
      return absl::InvalidArgumentError(absl::StrCat("no rows of numbers",
                                                     table_.header.empty() ? "" : " after the header ", header,
                                                     table_.header.empty() ? "" : first_hint_));
    }
    table_.warning = Warning();
    return std::move(table_);
  }

 private:
  static constexpr size_t kShownHeader = 80;

  // True if the first line is a header.
  absl::StatusOr<bool> IsHeader(const CsvLine& line) const {
    if (!line.quoted && absl::StartsWith(absl::StripLeadingAsciiWhitespace(line.text), "sep=")) {
      return BadCsvLine(line.number, "'sep=' is a word to Excel, no header: delete the line and say it by --delimiter");
    }
    const auto is_number = [this](const std::string& field) { return CsvNumber(field, options_).has_value(); };
    const auto wrong = std::find_if_not(line.fields.begin(), line.fields.end(), is_number);
    const bool are_numbers = wrong == line.fields.end();
    if (options_.header == CsvHeader::kYes && are_numbers && comment_line_ != 0) {
      return BadCsvLine(line.number,
                        absl::StrCat("these numbers would be the header, because line ", comment_line_,
                                     " is a comment: leave out --header, or delete the '#' of line ", comment_line_));
    }
    if (options_.header != CsvHeader::kDetect) return options_.header == CsvHeader::kYes;
    if (std::all_of(line.fields.begin(), line.fields.end(), &IsCsvText)) return true;
    if (are_numbers) return false;
    const std::string what = CsvNoNumber(line, static_cast<size_t>(wrong - line.fields.begin()), options_);
    if (!first_hint_.empty()) return BadCsvLine(line.number, what);
    const bool has_row_names = line.fields.size() > 1 && line.fields[0].empty();
    return BadCsvLine(line.number,
                      absl::StrCat(what,
                                   has_row_names ? " (row names of pandas or R? Write the file with index=False, "
                                                   "row.names=FALSE)"
                                                 : "",
                                   ", and a header has text in every column: correct the field; for INPUT, "
                                   "--header says that the line is a header, --no-header that it is a row"));
  }

  absl::Status AddRow(const CsvLine& line) {
    if (blank_line_ != 0 && table_.columns == 1) {
      return BadCsvLine(blank_line_, "column 1 is empty (a blank line is a missing value where there is one column)");
    }
    blank_line_ = 0;
    if (static_cast<int64_t>(line.fields.size()) != table_.columns) {
      return BadCsvLine(line.number, absl::StrCat(line.fields.size(), " fields where ", table_.columns,
                                                  " are expected, as in line ", first_line_, RowHint(line)));
    }
    for (size_t i = 0; i < line.fields.size(); ++i) {
      const std::optional<double> value = CsvNumber(line.fields[i], options_);
      if (!value.has_value()) return BadCsvLine(line.number, CsvNoNumber(line, i, options_));
      table_.values.push_back(*value);
    }
    ++table_.rows;
    if (line.number != first_line_) return Compare(line);
    first_is_row_ = true;
    first_counts_ = CountsFromZero();
    may_be_decimal_ = MayBeDecimalComma(line.text);
    return absl::OkStatus();
  }

  // What may be wrong with a row that has another number of fields than the first line.
  std::string RowHint(const CsvLine& line) const {
    const std::string hint = CsvSeparatorHint(line, options_);
    if (!hint.empty() || !first_hint_.empty()) return hint.empty() ? first_hint_ : hint;
    const bool may_be_decimal = table_.columns == 1 && options_.delimiter == ',' && MayBeDecimalComma(line.text);
    return may_be_decimal ? " (a decimal comma? --decimal ',' reads it)" : "";
  }

  // Compares a row with a first line that is a row, too.
  absl::Status Compare(const CsvLine& line) {
    const bool differs = table_.rows == 2 && first_is_row_ && first_is_quoted_ && !line.quoted;
    if (differs && options_.header == CsvHeader::kDetect) {
      return BadCsvLine(first_line_,
                        "every number is in quotes, as in a header, and those of the next row are not: for INPUT, "
                        "--header says that the line is a header, --no-header that it is a row");
    }
    may_be_decimal_ = may_be_decimal_ && MayBeDecimalComma(line.text);
    others_are_fractions_ =
        others_are_fractions_ && std::all_of(line.fields.begin(), line.fields.end(), [](const std::string& field) {
          return field.find_first_of(".,eE") != std::string::npos;
        });
    return absl::OkStatus();
  }

  // True if the row that was read, which is the first, is 0, 1, 2 ...
  bool CountsFromZero() const {
    for (int64_t i = 0; i < table_.columns; ++i) {
      if (table_.values[static_cast<size_t>(i)] != static_cast<double>(i)) return false;
    }
    return true;
  }

  // True if the first row may be the header that pandas writes for columns without names.
  bool StartsWithIndices() const {
    return first_counts_ && table_.rows > 1 && (table_.columns > 1 || others_are_fractions_);
  }

  std::string Warning() const {
    if (options_.header == CsvHeader::kDetect && first_is_row_ && StartsWithIndices()) {
      return absl::StrCat("line ", first_line_,
                          " counts the columns from 0, as the header of a table without names: "
                          "it was taken as a row; --header says that it is a header, --no-header that it is not");
    }
    if (!options_.is_given && options_.delimiter == ',' && may_be_decimal_) {
      return "every line is two whole numbers, such as 1,5, which were taken as two columns: --decimal ',' reads them "
             "as one with a decimal comma, --delimiter ',' says that they are two";
    }
    return "";
  }

  const CsvOptions options_;
  CsvTable table_;
  size_t blank_line_ = 0;    // the first of those since the last line with fields
  size_t comment_line_ = 0;  // the last before the first line with fields
  size_t first_line_ = 0;    // with fields
  bool first_is_row_ = false, first_is_quoted_ = false, first_counts_ = false;
  std::string first_hint_;
  bool may_be_decimal_ = false, others_are_fractions_ = true;
};

CsvReader::CsvReader(const CsvOptions& options) : lines_(std::make_unique<Lines>(options)) {}
CsvReader::~CsvReader() = default;
absl::Status CsvReader::Add(absl::string_view line, size_t number) { return lines_->Add(line, number); }
const CsvTable& CsvReader::table() const { return lines_->table(); }
std::vector<double> CsvReader::TakeValues() { return lines_->TakeValues(); }
absl::StatusOr<CsvTable> CsvReader::Finish() { return lines_->Take(); }

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, const CsvOptions& options) {
  CsvReader reader(options);
  for (size_t number = 1; !text.empty(); ++number) {
    if (absl::Status status = reader.Add(TakeCsvLine(text), number); !status.ok()) return status;
  }
  return reader.Finish();
}

std::string WriteCsv(const Tensor& tensor, absl::Span<const std::string> header) {
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  const bool wide = tensor.dtype == v1::DTYPE_F64;
  const std::vector<double> values = tensor.ToDoubles();
  std::string out = header.empty() ? "" : HeaderLine(header) + "\n";
  for (size_t i = 0; i < values.size(); ++i) {
    out += wide ? ShortestText(values[i]) : ShortestText(static_cast<float>(values[i]));
    out += (static_cast<int64_t>(i) + 1) % columns == 0 ? '\n' : ',';
  }
  return out;
}

}  // namespace normd::client
