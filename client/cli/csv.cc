#include "client/cli/csv.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// Splits a line into fields, without quotes and surrounding blanks. Commas inside quotes do not separate.
std::vector<std::string> SplitFields(absl::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
  return fields;
}

bool IsNumber(const std::string& field) {
  double value;
  return absl::SimpleAtod(field, &value);
}

bool IsHeader(const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    if (!IsNumber(field)) return true;
  }
  return false;
}

absl::Status Bad(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(".csv: line ", line, ": ", what));
}

}  // namespace

absl::StatusOr<CsvTable> ParseCsv(absl::string_view text) {
  CsvTable out;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<std::string> fields = SplitFields(line);
    if (out.columns == 0) {
      out.columns = static_cast<int64_t>(fields.size());
      if (IsHeader(fields)) {
        out.header = fields;
        continue;
      }
    }
    if (static_cast<int64_t>(fields.size()) != out.columns) {
      return Bad(number, absl::StrCat(fields.size(), " fields where ", out.columns, " are expected"));
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      double value;
      if (!absl::SimpleAtod(fields[i], &value)) {
        return Bad(number, absl::StrCat("column ", i + 1, ": '", fields[i].substr(0, 40), "' is no number"));
      }
      out.values.push_back(value);
    }
    ++out.rows;
  }
  if (out.rows == 0) return absl::InvalidArgumentError(".csv: no rows of numbers");
  return out;
}

std::string WriteCsv(const Tensor& tensor) {
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  const bool wide = tensor.dtype == v1::DTYPE_F64;
  const std::vector<double> values = tensor.ToDoubles();
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    out += wide ? ShortestText(values[i]) : ShortestText(static_cast<float>(values[i]));
    out += (static_cast<int64_t>(i) + 1) % columns == 0 ? '\n' : ',';
  }
  return out;
}

}  // namespace normd::client
