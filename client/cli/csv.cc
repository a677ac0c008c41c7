#include "client/cli/csv.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// "CSV UTF-8" of Excel starts with the mark.
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
// How the lines of a tensor of rank 3 and more begin that normctl printed: "# [0]", the indices of a matrix.
constexpr absl::string_view kMatrixHeading = "# [";
// How R, SQL, Excel and Python write a missing value.
constexpr absl::string_view kMissing[] = {"NA", "N/A", "#N/A", "n/a", "NULL", "null", "None", "?", "-"};

absl::Status Bad(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

// Splits a line into fields, without quotes and surrounding blanks. Commas inside quotes do not separate, and two
// quotes inside quotes are one.
absl::StatusOr<std::vector<std::string>> SplitFields(absl::string_view line, size_t number) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back().push_back(c);
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  if (quoted) return Bad(number, "a quote is not closed on its line");
  for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
  return fields;
}

bool IsNumber(const std::string& field) {
  double value;
  return absl::SimpleAtod(field, &value);
}

bool IsText(const std::string& field) {
  return !field.empty() && !IsNumber(field) &&
         std::find(std::begin(kMissing), std::end(kMissing), field) == std::end(kMissing);
}

// "column 2 is empty", "column 2: 'x' is no number".
std::string NoNumber(const std::vector<std::string>& fields, size_t column) {
  const std::string& field = fields[column];
  if (field.empty()) return absl::StrCat("column ", column + 1, " is empty");
  const bool other_separator = fields.size() == 1 && field.find_first_of("; \t") != std::string::npos;
  return absl::StrCat("column ", column + 1, ": '", field.substr(0, 40), "' is no number",
                      other_separator ? " (fields are separated by commas)" : "");
}

// True if the first line is a header.
absl::StatusOr<bool> IsHeader(const std::vector<std::string>& fields, CsvHeader header, size_t line) {
  if (header != CsvHeader::kDetect) return header == CsvHeader::kYes;
  if (std::all_of(fields.begin(), fields.end(), &IsText)) return true;
  const auto wrong = std::find_if_not(fields.begin(), fields.end(), &IsNumber);
  if (wrong == fields.end()) return false;
  return Bad(line, absl::StrCat(NoNumber(fields, static_cast<size_t>(wrong - fields.begin())),
                                ", and a header has text in every column: correct the field; for INPUT, --header "
                                "says that the line is a header, --no-header that it is a row"));
}

absl::Status AppendRow(const std::vector<std::string>& fields, size_t line, CsvTable& table) {
  if (static_cast<int64_t>(fields.size()) != table.columns) {
    return Bad(line, absl::StrCat(fields.size(), " fields where ", table.columns, " are expected"));
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    double value;
    if (!absl::SimpleAtod(fields[i], &value)) return Bad(line, NoNumber(fields, i));
    table.values.push_back(value);
  }
  ++table.rows;
  return absl::OkStatus();
}

// The fields as a line of a file. Those with commas or quotes are quoted.
std::string HeaderLine(absl::Span<const std::string> header) {
  return absl::StrJoin(header, ",", [](std::string* out, const std::string& field) {
    const bool plain = field.find_first_of(",\"") == std::string::npos;
    absl::StrAppend(out, plain ? field : absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\""));
  });
}

}  // namespace

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text, CsvHeader header) {
  CsvTable out;
  absl::ConsumePrefix(&text, kByteOrderMark);
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<std::vector<std::string>> fields = SplitFields(line, number);
    if (!fields.ok()) return fields.status();
    if (out.columns == 0) {
      if (absl::StartsWith(line, kMatrixHeading)) {
        return Bad(number, "this is a tensor of rank 3 or more as text; pipe it with -o -");
      }
      out.columns = static_cast<int64_t>(fields->size());
      const absl::StatusOr<bool> is_header = IsHeader(*fields, header, number);
      if (!is_header.ok()) return is_header.status();
      if (*is_header) {
        out.header = *std::move(fields);
        continue;
      }
    }
    if (absl::Status status = AppendRow(*fields, number, out); !status.ok()) return status;
  }
  if (out.rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no rows of numbers", out.header.empty() ? "" : " after the header ",
                                                   HeaderLine(out.header).substr(0, 80)));
  }
  return out;
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
